"""Coverage has exact denominators, and what was never taken is listed with its clause."""

from __future__ import annotations

import pytest

from statemachines.shared_subscriptions.assignment import ASSIGNMENT
from statemachines_reports.coverage import coverage_of, list_takeable, list_untaken, pairs_of
from statemachines_reports.pipeline import analyze
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario

ASSIGN, RESEND_GRANT, END_WHILE_GRANTING, ANSWERED = 0, 1, 4, 5


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A run in which nothing goes wrong."""
    directory = tmp_path_factory.mktemp("trace")
    campaign(find_scenario("quiet"), range(1), out=directory, processes=1)
    return analyze(directory, tmp_path_factory.mktemp("out"), spark=False)


def test_pairs_are_those_that_the_table_lets_follow_each_other():
    pairs = pairs_of(ASSIGNMENT)
    assert (ASSIGN, RESEND_GRANT) in pairs
    assert (RESEND_GRANT, RESEND_GRANT) in pairs, "a row that stays may be followed by itself"
    assert (ASSIGN, ASSIGN) not in pairs
    assert (END_WHILE_GRANTING, ANSWERED) not in pairs
    states = {line.number: set(line.sources) for line in list_takeable(ASSIGNMENT)}
    assert all(second in states for _, second in pairs)


def test_nothing_taken_is_nothing_covered():
    (covered,) = coverage_of([], [], [ASSIGNMENT])
    assert (covered.taken, covered.pairs_taken) == (0, 0)
    assert covered.rows == len(list_takeable(ASSIGNMENT)) == len(list_untaken([], [ASSIGNMENT]))
    assert covered.pairs == len(pairs_of(ASSIGNMENT))


def test_a_pair_that_the_table_does_not_allow_does_not_count():
    wrong = [{"machine": "shared_subscriptions/assignment", "first": ASSIGN, "second": ASSIGN, "count": 1}]
    right = [{"machine": "shared_subscriptions/assignment", "first": ASSIGN, "second": ANSWERED, "count": 1}]
    assert coverage_of([], wrong, [ASSIGNMENT])[0].pairs_taken == 0
    assert coverage_of([], wrong + right, [ASSIGNMENT])[0].pairs_taken == 1


def test_a_trace_takes_pairs_of_the_tables_only(quiet):
    found = {
        (line["first"], line["second"]) for line in quiet.tables["pairs"] if line["machine"].endswith("/assignment")
    }
    assert (ASSIGN, ANSWERED) in found
    assert found <= pairs_of(ASSIGNMENT)
    covered = {one.machine: one for one in quiet.coverage}["shared_subscriptions/assignment"]
    assert covered.pairs_taken == len(found)
    assert (
        covered.taken + sum(line["machine"].endswith("/assignment") for line in quiet.tables["never"]) == covered.rows
    )


def test_what_was_never_taken_has_its_clause(quiet):
    never = {(line["machine"], line["event"], line["source"]): line for line in quiet.tables["never"]}
    assert never["shared_subscriptions/assignment", "resend_timer", "revoked"]["clause"] == "SS-81"
    assert ("shared_subscriptions/assignment", "assign", "none") not in never

"""Sequence windows explored: every interleaving of a few messages, losses, copies, rotations, restarts and instants."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statemachines_spec import certificates
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.explore import COMPLETE, VIOLATED, explore
from statemachines_spec.explorer.replay import replay
from statemachines_spec.hunt import look
from statemachines_spec.sequence_windows import SPEC
from statemachines_spec.sequence_windows.bugs import BUGS
from statemachines_spec.sequence_windows.counterexamples import AS_WRITTEN, ASSUMED, LIMITS
from statemachines_spec.sequence_windows.systems import system

FOLDER = Path(__file__).parents[3] / "spec" / "sequence_windows"
CELL = re.compile(r"(?P<what>\S+) in (?P<where>.+) by (?P<steps>\d+) steps, (?P<states>\d+) states; .*")


@pytest.mark.parametrize("name", ["rotation", "lossy-convergence", "overtaking", "used-up", "the-end", "advisories"])
def test_the_plain_walker_comes_to_the_same(name):
    """MONO, FLOW, EARLIEST, ONCE, EXACT, NOFALSE, DETECT, JOIN, JOINED, BEGAN, SAME, THROTTLE, NOTIFY, CONTENT, PROMPT,
    TURN, INBOX and KEPT hold in them, as the certificates say."""
    kept = certificates.read(FOLDER / "certificates" / f"{name}-small.json")
    result = explore(system(name), engine="plain", hashing=False)
    assert (result.is_held, result.states, result.transitions) == (True, kept.states, kept.transitions)


def broken(made):
    result = explore(made, engine="plain", hashing=False)
    assert result.ended in (COMPLETE, VIOLATED)
    return {name.partition(" publisher")[0] for name, held in result.always.items() if not held}


@pytest.mark.parametrize("one", AS_WRITTEN, ids=lambda one: one.name)
def test_the_source_word_for_word_breaks_and_the_shipped_machines_do_not(one):
    assert broken(one.system("as_written")) == {one.breaks}
    assert broken(one.system("settled")) == set()


@pytest.mark.parametrize("one", LIMITS, ids=lambda one: one.name)
def test_a_loss_stays_unseen_at_each_of_the_three_limits(one):
    assert broken(one.system("settled")) == {f"DETECT {one.breaks}"}


def test_the_run_to_a_limit_is_replayed():
    made = LIMITS[0].system("settled")
    result = explore(made, engine="plain", hashing=False)
    assert replay(made, result.path).events > 0


@pytest.mark.parametrize("one", ASSUMED, ids=lambda one: one.name)
def test_JOIN_is_worth_what_it_assumes(one):
    assert broken(one.system("settled")) == {"JOIN"}


def cells():
    """Bug -> what the page says of its exploration."""
    lines = (FOLDER / "planted_bugs.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[3] for row in rows if row[0].startswith("`")}


def test_every_bug_is_in_the_table():
    assert list(cells()) == [bug.name for bug in BUGS]


@pytest.mark.parametrize("bug", [bug.name for bug in BUGS])
def test_a_planted_bug_is_found_where_the_table_says(bug):
    """Found anew in the one system that found it first (tools/planted.py goes through all)."""
    said = CELL.fullmatch(cells()[bug])
    hunt = next(one for one in SPEC.hunts() if one.name == said["where"])
    with plant_bug(f"sequence_windows/{bug}"):
        found = look(hunt, twice=False)
    assert (found.what, found.steps, found.states) == (said["what"], int(said["steps"]), int(said["states"]))

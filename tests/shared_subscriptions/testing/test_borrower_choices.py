"""What a Borrower of others may do otherwise, and what it may not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.conformance_test import ConformanceTest
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.tour import tour_of

FOREIGN = Path(__file__).parents[2] / "foreign"
sys.path.insert(0, str(FOREIGN))
from borrower import Borrower  # noqa: E402

sys.path.pop(0)

RUN = 2


BORROWER = role_of("shared_subscriptions/borrower")
ROLE = replace(BORROWER, starts=[one for one in BORROWER.starts if one.name in ("several leaders", "two streams")])
"""These show what the other systems do, but for rows of which nothing is said here."""


@pytest.fixture(scope="module")
def judged():
    tour = tour_of(ROLE)

    def judge(**changed):
        """The verdict on the plain Borrower with other methods, after the tour and some drawn runs."""

        class Lines:
            def answer(self, line):
                if "init" in line:
                    self.borrower = type("Changed", (Borrower,), changed)(line["init"], line["now_ns"])
                else:
                    self.borrower.take(line)
                effects, self.borrower.effects = self.borrower.effects, []
                return {"effects": self.borrower.arranged(effects) if "arranged" in changed else effects}

        return ConformanceTest.of(ROLE, Lines).campaign(tour).judge(RUN)

    return judge


def said(effect):
    return effect.get("message", effect.get("event", {})).get("type")


def ping_in_sevens(self):
    self.number += 6
    self.__class__.__mro__[1].ping(self)


@pytest.mark.long
def test_SS_310_pings_are_numbered_otherwise(judged):
    assert judged(ping=ping_in_sevens).outcome is ConformanceOutcome.PASS


@pytest.mark.long
def test_SS_310_two_pings_have_the_same_number(judged):
    def ping_with_one_number(self):
        self.number = 0
        self.__class__.__mro__[1].ping(self)

    verdict = judged(ping=ping_with_one_number)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert "was used before; each ping number is another" in verdict.why


@pytest.mark.long
def test_SS_311_the_session_hears_before_the_leader(judged):
    def arranged(self, effects):
        order = {"tell": 0, "send": 1}
        return sorted(effects, key=lambda effect: order.get(effect["effect"], 2))

    assert judged(arranged=arranged).outcome is ConformanceOutcome.PASS


def test_SS_311_a_stream_is_confirmed_before_it_is_dropped(judged):
    def arranged(self, effects):
        return sorted(effects, key=lambda effect: said(effect) == "uninstall")

    verdict = judged(arranged=arranged)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert "must come before" in verdict.why
    assert "[SS-311]" in verdict.why


def test_SS_312_reports_stand_in_another_order(judged):
    def reports(self, names):
        return [self.report(name, self.streams[name]) for name in sorted(names, reverse=True)]

    assert judged(reports=reports).outcome is ConformanceOutcome.PASS


def test_SS_313_progress_is_sent_twice(judged):
    def arranged(self, effects):
        twice = ("leader_wanted", "update_progress", "revoke_finished")
        return [one for effect in effects for one in [effect] * (2 if said(effect) in twice else 1)]

    assert judged(arranged=arranged).outcome is ConformanceOutcome.PASS

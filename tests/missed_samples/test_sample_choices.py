"""What publishers, caches and subscribers of others may do otherwise, and what they may not."""

import pytest
from msgspec.structs import replace
from played_role import Rearranged

from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.conformance_test import ConformanceTest
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.tour import tour_of

ROUND = 1 << 32
RANGES = {"sample", "stamped", "reply", "not_kept", "deliver", "missed", "turned_away"}


FEW = {}
"""A role -> itself with a few of its systems."""


def few_starts(name):
    """The role with those of its systems that a choice is tried in."""
    role = role_of(f"missed_samples/{name}")
    if id(role) not in FEW:
        starts = [role.starts[number] for number in (1, 2, 12)] if name == "subscriber" else role.starts
        FEW[id(role)] = (role, replace(role, starts=tuple(starts)))
    return FEW[id(role)][1]


def judge_adapter(name, make):
    """The verdict on what `make(role)` gives, after the tour of a few systems and a drawn run."""
    role = few_starts(name)
    return ConformanceTest.of(role, lambda: make(role)).campaign(tour_of(role)).judge(1)


def judge(name, changed):
    """The verdict on the shipped machine that answers otherwise."""
    return judge_adapter(name, lambda role: Rearranged(role, changed))


def carried(effect):
    """What an effect carries."""
    return next((effect[field] for field in ("message", "event", "request") if field in effect), {})


def with_carried(effect, **changes):
    """The effect with other fields in what it carries."""
    return {key: {**value, **changes} if isinstance(value, dict) else value for key, value in effect.items()}


def one_by_one(effects):
    """Every range as its samples."""
    found = []
    for effect in effects:
        told = carried(effect)
        if told.get("type") not in RANGES:
            found.append(effect)
            continue
        comes_round = told["type"] in ("sample", "reply", "not_kept")
        for number in range(told["first"], told["last"] + 1):
            at = number % ROUND if comes_round else number
            found.append(with_carried(effect, first=at, last=at))
    return found


@pytest.mark.parametrize("name", ["publisher", "reliability_cache", "subscriber"])
def test_MS_73_samples_are_said_one_by_one(name):
    assert judge(name, one_by_one).outcome is ConformanceOutcome.PASS


def test_MS_74_the_end_comes_last_and_numbers_keep_their_order():
    assert judge("reliability_cache", lambda effects: effects[::-1]).outcome is ConformanceOutcome.FAIL

    def backwards(effects):
        replies = [one for one in one_by_one(effects) if carried(one).get("type") == "reply"]
        return [*replies[::-1], *(one for one in effects if carried(one).get("type") != "reply")]

    assert judge("reliability_cache", backwards).outcome is ConformanceOutcome.FAIL


def test_MS_75_the_text_of_a_refusal_is_any():
    def changed(effects):
        return [with_carried(one, why="?") if carried(one).get("type") == "reply_refused" else one for one in effects]

    assert judge("reliability_cache", changed).outcome is ConformanceOutcome.PASS


class OtherNumbers(Rearranged):
    """A subscriber that numbers all its queries in one row."""

    def __init__(self, role):
        super().__init__(role)
        self.numbers = {}

    def answer(self, line):
        event = line.get("event", {})
        if "init" in line:
            self.numbers = {}
        if event.get("type") in ("query_ended", "query_goes_on"):
            ours = [
                n for (source, n), other in self.numbers.items() if (source, other) == (event["source"], event["n"])
            ]
            line = {**line, "event": {**event, "n": ours[0] if ours else 10_000}}
        answer = super().answer(line)
        for effect in answer["effects"]:
            query = effect.get("request")
            if query:
                number = self.numbers.setdefault((query["source"], query["n"]), self.number_of(query))
                query["n"] = number
        return answer

    def number_of(self, query):
        """The next number."""
        return 100 + len(self.numbers)


def test_MS_76_queries_are_numbered_in_one_row():
    assert judge_adapter("subscriber", OtherNumbers).outcome is ConformanceOutcome.PASS


def test_MS_77_queries_stand_in_any_order():
    def changed(effects):
        asks = [one for one in effects if one["effect"] == "ask"]
        return [*asks[::-1], *(one for one in effects if one not in asks)]

    assert judge("subscriber", changed).outcome is ConformanceOutcome.PASS

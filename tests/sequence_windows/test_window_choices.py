"""What windows of others may do otherwise, and what they may not."""

from __future__ import annotations

from played_role import Rearranged

from statemachines.sequence_windows.sequence import number_of
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.conformance_test import ConformanceTest
from statemachines.testing.conformance.role import role_of
from statemachines.testing.sequence_windows.conformance import FRAME

RUNS = 2


def judge(name, changed):
    """The verdict on the shipped machine that answers otherwise."""
    role = role_of(f"sequence_windows/{name}")
    return ConformanceTest.of(role, lambda: Rearranged(role, changed)).judge(RUNS)


def one_by_one(kind, rest, whole=()):
    """Each range as its messages, where they are few."""

    def changed(effects):
        found = []
        for effect in effects:
            event = effect["event"]
            if event["type"] != kind or event["last"] - event["first"] > 9:
                found.append(effect)
                continue
            for number in range(event["first"], event["last"] + 1):
                changes = rest if number > event["first"] and event.get("verdict") not in whole else {}
                told = {**event, "first": number, "last": number, **changes}
                found.append({**effect, "event": told})
        return found

    return changed


def test_SW_83_messages_of_a_range_are_judged_one_by_one():
    rest = {"verdict": "next", "lost": 0, "unknown": False}
    assert (
        judge("subscriber_window", one_by_one("judged", rest, ("repeat", "not_subscribed"))).outcome
        is ConformanceOutcome.PASS
    )


def test_SW_83_a_loss_is_said_once():
    verdict = judge("subscriber_window", one_by_one("judged", {}))
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert "judged" in verdict.why


def test_SW_83_a_repeated_message_is_not_the_next():
    rest = {"verdict": "next", "lost": 0, "unknown": False}
    assert judge("subscriber_window", one_by_one("judged", rest)).outcome is ConformanceOutcome.FAIL


def test_SW_84_messages_are_numbered_one_by_one():
    assert (
        judge("publisher_window", one_by_one("stamped", {"time_ns": 0, "chain": 0})).outcome is ConformanceOutcome.PASS
    )


def test_SW_84_the_chain_goes_with_the_first_alone():
    verdict = judge("publisher_window", one_by_one("stamped", {}))
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert "stamped" in verdict.why


def test_a_chain_of_another_frame_is_told():
    """What is told covers each way in which a stream may follow another."""
    told = list(role_of("sequence_windows/subscriber_window").starts[1].told(None))
    chains = {0, number_of(FRAME, 1), number_of(FRAME, 4), number_of(1, 2)}
    assert {getattr(event, "chain", 0) for event in told} >= chains

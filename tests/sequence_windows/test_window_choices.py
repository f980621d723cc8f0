"""What windows of others may do otherwise, and what they may not."""

from played_role import Rearranged

from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.conformance_test import ConformanceTest
from statemachines.testing.conformance.role import role_of

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


def test_SW_83_a_repeated_message_is_not_the_next():
    rest = {"verdict": "next", "lost": 0, "unknown": False}
    assert judge("subscriber_window", one_by_one("judged", rest)).outcome is ConformanceOutcome.FAIL


def test_SW_84_messages_are_numbered_one_by_one():
    assert (
        judge("publisher_window", one_by_one("stamped", {"time_ns": 0, "chain": 0})).outcome is ConformanceOutcome.PASS
    )

"""Answers to pings that come twice, and late: one to an earlier ping confirms no report and brings no lease."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines.kernel import node_of
from statemachines.shared_subscriptions.borrower import PingTimer
from statemachines.shared_subscriptions.message import PingResponse
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.replay import replay
from statemachines_spec.shared_subscriptions.systems import system


def explored(size):
    """In this process alone, where the bug is planted."""
    one = replace(system("old-answers", size), origin=None)
    return one, explore(one, hashing=False)


def test_SS_24_an_old_answer_changes_nothing():
    _, result = explored("small")
    assert result.is_held
    assert not [name for name, times in result.sometimes.items() if not times]


@pytest.mark.parametrize(
    ("size", "broken", "steps"), [("small", "S10 progress consumer-1 0.0/a", 11), ("ci", "S5", 19)]
)
def test_SS_24_taken_for_that_of_the_last_ping_it_hides_a_report_and_prolongs_a_lease(size, broken, steps):
    """The leader never heard the last ping: neither what it reported, nor that its lease was to last longer."""
    with plant_bug("shared_subscriptions/old-answer-taken"):
        one, result = explored(size)
        assert (result.path.broken, len(result.path.legs)) == (broken, steps)
        assert replay(one, result.path).broken == broken
    taken = [leg.envelope for leg in result.path.legs]
    second, who = next((place, one.to) for place, one in enumerate(taken) if isinstance(one.event, PingTimer))
    answers = [one.event.n for one in taken[second:] if isinstance(one.event, PingResponse) and node_of(one.to) == who]
    assert answers == [1]

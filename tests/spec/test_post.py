"""Messages that take a bounded number of ticks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from toy_system import Hush, Listener, Talker

from statemachines.kernel import ConfigurationError
from statemachines_spec import Budget, Network, Post, System, TickClock, explore
from statemachines_spec.explorer import promela
from statemachines_spec.explorer.direct import search
from statemachines_spec.explorer.entries import Entries


def talk(last=1, each=1, **post):
    """A talker says a word, a listener takes it; time passes."""
    return System(
        "talk", "", (Talker(last, each), Listener(), Post(1, **post), TickClock(1)), Network(1),
        budgets=(Budget("hush", 0, lambda actor, event: isinstance(event, Hush)),),
    )  # fmt: skip


def counts(system):
    plain, compiled = (explore(system, engine=engine) for engine in ("plain", "compiled"))
    assert (plain.states, plain.transitions, plain.edges) == (compiled.states, compiled.transitions, compiled.edges)
    return plain.states, plain.transitions


def test_a_prompt_message_does_not_survive_a_tick_by_hand():
    # nothing said -say-> on its way -hand-> taken; a tick before and after, none while it is on its way
    assert counts(talk(delay=0)) == (3, 4)


def test_a_message_that_takes_a_tick_at_most_by_hand():
    # on its way for 0 or 1 ticks; handed over from both, and no tick from the second
    assert counts(talk(delay=1)) == (4, 6)


def test_a_message_may_be_lost_by_hand():
    # and from both it may be lost, to a state of its own, in which time passes
    assert counts(talk(delay=1, loses=True)) == (5, 9)


def test_a_copy_is_handed_over_and_it_stays_on_its_way():
    # as with a delay of 1; after one copy taken, or two, or three and more, still on its way for 0 or 1 ticks
    states, _ = counts(talk(delay=1, copies=True))
    assert states == 1 + 2 * 4 + 3


def test_more_than_there_are_places_for_is_cut():
    result = explore(talk(last=3, delay=1, places=2), engine="plain")
    assert result.cut_by["post"] > 0


@pytest.mark.parametrize("given", [{"delay": 2}, {"delay": 1, "loses": True, "copies": True}])
def test_a_naive_search_counts_the_same(given):
    system = talk(last=2, each=2, **given)
    result, plainest = explore(system, engine="plain"), search(system, 100_000)
    assert (result.states, result.transitions) == (plainest.states, plainest.transitions)


def test_spin_counts_the_same(tmp_path):
    entries = Entries(talk(delay=1, loses=True))
    explore(entries.system, engine="plain", entries=entries)
    counted = promela.judge(entries, tmp_path)
    assert (counted.states, counted.transitions) == (5, 9)


def test_what_it_may_do_is_printed():
    lines = talk(delay=0, loses=True).describe_bounds()
    assert lines["post: messages"] == "loses, copies nothing, reorders; at most 3 on their way"
    assert lines["post: takes"] == "no tick: whatever is sent arrives before the next"
    assert talk(delay=2).describe_bounds()["post: takes"] == "2 ticks at most"


@pytest.mark.parametrize("given", [{"delay": -1}, {"places": 0}, {"places": 9}])
def test_a_post_that_cannot_be_explored_is_refused(given):
    with pytest.raises(ConfigurationError, match="a delay of 0 ticks or more, and 1 to 8 places"):
        Post(1, **given)


def test_a_system_has_one_post():
    made = talk()
    with pytest.raises(ConfigurationError, match="one post"):
        replace(made, actors=(*made.actors, Post(1, name="other"))).check()

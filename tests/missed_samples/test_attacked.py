"""Attacked: whoever can speak to a subscriber says what it likes; what is told stays in order, once, without a gap."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from samples_world import World

from statemachines.missed_samples.message import Deliver, Heartbeat, Missed, QueryEnded, QueryGoesOn, Sample
from statemachines.missed_samples.recovery import MS, Recovery
from statemachines.missed_samples.source_record import Appeared, Disappeared

FAR = (1 << 62) + 1
RETENTION_NS = Recovery().retention_ms * MS


def told(world, name="p"):
    """Every number of a source that was delivered or reported, as ranges, in the order in which it was."""
    return [(one.first, one.last) for one in world.told if isinstance(one, Deliver | Missed) and one.source == name]


NUMBERS = st.one_of(st.integers(0, 12), st.sampled_from((FAR, FAR + 1, 2**64 - 9)))
WORDS = st.one_of(
    st.tuples(NUMBERS, st.integers(0, 3)).map(lambda one: Sample("p", one[0], one[0] + one[1])),
    NUMBERS.map(lambda number: Heartbeat("p", number)),
    st.builds(QueryEnded, st.sampled_from(("p", "*", "x")), st.integers(-1, 9), st.integers(0, 300)),
    st.builds(QueryGoesOn, st.sampled_from(("p", "*", "x")), st.integers(-1, 9)),
    st.builds(Appeared, st.just("p"), st.booleans()),
    st.just(Disappeared("p")),
    st.just("tick"),
)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(WORDS, max_size=40),
    st.booleans(),
    st.booleans(),
    st.sampled_from((0, 2, 10_000)),
    st.sampled_from((1, 256)),
)
def test_ORDER_ONCE_REPORT_BOUND_whatever_a_stranger_says(words, past, reliable, pending, window):
    world = World(past=past, reliable=reliable, pending=pending, retries=1, window=window, jump=4)
    for word in words:
        if word != "tick":
            world.tell(word)
        elif (deadline := world.node.deadline()) is not None and deadline - world.now < RETENTION_NS:
            world.tick()  # a source that is forgotten begins anew
        for source in world.node.record.sources.values():
            assert source.held_count <= pending
    assert world.broken == []

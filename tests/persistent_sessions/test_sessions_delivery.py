"""The session state: any course of it, and the most that it may have (spec/persistent_sessions/clauses.md)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from session_world import mortal, queued, rows

from statemachines.kernel import Ask, Map, Node
from statemachines.persistent_sessions.delivery import DELIVERY
from statemachines.persistent_sessions.delivery_actions import (
    change_with_receipts,
)
from statemachines.persistent_sessions.delivery_record import COMMITTING, READY, DeliveryRecord
from statemachines.persistent_sessions.in_flight_record import (
    RECEIVED,
    RELEASED,
    SENT,
    TAKEN,
    InFlightRecord,
)
from statemachines.persistent_sessions.message import (
    Puback,
    Pubcomp,
    Pubrec,
    Queued,
    is_over,
)
from statemachines.persistent_sessions.request import (
    CommitState,
    SessionState,
    StateChange,
    StateCommitted,
    change_state,
)
from statemachines.persistent_sessions.writer_flow_record import Take


def delivery(maximum, state=None):
    return Node(
        DELIVERY, DeliveryRecord("s", "c", 7, maximum, state or SessionState()), name="o~1", now_ns=0, check=True
    )


TIMED = st.builds(mortal, st.integers(1, 9), st.integers(0, 4), st.integers(1, 2))


@given(st.lists(TIMED, max_size=5), st.lists(TIMED, max_size=5), st.integers(0, 5))
def test_PS_208_PS_209_what_is_committed_is_what_the_machine_goes_on_with(before, taken, now):
    """`change_state`, which databases use, and the machine leave out the same, and nothing that was in flight."""
    state = SessionState(
        packets=Map({n: InFlightRecord(n, "c", one, n - 1, SENT) for n, one in enumerate(before, 1)}),
        places=len(before),
    )
    one = delivery(99, state)
    if not taken:
        assert change_state(state, StateChange(places=len(before)), now) == state
        return
    (asked,) = one.feed(Take("w", 1, tuple(replace(each, number=n) for n, each in enumerate(taken, 1))), 0)
    kept = change_state(state, asked.request.change, now)
    one.feed(StateCommitted(now), 0)
    left = {key: replace(each, status=SENT) for key, each in kept.packets.items()}
    assert dict(one.record.state.packets) == left
    assert set(state.packets) <= set(left)
    assert (
        len(before) + len(asked.request.change.packets) - len(left)
        == sum(is_over(each, now) for each in taken)
        == one.record.expired
    )


packet_states = st.sampled_from([(SENT, 1), (SENT, 2), (RECEIVED, 2), (RELEASED, 2)])


@given(
    st.dictionaries(st.integers(1, 9), packet_states),
    st.integers(1, 9),
    st.integers(0, 8),
    st.booleans(),
    st.integers(0, 3),
)
def test_PS_191_together_is_what_it_is_one_by_one(held, first, more, committing, waiting):
    """But for the commits that it takes, and for what they let go meanwhile."""
    packets = {key: InFlightRecord(key, "c", queued(key, qos), key, status) for key, (status, qos) in held.items()}
    state = SessionState(packets=Map(packets), queued=rows(*range(20, 20 + waiting)), places=10)
    status = COMMITTING if committing else READY
    record = DeliveryRecord("s", "c", 7, len(held) or 1, state, status=status)
    together = Node(DELIVERY, record, name="o~1", now_ns=0)
    single = Node(DELIVERY, replace(record, status=COMMITTING), name="o~1", now_ns=0)
    asked = together.feed(Puback(first, first + more), 0)
    for packet in range(first, first + more + 1):
        assert single.feed(Puback(packet), 0) == []
    after = single.record.state
    ended = len(held) - len(after.packets)
    if committing or not ended or not waiting:
        assert (together.record.state, asked) == (after, [])
        return
    kept = {key: one for key, one in together.record.state.packets.items() if key in after.packets}
    assert kept == dict(after.packets)
    assert len(together.record.state.packets) == len(after.packets) + min(ended, waiting)
    assert [type(one.request) for one in asked] == [CommitState]


def committed_alike(state):
    """A state but for what comes again alike."""
    alike = {SENT: TAKEN, RELEASED: RECEIVED}
    packets = {key: replace(one, status=alike.get(one.status, one.status)) for key, one in state.packets.items()}
    return replace(state, packets=Map(packets))


happenings = st.one_of(
    st.tuples(st.just("take"), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), min_size=1, max_size=4)),
    st.tuples(st.sampled_from([Puback, Pubrec, Pubcomp]), st.integers(1, 6)),
    st.tuples(st.just("answer"), st.integers(0, 3)),
)


@given(st.integers(1, 4), st.lists(happenings, max_size=40))
def test_PS_490_the_changes_together_are_the_state(maximum, story):
    """Whatever comes in whatever order, and time goes on; and what a host commits of it when the client goes."""
    one, number, now = delivery(maximum), 0, 0
    committed = SessionState()
    asked = []

    def feed(event):
        requests = [effect.request for effect in one.feed(event, 0) if isinstance(effect, Ask)]
        asked.extend(request for request in requests if isinstance(request, CommitState))

    for what, how in story:
        if what == "take":
            taken = tuple(
                Queued(number + place, f"m{number + place}", "t", qos, until_ns)
                for place, (qos, until_ns) in enumerate(how, 1)
            )
            number += len(taken)
            feed(Take("w", 1, taken))
        elif what == "answer":
            now += how
            if asked:
                committed = change_state(committed, asked.pop(0).change, now)
                feed(StateCommitted(now))
        else:
            feed(what(how))
        assert len(asked) == (one.record.status is COMMITTING)
    while asked:
        committed = change_state(committed, asked.pop(0).change, now)
        feed(StateCommitted(now))
    committed = change_state(committed, change_with_receipts(one.record), now)
    assert committed_alike(committed) == committed_alike(one.record.state)

"""The observers of persistent sessions: each property is broken by one run of events, and not by another near it.

The session state: any course of it, and the most that it may have (spec/persistent_sessions/clauses.md).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from session_world import mortal, queued, rows

from statemachines.kernel import Ask, Map, Node
from statemachines.persistent_sessions.delivery import COMMITTING, DELIVERY, READY, DeliveryRecord, change_with_receipts
from statemachines.persistent_sessions.in_flight_record import RECEIVED, RELEASED, SENT, TAKEN, InFlightRecord
from statemachines.persistent_sessions.life_record import SessionClosed
from statemachines.persistent_sessions.message import Puback, Pubcomp, Publish, Pubrec, Queued, is_over
from statemachines.persistent_sessions.properties.acknowledged_messages import AcknowledgedMessages
from statemachines.persistent_sessions.properties.delivered_messages import (
    NOTHING,
    CopyDelivered,
    DeliveredMessages,
    PublishedMessages,
    judge_place,
)
from statemachines.persistent_sessions.properties.opened_sessions import OpenedSessions, judge_welcome
from statemachines.persistent_sessions.properties.session_owners import judge_count, judge_takeover, list_unfinished
from statemachines.persistent_sessions.request import (
    CommitState,
    SessionState,
    StateChange,
    StateCommitted,
    change_state,
)
from statemachines.persistent_sessions.resume_record import NORMAL, SYNCING, YIELDING, ResumeRecord
from statemachines.persistent_sessions.session_host_record import LeaveClient, LoseClient, TakeAcknowledgements
from statemachines.persistent_sessions.takeover_record import TakeoverRecord
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow import DONE, WAITING, Take, WriterFlowRecord

OWNER, NEXT = "a~1/1", "b~1/1"
FIRST, SECOND, THIRD = [("t", f"m{n}") for n in (1, 2, 3)]


def names(broken):
    return [one.name for one in broken]


# -- messages -------------------------------------------------------------------------------------------------------


def stored(*copies, **given):
    """One writer has stored these, and they are in flight under the packets 1, 2 and so on."""
    seen = DeliveredMessages(**given)
    for copy in copies:
        seen = seen.observe_stored("w1", copy, publisher="p")
    return seen.observe_committed((copy, place) for place, copy in enumerate(copies, 1))


def delivered(seen, *events, published=NOTHING):
    """What breaks when these come, one after the other."""
    broken = []
    for event in events:
        seen, more = seen.observe_delivery(event, published)
        broken += names(more)
    return broken


def test_GAP_what_need_not_come_comes_after_what_was_stored_later():
    seen = stored(FIRST, SECOND).observe_lost(FIRST)
    late = CopyDelivered(SECOND, 2), CopyDelivered(FIRST, 1)
    assert delivered(seen, *late) == ["GAP"]
    assert delivered(stored(FIRST, SECOND, forgets=True).observe_lost(FIRST), *late) == ["TWICE"]
    assert delivered(seen, *reversed(late)) == []


def test_TWICE_two_rows_bring_a_copy():
    assert names(judge_place(FIRST, ("w1", 1, 1), ("w1", 2, 1))) == ["TWICE"]
    assert judge_place(FIRST, ("w1", 1, 1), ("w1", 1, 1)) == ()


def test_STRANGER_a_session_that_nobody_has_opened_is_given():
    opened, _ = OpenedSessions().observe_opened("c1", "s1")
    assert names(opened.judge_given("s2")) == ["STRANGER"]
    assert opened.judge_given("s1") == ()


def test_what_a_publisher_hands_over_again_counts_from_then_on_and_its_first_answer_counts():
    published = PublishedMessages().observe_handed("m2").observe_answered("m1")
    assert not published.is_known_before("m1", "m2")
    again = published.observe_handed("m2")
    assert again.is_known_before("m1", "m2")
    assert again.observe_answered("m1") == again
    assert not again.is_known_before("m3", "m2"), "it was never answered"


# -- sessions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_present", [True, False])
@pytest.mark.parametrize("was_there", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_PRESENT(is_present, was_there, is_clean):
    broken = judge_welcome("s1", is_present=is_present, was_there=was_there, is_clean=is_clean)
    holds = is_present == was_there and not (is_present and is_clean)
    assert set(names(broken)) == (set() if holds else {"PRESENT"})


# -- owners ---------------------------------------------------------------------------------------------------------


def test_ENDS_and_TAKES_name_what_an_owner_has_not_come_to():
    def unfinished(status, flow=DONE, takeover=None):
        flows = Map({"w1": WriterFlowRecord("s1", "w1", OWNER, 1, Times(), status=flow)})
        record = ResumeRecord(OWNER, "c1", 1, Times(), status=status, flows=flows, takeover=takeover)
        return names((*judge_takeover(OWNER, record), *list_unfinished(OWNER, record)))

    takeover = TakeoverRecord("s1", "c1", OWNER, 1, NEXT, Times())
    assert unfinished(NORMAL) == []
    assert unfinished(SYNCING) == unfinished(NORMAL, WAITING) == ["ENDS"]
    assert unfinished(YIELDING) == ["TAKES", "ENDS"]
    assert unfinished(NORMAL, takeover=takeover) == ["TAKES"]
    assert names(judge_count(2, 1)) == ["ENDS"]
    assert judge_count(1, 1) == ()


# -- acknowledgements -----------------------------------------------------------------------------------------------


def sent(packet, message, qos=1):
    return Publish(packet, message, "t", qos, False)


def acknowledged(*messages):
    return TakeAcknowledgements(OWNER, messages)


def observed(*events):
    seen = AcknowledgedMessages()
    for event in events:
        seen, broken = seen.observe(OWNER, event)
        assert broken == ()
    return seen


def redelivered(seen, event, owner=NEXT):
    return names(seen.observe(owner, event)[1]) == ["REDELIVERED"]


@pytest.mark.parametrize("goes", [LeaveClient(OWNER), LoseClient(OWNER)])
@pytest.mark.parametrize(("why", "again"), [("left", True), ("lost", True), ("superseded", False), ("timeout", False)])
def test_REDELIVERED_what_was_acknowledged_before_the_end_counts_where_the_node_says_so(goes, why, again):
    seen = observed(sent(1, "m1"), sent(2, "m2"), acknowledged(Puback(1)), goes, SessionClosed("s1", why))
    assert redelivered(seen, sent(7, "m1"), OWNER) is again
    assert not redelivered(seen, sent(2, "m2")), "it was not acknowledged"
    after, _ = seen.observe(NEXT, sent(7, "m1"))
    assert redelivered(after, sent(7, "m1")) is again


# -- the collector --------------------------------------------------------------------------------------------------


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

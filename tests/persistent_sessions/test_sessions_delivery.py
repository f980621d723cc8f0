"""The session state and what is in flight, clause by clause (spec/persistent_sessions/clauses.md)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from session_world import Hand, mortal, names, queued, rows

from statemachines.kernel import InvariantViolated, Map, Node
from statemachines.persistent_sessions.delivery import DELIVERY
from statemachines.persistent_sessions.delivery_actions import (
    change_with_receipts,
    commit,
    free_packet,
    resend,
    send_committed,
)
from statemachines.persistent_sessions.delivery_record import COMMITTING, READY, DeliveryRecord
from statemachines.persistent_sessions.in_flight import IN_FLIGHT, Over, Resend
from statemachines.persistent_sessions.in_flight_record import (
    RECEIVED,
    RELEASED,
    SENT,
    TAKEN,
    InFlightRecord,
)
from statemachines.persistent_sessions.message import (
    MessageExpired,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Queued,
    is_over,
)
from statemachines.persistent_sessions.request import (
    CommitState,
    MarkDelivered,
    SessionState,
    StateChange,
    StateCommitted,
    change_state,
)
from statemachines.persistent_sessions.writer_flow_record import Take


def delivery(maximum=2, state=None):
    return Hand(DELIVERY, DeliveryRecord("s", "c", 7, maximum, state or SessionState()))


def publish(packet, number, qos=1, dup=False):
    return Publish(packet, f"m{number}", "t", qos, dup)


def packet(status, qos=1):
    return Hand(IN_FLIGHT, InFlightRecord(1, "c", queued(1, qos), status=status))


def packets_of(asked):
    """Those that have ended, and those that begin or are received."""
    return list(asked.change.ended), [one.packet for one in asked.change.packets]


def flying(qos, *numbers, status=SENT):
    packets = {n: InFlightRecord(n, "c", queued(n, qos), n - 1, status) for n in numbers}
    return SessionState(packets=Map(packets), places=len(numbers))


def test_PS_40_PS_42_PS_44_PS_197_committed_then_marked_together_then_sent():
    one = delivery()
    (asked,) = one.feed(Take("w", 1, rows(1, 2)))
    assert isinstance(asked, CommitState)
    assert asked.token == 7
    assert asked.change.taken["w"] == (1, 2)
    assert [(one.packet, one.queued.number) for one in asked.change.packets] == [(1, 1), (2, 2)]
    marked = MarkDelivered("s", "w", 1, 1, 2)
    assert one.feed(StateCommitted()) == [marked, publish(1, 1), publish(2, 2)]
    assert (marked.until, MarkDelivered("s", "w", 1, 5).until) == (2, 5)
    assert one.status == "ready"


def test_PS_43_PS_44_what_is_taken_meanwhile_is_the_next_commit():
    one = delivery(9)
    one.feed(Take("w", 1, rows(1)))
    assert one.feed(Take("w", 1, rows(2))) == []
    assert one.feed(Take("v", 2, rows(1))) == []
    effects = one.feed(StateCommitted())
    assert names(effects) == ["MarkDelivered", "Publish", "CommitState"]
    assert dict(effects[-1].change.taken) == {"w": (1, 2), "v": (2, 1)}
    assert names(one.feed(StateCommitted())) == ["MarkDelivered", "MarkDelivered", "Publish", "Publish"]


def expired(number, until_ns, time_ns, qos=1):
    return MessageExpired(f"m{number}", "t", qos, until_ns, time_ns)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_PS_208_what_is_over_when_it_is_committed_is_marked_and_not_sent(qos):
    """At the very moment it is over, and one nanosecond before it is not."""
    one = delivery(9)
    one.feed(Take("w", 1, (mortal(1, 5, qos), mortal(2, 6, qos), queued(3, qos))))
    marked = MarkDelivered("s", "w", 1, 1, 3)
    found = one.feed(StateCommitted(5))
    assert found[:2] == [expired(1, 5, 5, qos), marked]
    assert [(each.message, each.left_ns) for each in found[2:]] == [("m2", 1), ("m3", None)]
    assert (one.status, one.record.expired, one.record.lost) == ("ready", 1, 0)
    assert [each.queued.number for _, each in sorted(one.record.state.packets.items())] == ([2, 3] if qos else [])


def test_PS_208_what_waits_behind_it_takes_its_place_and_is_committed():
    one = delivery(1)
    one.feed(Take("w", 1, (mortal(1, 5), mortal(2, 5), queued(3))))
    found = one.feed(StateCommitted(7))
    assert names(found) == ["MessageExpired", "MarkDelivered", "CommitState"]
    assert [each.queued.number for each in found[-1].change.packets] == [2]
    assert names(one.feed(StateCommitted(8))) == ["MessageExpired", "CommitState"]
    assert [each.message for each in one.feed(StateCommitted(9))] == ["m3"]
    assert one.record.expired == 2


def test_PS_208_what_has_waited_for_a_commit_is_committed():
    one = delivery(9)
    one.feed(Take("w", 1, (mortal(1, 5),)))
    one.feed(Take("w", 1, rows(2)))
    assert names(one.feed(StateCommitted(5))) == ["MessageExpired", "MarkDelivered", "CommitState"]
    assert names(one.feed(StateCommitted(6))) == ["MarkDelivered", "Publish"]


def test_PS_209_what_was_sent_goes_on_and_comes_again_however_late():
    one = delivery(9)
    one.feed(
        Take("w", 1, (mortal(1, 5),)),
    )
    assert [each.left_ns for each in one.feed(StateCommitted(3))[1:]] == [2]
    one.feed(Take("w", 1, rows(2)))
    assert names(one.feed(StateCommitted(9))) == ["MarkDelivered", "Publish"], "it is over, and in flight"
    assert [(each.message, each.dup, each.left_ns) for each in one.feed(Resend(9))] == [
        ("m1", True, 0),
        ("m2", True, None),
    ]
    for status in (SENT, RECEIVED, RELEASED):
        assert packet(status, qos=2).feed(Over()) == []


def test_PS_210_what_comes_again_says_what_is_left_when_the_state_was_loaded():
    state = SessionState(packets=Map({1: InFlightRecord(1, "c", mortal(1, 9), 0, TAKEN)}), places=1)
    assert [each.left_ns for each in delivery(9, state).feed(Resend(4))] == [5]


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
    (asked,) = one.feed(Take("w", 1, tuple(replace(each, number=n) for n, each in enumerate(taken, 1))))
    kept = change_state(state, asked.change, now)
    one.feed(StateCommitted(now))
    left = {key: replace(each, status=SENT) for key, each in kept.packets.items()}
    assert dict(one.record.state.packets) == left
    assert set(state.packets) <= set(left)
    assert (
        len(before) + len(asked.change.packets) - len(left)
        == sum(is_over(each, now) for each in taken)
        == one.record.expired
    )


def test_PS_44_qos_0_is_committed_and_then_sent_once_and_keeps_its_place():
    one = delivery(1)
    mixed = (queued(1, 0), queued(2, 1), queued(3, 1), queued(4, 0))
    one.feed(Take("w", 1, mixed))
    assert one.feed(StateCommitted())[-2:] == [publish(0, 1, 0), publish(1, 2)]
    assert one.record.state.queued == mixed[2:]
    one.feed(Puback(1))
    assert one.feed(StateCommitted()) == [publish(2, 3), publish(0, 4, 0)]


def test_PS_42_a_message_that_retention_has_removed_is_taken_and_counted_as_lost():
    one = delivery()
    (asked,) = one.feed(Take("w", 1, (queued(1, message=""), queued(2))))
    assert (one.record.lost, asked.change.taken["w"], len(asked.change.packets)) == (1, (1, 2), 1)


def test_PS_41_what_is_in_flight_goes_first_in_its_order_and_then_what_is_queued():
    state = replace(flying(1, 1, 2), queued=rows(3))
    one = delivery(3, state)
    assert one.feed(Resend())[:2] == [publish(1, 1, dup=True), publish(2, 2, dup=True)]
    assert one.status == "committing"
    assert one.feed(StateCommitted()) == [publish(3, 3)]
    assert one.feed(Resend())[:1] == [publish(1, 1, dup=True)]
    turned = Map({1: InFlightRecord(1, "c", queued(9), 5, SENT), 2: InFlightRecord(2, "c", queued(8), 4, SENT)})
    round_the_end = delivery(3, SessionState(packets=turned, places=6))
    assert [one.message for one in round_the_end.feed(Resend())] == ["m8", "m9"]
    open_commit = delivery()
    open_commit.feed(Take("w", 1, rows(1)))
    assert open_commit.feed(Resend()) == []


def test_PS_45_PS_52_a_packet_is_released_when_that_is_committed():
    one = delivery(2, flying(2, 1, 2))
    (asked,) = one.feed(Pubrec(1))
    assert asked.change.packets[0].status is RECEIVED
    assert one.feed(Pubrec(2)) == []
    assert one.feed(Pubrec(2)) == []
    assert names(one.feed(StateCommitted())) == ["Pubrel", "CommitState"]
    assert one.feed(StateCommitted()) == [Pubrel(2)]
    assert one.feed(Pubrec(2)) == [Pubrel(2)]
    assert one.feed(Pubcomp(1)) == []
    assert 1 not in one.record.state.packets


def test_PS_46_PS_49_room_is_used_and_never_more_than_there_is():
    one = delivery(2)
    one.feed(Take("w", 1, rows(1, 2, 3)))
    one.feed(StateCommitted())
    assert one.record.state.queued == rows(3)
    (asked,) = one.feed(Puback(2))
    assert packets_of(asked) == ([2], [3])
    assert one.feed(StateCommitted()) == [publish(3, 3)]
    assert one.feed(Puback(1)) == []
    done = delivery(1, replace(flying(2, 1, status=RELEASED), queued=rows(2)))
    assert names(done.feed(Pubcomp(1))) == ["CommitState"]
    too_many = DeliveryRecord("s", "c", 7, 1, flying(1, 1, 2))
    with pytest.raises(InvariantViolated):
        Node(DELIVERY, too_many, name="o~1", now_ns=0, check=True).feed(Puback(9), 0)


def test_PS_191_packets_that_are_acknowledged_together_make_room_in_one_commit():
    one = delivery(4)
    one.feed(Take("w", 1, rows(*range(1, 10))))
    one.feed(StateCommitted())
    (asked,) = one.feed(Puback(1, 3))
    assert packets_of(asked) == ([1, 2, 3], [5, 6, 7])
    assert one.feed(Puback(4, 9)) == []
    assert (sorted(one.record.state.packets), one.record.state.queued) == ([5, 6, 7], rows(8, 9)), "7 is not sent yet"
    assert one.feed(StateCommitted())[:3] == [publish(5, 5), publish(6, 6), publish(7, 7)]


def test_PS_191_however_many_it_says_no_more_is_looked_at_than_is_in_flight():
    one = delivery(4)
    one.feed(Take("w", 1, rows(*range(1, 10))))
    one.feed(StateCommitted())
    (asked,) = one.feed(Puback(2, 2**62))  # one by one this would never end
    assert packets_of(asked) == ([2, 3, 4], [5, 6, 7])


@pytest.mark.parametrize(("receive_maximum", "free"), [(2, False), (3, True)])
def test_PS_191_all_that_end_make_room_together_where_one_would_not(receive_maximum, free):
    """A session may come back to a client that receives less than was in flight to the one before."""
    state = replace(flying(1, 1, 2, 3, 4), queued=rows(5))
    one = Node(DELIVERY, DeliveryRecord("s", "c", 7, receive_maximum, state), name="o~1", now_ns=0)
    assert bool(one.feed(Puback(1, 2), 0)) is free
    assert sorted(one.record.state.packets) == ([3, 4, 5] if free else [3, 4])


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


def test_PS_49_a_packet_id_that_is_in_use_is_left_out_and_ids_go_round():
    assert free_packet(flying(1, 1, 2).packets, 0) == 3
    assert free_packet(Map(), 65_534) == 65_535
    assert free_packet(Map(), 65_535) == 1
    last = Map({65_535: InFlightRecord(65_535, "c", queued(1))})
    assert free_packet(last, 65_534) == 1


def test_PS_46_PS_47_acknowledgements_of_what_is_not_in_flight_are_dropped():
    one = delivery(2, flying(1, 1))
    for event in (Puback(9), Pubrec(9), Pubcomp(9)):
        assert one.feed(event) == []
    assert 1 in one.record.state.packets
    one.feed(Puback(1))
    assert 1 not in one.record.state.packets


def test_PS_48_a_commit_that_nobody_waits_for_is_dropped():
    one = delivery(2, flying(1, 1))
    before = one.record
    assert one.feed(StateCommitted()) == []
    assert one.record == before


def test_PS_40_nothing_is_open_without_a_commit():
    _, open_commit = DELIVERY.invariants
    ready = DeliveryRecord("s", "c", 7, 2)
    assert open_commit.holds(ready)
    assert not open_commit.holds(replace(ready, status=COMMITTING, state=flying(1, 1, status=TAKEN)))
    assert not open_commit.holds(replace(ready, inbox=(None,)))


@pytest.mark.parametrize("qos", [1, 2])
def test_PS_50_a_message_is_sent_when_it_is_committed_and_once(qos):
    one = packet(TAKEN, qos)
    assert one.feed(Puback(1)) == []
    assert one.feed(StateCommitted()) == [publish(1, 1, qos)]
    assert one.feed(StateCommitted()) == []


def test_PS_51_qos_1_is_done_when_it_is_acknowledged():
    one = packet(SENT)
    one.feed(Puback(1))
    assert one.status == "done"


def test_PS_52_PS_53_PS_54_qos_2_is_received_released_and_completed():
    one = packet(SENT, 2)
    assert one.feed(Pubrec(1)) == []
    assert one.feed(StateCommitted()) == [Pubrel(1)]
    assert one.feed(Pubrec(1)) == [Pubrel(1)]
    one.feed(Pubcomp(1))
    assert one.status == "done"


def test_PS_55_what_is_sent_again_is_marked_and_keeps_its_packet():
    for status in (TAKEN, SENT):
        one = packet(status, 2)
        assert one.feed(Resend()) == [publish(1, 1, 2, dup=True)]
        assert one.status == "sent"
    for status in (RECEIVED, RELEASED):
        one = packet(status, 2)
        assert one.feed(Resend()) == [Pubrel(1)]
        assert one.status == "released"


def test_PS_56_an_acknowledgement_that_does_not_fit_is_dropped():
    for status, qos, event in (
        (SENT, 2, Puback(1)),
        (SENT, 1, Pubrec(1)),
        (RECEIVED, 2, Pubrec(1)),
        (TAKEN, 2, Pubrec(1)),
        (SENT, 2, Pubcomp(1)),
        (RELEASED, 2, Puback(1)),
    ):
        one = packet(status, qos)
        assert one.feed(event) == []
        assert one.record.status is status


def test_PS_490_a_commit_says_what_has_changed_alone():
    one = delivery(3)
    one.feed(Take("v", 1, rows(1)))
    one.feed(StateCommitted())
    one.feed(Take("w", 1, rows(1, 2, 3)))
    one.feed(StateCommitted())
    (asked,) = one.feed(Puback(1))
    third = InFlightRecord(4, "c", queued(3), 3)
    assert asked.change == StateChange(Map(), (1,), (third,), 1, (), 4)
    one.feed(StateCommitted())
    one.feed(Puback(2))
    (asked,) = one.feed(Take("w", 1, rows(4, 5)))
    fourth = InFlightRecord(5, "c", queued(4), 4)
    assert asked.change == StateChange(Map({"w": (1, 5)}), (2,), (fourth,), 0, rows(5), 5)


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
        asked.extend(effect for effect in one.feed(event) if isinstance(effect, CommitState))

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


def test_overlapping_filters_are_two_messages():
    one = delivery(9)
    twice = (Queued(1, "m", "a/#"), Queued(2, "m", "a/+"))
    one.feed(Take("w", 1, twice))
    sent = one.feed(StateCommitted())[1:]
    assert [(each.message, each.filter) for each in sent] == [("m", "a/#"), ("m", "a/+")]


def test_twelve_sent_four_acknowledged_eight_come_again():
    one = delivery(20)
    one.feed(Take("w", 1, rows(*range(1, 13))))
    one.feed(StateCommitted())
    for number in (1, 2, 3, 4):
        one.feed(Puback(number))
    again = delivery(20, one.record.state).feed(Resend())
    assert again == [publish(number, number, dup=True) for number in range(5, 13)]


def test_PS_41_PS_44_PS_55_tens_of_thousands_are_sent_and_sent_again():
    """The most that a client receives is 65 535."""
    count = 65_535
    queued = tuple(Queued(number, f"m{number}") for number in range(1, count + 1))
    record = DeliveryRecord("s", "c", 1, count, SessionState(queued=queued))
    committed, _, _ = commit(record, (), 0)
    sent, effects, _ = send_committed(committed, StateCommitted(), 0)
    assert [one.message.packet for one in effects] == list(range(1, count + 1))
    assert len(resend(sent, Resend(), 0)[1]) == count


# -- rows of several filters ----------------------------------------------------------------------------------------


def overlapping(number, *filters, qos=1):
    first, *more = filters
    return Queued(number, f"m{number}", first, qos, more=tuple(more))


def test_PS_550_the_copies_of_a_row_are_taken_in_one_commit_and_have_following_packet_ids():
    one = delivery(maximum=9)
    (asked,) = one.feed(Take("w", 1, (overlapping(1, "t/#", "t/+", "t/1"), overlapping(2, "t/#", "t/+"))))
    assert [(each.packet, each.queued.message, each.queued.filter) for each in asked.change.packets] == [
        (1, "m1", "t/#"), (2, "m1", "t/+"), (3, "m1", "t/1"), (4, "m2", "t/#"), (5, "m2", "t/+"),
    ]  # fmt: skip
    assert asked.change.taken == Map({"w": (1, 2)})
    assert all(not each.queued.more for each in asked.change.packets)
    marked, *sent = one.feed(StateCommitted())
    assert (marked.number, marked.until) == (1, 2)
    assert [(each.packet, each.filter) for each in sent] == [
        (1, "t/#"), (2, "t/+"), (3, "t/1"), (4, "t/#"), (5, "t/+"),
    ]  # fmt: skip


def test_PS_550_where_one_copy_was_acknowledged_before_a_crash_the_other_alone_comes_again_as_a_repeat():
    one = delivery(maximum=9)
    (asked,) = one.feed(Take("w", 1, (overlapping(1, "t/#", "t/+"),)))
    one.feed(StateCommitted())
    stored = change_state(SessionState(), asked.change, 0)
    one.feed(Puback(1))
    stored = change_state(stored, change_with_receipts(one.record), 0)
    (again,) = delivery(maximum=9, state=stored).feed(Resend())
    assert again == Publish(2, "m1", "t/+", 1, True)


def test_PS_550_what_the_client_has_no_room_for_is_queued_copy_by_copy():
    one = delivery(maximum=2)
    (asked,) = one.feed(Take("w", 1, (overlapping(1, "a", "b", "c"),)))
    assert [each.queued.filter for each in asked.change.packets] == ["a", "b"]
    assert [each.filter for each in asked.change.queued] == ["c"]
    one.feed(StateCommitted())
    (asked,) = one.feed(Puback(1))
    assert [(each.packet, each.queued.filter) for each in asked.change.packets] == [(3, "c")]


def test_PS_550_a_row_whose_message_is_gone_is_one_that_is_lost():
    one = delivery()
    one.feed(Take("w", 1, (replace(overlapping(1, "a", "b"), message=""),)))
    assert one.record.lost == 1
    assert not one.record.state.queued
    assert not one.record.state.packets

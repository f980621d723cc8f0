"""Messages that an application gives back, and those that failed elsewhere: the session (SS-332 to SS-338)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_session import A, B, Bench

from statemachines.kernel import LocalProtocolError
from statemachines.shared_subscriptions.borrower import LeaseBegan, LeaseEnded
from statemachines.shared_subscriptions.returned_messages import BACK_OFF_NS, check_nack
from statemachines.shared_subscriptions.session import Ack, DelayEnd, Deliver, Nack, Progressed, Ready, Take
from statemachines.shared_subscriptions.session_record import reading_key
from statemachines.shared_subscriptions.stream import Finish, Install, Uninstall

SECOND = 1_000_000_000


def ack(bench, first, last=None, stream="a"):
    return bench.feed(Ack(B, stream, 1, first, first if last is None else last))


def nack(bench, offset, delay_ns=0, stream="a", grant=1):
    return bench.feed(Nack(B, stream, grant, offset, delay_ns))


def take(bench, limit=1):
    """What is handed over, after what can be fetched was.  Where a message that failed is the next, that is said."""
    bench.settle()
    told = bench.feed(Take(limit))
    got = [event for event in told if isinstance(event, Deliver)]
    for one in got:
        reading = bench.node.record.readings[reading_key(one.owner, one.stream)]
        is_next = one.failed > 0 and one.first == reading.progress
        said = Progressed(one.owner, one.stream, one.grant, one.first, False, one.failed, True)
        assert (said in told) is is_next
    return got


def test_SS_332_a_message_that_is_given_back_comes_before_anything_behind_it():
    bench = Bench(a=5).reading()
    bench.feed(Take(3))
    ack(bench, 0)
    ack(bench, 2)
    assert nack(bench, 1) == [Progressed(B, "a", 1, 1, False, 1)]
    assert take(bench, 9) == [Deliver(B, "a", 1, 1, 1, 1, 3)], "2 is acknowledged"
    assert take(bench, 9) == [Deliver(B, "a", 1, 3, 4)]
    assert ack(bench, 1)[-1] == Progressed(B, "a", 1, 3)
    assert bench.node.record.readings[A].handed == 0


def test_SS_332_what_was_handed_over_behind_it_comes_again_and_may_be_acknowledged_late():
    bench = Bench(a=4).reading()
    bench.feed(Take(4))
    assert nack(bench, 1) == [], "the first that is not acknowledged is another"
    ack(bench, 2)
    assert take(bench, 9) == [Deliver(B, "a", 1, 1, 1, 1, 4)]
    assert take(bench, 9) == [Deliver(B, "a", 1, 3, 3, 0, 4)]
    assert ack(bench, 0)[-1] == Progressed(B, "a", 1, 1, False, 1, True)


def test_SS_332_what_was_given_back_may_be_acknowledged_after_all():
    bench = Bench(a=4).reading()
    bench.feed(Take(4))
    nack(bench, 0, 5 * SECOND)
    assert ack(bench, 0, 1)[-1] == Progressed(B, "a", 1, 2)
    assert not bench.node.record.readings[A].delayed
    assert take(bench, 9) == [Deliver(B, "a", 1, 2, 3, 0, 4)]


def test_SS_332_a_stream_that_had_ended_is_read_again():
    bench = Bench(a=2)
    bench.ended = {"a"}
    bench.reading()
    bench.feed(Take(2))
    ack(bench, 0)
    nack(bench, 1)
    assert take(bench) == [Deliver(B, "a", 1, 1, 1, 1, 2)]
    assert ack(bench, 1)[-1].progress == 2**63 - 1


def test_SS_332_a_stream_to_be_finished_is_given_back_with_it():
    bench = Bench(a=3).reading()
    bench.feed(Take(3))
    ack(bench, 0)
    bench.feed(Finish(B, "a", 1))
    assert nack(bench, 1) == [Progressed(B, "a", 1, 1, True, 1, True)], "2 was handed over, too"
    assert take(bench) == []


WRONG = {
    "of a grant that is over": (Nack(B, "a", 2, 1), "its lease or grant has ended"),
    "of a stream that is not there": (Nack(B, "b", 1, 1), "its lease or grant has ended"),
    "acknowledged": (Nack(B, "a", 1, 0), "it was acknowledged"),
    "acknowledged out of order": (Nack(B, "a", 1, 4), "it was acknowledged"),
    "twice": (Nack(B, "a", 1, 3), "it was given back before"),
    "not handed over": (Nack(B, "a", 1, 6), "it was not handed over"),
}


@pytest.mark.parametrize("case", WRONG)
def test_SS_333_what_is_not_in_hand_cannot_be_given_back(case):
    event, why = WRONG[case]
    bench = Bench(a=8).reading()
    bench.feed(Take(6))
    ack(bench, 0)
    ack(bench, 4)
    nack(bench, 3)
    with pytest.raises(LocalProtocolError, match="SS-333"):
        bench.feed(event)
    with pytest.raises(LocalProtocolError, match=f"message {event.offset} of {event.stream} cannot be given .*{why}"):
        check_nack(bench.node.record, event, 9)


def test_SS_333_after_the_lease_nothing_can_be_given_back():
    bench = Bench(a=8).reading()
    bench.feed(Take(6))
    bench.feed(LeaseEnded(B))
    with pytest.raises(LocalProtocolError, match="SS-333"):
        nack(bench, 0)


def test_SS_333_who_holds_an_earlier_delivery_gives_nothing_back():
    bench = Bench(a=8).reading()
    bench.feed(Take(1))
    nack(bench, 0)
    take(bench)
    check_nack(bench.node.record, Nack(B, "a", 1, 0), 1)
    with pytest.raises(LocalProtocolError, match="and handed over again: give that one back"):
        check_nack(bench.node.record, Nack(B, "a", 1, 0), 0)


def test_SS_334_with_a_delay_the_stream_waits_and_others_go_on():
    bench = Bench(a=3, b=3).reading()
    bench.feed(Install(B, "b", 1, 0))
    bench.settle()
    bench.feed(Take(1))
    nack(bench, 0, 5 * SECOND)
    began = bench.now
    assert [one.stream for one in take(bench, 9)] == ["b"]
    assert take(bench, 9) == []
    bench.feed(LeaseEnded(B))
    bench.feed(LeaseBegan(B))
    assert take(bench, 9) == []
    while bench.now < began + 5 * SECOND:
        bench.tick()
        if bench.asks:
            bench.serve()
    assert take(bench, 9) == [Deliver(B, "a", 1, 0, 2, 1, 1)]


def test_SS_334_a_delay_that_is_over_changes_nothing():
    bench = Bench(a=3).reading()
    bench.feed(Take(1))
    nack(bench, 0, SECOND)
    bench.feed(Uninstall(B, "a", 1))
    bench.feed(DelayEnd(A))
    assert bench.clauses[-1] == "SS-334"
    bench.feed(Install(B, "a", 2, 0))
    assert take(bench) == [Deliver(B, "a", 2, 0, 0)]


def test_SS_335_a_message_that_failed_twice_waits_longer_each_time():
    waits = []
    for failed in (1, 2, 3, 8, 9, 100):
        bench = Bench(a=3)
        bench.feed(LeaseBegan(B))
        bench.feed(Install(B, "a", 1, 0, failed))
        waits.append(bench.node.armed_timers().get(("delay", A), 0) // BACK_OFF_NS)
        bench.now = waits[-1] * BACK_OFF_NS
        bench.perform(bench.node.fire(bench.now))
        assert take(bench, 9) == [Deliver(B, "a", 1, 0, 2, failed)]
    assert waits == [0, 1, 2, 64, 64, 64]


def suspicious(**lengths):
    """Stream `a` whose first message failed once, in a group where two failures are enough; `b` beside it."""
    bench = Bench(**lengths)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "b", 1, 0))
    bench.settle()
    bench.feed(Take(1))
    bench.feed(Install(B, "a", 1, 0, 1, 2))
    return bench


def test_SS_337_SS_339_a_message_that_failed_is_handed_over_alone():
    bench = suspicious(a=3, b=5)
    assert [one.stream for one in take(bench)] == ["b"], "it has its turn first"
    assert take(bench) == [], "two of b are in hand"
    assert Ready() in ack(bench, 0, stream="b")
    assert take(bench) == []
    ack(bench, 1, stream="b")
    assert take(bench, 9) == [Deliver(B, "a", 1, 0, 0, 1)]
    assert take(bench) == [], "nothing beside it"
    assert Ready() in ack(bench, 0)
    assert [(one.stream, one.first, one.last) for one in (*take(bench, 9), *take(bench, 9))] == [
        ("b", 2, 4),
        ("a", 1, 2),
    ]


def test_SS_337_it_stays_alone_while_its_lease_is_out():
    bench = suspicious(a=3, b=5)
    ack(bench, 0, stream="b")
    while (got := take(bench))[0].stream != "a":
        ack(bench, got[0].first, stream="b")
    bench.feed(LeaseEnded(B))
    bench.feed(LeaseBegan(B))
    assert take(bench) == []
    ack(bench, 0)
    assert take(bench)


def test_SS_337_without_a_bound_nothing_is_handed_over_alone():
    bench = Bench(a=3)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0, 1, 0))
    assert take(bench, 9) == [Deliver(B, "a", 1, 0, 2, 1)]


@pytest.mark.parametrize("event", [Uninstall(B, "a", 1), Finish(B, "a", 1), Install(B, "a", 2, 0)])
def test_SS_337_others_go_on_when_the_stream_is_gone(event):
    bench = suspicious(a=3, b=5)
    take(bench)
    take(bench)
    bench.feed(event)
    assert [one.stream for one in take(bench)] == ["b"]


def test_SS_338_a_message_that_failed_too_often_waits_for_the_leader():
    bench = suspicious(a=3, b=5)
    ack(bench, 0, stream="b")
    while not (got := take(bench)) or got[0].stream != "a":
        ack(bench, got[0].first, stream="b")
    assert nack(bench, 0, 5 * SECOND) == [Progressed(B, "a", 1, 0, False, 2), Ready()]
    assert ("delay", A) not in bench.node.armed_timers()
    assert {one.stream for one in (*take(bench, 9), *take(bench, 9))} <= {"b"}
    assert bench.feed(Finish(B, "a", 1)) == [Progressed(B, "a", 1, 0, True, 2)]


MOVES = st.lists(
    st.tuples(st.sampled_from(("take", "ack", "nack", "delay")), st.integers(0, 7), st.integers(1, 4)), max_size=30
)


@given(moves=MOVES, failed=st.integers(0, 2), most=st.sampled_from((0, 3)))
def test_SS_332_whatever_is_given_back_comes_again_in_order(moves, failed, most):
    """Nothing is lost, and nothing that is acknowledged comes again."""
    bench = Bench(a=8)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0, failed, most))
    acked, in_hand = set(), set()
    for move, number, limit in (*moves, *((("take", 0, 1), ("ack all", 0, 1)) * 20)):
        reading = bench.node.record.readings[reading_key(B, "a")]
        if move == "take":
            for _ in range(8):
                bench.tick()
                if bench.asks:
                    bench.serve()
            for one in take(bench, limit):
                handed = set(range(one.first, one.last + 1))
                assert not handed & acked
                assert all(at in acked or at in in_hand for at in range(one.first)), "order"
                in_hand |= handed
        elif move in ("ack", "ack all"):
            chosen = sorted(in_hand) if move == "ack all" else sorted(in_hand)[number : number + 1]
            for at in chosen:
                ack(bench, at)
            acked |= set(chosen)
            in_hand -= set(chosen)
        elif reading.progress <= number < reading.delivered and number not in acked and reading.failed < 2:
            nack(bench, number, SECOND if move == "delay" else 0)
            in_hand = {at for at in in_hand if at < number}
    assert bench.node.record.readings[A].progress == 8

"""Relaxed order: streams go on where messages are given back, and the holes stand beside the progress (SS-405 to
SS-410)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from test_leader import CONFIGURATION, Bench, declared, only
from test_session import A, B
from test_session import Bench as SessionBench

from statemachines.kernel import LocalProtocolError, Map
from statemachines.shared_subscriptions.acknowledged_ranges import RANGES_PER_MESSAGE, join_ranges, limit_reports
from statemachines.shared_subscriptions.borrower import LeaseBegan
from statemachines.shared_subscriptions.claim import Halt
from statemachines.shared_subscriptions.group_store import FailingMessage, StoredRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    HOLES_MAX,
    Disconnect,
    Grant,
    Ping,
    Report,
    UpdateProgress,
)
from statemachines.shared_subscriptions.progress_cover import ProgressRefused, StreamBehind
from statemachines.shared_subscriptions.relaxed_order import is_full
from statemachines.shared_subscriptions.returned_messages import BACK_OFF_NS, check_nack
from statemachines.shared_subscriptions.session import Ack, Deliver, Nack, Progressed, ReturnEnd, Take
from statemachines.shared_subscriptions.stream import Finish, Install

SECOND = 1_000_000_000
POLL_NS = 20_000_000
COUNTING = replace(CONFIGURATION, count_deliveries=True)
STREAM = "1.0/t00000"
KEY = f"/1.1/g/#:progress-failing:{STREAM}"


# -- ranges -----------------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=12),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=12),
)
def test_SS_407_ranges_say_what_was_said_in_whatever_order(progress, these, those):
    these, those = ([(first, first + more) for first, more in part] for part in (these, those))
    wanted = set(range(progress)).union(*(range(first, last + 1) for first, last in [*these, *those]))
    at, ranges = join_ranges(progress, these, those)
    assert (at, ranges) == join_ranges(progress, those, these) == join_ranges(at, ranges)
    assert wanted == set(range(at)).union(*(range(first, last + 1) for first, last in ranges))
    assert at not in wanted, "the progress is the first that is not acknowledged"


def test_SS_408_no_more_ranges_are_kept_than_a_stream_may_have_holes():
    many = [(2 * number, 2 * number) for number in range(1, HOLES_MAX + 50)]
    assert join_ranges(0, many) == (0, tuple(many[:HOLES_MAX]))
    reports = tuple(Report(f"s{number}", 1, 0, False, acked=tuple(many[:HOLES_MAX])) for number in range(9))
    limited = limit_reports(reports)
    assert sum(len(one.acked) for one in limited) == RANGES_PER_MESSAGE
    assert limited[0] == reports[0]


@pytest.mark.parametrize("said", [(5, 3), (7, END_OF_STREAM), (7, END_OF_STREAM - 1)])
def test_SS_409_a_range_that_none_can_be_counts_for_nothing(said):
    assert join_ranges(2, [said], [(9, 9)]) == (2, ((9, 9),))


# -- the session ------------------------------------------------------------------------------------------------------


def relaxed(progress=0, acked=(), failed=0, most=0, buffer=64, **lengths):
    bench = SessionBench(buffer, **lengths)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, progress, failed, most, True, acked))
    return bench


def take(bench, limit=9):
    """What is handed over, after what can be fetched now was."""
    for _ in range(4):
        if (bench.node.deadline() or 0) <= bench.now + POLL_NS:
            bench.tick()
        if bench.asks:
            bench.serve()
    return [one for one in bench.feed(Take(limit)) if isinstance(one, Deliver)]


def ack(bench, first, last=None):
    return bench.feed(Ack(B, "a", 1, first, first if last is None else last))


def nack(bench, offset, delay_ns=0):
    return bench.feed(Nack(B, "a", 1, offset, delay_ns))


def wait(bench, until_ns):
    bench.now = until_ns
    bench.perform(bench.node.fire(until_ns))
    if bench.asks:
        bench.serve()


def test_SS_406_the_stream_goes_on_and_the_message_comes_later_alone_and_marked():
    bench = relaxed(a=9)
    assert take(bench, 3) == [Deliver(B, "a", 1, 0, 2)]
    assert nack(bench, 1, 5 * SECOND) == [Progressed(B, "a", 1, 0)]
    assert ack(bench, 0)[-1] == Progressed(B, "a", 1, 1, failed=1)
    assert ack(bench, 2)[-1] == Progressed(B, "a", 1, 1, failed=1, acked=((2, 2),)), "what is in hand stays in hand"
    assert take(bench) == [Deliver(B, "a", 1, 3, 8)]
    assert ack(bench, 3, 8)[-1] == Progressed(B, "a", 1, 1, failed=1, acked=((2, 8),))
    assert take(bench) == []
    wait(bench, 6 * SECOND)
    assert take(bench) == [Deliver(B, "a", 1, 1, 1, 1, 2)]
    assert ack(bench, 1)[-1] == Progressed(B, "a", 1, 9)
    assert not bench.node.record.readings[A].returned


def test_SS_406_it_comes_before_anything_that_was_not_handed_over_yet():
    bench = relaxed(a=9)
    take(bench, 2)
    nack(bench, 0)
    assert take(bench) == [Deliver(B, "a", 1, 0, 0, 1, 1)]
    assert take(bench) == [Deliver(B, "a", 1, 2, 8)]


def test_SS_406_it_may_be_acknowledged_after_all_and_does_not_come_again():
    bench = relaxed(a=4)
    take(bench)
    nack(bench, 0, SECOND)
    assert ack(bench, 0, 3)[-1] == Progressed(B, "a", 1, 4)
    assert ("return", f"{A} 0") not in bench.node.armed_timers()
    for key in (f"{A} 0", "nobody 0", f"{A} x"):
        bench.feed(ReturnEnd(key))
        assert bench.clauses[-1] == "SS-406"
    assert take(bench) == []


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_SS_406_only_what_is_in_hand_is_given_back(offset):
    bench = relaxed(a=9)
    take(bench, 3)
    nack(bench, 0, SECOND)
    ack(bench, 1)
    with pytest.raises(LocalProtocolError, match=r"given back before|acknowledged|not handed over"):
        check_nack(bench.node.record, Nack(B, "a", 1, offset), 0)


def test_SS_406_a_stream_to_be_finished_has_nothing_in_hand_while_messages_wait():
    bench = relaxed(a=3)
    take(bench)
    nack(bench, 0, SECOND)
    ack(bench, 1)
    assert bench.feed(Finish(B, "a", 1)) == []
    assert ack(bench, 2)[-1] == Progressed(B, "a", 1, 0, True, 1, acked=((1, 2),))


def test_SS_407_the_next_owner_passes_over_what_is_acknowledged():
    bench = relaxed(2, ((4, 5), (8, 8)), a=12)
    assert take(bench) == [Deliver(B, "a", 1, 2, 3, 0, 9)]
    assert take(bench) == [Deliver(B, "a", 1, 6, 7, 0, 9)]
    assert take(bench) == [Deliver(B, "a", 1, 9, 11)]
    assert ack(bench, 2, 3)[-1].progress == 6
    assert ack(bench, 6, 7)[-1].progress == 9


def test_SS_407_what_failed_elsewhere_is_given_back_and_nothing_acknowledged_comes_again():
    bench = relaxed(2, ((3, 5),), 1, 3, a=8)
    assert take(bench) == [Deliver(B, "a", 1, 2, 2, 1, 6)]
    nack(bench, 2, SECOND)
    assert take(bench) == [Deliver(B, "a", 1, 6, 7)]


def test_SS_408_beyond_so_many_holes_the_stream_waits(monkeypatch):
    monkeypatch.setattr("statemachines.shared_subscriptions.relaxed_order.HOLES_MAX", 5)
    bench = relaxed(buffer=8, a=40)
    got = []
    for _ in range(40):
        for one in take(bench, 1):
            got.append(one.first)
            nack(bench, one.first, SECOND)
    most = max(got)
    assert 5 <= most < 5 + 8, "what was fetched is handed over; nothing more is fetched"
    wait(bench, 2 * SECOND)
    for _ in range(80):
        for one in take(bench, 1):
            ack(bench, one.first, one.last)
    assert bench.node.record.readings[A].progress == 40


@pytest.mark.parametrize("kind", ["returned", "acked"])
def test_SS_408_it_is_full_with_its_last_hole(monkeypatch, kind):
    monkeypatch.setattr("statemachines.shared_subscriptions.relaxed_order.HOLES_MAX", 3)
    holes = {"returned": Map(), "acked": Map()}
    for count in range(5):
        assert is_full(SimpleNamespace(fetched=9, **holes)) is (count >= 3)
        holes[kind] = holes[kind].set(count, count)


def bound(monkeypatch, most):
    for module in ("relaxed_order", "acknowledged_ranges"):
        monkeypatch.setattr(f"statemachines.shared_subscriptions.{module}.HOLES_MAX", most)


def test_SS_408_a_stream_that_is_granted_with_all_its_holes_goes_on(monkeypatch):
    """The holes are what is fetched first; nothing behind the last of them is, until one is filled."""
    bound(monkeypatch, 3)
    bench = relaxed(0, ((1, 1), (3, 3), (5, 5)), buffer=4, a=20)
    got = []
    for _ in range(20):
        for one in take(bench, 1):
            got.append(one.first)
            ack(bench, one.first, one.last)
    assert got == [0, 2, 4, *range(6, 20)]
    assert bench.node.record.readings[A].progress == 20


def test_SS_408_what_is_acknowledged_beyond_so_many_ranges_is_not_forgotten(monkeypatch):
    bound(monkeypatch, 3)
    bench = relaxed(buffer=16, a=40)
    got = []

    def deal():
        for one in take(bench, 1):
            got.append(one.first)
            if one.first % 2 or one.failed:
                ack(bench, one.first)
            else:
                nack(bench, one.first, SECOND)

    for _ in range(40):
        deal()
    assert len(bench.node.record.readings[A].acked) > 3, "as the test supposes"
    for second in range(2, 80):
        wait(bench, second * SECOND)
        deal()
    assert bench.node.record.readings[A].progress == 40
    assert sorted(got) == sorted([*range(40), *range(0, 40, 2)])


def test_SS_337_where_deliveries_are_bounded_it_comes_when_nothing_else_is_in_hand():
    bench = relaxed(most=3, a=4)
    take(bench)
    nack(bench, 2)
    assert take(bench) == []
    ack(bench, 0, 1)
    assert take(bench) == []
    ack(bench, 3)
    assert take(bench) == [Deliver(B, "a", 1, 2, 2, 1, 3)]


def test_SS_338_one_that_failed_too_often_waits_for_the_leader_and_the_stream_goes_on():
    bench = relaxed(most=1, a=9)
    take(bench, 2)
    assert nack(bench, 1)[-1] == Progressed(B, "a", 1, 0)
    assert ack(bench, 0)[-1] == Progressed(B, "a", 1, 1, failed=1)
    assert take(bench) == [Deliver(B, "a", 1, 2, 8)]
    wait(bench, 99 * SECOND)
    assert take(bench) == []


@pytest.mark.parametrize("order", ["strict", "relaxed"])
def test_SS_410_given_back_again_and_again_it_waits_longer_each_time(order):
    bench = relaxed(a=3) if order == "relaxed" else SessionBench(a=3).reading()
    name, key = ("return", f"{A} 0") if order == "relaxed" else ("delay", A)
    waits = []
    for _ in range(5):
        assert [one.first for one in take(bench, 1)] == [0]
        nack(bench, 0)
        until = bench.node.armed_timers().get((name, key), bench.now)
        waits.append((until - bench.now) // BACK_OFF_NS)
        wait(bench, until)
    assert waits == [0, 1, 2, 4, 8]
    assert [one.first for one in take(bench, 1)] == [0]
    nack(bench, 0, 3 * SECOND)
    assert bench.node.armed_timers()[name, key] == bench.now + 3 * SECOND, "what the application says counts"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60),
    st.sampled_from([0, 3]),
    st.lists(st.tuples(st.integers(1, 11), st.integers(0, 3)), max_size=3),
)
def test_SS_406_whatever_is_given_back_everything_comes_and_nothing_acknowledged_again(moves, most, before):
    """S6, S13 and S14 of one session: messages are taken, acknowledged and given back in any order."""
    _, acked = join_ranges(0, [(first, min(first + more, 11)) for first, more in before])
    bench = relaxed(0, acked, 0, most, a=12)
    done = {offset for first, last in acked for offset in range(first, last + 1)}
    hand, spent = [], {}

    def receive(limit):
        for one in take(bench, limit):
            offsets = range(one.first, one.last + 1)
            assert not done.intersection(offsets)
            assert not set(hand).intersection(offsets)
            hand.extend(offsets)

    for move, place in moves:
        if move == 0:
            receive(1 + place)
        elif hand:
            offset = hand.pop(place % len(hand))
            if move == 1:
                ack(bench, offset)
                done.add(offset)
            else:
                spent[offset] = spent.get(offset, 0) + 1
                nack(bench, offset, (move - 2) * SECOND)
        reading = bench.node.record.readings[A]
        assert all(offset in done for offset in range(reading.progress))
    for _ in range(30):
        for offset in hand:
            ack(bench, offset)
            done.add(offset)
        hand.clear()
        wait(bench, bench.now + 65 * SECOND)
        receive(9)
    assert set(range(12)) - done == {offset for offset, count in spent.items() if 0 < most <= count} - done


# -- the leader -------------------------------------------------------------------------------------------------------


def led(configuration=CONFIGURATION, order="relaxed", **options):
    groups = declared(configuration)
    ((key, stored),) = groups.items()
    bench = Bench(
        1, Map({key: StoredRecord(replace(stored.value, order=order), 0)}), configuration=configuration, **options
    )
    (grant,) = only(Grant, bench.start().join("c1"))
    bench.ping("c1")
    return bench, grant


def say(bench, grant, progress, acked=(), failed=0, finished=False):
    pair = (grant.borrower, grant.epoch, grant.registration)
    return bench.feed(UpdateProgress(*pair, grant.stream, grant.grant, progress, finished, failed, False, acked))


def failing(bench):
    found = bench.groups.get(KEY)
    return None if found is None else found.value


def test_SS_407_what_is_acknowledged_behind_the_progress_is_durable_with_it_and_granted_onward():
    bench, grant = led(COUNTING)
    assert (grant.relaxed, grant.acked) == (True, ())
    say(bench, grant, 2, ((4, 5), (7, 7)), failed=1)
    bench.at(bench.now + 1_100)
    assert bench.stored(f"progress:{STREAM}") == 2
    assert failing(bench) == FailingMessage(2, 1, acked=((4, 5), (7, 7)))
    say(bench, grant, 4)
    bench.at(bench.now + 1_100)
    assert bench.stored(f"progress:{STREAM}") == 6, "an acknowledgement stays true"
    assert failing(bench) == FailingMessage(6, 0, acked=((7, 7),))
    say(bench, grant, 8)
    bench.at(bench.now + 1_100)
    assert failing(bench) is None


@pytest.mark.parametrize("way", ["report", "farewell", "death"])
def test_SS_407_the_next_member_gets_the_holes_and_so_does_the_next_leader(way):
    bench, grant = led()
    report = Report(STREAM, grant.grant, 2, False, acked=((4, 9),))
    if way == "farewell":
        bench.feed(Disconnect(grant.borrower, 1, grant.registration, (report,)))
    else:
        bench.feed(Ping(grant.borrower, 1, grant.registration, 2, (report,)))
        bench.at(bench.now + 9_000)
    (onward,) = only(Grant, bench.join("c2"))
    assert (onward.progress, onward.acked) == (2, ((4, 9),))
    bench.feed(Halt())
    again = Bench(0, bench.groups, "leader-2", now_ms=bench.now)
    again.streams = bench.streams
    again.start()
    again.at(again.now + 20_000)
    (later,) = only(Grant, again.join("c3"))
    assert (later.progress, later.relaxed, later.acked) == (2, True, ((4, 9),))


def test_SS_407_a_member_that_was_kicked_is_believed_in_its_last_word():
    bench, grant = led(replace(COUNTING, max_deliver=1))
    say(bench, grant, 1, ((3, 3),), failed=1)
    while bench.record.members[grant.borrower].status is REGISTERED:
        bench.at(bench.now + 1_000)
        bench.ping("c1", bench.now)
    last = Report(STREAM, grant.grant, 2, False, acked=((3, 3), (6, 6)))
    bench.feed(Disconnect(grant.borrower, 1, grant.registration, (last,)))
    bench.at(bench.now + 1_100)
    assert failing(bench) == FailingMessage(2, 0, acked=((3, 3), (6, 6)))


def test_SS_405_where_the_order_is_strict_ranges_count_for_nothing():
    bench, grant = led(order="strict")
    assert (grant.relaxed, grant.acked) == (False, ())
    say(bench, grant, 2, ((4, 5),))
    bench.at(bench.now + 1_100)
    assert (bench.stored(f"progress:{STREAM}"), failing(bench)) == (2, None)


def test_SS_409_ranges_beyond_what_is_stored_are_refused_and_their_member_is_kicked():
    bench, grant = led()
    say(bench, grant, 2, ((4, 10),))
    assert [one for one in bench.told if isinstance(one, ProgressRefused)]
    bench.at(bench.now + 9_000)
    assert not bench.record.members
    assert failing(bench) is None


def test_SS_409_a_stream_with_less_in_the_store_than_was_acknowledged_is_not_granted():
    bench, grant = led()
    say(bench, grant, 2, ((4, 9),))
    bench.feed(Halt())
    again = Bench(0, bench.groups, "leader-2", now_ms=bench.now)
    again.streams = bench.streams
    short = replace(again.streams.by_id[STREAM], count=9)
    again.streams = replace(again.streams, by_id=again.streams.by_id.set(STREAM, short))
    again.start()
    again.at(again.now + 20_000)
    assert [one.stream for one in again.told if isinstance(one, StreamBehind)] == [STREAM]
    assert only(Grant, again.join("c3")) == []


def test_SS_407_a_message_that_is_set_aside_joins_what_is_acknowledged_behind_it():
    bench, grant = led(replace(COUNTING, max_deliver=1, spent="drop"))
    sent = say(bench, grant, 2, ((3, 6),), failed=1)
    assert sent, "the stream is taken back"
    say(bench, grant, 2, ((3, 6),), failed=1, finished=True)
    bench.at(bench.now + 30_000)
    (onward,) = only(Grant, bench.join("c2"))
    assert (onward.progress, onward.acked, onward.failed) == (7, (), 0)

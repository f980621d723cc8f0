"""Relaxed order where a loop or another bound is needed (SS-406 to SS-408); the rest is `steps/relaxed_order.txt`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_session import A, B
from test_session import Bench as SessionBench

from statemachines.kernel import Map
from statemachines.shared_subscriptions.acknowledged_ranges import RANGES_PER_MESSAGE, join_ranges, limit_reports
from statemachines.shared_subscriptions.borrower import LeaseBegan
from statemachines.shared_subscriptions.message import (
    HOLES_MAX,
    Report,
)
from statemachines.shared_subscriptions.relaxed_order import is_full
from statemachines.shared_subscriptions.session import Ack, Deliver, Nack, Take
from statemachines.shared_subscriptions.stream import Install

SECOND = 1_000_000_000
POLL_NS = 20_000_000


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

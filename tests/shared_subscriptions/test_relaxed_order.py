"""Relaxed order where a loop or another bound is needed (SS-406 to SS-408); the rest is `steps/relaxed_order.txt`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_session import A, B
from test_session import Bench as SessionBench

from statemachines.kernel import Map
from statemachines.shared_subscriptions.acknowledged_ranges import join_ranges
from statemachines.shared_subscriptions.borrower import LeaseBegan
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

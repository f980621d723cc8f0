"""SS-264 to SS-267: a member has a window of unanswered grants and of streams that are taken back, and a member that
goes frees many streams a part at a time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from test_leader import CONFIGURATION, Bench, only

from statemachines.shared_subscriptions import member, membership, plan
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Grant,
    LeaderWanted,
    Revoke,
)


def bench_of(topics, window, **times):
    return Bench(topics, configuration=replace(CONFIGURATION, grant_window=window, **times).check()).start()


def wanted(bench, name):
    """A borrower registers: what it is sent."""
    return bench.feed(LeaderWanted(f"{name}~1/1", "g", "#"))


def answer_all(bench, sent):
    """Every grant that is sent is answered, until none comes any more: the grants."""
    grants = only(Grant, sent)
    for one in grants:
        grants += only(Grant, bench.progress(one))
    return grants


def test_SS_266_the_latest_of_many_streams_are_sorted_out_once_for_many(monkeypatch):
    monkeypatch.setattr(plan, "LATEST_MAX", 4)
    bench = bench_of(12, 2)
    grants = answer_all(bench, wanted(bench, "a"))
    waiting = only(Revoke, wanted(bench, "b"))
    assert [one.stream for one in waiting] == [one.stream for one in grants[:-3:-1]]
    assert len(bench.record.members["a~1/1"].latest) == 2
    taken = []
    while waiting:
        taken.append(waiting[0].stream)
        sent = bench.finish(waiting.pop(0))
        waiting += only(Revoke, sent)
        answer_all(bench, sent)
    assert taken == [one.stream for one in grants[:-7:-1]]


def free_four_at_a_time(monkeypatch):
    for module in (member, membership):
        monkeypatch.setattr(module, "FREED_MAX", 4)


def left(bench, name, end):
    """A member with many streams goes in this way: what is sent."""
    record = bench.record
    if end == "disconnect":
        return bench.feed(Disconnect(f"{name}~1/1", record.epoch, record.members[f"{name}~1/1"].link.registration, ()))
    return bench.at(bench.now + 5_000)  # it is not heard any more


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("end", ["disconnect", "expiry"])
def test_SS_267_many_streams_become_free_a_part_at_a_time(monkeypatch, end, exclusive):
    free_four_at_a_time(monkeypatch)
    bench = bench_of(10, 10, exclusive=exclusive)
    answer_all(bench, wanted(bench, "a"))
    left(bench, "a", end)
    if end == "disconnect":
        assert (len(bench.record.free), len(bench.record.members)) == (0, 1)
        bench.at(bench.now + 1)
        assert (len(bench.record.free), len(bench.record.members)) == (4, 1)
    bench.at(bench.now + 10)
    record = bench.record
    assert (len(record.free), len(record.members), len(record.assignments)) == (10, 0, 0)
    assert len(answer_all(bench, wanted(bench, "b"))) == 10

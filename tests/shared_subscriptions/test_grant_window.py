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
    Invalidate,
    LeaderWanted,
    Revoke,
    Revoked,
    UpdateProgress,
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


def test_SS_265_all_streams_are_granted_through_the_window_and_shared_evenly():
    bench = bench_of(50, 3)
    sent = wanted(bench, "a")
    sent += wanted(bench, "b")
    assert len(answer_all(bench, sent)) == 50
    assert sorted(one.count for one in bench.record.members.values()) == [25, 25]


def test_SS_266_streams_above_a_share_are_taken_back_a_window_at_a_time():
    bench = bench_of(12, 2)
    answer_all(bench, wanted(bench, "a"))
    waiting = only(Revoke, wanted(bench, "b"))
    assert len(waiting) == 2
    taken = 0
    while waiting:
        taken += 1
        assert sum(one.status in plan.TAKEN for one in bench.record.assignments.values()) <= 2
        sent = bench.finish(waiting.pop(0))
        waiting += only(Revoke, sent)
        answer_all(bench, sent)
    assert taken == 6
    assert sorted(one.count for one in bench.record.members.values()) == [6, 6]


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


def test_SS_267_a_lease_is_waited_for_before_the_first_part(monkeypatch):
    free_four_at_a_time(monkeypatch)
    bench = bench_of(10, 10)
    answer_all(bench, wanted(bench, "a"))
    bench.ping("a")
    answer_all(bench, wanted(bench, "b"))
    bench.feed(UpdateProgress("b~1/1", 1, 2, "none", 0, 0, False), 2_999)
    bench.at(5_000)  # a lapses; its lease ended long ago
    bench.at(5_010)
    assert list(bench.record.members) == ["b~1/1"]


def test_SS_267_what_a_member_on_its_way_out_says_changes_nothing(monkeypatch):
    free_four_at_a_time(monkeypatch)
    bench = bench_of(10, 10)
    grants = answer_all(bench, wanted(bench, "a"))
    left(bench, "a", "disconnect")
    assert bench.progress(grants[0], 10) == [Invalidate("a~1/1", 1, 1)]
    assert only(Revoked, left(bench, "a", "disconnect")) == []
    bench.at(bench.now + 10)
    assert len(bench.record.free) == 10

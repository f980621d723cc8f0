"""The Session, clause by clause (spec/shared_subscriptions.md SS-100 to SS-110)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statemachines.kernel import Ask, LocalProtocolError, Map, Node, Tell
from statemachines.shared_subscriptions.borrower import LeaseBegan, LeaseEnded
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.session import (
    SESSION,
    Ack,
    Acknowledged,
    Deliver,
    Reading,
    Ready,
    SessionRecord,
    SessionStatus,
    Take,
    join,
)
from statemachines.shared_subscriptions.stream import Finish, Install, StreamProgress, Uninstall
from statemachines.shared_subscriptions.stream_store import Batch, Fetched, FetchFailed

B = "c1~1/1"


class Bench:
    """A session over streams of a given length, whose store answers when `serve` is called."""

    def __init__(self, buffer=8, **lengths):
        self.lengths = lengths
        self.ended = set()
        self.now = 0
        self.asks = []
        self.told = []
        self.clauses = []
        self.node = Node(
            SESSION, SessionRecord("c1~1/0", buffer=buffer), name="c1~1/0", now_ns=0, check=True, observe=self.saw
        )

    def saw(self, node, event, before, step, now_ns):
        self.clauses.append(SESSION.lines[step.row].clause)

    def feed(self, event):
        return self.perform(self.node.feed(event, self.now))

    def perform(self, effects):
        told = [effect.event for effect in effects if isinstance(effect, Tell)]
        self.asks += [effect.request for effect in effects if isinstance(effect, Ask)]
        self.told += told
        return told

    def tick(self):
        """To the next timer."""
        deadline = self.node.deadline()
        if deadline is None:
            return []
        self.now = max(self.now, deadline)
        return self.perform(self.node.fire(self.now))

    def serve(self):
        """Answer the open fetch."""
        request = self.asks.pop()
        batches = []
        for one in request.slices:
            count = self.lengths.get(one.stream, 0)
            last = max(min(count, one.first + one.limit) - 1, one.first - 1)
            batches.append(
                Batch(one.stream, one.grant, one.first, last, one.stream in self.ended and last + 1 == count)
            )
        return self.feed(Fetched(request.n, tuple(batches)))

    def reading(self, progress=0, grant=1):
        """Lease, one stream `a`, its first batch fetched."""
        self.feed(LeaseBegan(B))
        self.feed(Install(B, "a", grant, progress))
        self.tick()
        self.serve()
        return self


def test_SS_100_nothing_is_fetched_or_delivered_before_the_lease():
    bench = Bench(a=5)
    bench.feed(Install(B, "a", 1, 0))
    assert bench.tick() == []
    assert bench.feed(Take(10)) == []
    assert bench.asks == []
    bench.feed(LeaseBegan(B))
    bench.tick()
    assert [one.stream for one in bench.asks[0].slices] == ["a"]
    assert bench.node.record.status is SessionStatus.FETCHING
    bench.feed(LeaseBegan(B))
    assert bench.clauses[-1] == "SS-100"
    assert len(bench.asks) == 1


def test_SS_101_the_end_of_the_lease_stops_it_and_voids_the_open_fetch():
    bench = Bench(a=5)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0))
    bench.tick()
    bench.feed(LeaseEnded(B))
    bench.serve()
    bench.feed(LeaseEnded(B))
    assert bench.node.record.readings["a"].fetched == 0
    bench.feed(LeaseBegan(B))
    bench.tick()
    assert bench.serve() == [Ready()]


def test_SS_102_a_stream_is_read_from_its_progress_under_its_grant():
    bench = Bench(a=5).reading(progress=3)
    assert bench.feed(Take(10)) == [Deliver("a", 1, 3, 4)]
    bench.feed(Install(B, "a", 2, 4))
    bench.feed(Install(B, "a", 1, 0))
    assert bench.node.record.readings["a"].grant == 2
    assert bench.feed(Take(10)) == []


def test_SS_103_one_fetch_at_a_time_and_a_pause_after_nothing():
    bench = Bench(a=2, b=0).reading()
    bench.feed(Install(B, "b", 2, 0))
    bench.tick()
    assert len(bench.asks) == 1
    assert bench.tick() == []
    bench.serve()
    assert bench.node.deadline() == bench.now + 20 * MS


def test_SS_103_a_stream_that_came_back_while_it_waited_is_asked_for_once():
    """Asked for twice in one fetch, its messages would be kept twice."""
    bench = Bench(a=4, b=4)
    bench.feed(Install(B, "a", 1, 0))
    bench.feed(Install(B, "b", 2, 0))
    bench.feed(Uninstall(B, "a", 1))
    bench.feed(Install(B, "a", 3, 0))
    bench.feed(LeaseBegan(B))
    bench.tick()
    assert [(one.stream, one.grant) for one in bench.asks[0].slices] == [("a", 3), ("b", 2)]


def test_SS_103_streams_take_turns():
    bench = Bench(buffer=2, **{f"s{number:02}": 2 for number in range(40)})
    for number in range(40):
        bench.feed(Install(B, f"s{number:02}", number + 1, 0))
    bench.feed(LeaseBegan(B))
    bench.tick()
    first = {one.stream for one in bench.asks[0].slices}
    bench.serve()
    bench.tick()
    second = {one.stream for one in bench.asks[0].slices}
    assert len(first) == 32
    assert len(first | second) == 40


def test_SS_104_only_what_continues_an_installed_grant_is_kept():
    bench = Bench(a=5)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0))
    bench.tick()
    n = bench.asks[0].n
    bench.feed(Fetched(n + 7, (Batch("a", 1, 0, 4, False),)))
    bench.feed(Fetched(n, (Batch("a", 9, 0, 4, False), Batch("a", 1, 1, 4, False), Batch("x", 1, 0, 1, False))))
    assert bench.node.record.readings["a"].fetched == 0
    bench.feed(Fetched(n, (Batch("a", 1, 0, 4, False),)))
    assert bench.node.record.readings["a"].fetched == 0, "one answer to a fetch"


def test_SS_105_a_failed_fetch_is_repeated():
    bench = Bench(a=5)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0))
    bench.tick()
    bench.feed(FetchFailed(bench.asks.pop().n))
    bench.tick()
    assert bench.serve() == [Ready()]


def test_SS_106_offsets_increase_and_never_more_in_hand_than_the_buffer():
    bench = Bench(buffer=4, a=100).reading()
    assert bench.feed(Take(3)) == [Deliver("a", 1, 0, 2)]
    assert bench.feed(Take(3)) == [Deliver("a", 1, 3, 3)]
    assert bench.feed(Take(3)) == []
    for _ in range(3):
        bench.tick()
    assert bench.asks == []
    bench.feed(Ack("a", 1, 0, 1))
    bench.tick()
    bench.serve()
    assert bench.feed(Take(9)) == [Deliver("a", 1, 4, 5)]


def test_SS_107_progress_is_the_fully_acknowledged_prefix():
    bench = Bench(a=8).reading()
    bench.feed(Take(8))
    assert bench.feed(Ack("a", 1, 2, 3)) == [Acknowledged("a", 1, 2, 3)]
    assert bench.feed(Ack("a", 1, 5, 5)) == [Acknowledged("a", 1, 5, 5)]
    assert bench.feed(Ack("a", 1, 0, 1)) == [Acknowledged("a", 1, 0, 1), StreamProgress("a", 1, 4)]
    assert bench.feed(Ack("a", 1, 0, 4)) == [Acknowledged("a", 1, 0, 4), StreamProgress("a", 1, 6)]


@pytest.mark.parametrize("ack", [Ack("a", 1, 0, 5), Ack("a", 1, 3, 2)])
def test_SS_107_acknowledging_what_was_never_delivered_is_an_error(ack):
    bench = Bench(a=8).reading()
    bench.feed(Take(5))
    with pytest.raises(LocalProtocolError, match="SS-107"):
        bench.feed(ack)


def test_SS_108_an_acknowledgement_of_a_grant_that_is_gone_changes_nothing():
    bench = Bench(a=8).reading()
    bench.feed(Take(5))
    bench.feed(Install(B, "a", 2, 0))
    before = bench.node.record.readings["a"]
    assert bench.feed(Ack("a", 1, 0, 4)) == []
    assert bench.feed(Ack("zzz", 1, 0, 4)) == []
    after = bench.node.record.readings["a"]
    assert (after.progress, after.acked) == (before.progress, before.acked)


def test_SS_109_a_finished_stream_reports_its_final_progress_when_nothing_is_in_hand():
    bench = Bench(a=8).reading()
    bench.feed(Take(3))
    assert bench.feed(Finish(B, "a", 1)) == []
    assert bench.feed(Take(3)) == []
    assert bench.feed(Ack("a", 1, 0, 2))[-1] == StreamProgress("a", 1, 3, True)
    idle = Bench(a=8).reading()
    assert idle.feed(Finish(B, "a", 1)) == [StreamProgress("a", 1, 0, True)]


def test_SS_109_the_end_of_a_stream_is_reported_when_all_of_it_is_acknowledged():
    bench = Bench(a=3)
    bench.ended = {"a"}
    bench.reading()
    bench.feed(Take(3))
    assert bench.feed(Ack("a", 1, 0, 2))[-1] == StreamProgress("a", 1, END_OF_STREAM)
    empty = Bench(a=0)
    empty.ended = {"a"}
    empty.feed(LeaseBegan(B))
    empty.feed(Install(B, "a", 1, 0))
    empty.tick()
    assert empty.serve() == [StreamProgress("a", 1, END_OF_STREAM)]


def test_SS_110_an_uninstalled_stream_is_dropped_and_repetitions_change_nothing():
    bench = Bench(a=8).reading()
    bench.feed(Uninstall(B, "a", 9))
    assert "a" in bench.node.record.readings
    bench.feed(Uninstall(B, "a", 1))
    assert bench.node.record.readings == Map()
    assert bench.feed(Take(3)) == []
    for event in (Uninstall(B, "a", 1), Finish(B, "a", 1)):
        assert bench.feed(event) == []


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=40))
def test_SS_107_the_prefix_is_what_a_set_of_offsets_says(acks):
    reading = Reading("a", 1, 0, 64, 64)
    known = set()
    for first, more in acks:
        reading = join(reading, first, first + more)
        known |= set(range(first, first + more + 1))
        prefix = next(offset for offset in range(64) if offset not in known)
        assert reading.progress == prefix

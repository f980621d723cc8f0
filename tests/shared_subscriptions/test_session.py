"""The Session, clause by clause (spec/shared_subscriptions/clauses.md SS-100 to SS-112)."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from statemachines.kernel import Ask, Node, Tell
from statemachines.shared_subscriptions.borrower import LeaseBegan
from statemachines.shared_subscriptions.session import (
    SESSION,
    Ack,
    Admit,
    SessionRecord,
    Take,
    join,
)
from statemachines.shared_subscriptions.session_record import StreamReading, reading_key
from statemachines.shared_subscriptions.stream import Install, Uninstall
from statemachines.shared_subscriptions.stream_store import Fetched, MessageBatch

B = "c1~1/1"
A = reading_key(B, "a")


class Bench:
    """A session over streams of a given length, whose store answers when `serve` is called."""

    def __init__(self, buffer=8, **lengths):
        self.lengths = lengths
        self.now = 0
        self.asks = []
        self.node = Node(SESSION, SessionRecord("c1~1/0", buffer=buffer), name="c1~1/0", now_ns=0, check=True)
        self.feed(Admit(B))

    def feed(self, event):
        return self.perform(self.node.feed(event, self.now))

    def perform(self, effects):
        told = [effect.event for effect in effects if isinstance(effect, Tell)]
        self.asks += [effect.request for effect in effects if isinstance(effect, Ask)]
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
            batches.append(MessageBatch(one.stream, one.grant, one.first, last, False))
        return self.feed(Fetched(request.n, tuple(batches)))

    def settle(self):
        """Fetch what there is."""
        for _ in range(4):
            self.tick()
            if self.asks:
                self.serve()

    def reading(self):
        """Lease, one stream `a`, its first batch fetched."""
        self.feed(LeaseBegan(B))
        self.feed(Install(B, "a", 1, 0))
        self.tick()
        self.serve()
        return self


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=40))
def test_SS_107_the_prefix_is_what_a_set_of_offsets_says(acks):
    reading = StreamReading(B, "a", 1, 0, 64, 64)
    known = set()
    for first, more in acks:
        reading = join(reading, first, first + more)
        known |= set(range(first, first + more + 1))
        prefix = next(offset for offset in range(64) if offset not in known)
        assert reading.progress == prefix


def test_an_event_costs_the_same_however_many_streams_there_are():
    """Reads of readings and leases are counted, not time."""

    def reads(streams):
        bench = Bench(a=5).reading()
        for number in range(streams):
            bench.feed(Install(B, f"s{number}", number + 2, 0))
        bench.feed(Take(2))
        record, counted = bench.node.record, Counted(bench.node.record.readings)
        for event in (Take(2), Ack(B, "a", 1, 0, 1), Install(B, "new", 9_999, 0), Uninstall(B, "a", 1)):
            SESSION.step(msgspec.structs.replace(record, readings=counted), event, 0)
        return counted.reads

    assert reads(1_000) == reads(10) > 0


class Counted:
    """A map that counts who looks into it."""

    def __init__(self, map):
        self.map, self.reads = map, 0

    def __getattr__(self, name):
        self.reads += 1
        return getattr(self.map, name)

    def __getitem__(self, key):
        self.reads += 1
        return self.map[key]

    def __len__(self):
        return len(self.map)

    def __iter__(self):
        raise AssertionError("a step walks over all readings")

"""The Session, clause by clause (spec/shared_subscriptions/clauses.md SS-100 to SS-112)."""

from hypothesis import given
from hypothesis import strategies as st

from statemachines.kernel import Ask, Node, Tell
from statemachines.shared_subscriptions.borrower import LeaseBegan
from statemachines.shared_subscriptions.session import (
    SESSION,
    Admit,
    SessionRecord,
    join,
)
from statemachines.shared_subscriptions.session_record import StreamReading, reading_key
from statemachines.shared_subscriptions.stream import Install
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

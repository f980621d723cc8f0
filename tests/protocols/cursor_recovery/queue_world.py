"""Writers over one shared memory, interleaved at every access, killed between any two; and what must hold all the time.

What a correct reader may do to the queue is done here in one stroke (`consume`): it moves the read head over what no
living writer is still busy with.
"""

from __future__ import annotations

from statemachines.cursor_recovery.block import checksum, commit_word, length_of
from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
    HEADER,
    READ_HEAD,
    WRITE_HEAD,
    CompareAndSwap,
    Memory,
    Queue,
    Store,
    incarnation_of,
    lock_of,
    state_of,
)
from statemachines.cursor_recovery.writer import WRITER
from statemachines.cursor_recovery.writer_record import OWNING, Outcome, Write, new_writer
from statemachines.kernel import Ask, Node, Tell

GUARD = 1_000
"""No write takes so many accesses in these small queues: what does not end by then blocks for ever."""


class Writer:
    """One write of one process: its node, the access it is about to make, and how it ended."""

    def __init__(self, world, slot, payload):
        life = world.word(incarnation_of(slot))
        self.world, self.slot, self.payload = world, slot, payload
        self.before = new_writer(world.queue, slot, life)
        name = f"w{slot}~{life}/{world.count}"
        self.node = Node(WRITER, self.before, name=name, now_ns=0, observe=self.compare, check=True)
        self.outcome = None
        self.position = -1
        self.start = None
        self.accesses = 0
        self.clauses = []
        self.asked = None
        self.take(self.node.feed(Write(payload), 0))

    def compare(self, node, event, status, step, now_ns):
        """Each step is the step of the reference engine."""
        assert step == WRITER.reference_step(self.before, event, now_ns)
        self.before = step.record
        self.clauses.append(WRITER.lines[step.row].clause)

    def take(self, effects):
        self.asked = None
        for effect in effects:
            if isinstance(effect, Ask):
                assert self.asked is None, "one access at a time"
                self.asked = effect.request
            elif isinstance(effect, Tell):
                self.outcome, self.position = effect.event.outcome, effect.event.position

    @property
    def status(self):
        return self.node.record.status

    @property
    def owns(self):
        """It has taken a write cursor and not yet tried to give it back."""
        return self.status in OWNING


class World:
    """The memory of a queue, the processes that live, and what was reserved and published."""

    def __init__(self, **queue):
        self.queue = Queue(**queue)
        self.memory = Memory(self.queue)
        self.state = self.memory.initial()
        self.now = 10**9
        self.count = 0
        self.living = {}
        self.reserved = []
        self.published = []

    def word(self, address):
        return self.state.get(address, 0)

    def put(self, address, value):
        self.state, _ = self.memory.apply(self.state, Store(address, value), self.now)

    # -- processes --------------------------------------------------------------------------------------------------

    def begin(self, slot, payload):
        """A process (a new one, if the slot's is dead) begins a write."""
        if not self.word(lock_of(slot)):
            self.put(lock_of(slot), 1)
            self.put(incarnation_of(slot), self.word(incarnation_of(slot)) + 1)
        self.count += 1
        self.living[slot] = writer = Writer(self, slot, payload)
        return writer

    def crash(self, slot):
        """The process is gone; memory stays; the operating system frees its lock."""
        writer = self.living.pop(slot, None)
        self.put(lock_of(slot), 0)
        return writer

    def access(self, slot):
        """The writer of `slot` makes its next access."""
        writer = self.living[slot]
        request = writer.asked
        self.check_space(writer, request)
        self.state, (answer,) = self.memory.apply(self.state, request, self.now)
        writer.accesses += 1
        if isinstance(request, CompareAndSwap) and request.address == WRITE_HEAD and answer.done:
            self.reserve(writer, request)
        writer.take(writer.node.feed(answer, self.now))
        if writer.outcome is not None:
            self.end(slot, writer)
        self.check()

    def finish(self, slot):
        """The writer of `slot` goes on undisturbed to its end, which comes."""
        writer = self.living[slot]
        while writer.outcome is None:
            assert writer.accesses < GUARD, f"{writer.status} for ever"
            self.access(slot)
        return writer

    def write(self, slot, payload):
        """A whole undisturbed write."""
        writer = self.begin(slot, payload)
        return writer if writer.outcome is not None else self.finish(slot)

    def end(self, slot, writer):
        del self.living[slot]
        if writer.outcome is Outcome.WRITTEN:
            self.published.append((writer.position, writer.payload))

    def reserve(self, writer, request):
        end = self.reserved[-1][1] if self.reserved else 0
        assert request.expected == end, "positions go on without a gap"
        assert request.value == end + length_of(len(writer.payload))
        self.reserved.append((request.expected, request.value))
        writer.start = request.expected

    def consume(self):
        """Readers take or skip all that no living writer is busy with; returns how far they got."""
        head = min((w.start for w in self.living.values() if w.start is not None), default=self.word(WRITE_HEAD))
        self.check_published()
        self.put(READ_HEAD, max(head, self.word(READ_HEAD)))
        self.published = [one for one in self.published if one[0] >= head]
        return head

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check(self):
        """BOUND and EXCL, after every access."""
        read, written = self.word(READ_HEAD), self.word(WRITE_HEAD)
        assert read <= written <= read + self.queue.capacity
        if not self.queue.threshold_only:
            owners = [writer.node.record for writer in self.living.values() if writer.owns]
            assert len({record.own for record in owners}) == len(owners), "a cursor has one owner"
            assert all(self.word(state_of("write", record.own)) == record.token for record in owners)

    def check_space(self, writer, request):
        """SPACE: a store into the data area hits the writer's own block, and nothing unread."""
        if isinstance(request, Store) and request.address.startswith("data/"):
            assert writer.start is not None
            end = writer.start + length_of(len(writer.payload))
            own = {self.queue.address(position) for position in range(writer.start, end, CELL)}
            assert request.address in own
            if not self.queue.threshold_only:
                assert end <= self.word(READ_HEAD) + self.queue.capacity

    def check_published(self):
        """INTEG and ACK: what was acknowledged and not consumed is there, whole."""
        for position, payload in self.published:
            if position >= self.word(READ_HEAD):
                assert self.block(position) == payload

    def block(self, position):
        """The data of the block at `position`; None: it is not whole."""
        size, check, low, high = (self.word(self.queue.address(position + at)) for at in range(0, HEADER, CELL))
        if (low, high) != commit_word(position):
            return None
        cells = range(position + HEADER, position + length_of(size), CELL)
        data = b"".join(self.word(self.queue.address(at)).to_bytes(CELL, "little") for at in cells)[:size]
        return data if check == checksum(position, data) else None

    def free_cursors(self):
        return [self.word(state_of("write", i)) == FREE for i in range(self.queue.write_cursors)]

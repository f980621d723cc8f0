"""Writers and readers over one shared memory, interleaved at every access, killed between any two; and what must hold.

What must hold is judged by the observers of `statemachines.cursor_recovery.properties`.  The world reads the words of
memory; of a machine it reads the accesses, and what it tells.
"""

from msgspec.structs import replace

from statemachines.cursor_recovery import memory
from statemachines.cursor_recovery.block import checksum, commit_word, size_in
from statemachines.cursor_recovery.observers import Observers
from statemachines.cursor_recovery.properties import memory_rules
from statemachines.cursor_recovery.properties.delivered_blocks import ACK, DeliveredBlocks
from statemachines.cursor_recovery.properties.reserved_blocks import (
    BlockClaim,
    BlockSkip,
    ProcessDied,
    Reservation,
    ReservedBlocks,
)
from statemachines.cursor_recovery.reader import OWNING as READER_OWNING
from statemachines.cursor_recovery.reader import (
    READER,
    SLICE_BYTES,
    Read,
    ReadDone,
    ReadOutcome,
    Skipped,
    new_reader,
)
from statemachines.cursor_recovery.writer import OWNING, WRITER, Outcome, Write, WriteDone, new_writer
from statemachines.kernel import Ask, Node, Tell

GUARD = 2_000
"""No operation takes so many accesses in these small queues: what does not end by then blocks for ever."""


class Operation:
    """One operation of one process: its node, the access it is about to make, and how it ended."""

    owning = ()

    def __init__(self, world, slot, fsm, record, call):
        life = world.word(memory.incarnation_of(slot))
        self.world, self.slot = world, slot
        self.before = record
        name = f"{fsm.name}-{slot}~{life}/{world.count}"
        self.node = Node(fsm, record, name=name, now_ns=0, observe=self.compare, check=True)
        self.outcome = None
        self.position = -1
        self.start = None
        self.accesses = 0
        self.asked = None
        self.take(self.node.feed(call, 0))

    def compare(self, node, event, status, step, now_ns):
        """Each step is the step of the reference engine."""
        assert step == self.node_fsm.reference_step(self.before, event, now_ns)
        self.before = step.record

    def take(self, effects):
        self.asked = None
        for effect in effects:
            if isinstance(effect, Ask):
                assert self.asked is None, "one access at a time"
                self.asked = effect.request
            elif isinstance(effect, Tell):
                self.hear(effect.event)

    def hear(self, event):
        self.world.observe(self.slot, event)
        if isinstance(event, WriteDone | ReadDone):
            self.outcome, self.position = event.outcome, event.position

    @property
    def status(self):
        return self.node.record.status

    @property
    def owns(self):
        """It has taken a cursor and not yet tried to give it back."""
        return self.status in self.owning


class Writer(Operation):
    """`start`: where its block begins, once it is reserved."""

    owning = OWNING
    node_fsm = WRITER

    def __init__(self, world, slot, payload, messages=1):
        self.payload, self.messages = payload, messages
        life = world.word(memory.incarnation_of(slot))
        super().__init__(world, slot, WRITER, new_writer(world.queue, slot, life), Write(payload, messages))


class Reader(Operation):
    """`skipped`: the ranges it told of."""

    owning = READER_OWNING
    node_fsm = READER

    def __init__(self, world, slot):
        self.skipped = []
        self.payload = b""
        self.messages = 0
        life = world.word(memory.incarnation_of(slot))
        super().__init__(world, slot, READER, new_reader(world.queue, slot, life, world.slice_bytes), Read())

    def hear(self, event):
        super().hear(event)
        if isinstance(event, Skipped):
            self.skipped.append((event.first, event.last))
            self.world.skips.append((event.first, event.last))
        elif isinstance(event, ReadDone):
            self.payload, self.messages = event.payload, event.messages


class World:
    """The memory of a queue, the processes that live, and what was reserved, published and delivered; `blocks` is the
    observer of all that."""

    def __init__(self, slice_bytes=SLICE_BYTES, **queue):
        self.slice_bytes = slice_bytes
        self.queue = memory.Queue(**queue)
        self.memory = memory.Memory(self.queue)
        self.state = self.memory.initial()
        self.now = 10**9
        self.count = 0
        self.living = {}
        self.reserved = []
        self.published = []
        self.delivered = {}
        self.skips = []
        self.blocks = ReservedBlocks(deliveries=DeliveredBlocks(repeats=True))
        self.observers = None

    def watch(self):
        """From now on the machines of cursors and blocks see every access; nothing may be put by hand meanwhile."""
        self.observers = Observers(self.queue)

    def word(self, address):
        return self.state.get(address, 0)

    def put(self, address, value):
        self.state, _ = self.memory.apply(self.state, memory.Store(address, value), self.now)

    # -- processes --------------------------------------------------------------------------------------------------

    def enter(self, slot):
        """The process of `slot`: a new one, if it is dead."""
        if not self.word(memory.lock_of(slot)):
            self.put(memory.lock_of(slot), 1)
            self.put(memory.incarnation_of(slot), self.word(memory.incarnation_of(slot)) + 1)
        self.count += 1

    def begin(self, slot, payload, messages=1):
        """A process begins a write."""
        self.enter(slot)
        self.living[slot] = writer = Writer(self, slot, payload, messages)
        return writer

    def begin_read(self, slot):
        """A process begins a read."""
        self.enter(slot)
        self.living[slot] = reader = Reader(self, slot)
        return reader

    def crash(self, slot, cells=0):
        """The process is gone; memory stays, and of a copy that it was about to make the first `cells`; the operating
        system frees its lock."""
        dead = self.living.pop(slot, None)
        if dead is not None:
            if isinstance(dead.asked, memory.CopyIn):
                self.state = self.memory.fill(self.state, dead.asked.position, dead.asked.data, cells * memory.CELL)
            self.observe(slot, ProcessDied())
        self.put(memory.lock_of(slot), 0)
        if self.observers is not None:
            self.observers.observe_death(slot, self.word(memory.incarnation_of(slot)))
        return dead

    def access(self, slot):
        """The process of `slot` makes its next access."""
        one = self.living[slot]
        request = one.asked
        self.check_space(one, request)
        self.state, (answer,) = self.memory.apply(self.state, request, self.now)
        one.accesses += 1
        if self.observers is not None:
            self.observers.observe_access(slot, self.word(memory.incarnation_of(slot)), request, answer, self.now)
        if isinstance(request, memory.CompareAndSwap) and answer.done:
            if request.address == memory.WRITE_HEAD:
                self.reserve(one, request)
            elif request.address == memory.READ_HEAD:
                self.move(one, request)
        one.take(one.node.feed(answer, self.now))
        if one.outcome is not None:
            self.end(slot, one)
        self.check()

    def finish(self, slot):
        """The operation of `slot` goes on undisturbed to its end, which comes."""
        one = self.living[slot]
        while one.outcome is None:
            assert one.accesses < GUARD, f"{one.status} for ever"
            self.access(slot)
        return one

    def write(self, slot, payload, messages=1):
        """A whole undisturbed write."""
        writer = self.begin(slot, payload, messages)
        return writer if writer.outcome is not None else self.finish(slot)

    def read(self, slot):
        """A whole undisturbed read."""
        self.begin_read(slot)
        return self.finish(slot)

    def drain(self, slot=50):
        """What reads of one process deliver, one after the other, until there is nothing."""
        came = []
        while (one := self.read(slot)).outcome is ReadOutcome.DELIVERED:
            came.append(one.payload)
        return came

    # -- what is observed -------------------------------------------------------------------------------------------

    def observe(self, slot, event):
        """What a process is told, or does to the heads; by age alone what is acknowledged may be skipped."""
        self.blocks, broken = self.blocks.observe(str(slot), event)
        self.expect_none(broken, but=(ACK,) if self.queue.threshold_only else ())

    def expect_none(self, broken, but=()):
        assert [one for one in broken if one.name not in but] == []

    @property
    def lost(self):
        """Where the blocks lay that readers took along."""
        return sorted(self.blocks.deliveries.gone_blocks)

    def end(self, slot, one):
        del self.living[slot]
        if one.outcome is Outcome.WRITTEN:
            self.published.append((one.position, one.payload))
        elif one.outcome is ReadOutcome.DELIVERED:
            self.delivered[one.position] = one.payload

    def reserve(self, writer, request):
        end = self.reserved[-1][1] if self.reserved else 0
        assert request.expected == end, "positions go on without a gap"
        self.reserved.append((request.expected, request.value))
        self.observe(writer.slot, Reservation(request.expected, request.value, (writer.payload, writer.messages)))
        writer.start = request.expected

    def move(self, reader, request):
        """The read head goes over one whole block that is taken, or over what is skipped."""
        kind = BlockClaim if reader.status.value[0] == "6" else BlockSkip
        self.observe(reader.slot, kind(request.expected, request.value))

    def consume(self):
        """Readers take or skip, in one stroke, all that no living writer is busy with; returns how far they got."""
        busy = [one.start for one in self.living.values() if isinstance(one, Writer) and one.start is not None]
        head = min(busy, default=self.word(memory.WRITE_HEAD))
        self.check_published()
        self.put(memory.READ_HEAD, max(head, self.word(memory.READ_HEAD)))
        self.published = [one for one in self.published if one[0] >= head]
        return head

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check(self):
        """BOUND and EXCL, after every access."""
        heads = self.word(memory.READ_HEAD), self.word(memory.WRITE_HEAD)
        self.expect_none(memory_rules.check_heads(*heads, self.queue.capacity))
        if not self.queue.threshold_only:
            users = {}
            for one in self.living.values():
                if one.owns:
                    state = memory.state_of(one.node.record.pool, one.node.record.own)
                    users.setdefault(state, []).append(one.node.record.token)
            for state, tokens in users.items():
                self.expect_none(memory_rules.check_owner(state, self.word(state), tokens))

    def check_space(self, one, request):
        """SPACE: what is written into the data area hits the writer's own block, and nothing unread or in use."""
        slot = str(one.slot)
        if isinstance(request, memory.CopyIn):
            self.expect_none(self.blocks.check_copy(slot, request.position, len(request.data)))
        elif isinstance(request, memory.Store) and request.address.startswith("data/"):
            self.expect_none(self.blocks.check_header(slot, int(request.address[5:]), self.queue.capacity))
        else:
            return
        if not self.queue.threshold_only:
            needed = self.blocks.find_needed(self.word(memory.READ_HEAD))
            self.expect_none(memory_rules.check_lap(self.blocks.filling[slot].end, needed, self.queue.capacity))

    def check_published(self):
        """INTEG and ACK: what was acknowledged was delivered, or was lost with a reader, or is there, whole."""
        taken = [block.start for _, block in self.blocks.taken.items()]
        for position, payload in self.published:
            if position not in self.delivered and position not in self.lost and position not in taken:
                assert position >= self.word(memory.READ_HEAD), "ACK"
                assert self.block(position) == payload

    def forget_published(self):
        """What was acknowledged is damaged by hand: nobody is promised anything of it any more."""
        self.published.clear()
        self.blocks = replace(self.blocks, deliveries=DeliveredBlocks(repeats=True))

    def check_lost(self):
        """What the dead had taken is counted: at least that, once their cursors are free."""
        along = self.blocks.deliveries.taken_along
        self.expect_none(memory_rules.check_lost(along, self.word(memory.LOST), is_reclaimed=True))

    def block(self, position):
        """The data of the block at `position`; None: it is not whole."""
        size, check, low, high = (
            self.word(self.queue.address(position + at)) for at in range(0, memory.HEADER, memory.CELL)
        )
        if (low, high) != commit_word(position) or size_in(size) > self.queue.capacity:
            return None
        data = self.memory.read(self.state, position + memory.HEADER, size_in(size))
        return data[memory.CELL * (size != size_in(size)) :] if check == checksum(position, size, data) else None

    def free_cursors(self):
        return [self.word(memory.state_of("write", i)) == memory.FREE for i in range(self.queue.write_cursors)]

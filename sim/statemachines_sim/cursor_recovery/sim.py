"""What cursor recovery says to the simulator: who takes part, the memory they share, what may go wrong, who judges.

Kinds of faults that only cursor recovery has: deaths before a chosen access, and faults of its clocks.

Watch: the properties of the queue, judged in every run, from every access that was made and all that was told.

It feeds the observers of `statemachines.cursor_recovery.properties`, reads the words of memory, and knows who holds
which cursor; the records of the machines are not asked.

QueueMemory: the shared memory of the queue; data is copied piece by piece, and who dies leaves some of them.

QueueProcess: a simulated process that writes its messages, or reads as long as it lives, an operation at a time.

When it comes it locks the lowest slot that is free, and raises its incarnation; when it dies the operating system
frees the lock at that instant.  Each operation is a machine of its own: `writer-1~2/7` is the seventh of the second
life of `writer-1`.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import Any

from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
    LOST,
    READ_HEAD,
    SERVICE,
    SLOTS,
    WRITE_HEAD,
    CompareAndSwap,
    Copied,
    CopyIn,
    CopyOut,
    Load,
    Loaded,
    Memory,
    Store,
    Swapped,
    incarnation_of,
    is_aged,
    lock_of,
    position_of,
)
from statemachines.cursor_recovery.operation import READ, WRITE
from statemachines.cursor_recovery.properties import PROPERTIES, delivered_blocks, memory_rules
from statemachines.cursor_recovery.properties.delivered_blocks import DeliveredBlocks
from statemachines.cursor_recovery.properties.reserved_blocks import (
    BlockClaim,
    BlockSkip,
    ProcessDied,
    Reservation,
    ReservedBlocks,
)
from statemachines.cursor_recovery.reader import READER, Read, ReadDone, ReadOutcome, Skipped, new_reader
from statemachines.cursor_recovery.writer import WRITER, Outcome, Write, WriteDone, new_writer
from statemachines.kernel import (
    Answer,
    BrokenProperty,
    Call,
    ConfigurationError,
    Event,
    Fsm,
    Host,
    Message,
    Node,
    Outgoing,
    Request,
    Step,
)
from statemachines_sim import cluster
from statemachines_sim.cluster import Fixture, Role, SimCluster, Tolerance, Watch
from statemachines_sim.cursor_recovery.section import QueueSection, check
from statemachines_sim.devices.shared_memory import AtomicParts, SharedMemory
from statemachines_sim.fault import Fault
from statemachines_sim.faults import Crash
from statemachines_sim.faults.clocks import Drift, Skew
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.judge import Judge
from statemachines_sim.local_clock import PPM
from statemachines_sim.node_life import NodeLife, Reply
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario
from statemachines_sim.units import MS, S

US = 1_000


class MortalProcess(NodeLife):
    """A process that may die before an access of its own choice."""

    def dies_now(self) -> bool:
        """Whether it has."""
        return False


PIECE = 4
"""Cells that are copied at one instant, at most."""


class Copies(AtomicParts):
    """The data of a block is no word: who copies it does so piece by piece."""

    def split(self, request: Request, chance: random.Random) -> tuple[Request, ...]:
        match request:
            case CopyIn(position, data):
                cuts = split_size(len(data), chance)
                return tuple(CopyIn(position + first, data[first:end]) for first, end in cuts)
            case CopyOut(position, size):
                return tuple(CopyOut(position + first, end - first) for first, end in split_size(size, chance))
        return (request,)

    def join(self, request: Request, answers: list[Answer]) -> Answer:
        if isinstance(request, CopyOut):
            return Copied(b"".join(one.data for one in answers if isinstance(one, Copied)))
        return answers[-1]


def split_size(size: int, chance: random.Random) -> list[tuple[int, int]]:
    """(first, end) of each piece of so many bytes: whole cells, but for the last one."""
    found: list[tuple[int, int]] = []
    first = 0
    while first < size or not found:
        end = min(first + CELL * chance.randint(1, PIECE), size)
        found.append((first, end))
        first = end
    return found


class QueueMemory(SharedMemory):
    """`files`: what each writer's application has kept of its own, over its lives: the number of its next message."""

    def __init__(self, world: SimCluster, own: QueueSection) -> None:
        low, high = own.access_us
        super().__init__(world, Memory(own.queue), (low * US, high * US), Copies())
        self.files: dict[str, int] = {}

    def ask(self, process: NodeLife, party: str, request: Request, reply: Reply) -> None:
        if not isinstance(process, MortalProcess) or not process.dies_now():
            super().ask(process, party, request, reply)


def queue_memory(own: QueueSection) -> Fixture:
    """The memory of a run; its clock is the one that all processes share."""
    return Fixture(Memory.name, lambda world: QueueMemory(world, own), faults=("stopped_clock",))


PARTED = b"|"


class QueueProcess(MortalProcess):
    """Base of writers and readers."""

    world: SimCluster

    machine: Fsm[Any]

    def __init__(self, world: SimCluster, node: str, number: int, own: QueueSection) -> None:
        super().__init__(world, node, number)
        self.host = Host()
        self.own = own
        self.slot = -1
        self.doomed_in = 0
        """It dies before so many more accesses are made; 0: it is not doomed."""
        self._incarnation = 0
        self._count = 0
        self._chance = random.Random(f"{world.seed}/{self.life}")

    @property
    def memory(self) -> QueueMemory:
        """The memory of its world."""
        found: Any = self.world.devices[SERVICE]
        return found  # type: ignore[no-any-return]

    def start(self) -> None:
        """Lock a slot; raise its incarnation a moment later, and begin."""
        free = [slot for slot in range(SLOTS) if not self._word(lock_of(slot))]
        if not free:
            raise ConfigurationError("processes", self.node, f"at most {SLOTS} at a time")
        self.slot = free[0]
        self.memory.apply(Store(lock_of(self.slot), 1))
        self.after(self._chance.randint(*self.own.access_us) * 1_000, self._come_alive)

    def crash(self) -> None:
        """The lock of its slot is free the moment it is dead."""
        super().crash()
        self.memory.apply(Store(lock_of(self.slot), 0))

    def heal(self) -> None:
        self.doomed_in = 0
        super().heal()

    def dies_now(self) -> bool:
        """Before an access: whether this is the one that it does not live to make."""
        if not self.doomed_in:
            return False
        self.doomed_in -= 1
        if not self.doomed_in:
            self.world.crash(self.node, "cut")
        return not self.doomed_in

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        return []

    def route_answer(self, party: str, answer: Any, now_ns: int) -> list[Outgoing]:
        return self.host.feed(party, answer, now_ns)

    def route_tell(self, party: str, event: Event) -> None:
        now_ns = self._env.now
        self._recorder.tell(now_ns, self.node, party, self.machine.full_name, event)
        self.world.watch.tell(self, party, event, now_ns)
        if isinstance(event, WriteDone | ReadDone):
            self.host.remove(party)
            self.after(self._rest_ms(event) * MS, self.go_on)

    def go_on(self) -> None:
        """Begin the next operation, if there is one."""
        call = self._call()
        if call is None:
            return
        self._count += 1
        now_ns = self.local_now()
        world = self.world
        name = f"{self.life}/{self._count}"
        record = self._record()
        self.host.add(
            Node(self.machine, record, name=name, now_ns=now_ns, observe=world.recorder.step, check=world.judging)
        )
        self.perform(self.host.feed(name, call, now_ns), self._env.now)

    @abstractmethod
    def _call(self) -> Call | None:
        """What its application wants next."""

    @abstractmethod
    def _record(self) -> Any:
        """What the next operation begins with."""

    @abstractmethod
    def _rest_ms(self, event: Any) -> int:
        """How long it rests before the next operation."""

    def _come_alive(self) -> None:
        self._incarnation = self._word(incarnation_of(self.slot)) + 1
        self.memory.apply(Store(incarnation_of(self.slot), self._incarnation))
        self.go_on()

    def _word(self, address: str) -> int:
        (answer,) = self.memory.apply(Load(address))
        assert isinstance(answer, Loaded)
        return answer.value


class QueueWriter(QueueProcess):
    """Writes its messages, each once: one that was begun by an earlier life, which does not know what became of it, is
    not begun again."""

    machine = WRITER
    block: tuple[bytes, int] | None = None
    """What it is about to write, until it is out of its hands: bytes, and how many messages."""

    @property
    def unwritten_count(self) -> int:
        """How many messages its application still has."""
        return self.own.messages - self.memory.files.get(self.node, 0) + (self.block[1] if self.block else 0)

    def _call(self) -> Call | None:
        if self.block is None:
            self.block = self._next_block()
        return None if self.block is None else Write(*self.block)

    def _next_block(self) -> tuple[bytes, int] | None:
        files, own = self.memory.files, self.own
        first = files.get(self.node, 0)
        count = min(self._chance.randint(1, own.batch), own.messages - first)
        if not count:
            return None
        files[self.node] = first + count
        writer = self.node.rpartition("-")[2]
        names = (f"{writer}:{number}:".encode() for number in range(first, first + count))
        return PARTED.join(name + b"." * self._chance.randint(*own.size) for name in names), count

    def _record(self) -> Any:
        return new_writer(self.own.queue, self.slot, self._incarnation)

    def _rest_ms(self, event: WriteDone) -> int:
        if event.outcome in (Outcome.FULL, Outcome.NO_CURSOR):
            return self._chance.randint(*self.own.poll_ms)
        self.block = None
        return self._chance.randint(*self.own.write_ms)


class QueueReader(QueueProcess):
    """Reads as long as it lives."""

    machine = READER

    def _call(self) -> Call | None:
        return Read()

    def _record(self) -> Any:
        return new_reader(self.own.queue, self.slot, self._incarnation)

    def _rest_ms(self, event: ReadDone) -> int:
        return 0 if event.outcome is ReadOutcome.DELIVERED else self._chance.randint(*self.own.poll_ms)


MOST_ACCESSES = 60
"""More than an operation makes that nobody disturbs."""


class Cut(Crash):
    """Deaths are spread over accesses, not over time: nobody rests away the moment that matters."""

    name = "cut"
    hits = "a process"
    about = "dies before one of its next accesses, and comes back as its next life"
    unit = "accesses"

    def draw(self, pot: FaultSampler) -> Fault:
        amount = pot.chance.randint(1, MOST_ACCESSES)
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target(), amount=amount)

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, QueueProcess) or process.doomed_in:
            return False
        process.doomed_in = fault.amount
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.living(fault.target)
        if isinstance(process, QueueProcess):
            process.doomed_in = 0
        super().end(world, fault)


class StoppedClock(Drift):
    """A monotonic clock that does not count the time in which the machine sleeps."""

    name = "stopped_clock"
    hits = "the memory"
    about = "the clock that all processes share stands still, while they go on"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target(), amount=-PPM)


class ApartClock(Skew):
    """Processes in time namespaces of their own."""

    name = "apart_clock"
    hits = "a process"
    about = "its clock is ahead of the others' by a constant, by up to three thresholds"

    def draw(self, pot: FaultSampler) -> Fault:
        own: QueueSection = pot.scenario.own
        return Fault(self.name, 0, pot.end_ns, pot.target(), amount=pot.chance.randrange(3 * own.queue.threshold_ns))


FAULTS = (Cut(), StoppedClock(), ApartClock())


WRITE_ENDS, STALE = "WRITE", "STALE"
"""Judged here alone."""
JUDGED = (*PROPERTIES, WRITE_ENDS, STALE)
COUNTED = {
    Outcome.WRITTEN: "written",
    Outcome.FULL: "full",
    Outcome.NO_CURSOR: "no_cursor",
    Outcome.FENCED: "fenced",
    ReadOutcome.DELIVERED: "delivered",
    ReadOutcome.EMPTY: "empty",
    ReadOutcome.NO_CURSOR: "no_cursor",
    ReadOutcome.FENCED: "fenced",
    ReadOutcome.DISCARDED: "discarded",
}


def life_of(party: str) -> str:
    """`writer-1~2/7` is the seventh operation of `writer-1~2`."""
    return party.partition("/")[0]


class QueueWatch(cluster.Watch):
    """The twelve properties of `spec/cursor_recovery/properties.md`."""

    def __init__(self, own: QueueSection, judge: Judge) -> None:
        super().__init__(judge)
        self.queue = own.queue
        self.blocks = ReservedBlocks(deliveries=DeliveredBlocks(awaits_broken=False))
        self._calls: dict[str, Write] = {}
        self._holders: dict[str, str] = {}  # state word of a cursor -> the life that holds it
        self._cursors: dict[str, str] = {}  # life -> the state word that it took last
        self._dead: dict[str, int] = {}  # state word that a dead life held -> what it holds
        self._begun_before: dict[str, set[str]] = {}  # the same word -> operations under way at that death
        self._began: dict[str, int] = {}  # operation -> when it made its first access, by its own clock
        self._counts = dict.fromkeys((*COUNTED.values(), "lost", "skipped_bytes"), 0)

    def begin(self, world: SimCluster) -> None:
        self._memory: Any = world.devices[SERVICE]

    def word(self, address: str) -> int:
        """As it is now."""
        found: int = self._memory.state.get(address, 0)
        return found

    def report(self, broken: tuple[BrokenProperty, ...]) -> bool:
        """Whether something is broken; the judge is told."""
        for one in broken:
            self.judge.report_broken(one.name, one.detail)
        return bool(broken)

    def observe(self, life: str, event: Event) -> None:
        """`blocks` is behind this event of a life."""
        self.blocks, broken = self.blocks.observe(life, event)
        if broken:
            self.report(broken)

    # -- accesses ---------------------------------------------------------------------------------------------------

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        if type(event) is Write:
            self._calls[life_of(node.name)] = event

    def observe_request(
        self, service: str, party: str, request: Request, answers: tuple[Answer, ...], now_ns: int
    ) -> None:
        if not party:
            return  # the operating system, with a lock
        self._began.setdefault(party, now_ns)
        life = life_of(party)
        match request:
            case CompareAndSwap(address, expected, value) if answers == (Swapped(True),):
                if address == WRITE_HEAD:
                    self._reserve(life, expected, value)
                elif address == READ_HEAD:
                    self._move(life, expected, value)
                elif address != LOST:
                    self._own(life, address, value)
            case CopyIn(position, data):
                self._check_space(life, position, len(data))
            case Store(address, _) if address.startswith("data/"):
                self.report(self.blocks.check_header(life, int(address.partition("/")[2]), self.queue.capacity))

    def _check_heads(self, read_head: int, write_head: int) -> None:
        self.report(memory_rules.check_heads(read_head, write_head, self.queue.capacity))

    def _reserve(self, life: str, start: int, end: int) -> None:
        call = self._calls[life]
        self._check_heads(self.word(READ_HEAD), end)
        self.observe(life, Reservation(start, end, (call.payload, call.messages)))

    def _move(self, life: str, start: int, end: int) -> None:
        """The read head goes over a block that is taken (the cursor says so), or over what is skipped."""
        self._check_heads(end, self.word(WRITE_HEAD))
        cursor = int(self._cursors[life].split("/")[1])
        if self.word(position_of(READ, cursor)) == start:
            self.observe(life, BlockClaim(start, end))
        else:
            self.observe(life, BlockSkip(start, end))

    def _own(self, life: str, address: str, value: int) -> None:
        """A cursor is taken when it is free, and freed by its owner, or when that is dead."""
        holder = self._holders.pop(address, None)
        dead = self._dead.pop(address, None) is not None
        users = [life] if value != FREE else []
        if holder is not None and (value != FREE or (holder != life and not dead)):
            users.append(holder)
        self.report(memory_rules.check_owner(address, life if value != FREE else "nobody", users))
        if value != FREE:
            self._holders[address] = life
            self._cursors[life] = address

    def _check_space(self, life: str, position: int, size: int) -> None:
        if not self.report(self.blocks.check_copy(life, position, size)):
            needed = self.blocks.find_needed(self.word(READ_HEAD))
            self.report(memory_rules.check_lap(self.blocks.filling[life].end, needed, self.queue.capacity))

    # -- what is told -----------------------------------------------------------------------------------------------

    def tell(self, process: NodeLife, party: str, event: Event, now_ns: int) -> None:
        if isinstance(event, Skipped):
            self._counts["skipped_bytes"] += event.last + 1 - event.first
        elif isinstance(event, WriteDone | ReadDone):
            self._end(party, event)
        self.observe(process.life, event)

    def _end(self, party: str, event: WriteDone | ReadDone) -> None:
        self._counts[COUNTED[event.outcome]] += 1
        began_ns = self._began.pop(party, 0)
        if event.outcome in (Outcome.NO_CURSOR, ReadOutcome.NO_CURSOR):
            self._check_dead(party, WRITE if isinstance(event, WriteDone) else READ, began_ns)
        for parties in self._begun_before.values():
            parties.discard(party)

    def _check_dead(self, party: str, pool: str, began_ns: int) -> None:
        """STALE: nobody goes without a cursor while one who was dead when it began holds one that was aged then."""
        life = life_of(party)
        for address, word in self._dead.items():
            held = address.startswith(pool) and self.word(address) == word and party not in self._begun_before[address]
            if held and is_aged(word, self.queue.threshold_ns, began_ns):
                self.judge.report_broken(STALE, f"{life} finds no cursor, and {address} is a dead one's")

    # -- the dead -----------------------------------------------------------------------------------------------------

    def observe_death(self, process: NodeLife, now_ns: int) -> None:
        life = process.life
        if (block := self.blocks.taken.get(life)) is not None:
            self._counts["lost"] += block.block[1]
        self.observe(life, ProcessDied())
        for address, holder in self._holders.items():
            if holder == life:
                self._dead[address] = self.word(address)
                self._begun_before[address] = set(self._began)

    def missing(self, world: SimCluster) -> cluster.Missing | None:
        for node, process in sorted(world.processes.items()):
            if isinstance(process, QueueWriter) and process.unwritten_count:
                return WRITE_ENDS, f"{node} has {process.unwritten_count} messages left"
        if self.blocks.deliveries.open:
            return delivered_blocks.READ, f"{len(self.blocks.deliveries.open)} acknowledged blocks have not come"
        is_reclaimed = not any(one.startswith(READ) for one in self._dead)
        broken = memory_rules.check_lost(self.blocks.deliveries.taken_along, self.word(LOST), is_reclaimed=is_reclaimed)
        return (broken[0].name, broken[0].detail) if broken else None

    def tally(self) -> dict[str, int]:
        return self._counts


OF_PROCESSES = ("crash", "cut", "pause", "long_pause", "drift", "jump", "apart_clock")
"""No timers, no messages: neither late ones nor partitions hit anybody."""


class QueueSim(SimProtocol[QueueSection]):
    """The value of the registration."""

    name = "cursor_recovery"
    section = QueueSection
    properties = JUDGED
    faults = FAULTS
    scenarios = "statemachines_sim:scenarios/cursor_recovery"

    def check(self, own: QueueSection, scenario: Scenario) -> None:
        check(own, scenario)

    def cast(self, own: QueueSection) -> tuple[Role, ...]:
        """A clock that leaps ahead makes its process's cursors look young, and those of others old."""

        def writer(world: SimCluster, node: str, number: int) -> NodeLife:
            return QueueWriter(world, node, number, own)

        def reader(world: SimCluster, node: str, number: int) -> NodeLife:
            return QueueReader(world, node, number, own)

        clock = Tolerance(drift_ppm=100_000, jump_ns=5 * S)
        return (
            Role("writer", writer, own.writers, faults=OF_PROCESSES, clock=clock),
            Role("reader", reader, own.readers, faults=OF_PROCESSES, clock=clock),
        )

    def devices(self, own: QueueSection) -> tuple[Fixture, ...]:
        return (queue_memory(own),)

    def longest_ns(self, own: QueueSection) -> int:
        """After the threshold a cursor is aged."""
        return own.queue.threshold_ns

    def watch(self, own: QueueSection, judge: Judge) -> Watch:
        return QueueWatch(own, judge)


SIM = QueueSim()

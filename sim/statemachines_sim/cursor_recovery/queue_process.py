"""QueueProcess: a simulated process that writes its messages, or reads as long as it lives, an operation at a time.

When it comes it locks the lowest slot that is free, and raises its incarnation; when it dies the operating system
frees the lock at that instant.  Each operation is a machine of its own: `writer-1~2/7` is the seventh of the second
life of `writer-1`.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import Any

from statemachines.cursor_recovery.memory import SERVICE, SLOTS, Load, Loaded, Store, incarnation_of, lock_of
from statemachines.cursor_recovery.reader import READER, Read, ReadDone, ReadOutcome, new_reader
from statemachines.cursor_recovery.writer import WRITER, Outcome, Write, WriteDone, new_writer
from statemachines.kernel import Call, ConfigurationError, Event, Fsm, Host, Message, Node, Outgoing
from statemachines_sim.cluster import SimCluster
from statemachines_sim.cursor_recovery.queue_memory import MortalProcess, QueueMemory
from statemachines_sim.cursor_recovery.section import QueueSection
from statemachines_sim.units import MS

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

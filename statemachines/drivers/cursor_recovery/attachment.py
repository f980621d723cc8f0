"""Attachment: what one process has of a queue while it takes part: the words, its slot, the two bells.

It performs whole operations, one at a time.  Who is cut off in the middle of one (a signal that raises, damaged words)
gives its slot up: what it has left behind is then a dead owner's, and is recovered like any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from statemachines.cursor_recovery.memory import FREE, TICK_NS
from statemachines.cursor_recovery.operation import Operation
from statemachines.cursor_recovery.reader import READER, Read, ReadDone, ReadOutcome, Skipped, new_reader
from statemachines.cursor_recovery.writer import WRITER, Outcome, Write, WriteDone, new_writer
from statemachines.drivers.cursor_recovery.bell import REMOVED, Bell, fifo_of
from statemachines.drivers.cursor_recovery.memory_access import (
    Hook,
    MappedMemory,
    MemoryAccess,
    resume_operation,
)
from statemachines.drivers.cursor_recovery.owner import has_locks, is_locked, removed_error, take_slot
from statemachines.drivers.cursor_recovery.segment import MappedSegment
from statemachines.drivers.cursor_recovery.short_way import TakeOver, is_scan, short_read, short_scan, short_write
from statemachines.kernel import Event, Fsm, Node
from statemachines.kernel.node import Observer

R = TypeVar("R", bound=Operation)
D = TypeVar("D", WriteDone, ReadDone)
WRITTEN, DELIVERED = Outcome.WRITTEN, ReadOutcome.DELIVERED
_STAMP_MASK = (1 << 43) - 1
ALL_TAKEN = 1
"""Of its own pool: a word in the way, without a stamp; nobody rings when one of them is free again."""


@dataclass(frozen=True)
class Instruments:
    """For tests and traces.  `hook`: called before every access; `observe`: sees every step of the declared machines;
    `attached`: called with the identity of the queue, before any step; `declared`: run these and never the short way
    (as `observe` does); `clock`: nanoseconds, the same for all."""

    hook: Hook | None = None
    observe: Observer | None = None
    attached: Callable[[str], None] | None = None
    declared: bool = False
    clock: Callable[[], int] = time.monotonic_ns


class Attachment:
    """One process at one queue, as long as it holds one slot.  Not for two threads at once."""

    def __init__(self, segment: MappedSegment, instruments: Instruments, skipped_bytes: int = 0) -> None:
        self.segment = segment
        self.instruments = instruments
        self.words = MappedMemory(segment, instruments.hook)
        self.access = MemoryAccess(self.words, self.is_locked, instruments.clock)
        self.owner = take_slot(self.words)
        self.lock = self.owner.lock
        """As long as it is not closed, all others take this owner for alive."""
        self._count = 0
        self._removed = False
        self.skipped_bytes = skipped_bytes
        """What this process found to be no message."""
        self.has_looked = False
        """The last read looked through a slice of what a dead writer left: the next one is of use at once (CR-59)."""
        self._load_readers_wait = self.words.readers_wait.load
        self._load_writers_wait = self.words.writers_wait.load
        self._new_writer = new_writer(segment.queue, self.owner.slot, self.owner.incarnation)
        self._new_reader = new_reader(segment.queue, self.owner.slot, self.owner.incarnation)
        is_declared = instruments.declared or instruments.observe is not None
        self._is_declared = is_declared or instruments.hook is not None
        self._write = self._declared_write if is_declared else short_write(self._new_writer, self.access)
        self._read = self._declared_read if is_declared else short_read(self._new_reader, self.access)
        try:
            self.readers_bell = self._bell("readers")
            self.writers_bell = self._bell("writers")
            self._check_named()
            if instruments.attached is not None:
                instruments.attached(f"{segment.identity:016x}")
        except BaseException:
            self.owner.give_up()
            raise

    def _bell(self, side: str) -> Bell:
        path = fifo_of(self.segment.path, self.segment.identity, side)
        return Bell(path, self.words.plain(f"{side}_wait"), self.words.plain(f"{side}_asleep"))

    def _check_named(self) -> None:
        """The FIFOs of a queue that was removed meanwhile are made by nobody's leave: they go."""
        if self.segment.is_removed:
            for bell in (self.readers_bell, self.writers_bell):
                with suppress(FileNotFoundError):
                    bell.path.unlink()
                bell.close()
            raise removed_error(self.segment.path)

    def is_locked(self, slot: int) -> bool:
        """Whether a living process holds the slot; where locks cannot tell, every slot seems to be held."""
        return not has_locks() or is_locked(self.segment.fd, slot)

    # -- operations -------------------------------------------------------------------------------------------------

    def write(self, payload: bytes, messages: int) -> Outcome | None:
        """One write, whatever comes of it; rings for the readers where there may be something for them.

        None: the queue has been removed, and nobody will ever read what was written.
        """
        if self._removed:
            return None
        self.access.in_the_way = FREE
        try:
            done = self._write(payload, messages)
        except TakeOver as over:
            told, end = self._go_on(WRITER, over)
            done, self.access.in_the_way = _last(told, WriteDone), _in_the_way(end)
        outcome = done.outcome
        if (outcome is WRITTEN or outcome is Outcome.FENCED) and self._load_readers_wait():
            self._removed = not self.readers_bell.ring()
            return None if self._removed else outcome
        if outcome is Outcome.NO_CURSOR:
            self.access.in_the_way = ALL_TAKEN
        return outcome

    def read(self) -> ReadDone:
        """One read, whatever comes of it; rings for the writers where there may be room for them."""
        self.access.in_the_way = FREE
        skipped = 0
        self.has_looked = False
        try:
            done = self._read()
        except TakeOver as over:
            told, end = self._go_on(READER, over)
            self.has_looked = end.has_looked
            done, self.access.in_the_way = _last(told, ReadDone), _in_the_way(end)
            skipped = sum(one.last + 1 - one.first for one in told if isinstance(one, Skipped))
            self.skipped_bytes += skipped
        outcome = done.outcome
        made_room = outcome is DELIVERED or skipped or outcome is ReadOutcome.DISCARDED
        if made_room and self._load_writers_wait():
            self.writers_bell.ring()
        elif outcome is ReadOutcome.NO_CURSOR:
            self.access.in_the_way = ALL_TAKEN
        return done

    def _go_on(self, fsm: Fsm[R], over: TakeOver) -> tuple[list[Event], R]:
        """The declared machine, from where the short way ended, to its end: what it told, and the record at the end."""
        node = self._node(fsm, over.record)
        for address, value, time_ns in over.seen:
            self.access.check(address, value, time_ns)
        told: list[Event] = []
        while True:
            told += resume_operation(node, node.feed(over.answer, 0), self.access, self._ends_short_way)
            if not self._ends_short_way(node.record):
                return told, node.record
            record, over.answer = short_scan(node.record, self.access)
            node = self._node(fsm, record)

    def _ends_short_way(self, record: Operation) -> bool:
        """The short way goes on there: a scan, unless somebody looks at every access."""
        return not self._is_declared and is_scan(record)

    def _node(self, fsm: Fsm[R], record: R) -> Node[R]:
        self._count += 1
        name = f"{fsm.name}-{self.owner.slot}~{self.owner.incarnation}/{self._count}"
        return Node(fsm, record, name=name, now_ns=0, observe=self.instruments.observe)

    def _declared_write(self, payload: bytes, messages: int) -> WriteDone:
        raise TakeOver(self._new_writer, Write(payload, messages))

    def _declared_read(self) -> ReadDone:
        raise TakeOver(self._new_reader, Read())

    # -- waiting ----------------------------------------------------------------------------------------------------

    @property
    def in_the_way(self) -> int:
        """The state word of the cursor because of which the last operation came to nothing (0: because of none)."""
        return self.access.in_the_way

    def seconds_until_aged(self, word: int) -> float | None:
        """Seconds until the cursor with this state word is aged; None: it is."""
        aged_ns = (word & _STAMP_MASK) * TICK_NS + self.segment.queue.threshold_ns + 1
        left_ns = aged_ns - self.instruments.clock()
        return left_ns / 1e9 if left_ns > 0 else None

    def has_more(self) -> bool:
        """There is something between the heads."""
        return self.words.plain("read_head").load() != self.words.plain("write_head").load()

    @property
    def is_removed(self) -> bool:
        """Somebody has removed the queue, by `unlink` or by hand."""
        return self.words.readers_wait.load() == REMOVED or self.segment.is_removed

    # -- the end ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Give up the slot, and let go of the bells; once more, where that was broken off."""
        self.owner.give_up()
        self.readers_bell.close()
        self.writers_bell.close()

    def forget(self) -> None:
        """In a forked child: all of this is the parent's; what still holds a word of it gets a `ValueError`."""
        self.readers_bell.close()
        self.writers_bell.close()
        self.segment.unmap()


def _last(told: list[Event], of: type[D]) -> D:
    done = told[-1]
    assert isinstance(done, of)
    return done


def _in_the_way(record: Operation) -> int:
    """The cursor of the other pool that was judged last, if any was."""
    return record.seen if record.recovers else FREE

"""Watch: the properties of the queue, judged in every run, from every access that was made and all that was told.

It reads the words of memory, and keeps books of its own (`books.py`); the records of the machines are not asked.
"""

from __future__ import annotations

from typing import Any

from statemachines.cursor_recovery.block import data_of, length_of
from statemachines.cursor_recovery.memory import (
    FREE,
    HEADER,
    LOST,
    READ_HEAD,
    SERVICE,
    WRITE_HEAD,
    CompareAndSwap,
    CopyIn,
    Store,
    Swapped,
    is_aged,
    position_of,
)
from statemachines.cursor_recovery.operation import READ, WRITE
from statemachines.cursor_recovery.reader import ReadDone, ReadOutcome, Skipped, Taken
from statemachines.cursor_recovery.writer import Outcome, Reserved, Write, WriteDone
from statemachines.kernel import Answer, Event, Node, Request, Step
from statemachines_sim import cluster
from statemachines_sim.cluster import Cluster
from statemachines_sim.cursor_recovery.books import Block, Books, Fate
from statemachines_sim.cursor_recovery.queue_process import QueueWriter
from statemachines_sim.cursor_recovery.section import Section
from statemachines_sim.judge import Judge
from statemachines_sim.node_life import NodeLife

PROPERTIES = (
    "INTEG", "ONCE", "ORDER", "ACK", "KEPT", "LOST", "SPACE", "EXCL", "BOUND", "READ", "WRITE", "STALE",
)  # fmt: skip
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

    def __init__(self, own: Section, judge: Judge) -> None:
        super().__init__(judge)
        self.queue = own.queue
        self.books = Books()
        self._calls: dict[str, Write] = {}
        self._holders: dict[str, str] = {}  # state word of a cursor -> the life that holds it
        self._cursors: dict[str, str] = {}  # life -> the state word that it took last
        self._dead: dict[str, int] = {}  # state word that a dead life held -> what it holds
        self._begun_before: dict[str, set[str]] = {}  # the same word -> operations under way at that death
        self._began: dict[str, int] = {}  # operation -> when it made its first access, by its own clock
        self._delivered: set[bytes] = set()
        self._last: dict[str, int] = {}
        self._taken_along = 0
        self._counts = dict.fromkeys((*COUNTED.values(), "lost", "skipped_bytes"), 0)

    def begin(self, world: Cluster) -> None:
        self._memory: Any = world.devices[SERVICE]

    def word(self, address: str) -> int:
        """As it is now."""
        found: int = self._memory.state.get(address, 0)
        return found

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
                self._check_header(life, int(address.partition("/")[2]))

    def _reserve(self, life: str, start: int, end: int) -> None:
        call = self._calls[life]
        if end > self.word(READ_HEAD) + self.queue.capacity:
            self.judge.report_broken("BOUND", f"{life} moves the write head to {end}, read head {self.word(READ_HEAD)}")
        if end - start != length_of(len(data_of(call.payload, call.messages))):
            self.judge.report_broken("SPACE", f"{life} reserves {start}..{end - 1} for {call.payload!r}")
        self.books.reserve(Block(start, end, life, call.payload, call.messages))

    def _move(self, life: str, start: int, end: int) -> None:
        """The read head goes over a block that is taken (the cursor says so), or over what is skipped."""
        if end > self.word(WRITE_HEAD):
            self.judge.report_broken(
                "BOUND", f"{life} moves the read head to {end}, write head {self.word(WRITE_HEAD)}"
            )
        cursor = int(self._cursors[life].split("/")[1])
        if self.word(position_of(READ, cursor)) == start:
            self._take(life, start, end)
            return
        for block in self.books.within(start, end):
            self._skip(life, block)

    def _take(self, life: str, start: int, end: int) -> None:
        block = self.books.blocks.get(start)
        if block is None or block.end != end:
            self.judge.report_broken("INTEG", f"{life} takes {start}..{end - 1}, which is no block")
            return
        block.fate = Fate.TAKEN
        self.books.taken[life] = block

    def _skip(self, life: str, block: Block) -> None:
        if block.acknowledged:
            self.judge.report_broken("ACK", f"{life} skips {block}, which is acknowledged")
        if self.books.writing.get(block.life) is block:
            self.judge.report_broken("ACK", f"{life} skips {block}, which its writer is about to fill")
        self.books.settle(block, Fate.SKIPPED)

    def _own(self, life: str, address: str, value: int) -> None:
        """A cursor is taken when it is free, and freed by its owner, or when that is dead."""
        holder = self._holders.pop(address, None)
        dead = self._dead.pop(address, None) is not None
        if holder is not None and (value != FREE or (holder != life and not dead)):
            self.judge.report_broken("EXCL", f"{life} {'takes' if value else 'frees'} {address}, which {holder} holds")
        if value != FREE:
            self._holders[address] = life
            self._cursors[life] = address

    def _check_space(self, life: str, position: int, size: int) -> None:
        block = self.books.writing.get(life)
        if block is None or not block.start + HEADER <= position <= position + size <= block.end:
            self.judge.report_broken("SPACE", f"{life} writes {size} bytes at {position}, beside its block")
        elif block.end > self.books.furthest(self.word(READ_HEAD)) + self.queue.capacity:
            self.judge.report_broken("SPACE", f"{life} writes over what is not read yet, or is being read")

    def _check_header(self, life: str, cell: int) -> None:
        block = self.books.writing.get(life)
        if block is None or (cell - block.start) % self.queue.capacity >= HEADER:
            self.judge.report_broken("SPACE", f"{life} writes cell {cell}, which is not in a header of its own")

    # -- what is told -----------------------------------------------------------------------------------------------

    def tell(self, process: NodeLife, party: str, event: Event, now_ns: int) -> None:
        life = process.life
        match event:
            case Reserved(first, last):
                self._check_range(life, self.books.writing.get(life), first, last)
            case Taken(first, last):
                self._check_range(life, self.books.taken.get(life), first, last)
            case Skipped(first, last):
                self._counts["skipped_bytes"] += last + 1 - first
                if (block := self.books.taken.pop(life, None)) is not None:
                    self._skip(life, block)  # its copy was not whole
            case WriteDone() | ReadDone():
                self._counts[COUNTED[event.outcome]] += 1
                began_ns = self._began.pop(party, 0)
                if event.outcome in (Outcome.NO_CURSOR, ReadOutcome.NO_CURSOR):
                    self._check_dead(party, WRITE if isinstance(event, WriteDone) else READ, began_ns)
                for parties in self._begun_before.values():
                    parties.discard(party)
                if isinstance(event, WriteDone):
                    self._write_done(life, event)
                else:
                    self._read_done(life, event)

    def _check_range(self, life: str, block: Block | None, first: int, last: int) -> None:
        if block is None or (block.start, block.end) != (first, last + 1):
            self.judge.report_broken("SPACE", f"{life} says that {first}..{last} is its own, and has {block}")

    def _check_dead(self, party: str, pool: str, began_ns: int) -> None:
        """STALE: nobody goes without a cursor while one who was dead when it began holds one that was aged then."""
        life = life_of(party)
        for address, word in self._dead.items():
            held = address.startswith(pool) and self.word(address) == word and party not in self._begun_before[address]
            if held and is_aged(word, self.queue.threshold_ns, began_ns):
                self.judge.report_broken("STALE", f"{life} finds no cursor, and {address} is a dead one's")

    def _write_done(self, life: str, event: WriteDone) -> None:
        if event.outcome is not Outcome.WRITTEN:
            self.books.writing.pop(life, None)
            return
        block = self.books.acknowledge(life)
        if block is None or block.start != event.position:
            self.judge.report_broken("INTEG", f"{life} is told that it wrote at {event.position}, and had {block}")
        elif block.fate is Fate.SKIPPED:
            self.judge.report_broken("ACK", f"{life} is told WRITTEN of {block}, which was skipped")

    def _read_done(self, life: str, event: ReadDone) -> None:
        block = self.books.taken.pop(life, None)
        if event.outcome is ReadOutcome.DISCARDED and block is not None:
            self.books.settle(block, Fate.LOST)
        elif event.outcome is ReadOutcome.DELIVERED:
            self._deliver(life, event, block)

    def _deliver(self, life: str, event: ReadDone, block: Block | None) -> None:
        if block is None or block.start != event.position:
            self.judge.report_broken("INTEG", f"{life} gets a block at {event.position}, and had taken {block}")
            return
        if (event.payload, event.messages) != (block.payload, block.messages):
            name = "KEPT" if block.acknowledged else "INTEG"
            self.judge.report_broken(name, f"{life} gets {event.payload!r} of {block}")
        if event.payload in self._delivered:
            self.judge.report_broken("ONCE", f"{life} gets {event.payload!r} again")
        if event.position <= self._last.get(life, -1):
            self.judge.report_broken("ORDER", f"{life} gets {event.position} after {self._last[life]}")
        self._delivered.add(event.payload)
        self._last[life] = event.position
        self.books.settle(block, Fate.DELIVERED)

    # -- the dead -----------------------------------------------------------------------------------------------------

    def observe_death(self, process: NodeLife, now_ns: int) -> None:
        life = process.life
        self.books.writing.pop(life, None)
        if (block := self.books.taken.pop(life, None)) is not None:
            self.books.settle(block, Fate.LOST)
            self._taken_along += block.messages
            self._counts["lost"] += block.messages
        for address, holder in self._holders.items():
            if holder == life:
                self._dead[address] = self.word(address)
                self._begun_before[address] = set(self._began)

    def missing(self, world: Cluster) -> cluster.Missing | None:
        for node, process in sorted(world.processes.items()):
            if isinstance(process, QueueWriter) and process.unwritten_count:
                return "WRITE", f"{node} has {process.unwritten_count} messages left"
        if self.books.open:
            return "READ", f"{self.books.open} acknowledged blocks have not come"
        if self.word(LOST) < self._taken_along and not any(one.startswith(READ) for one in self._dead):
            return "LOST", f"readers took {self._taken_along} messages along, and {self.word(LOST)} are counted"
        return None

    def tally(self) -> dict[str, int]:
        return self._counts

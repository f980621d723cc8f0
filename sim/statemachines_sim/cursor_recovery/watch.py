"""Watch: the properties of the queue, judged in every run, from every access that was made and all that was told.

It feeds the observers of `statemachines.cursor_recovery.properties`, reads the words of memory, and knows who holds
which cursor; the records of the machines are not asked.
"""

from __future__ import annotations

from typing import Any

from statemachines.cursor_recovery.memory import (
    FREE,
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
from statemachines.cursor_recovery.properties import PROPERTIES, delivered_blocks, memory_rules
from statemachines.cursor_recovery.properties.delivered_blocks import DeliveredBlocks
from statemachines.cursor_recovery.properties.reserved_blocks import (
    BlockClaim,
    BlockSkip,
    ProcessDied,
    Reservation,
    ReservedBlocks,
)
from statemachines.cursor_recovery.reader import ReadDone, ReadOutcome, Skipped
from statemachines.cursor_recovery.writer import Outcome, Write, WriteDone
from statemachines.kernel import Answer, BrokenProperty, Event, Node, Request, Step
from statemachines_sim import cluster
from statemachines_sim.cluster import SimCluster
from statemachines_sim.cursor_recovery.queue_process import QueueWriter
from statemachines_sim.cursor_recovery.section import QueueSection
from statemachines_sim.judge import Judge
from statemachines_sim.node_life import NodeLife

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

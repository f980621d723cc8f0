"""Process: a process that writes its messages, or reads as long as it lives, one memory access a transition.

The operation that it is in is the shipped machine; the access that the machine has asked for is made by the next
transition, so everything may come in between, and the process may die before it: with the data of a block after any
cell.  Then the operating system frees the lock of its slot.  A process knows the instant, which comes with each load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.cursor_recovery.memory import (
    CELL,
    Copied,
    CopyIn,
    CopyOut,
    Load,
    Loaded,
    Queue,
    Store,
    Stored,
    lock_of,
)
from statemachines.cursor_recovery.operation import READ, Operation
from statemachines.cursor_recovery.reader import Read, ReadDone, ReaderRecord, Skipped
from statemachines.cursor_recovery.writer import Outcome, Write, WriteDone, WriterRecord
from statemachines.kernel import Ask, Event, Fsm, Request, Tell
from statemachines_spec.cursor_recovery.ledger import LEDGER, Acknowledged, Delivered, Gone
from statemachines_spec.explorer.actor import Actor, At, Crash, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import Party, stepped
from statemachines_spec.explorer.property import View


class Begin(Event, frozen=True, gc=False):
    """Its application begins the next operation."""


class Access(Event, frozen=True, gc=False):
    """It makes the access that its machine has asked for."""


class Cut(Event, frozen=True, gc=False):
    """It dies while it copies data, after so many cells."""

    cells: int


class ProcessLocal(msgspec.Struct, frozen=True, gc=False):
    """`record` of the operation that it is in (None: in none); `asked`: the access that it is about to make; `cells`
    that a copy has read so far; `done`: how many messages of its own are out of its hands; `dead`; `now_ns`."""

    record: Any = None
    asked: Any = None
    cells: tuple[int, ...] = ()
    done: int = 0
    dead: bool = False
    now_ns: int = 0


class Process(Actor):
    """`fsm` with `fresh(queue, slot, incarnation)`, its record; `messages` that it writes (none: it reads): the bytes
    of each block, and how many messages that is; `last_ns`: from then on it does not die any more, since nobody's
    cursor would ever be aged."""

    keeps_time = True

    def __init__(
        self,
        name: str,
        slot: int,
        queue: Queue,
        fsm: Fsm[Any],
        fresh: Callable[[Queue, int, int], Operation],
        *,
        incarnation: int = 1,
        messages: tuple[tuple[bytes, int], ...] = (),
        last_ns: int = 0,
    ) -> None:
        super().__init__(name)
        self.slot = slot
        self.queue = queue
        self.fsm = fsm
        self.messages = messages
        self.reads = not messages
        self.last_ns = last_ns
        self._fresh = fresh(queue, slot, incarnation)

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> ProcessLocal:
        return ProcessLocal()

    def inputs(self, local: ProcessLocal) -> tuple[Any, ...]:
        if local.dead:
            return ()
        return (*self._next(local), *self._deaths(local))

    def react(self, local: ProcessLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case At():
                return Reaction(replace(local, now_ns=event.now_ns))
            case Crash():
                return self._dies(local, 0)
            case Cut():
                return self._dies(local, event.cells)
            case Begin():
                call = Read() if self.reads else Write(*self.messages[local.done])
                return self._step(replace(local, record=self._fresh), call, watch)
            case Access():
                return self._access(local, watch)
            case Loaded() if isinstance(local.asked, CopyOut):
                return self._gathered(local, event.value, watch)
            case Loaded():
                event = replace(event, time_ns=local.now_ns)
        return self._step(local, event, watch)

    def canonical(self, local: ProcessLocal) -> ProcessLocal:
        """Fields of the record that are written before they are read again are as at the beginning."""
        if local.record is None or not isinstance(local.record, WriterRecord | ReaderRecord):
            return local
        dead = {name: getattr(self._fresh, name) for name in unread(local.record)}
        return replace(local, record=replace(local.record, **dead))

    def describe(self, local: ProcessLocal) -> str:
        if local.dead:
            return "dead"
        if local.record is None:
            return f"idle, {local.done} written" if self.messages else "idle"
        return f"{local.record.status.value}: {local.asked}"

    def bounds(self) -> dict[str, str]:
        return {"messages": str(len(self.messages))} if self.messages else {"reads": "as long as it lives"}

    # -- reading it ---------------------------------------------------------------------------------------------

    def view(self, of: Callable[[Any], int], size: int = 2, gone: int = 0) -> View:
        """What a property reads of the record of its operation: `of(record)` in range(`size`); `gone` without one."""
        return View(self.name, size, lambda local: gone if local.record is None else int(of(local.record)))

    def lives(self) -> View:
        """Whether it lives."""
        return View(self.name, 2, lambda local: int(not local.dead))

    def owes(self) -> View:
        """Whether it lives and has messages left."""
        return View(self.name, 2, lambda local: int(not local.dead and local.done < len(self.messages)))

    # -- reactions ----------------------------------------------------------------------------------------------

    def _next(self, local: ProcessLocal) -> Iterator[Event]:
        if local.asked is not None:
            yield Access()
        elif self.reads or local.done < len(self.messages):
            yield Begin()

    def _deaths(self, local: ProcessLocal) -> Iterator[Event]:
        if local.record is None or (self.last_ns and local.now_ns >= self.last_ns):
            return
        yield Crash()
        if isinstance(local.asked, CopyIn):
            for cells in range(1, -(-len(local.asked.data) // CELL)):
                yield Cut(cells)

    def _dies(self, local: ProcessLocal, cells: int) -> Reaction:
        calls = list(self._copied(local.asked, cells)) if cells else []
        calls.append(Envelope("", lock_of(self.slot), Store(lock_of(self.slot), 0)))
        if has_taken(local.record):
            calls.append(Envelope(self.name, LEDGER, Gone(local.record.at, local.record.messages)))
        return Reaction(ProcessLocal(done=local.done, dead=True), (), tuple(calls))

    def _access(self, local: ProcessLocal, watch: Watch | None) -> Reaction:
        request = local.asked
        if isinstance(request, CopyIn):
            reaction = self._step(local, Stored(), watch)
            return replace(reaction, calls=(*self._copied(request, len(request.data)), *reaction.calls))
        if not isinstance(request, CopyOut):
            return Reaction(local, (), (Envelope(self.name, request.address, request),))
        places = range(request.position, request.position + request.size, CELL)
        if not places:
            return self._step(local, Copied(b""), watch)
        cells = (self.queue.address(at) for at in places)
        return Reaction(local, (), tuple(Envelope(self.name, cell, Load(cell)) for cell in cells))

    def _copied(self, request: CopyIn, cells: int) -> Iterator[Envelope]:
        """What the first `cells` of a copy write."""
        for at in range(0, min(cells * CELL, len(request.data)), CELL):
            cell = self.queue.address(request.position + at)
            yield Envelope("", cell, Store(cell, int.from_bytes(request.data[at : at + CELL], "little")))

    def _gathered(self, local: ProcessLocal, value: int, watch: Watch | None) -> Reaction:
        cells = (*local.cells, value)
        size = local.asked.size
        if len(cells) * CELL < size:
            return Reaction(replace(local, cells=cells))
        data = b"".join(cell.to_bytes(CELL, "little") for cell in cells)[:size]
        return self._step(replace(local, cells=()), Copied(data), watch)

    def _step(self, local: ProcessLocal, event: Event, watch: Watch | None) -> Reaction:
        """One step of the machine: the next access, or the end of the operation."""
        party, effects = stepped(self.fsm, Party(local.record), event, self.name, watch, local.now_ns)
        asked: Request | None = None
        calls: list[Envelope] = []
        done = local.done
        for effect in effects:
            if isinstance(effect, Ask):
                asked = effect.request
            elif isinstance(effect, Tell):
                calls += self._told(local, effect.event)
                done += isinstance(effect.event, WriteDone) and effect.event.outcome in OUT_OF_HANDS
        record = party.record if asked is not None else None
        return Reaction(replace(local, record=record, asked=asked, done=done), (), tuple(calls))

    def _told(self, local: ProcessLocal, event: Event) -> Iterator[Envelope]:
        """What the ledger hears of what the application is told."""
        match event:
            case WriteDone(Outcome.WRITTEN, position):
                yield Envelope(self.name, LEDGER, Acknowledged(position, self.messages[local.done]))
            case ReadDone(position=position, payload=payload) if position >= 0:
                yield Envelope(self.name, LEDGER, Delivered(event.outcome, position, payload, event.messages))
            case Skipped():
                yield Envelope(self.name, LEDGER, event)


OUT_OF_HANDS = (Outcome.WRITTEN, Outcome.FENCED, Outcome.OVERSIZE)
"""After any other outcome the application tries again."""


def has_taken(record: Any) -> bool:
    """It is a reader that has moved the head over a block, and not yet given its cursor back."""
    return record is not None and record.pool == READ and record.status.value[0] in "78"


def unread(record: Any) -> Iterator[str]:
    """The fields that the operation writes before it reads them again, in the state that it is in."""
    step = record.status.value[0]
    judges = step == "r" or record.status.value == "3_check_position"
    if not judges:
        yield from ("seen", "seen_ns", "taken", "messages_taken", "recovers")
    if not judges and record.status.value != "3_check_cursor":
        yield "other"
    if record.status.value == "2_load_read_head":
        yield from ("read_head", "write_head")
        yield from ("at", "limit", "size", "checksum", "messages", "data") if record.pool == READ else ()
    elif record.pool == READ and step in "45678":
        yield "limit"

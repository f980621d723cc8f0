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

from statemachines.cursor_recovery.block import data_of, length_of
from statemachines.cursor_recovery.memory import (
    CELL,
    SERVICE,
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
from statemachines.cursor_recovery.properties.delivered_blocks import Acknowledged, Delivered, Gone
from statemachines.cursor_recovery.reader import Read, ReadDone, ReaderRecord, ReadOutcome, Skipped
from statemachines.cursor_recovery.writer import Outcome, QueueWriterRecord, Write, WriteDone
from statemachines.kernel import Ask, Event, Fsm, Request, Tell
from statemachines_spec.cursor_recovery.ledger import LEDGER, Lied
from statemachines_spec.explorer.actor import Actor, At, Crash, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import Party, step_party
from statemachines_spec.explorer.property import View


class Begin(Event, frozen=True, gc=False):
    """Its application begins the next operation."""


class Access(Event, frozen=True, gc=False):
    """It makes the access that its machine has asked for."""


class Cut(Event, frozen=True, gc=False):
    """It dies while it copies data, after so many cells."""

    cells: int


class ReadsTheDead(Exception):
    """A field decides something although it was not written since it was of use: `canonical` may not forget it."""


class ProcessLocal(msgspec.Struct, frozen=True, gc=False):
    """`record` of the operation that it is in (None: in none; one without `asked` stands still); `asked`:
    the access that it is about to make; `cells` that a copy has read so far; `done`: how many messages of its own are
    out of its hands; `dead`; `now_ns`."""

    record: Any = None
    asked: Any = None
    cells: tuple[int, ...] = ()
    done: int = 0
    dead: bool = False
    now_ns: int = 0


class QueueActor(Actor):
    """`fsm` with `fresh(queue, slot, incarnation)`, its record; `messages` that it writes (none: it reads): the bytes
    of each block, and how many messages that is; `last_ns`: from then on it does not die any more, since nobody's
    cursor would ever be aged; `never`: outcomes that cannot be true in this system."""

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
        never: frozenset[Any] = frozenset(),
    ) -> None:
        super().__init__(name)
        self.never = never
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
        """What comes of the event; and nothing else comes of it where fields that are dead hold something else."""
        reaction = self._react(local, envelope, watch)
        other = self._with_other_dead(local)
        if other is not local:
            theirs = self._react(other, envelope, None)
            if reaction is None or theirs is None or reaction.calls != theirs.calls:
                raise ReadsTheDead(self.name)
            if self.canonical(reaction.local) != self.canonical(theirs.local):
                raise ReadsTheDead(self.name)
        return reaction

    def _react(self, local: ProcessLocal, envelope: Envelope, watch: Watch | None) -> Reaction | None:
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
        if local.record is None or not isinstance(local.record, QueueWriterRecord | ReaderRecord):
            return local
        dead = {name: getattr(self._fresh, name) for name in unread(local.record)}
        return replace(local, record=replace(local.record, **dead))

    def _with_other_dead(self, local: ProcessLocal) -> ProcessLocal:
        """The same with other values in the fields that `canonical` forgets."""
        if local.record is None or not isinstance(local.record, QueueWriterRecord | ReaderRecord):
            return local
        other = {name: _other(getattr(local.record, name)) for name in unread(local.record)}
        return replace(local, record=replace(local.record, **other))

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
        elif local.record is None and (self.reads or local.done < len(self.messages)):
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
            gone = Gone(local.record.at, local.record.messages, local.record.end)
            calls.append(Envelope(self.name, LEDGER, gone))
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
        party, effects = step_party(self.fsm, Party(local.record), event, self.name, watch, local.now_ns)
        asked: Request | None = None
        calls: list[Envelope] = []
        done = local.done
        said: list[str] = []
        for effect in effects:
            if isinstance(effect, Ask):
                if effect.service != SERVICE:
                    raise LookupError(f"there is no service {effect.service!r}")
                asked = effect.request
            elif isinstance(effect, Tell):
                calls += self._tell_ledger(local, effect.event)
                said += [effect.event.outcome.value] if isinstance(effect.event, WriteDone | ReadDone) else []
                done += isinstance(effect.event, WriteDone) and effect.event.outcome in OUT_OF_HANDS
        final = party.record.status in self.fsm.final
        if said and said != [party.record.status.value]:
            calls.append(Envelope(self.name, LEDGER, Lied(said[-1])))
        record = None if said and final else party.record
        return Reaction(replace(local, record=record, asked=asked, done=done), (), tuple(calls))

    def _tell_ledger(self, local: ProcessLocal, event: Event) -> Iterator[Envelope]:
        """What the ledger hears of what the application is told."""
        if isinstance(event, WriteDone | ReadDone) and self._is_a_lie(local, event.outcome):
            yield Envelope(self.name, LEDGER, Lied(event.outcome.value))
        match event:
            case WriteDone(Outcome.WRITTEN, position):
                yield Envelope(self.name, LEDGER, Acknowledged(position, self.messages[local.done]))
            case ReadDone(position=position, payload=payload) if position >= 0:
                end = local.record.end
                yield Envelope(self.name, LEDGER, Delivered(event.outcome, position, payload, event.messages, end))
            case Skipped():
                yield Envelope(self.name, LEDGER, event)

    def _is_a_lie(self, local: ProcessLocal, outcome: Outcome | ReadOutcome) -> bool:
        """What it is told cannot be so."""
        if outcome is Outcome.OVERSIZE:
            return length_of(len(data_of(*self.messages[local.done]))) <= self.queue.capacity
        return outcome in self.never


OUT_OF_HANDS = (Outcome.WRITTEN, Outcome.FENCED, Outcome.OVERSIZE)
"""After any other outcome the application tries again."""


def has_taken(record: Any) -> bool:
    """It is a reader that has moved the head over a block, and not yet given its cursor back."""
    return record is not None and record.pool == READ and record.status.value[0] in "78"


def _other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value + b"?"


_JUDGED = ("seen", "seen_ns", "recovers")
_TAKEN = {"taken": ("r_lost_messages", "r_lost_head"), "messages_taken": ("r_lost_head", "r_lost_count", "r_lost_add")}
_BLOCK = {
    "size": ("3_load_checksum", "3_load_messages", "3_scan_data", "5", "6", "7", "8"),
    "checksum": ("3_load_messages", "3_scan_data", "5", "6", "7"),
    "messages": ("5", "6", "7", "8"),
    "data": ("8",),
}
"""Of what a reader knows of a block, the steps (or states) in which it is of use."""


def unread(record: Any) -> Iterator[str]:
    """The fields that the operation writes before it reads them again, in the state that it is in."""
    status, reads = record.status.value, record.pool == READ
    step = status[0]
    judges = step == "r" or status == "3_check_position"
    if not judges:
        yield from _JUDGED
    yield from (name for name, states in _TAKEN.items() if status not in states)
    if not (status.startswith("3_check") or (step == "r" and record.recovers)):
        yield "other"
    attempts = status in ("2_load_read_head", "2_load_write_head") or status.endswith("give_back")
    if attempts and status != "2_load_write_head":
        yield "read_head"
    if attempts:
        yield "write_head"
    if reads:
        yield from ("at",) if attempts else ()
        yield from ("limit",) if attempts or step in "45678" else ()
        yield from (name for name, states in _BLOCK.items() if not status.startswith(states))

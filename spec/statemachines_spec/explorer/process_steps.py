"""ProcessSteps: the turns of a declared process over values, for components of a closed system.

The record and the timers of the process, and those of each party, are one value each (`Party`).  A step of one of them
is taken once for each value and event, and kept; so a turn, however many parties take part, costs look-ups.  That a
step is a function is checked when it is taken first: it is taken twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import CancelTimer, Effect, Effects, Event, Fsm, Message, Process, SetTimer, TimerFired
from statemachines.kernel.process import PROCESS
from statemachines.kernel.turn import Leaving, ProcessTurn
from statemachines_spec.explorer.actor import SeenStep, Watch
from statemachines_spec.explorer.entries import Nondeterministic, encode_value
from statemachines_spec.explorer.party import InternedParty, Party, Timer, begin, step_party, timer_of


class ProcessPart(msgspec.Struct, frozen=True, gc=False):
    """A party of a process, and its kind."""

    kind: str
    party: InternedParty


class ProcessParts(msgspec.Struct, frozen=True, gc=False):
    """A process: its own machine, and its parties by id."""

    own: InternedParty
    parties: tuple[ProcessPart, ...] = ()

    def of_kind(self, kind: str) -> InternedParty | None:
        """The first party of a kind, or None."""
        return next((one.party for one in self.parties if one.kind == kind), None)

    def find(self, party: str) -> InternedParty | None:
        """The party with this id, or None."""
        return next((one.party for one in self.parties if one.party.record.id == party), None)


class TakenStep(msgspec.Struct, frozen=True, gc=False):
    """What came of one step: the party afterwards, its effects but those on timers, the timers that it set for now, all
    that it set or took back or that fired, and the steps of its machines."""

    party: InternedParty
    effects: Effects
    soon: tuple[Timer, ...]
    touched: tuple[Timer, ...]
    seen: tuple[SeenStep, ...]


class ProcessSteps:
    """All steps of one process that were taken so far; `late`: timers that were taken back may still fire."""

    def __init__(self, process: Process[Any], *, late: bool = False) -> None:
        self.process = process
        self.late = late
        self._parties: dict[InternedParty, InternedParty] = {}
        self._events: dict[bytes, Event] = {}
        self._known: dict[int, Any] = {}
        self._taken: dict[tuple[int, int], TakenStep] = {}
        self._changed: dict[tuple[int, str], InternedParty] = {}

    def begin(self, record: Any) -> ProcessParts:
        """A process that has just begun."""
        turn = PartsTurn(self, ProcessParts(self.begin_party(self.process.fsm, record)), None)
        turn.start()
        return turn.parts()

    def begin_party(self, fsm: Fsm[Any], record: Any) -> InternedParty:
        """A party that has just begun."""
        return self.intern(begin(fsm, record, self.late))

    def intern(self, party: Party) -> InternedParty:
        """The one value that stands for all parties that are equal to it."""
        return self._same_party(InternedParty(party))

    def changed(self, party: InternedParty, how: str, change: Callable[[Any], Any]) -> InternedParty:
        """The party with another record, as `change` has it; `how` is its name."""
        party = self._same_party(party)
        known = self._changed.get((id(party), how))
        if known is None:
            after = self.intern(replace(party.party, record=change(party.record)))
            known = self._changed[id(party), how] = after
        return known

    def take(self, fsm: Fsm[Any], party: InternedParty, event: Event) -> TakenStep:
        """A step of one party."""
        party, event = self._same_party(party), self._same_event(event)
        key = id(party), id(event)
        taken = self._taken.get(key)
        if taken is None:
            taken = self._taken[key] = self._checked(fsm, party.party, event)
        return taken

    def _checked(self, fsm: Fsm[Any], party: Party, event: Event) -> TakenStep:
        """The step, taken twice."""
        one, other = self._step(fsm, party, event), self._step(fsm, party, event)
        if one != other:
            raise Nondeterministic(
                f"{fsm.full_name}: two results for {event!r} on one record: first {one!r}, then {other!r}; a step may "
                "depend on nothing but its record and event"
            )
        return one

    def _step(self, fsm: Fsm[Any], party: Party, event: Event) -> TakenStep:
        watch: Watch = []
        stepped_to, effects = step_party(fsm, party, event, party.record.id, watch)
        after = self.intern(stepped_to)
        leaving = tuple(one for one in effects if not isinstance(one, SetTimer | CancelTimer))
        soon = tuple(
            (one.timer, one.key)
            for one in effects
            if isinstance(one, SetTimer) and one.deadline_ns <= 0 and one.timer not in fsm.authority
        )
        touched = tuple((one.timer, one.key) for one in effects if isinstance(one, SetTimer | CancelTimer))
        if isinstance(event, TimerFired):
            touched = (*touched, (timer_of(fsm, event), event.key))
        # What the local state keeps is looked at with it, so it must be the very record.
        seen = (replace(one, after=after.record) if one.fsm is fsm else one for one in watch)
        return TakenStep(after, leaving, soon, touched, tuple(seen))

    def _same_party(self, party: InternedParty) -> InternedParty:
        if id(party) in self._known:
            return party
        known = self._parties.setdefault(party, party)
        self._known[id(known)] = known
        return known

    def _same_event(self, event: Event) -> Event:
        if id(event) in self._known:
            return event
        known = self._events.setdefault(encode_value((type(event).__qualname__, event)), event)
        self._known[id(known)] = known
        return known


class PartsTurn(ProcessTurn):
    """The turns of a process within one reaction of a component; `out` is what leaves it."""

    def __init__(self, steps: ProcessSteps, parts: ProcessParts, watch: Watch | None) -> None:
        super().__init__(steps.process, parts.own.record.id)
        self.steps = steps
        self.watch = watch
        self.out: Leaving = []
        self._parts: dict[str, ProcessPart] = {one.party.record.id: one for one in parts.parties}
        self._parts[self.id] = ProcessPart(PROCESS, parts.own)
        self.touched: set[tuple[str, Timer]] = set()
        self._soon: list[tuple[str, Timer]] = []

    def parts(self) -> ProcessParts:
        """The process after it."""
        own = self._parts[self.id].party
        return ProcessParts(own, tuple(part for name, part in sorted(self._parts.items()) if name != self.id))

    def part(self, party: str) -> ProcessPart:
        """A party that lives, and its kind."""
        return self._parts[party]

    def put(self, party: str, value: InternedParty) -> None:
        """The party is this one now."""
        self._parts[party] = replace(self._parts[party], party=value)

    def start(self) -> None:
        """The parties that every life begins with."""
        self._finish(self._decide(self.process.begin(self.record), 0, self.out))

    def receive(self, sender: str, to: str, message: Message) -> None:
        """A message arrives."""
        self.feed(*self.event_for(sender, to, message))

    def feed(self, party: str, event: Event) -> None:
        """An event of a party, or of the process; if it is gone, nothing happens."""
        self._finish([(party, event)])

    def _finish(self, events: Iterable[tuple[str, Event]]) -> None:
        """Until nothing is left, and then what goes on at once."""
        self._run(events, 0, self.out)
        while self._soon:
            party, _ = min(self._soon)
            self._run(self._sort_out(party, self._fire_soon(party), 0, self.out), 0, self.out)

    # -- how it is step_party --------------------------------------------------------------------------------------

    @property
    def record(self) -> Any:
        return self._parts[self.id].party.record

    def kind_of(self, party: str) -> str:
        part = self._parts.get(party)
        return "" if part is None else part.kind

    def record_of(self, party: str) -> Any:
        return self._parts[party].party.record

    def take(self, party: str, event: Event, now_ns: int) -> Iterable[Effect]:
        first = self._fire_soon(party) if self._soon else []
        return (*first, *self._take(party, event)) if first else self._take(party, event)

    def end_overdue(self, now_ns: int) -> Iterable[Effect]:
        """Nothing is due by itself: what fires is an event of its own."""
        return ()

    def begin(self, kind: str, party: str, record: Any, now_ns: int) -> None:
        living = sum(one.kind == kind for one in self._parts.values())
        fsm = self.process.check_begin(kind, party, self.id, living).fsm
        self._parts[party] = ProcessPart(kind, self.steps.begin_party(fsm, record))

    def remove(self, party: str) -> None:
        self._parts.pop(party, None)
        if self._soon:
            self._soon = [one for one in self._soon if one[0] != party]

    def _take(self, name: str, event: Event) -> Effects:
        part = self._parts[name]
        taken = self.steps.take(self.process.fsm_of(part.kind), part.party, event)
        self._parts[name] = ProcessPart(part.kind, taken.party)
        if self.watch is not None:
            self.watch += taken.seen
        self.touched.update((name, timer) for timer in taken.touched)
        if taken.soon:
            self._soon += [(name, timer) for timer in taken.soon]
        return taken.effects

    def _fire_soon(self, name: str) -> list[Effect]:
        """What this party set for now, if it is still set."""
        effects: list[Effect] = []
        while due := [one for one in self._soon if one[0] == name]:
            first = min(due)
            self._soon.remove(first)
            part = self._parts[name]
            timer, key = first[1]
            if (timer, key) in part.party.timers:
                effects += self._take(name, self.process.fsm_of(part.kind).timer_registry()[timer](key))
        return effects

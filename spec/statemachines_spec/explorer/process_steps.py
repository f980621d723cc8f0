"""ProcessSteps: the turns of a declared process over values, for components of a closed system.

The record and the timers of the process, and those of each party, are one value each (`Party`).  A step of one of them
is taken once for each value and event, and kept; so a turn, however many parties take part, costs look-ups.  That a
step is a function is checked when it is taken first: it is taken twice.

In a system with a tick every party is a `TimedParty`: time passes for all of them at once (`age`), and of what is due
in any of them the first fires before anything else (`first_due`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    CancelTimer,
    Effect,
    Effects,
    Event,
    Fsm,
    InvariantViolated,
    Message,
    PartyKind,
    Process,
    SetTimer,
    Stop,
    TimerFired,
)
from statemachines.kernel.process import PROCESS
from statemachines.kernel.turn import Leaving, ProcessTurn
from statemachines_spec.explorer.actor import SeenStep, Timing, Watch
from statemachines_spec.explorer.entry_tables import Nondeterministic, encode_value
from statemachines_spec.explorer.party import (
    DueRank,
    InternedParty,
    LateFiring,
    Party,
    Timer,
    age_parties,
    begin,
    fire_late,
    list_firings,
    rank_due,
    rank_first,
    step_party,
    timer_of,
)
from statemachines_spec.explorer.symmetry import Names, rename_value


class ProcessPart(msgspec.Struct, frozen=True, gc=False):
    """A party of a process: its kind, itself, and its id."""

    kind: str
    party: InternedParty
    id: str


class ProcessParts(msgspec.Struct, frozen=True, gc=False):
    """A process: its own machine, and its parties by id."""

    own: InternedParty
    parties: tuple[ProcessPart, ...] = ()

    def members(self) -> Iterator[ProcessPart]:
        """The process, then its parties."""
        yield ProcessPart(PROCESS, self.own, self.own.record.id)
        yield from self.parties

    def rename(self, names: Names) -> ProcessParts:
        """As `symmetry.rename_value` needs it: the parties are sorted again."""
        parties = sorted(rename_value(self.parties, names), key=lambda one: str(one.id))
        return ProcessParts(rename_value(self.own, names), tuple(parties))

    def of_kind(self, kind: str) -> InternedParty | None:
        """The first party of a kind, or None."""
        for one in self.parties:
            if one.kind == kind:
                return one.party
        return None

    def put(self, party: InternedParty, name: str = "") -> ProcessParts:
        """The process with this value of one of its parties; `name`: its id, if its record does not have it."""
        name = name or party.record.id
        others = (replace(one, party=party) if one.id == name else one for one in self.parties)
        return ProcessParts(self.own, tuple(others))

    def find(self, party: str) -> InternedParty | None:
        """The party with this id, or None."""
        return next((one.party for one in self.parties if one.id == party), None)


class TakenStep(msgspec.Struct, frozen=True, gc=False):
    """What came of one step: the party afterwards, its effects but those on timers, the timers that it set for now, all
    that it set or took back or that fired, and the steps of its machines, without the id of the party."""

    party: InternedParty
    effects: Effects
    soon: tuple[Timer, ...]
    touched: tuple[Timer, ...]
    seen: tuple[SeenStep, ...]


class ProcessSteps:
    """All steps of one process that were taken so far; `late`: timers that were taken back may still fire; `timings`:
    of a system with a tick, for each kind, and the process; `clock`: machines read it, so that no step is kept."""

    def __init__(
        self,
        process: Process[Any],
        *,
        late: bool = False,
        timings: Mapping[str, Timing] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.process = process
        self.late = late
        self.clock = clock
        self.is_remembering = clock is None
        self.timings = dict(timings or {})
        self._parties: dict[InternedParty, InternedParty] = {}
        self._events: dict[bytes, Event] = {}
        self._known: dict[int, Any] = {}
        self._taken: dict[tuple[int, int, int], TakenStep] = {}
        self._changed: dict[tuple[int, str], InternedParty] = {}

    def begin(self, record: Any) -> ProcessParts:
        """A process that has just begun."""
        return self.start(record, None).parts()

    def start(self, record: Any, watch: Watch | None, now_ns: int = 0) -> PartsTurn:
        """The turn in which a process begins."""
        turn = PartsTurn(self, ProcessParts(self.begin_party(PROCESS, record, now_ns)), watch, now_ns)
        turn.start()
        return turn

    def begin_party(self, kind: str, record: Any, now_ns: int = 0) -> InternedParty:
        """A party of this kind, or a process, that has just begun."""
        return self.intern(begin(self.process.fsm_of(kind), record, self.late, now_ns, self.timings.get(kind)))

    def intern(self, party: Party) -> InternedParty:
        """The one value that stands for all parties that are equal to it."""
        made = InternedParty(party)
        return made if self.clock is not None else self._same_party(made)

    def changed(self, party: InternedParty, how: str, change: Callable[[Any], Any]) -> InternedParty:
        """The party with another record, as `change` has it; `how` is its name."""
        if self.clock is not None:
            return self.intern(replace(party.party, record=change(party.record)))
        party = self._same_party(party)
        known = self._changed.get((id(party), how))
        if known is None:
            after = self.intern(replace(party.party, record=change(party.record)))
            known = self._changed[id(party), how] = after
        return known

    def take(self, kind: str, party: InternedParty, event: Event, now_ns: int = 0) -> TakenStep:
        """A step of one party."""
        if not self.is_remembering:
            return self._step(kind, party.party, event, now_ns if self.clock is None else self.clock())
        party, event = self._same_party(party), self._same_event(event)
        key = id(party), id(event), now_ns
        taken = self._taken.get(key)
        if taken is None:
            taken = self._taken[key] = self._checked(kind, party.party, event, now_ns)
        return taken

    def write_down(self, part: ProcessPart, event: Event, now_ns: int, watch: Watch) -> None:
        """A step that raises, for who wants to read it."""
        timing = self.timings.get(part.kind)
        step_party(self.process.fsm_of(part.kind), part.party.party, event, part.id, watch, now_ns, timing)

    # -- time ---------------------------------------------------------------------------------------------------

    def age(self, parts: ProcessParts, ticks: int, *, standing: bool) -> ProcessParts | None:
        """The process so many ticks later; None: time cannot pass, since a timer of some party has to fire first."""
        members = tuple(parts.members())
        timed = [(self.timings[one.kind], one.party.party) for one in members]
        aged = age_parties(timed, ticks, standing=standing)
        if aged is None:
            return None
        own, *others = map(self.intern, aged)
        pairs = zip(parts.parties, others, strict=True)
        return ProcessParts(own, tuple(replace(one, party=party) for one, party in pairs))

    def map_parties(self, parts: ProcessParts, change: Callable[[Timing, Party], Party]) -> ProcessParts:
        """The process with another node in place of each."""
        own, *others = (self.intern(change(self.timings[one.kind], one.party.party)) for one in parts.members())
        pairs = zip(parts.parties, others, strict=True)
        return ProcessParts(own, tuple(replace(one, party=party) for one, party in pairs))

    def first_due(self, members: Iterable[ProcessPart]) -> tuple[str, Timer] | None:
        """The timer that fires before anything else may happen in the process, with its party."""
        due: list[tuple[DueRank, str, Timer]] = []
        for one in members if self.timings else ():
            first = rank_first(self.timings[one.kind], one.party.party)
            if first is not None:
                due.append((first[0], one.id, first[1]))
        return min(due)[1:] if due else None

    def firings(self, parts: ProcessParts, silent: frozenset[str]) -> Iterator[tuple[str, Event]]:
        """What may fire now: each timer that is set; of timed ones that which is due first in the whole process, and
        those that may be late; while one of them must not wait, nothing else."""
        first = self.first_due(parts.members())
        if first is not None:
            yield first[0], self.firing(*first, parts)
            return
        patient = {due[1]: due for due in self._patient(parts)}
        waits = [due for due in patient.values() if due != min(patient.values())]
        held = {(name, self.firing(name, timer, parts)) for _, name, timer in waits}
        for one in parts.members():
            name, timing = one.id, self.timings.get(one.kind)
            fired = list_firings(self.process.fsm_of(one.kind), one.party, silent, timing)
            yield from ((name, event) for event in fired if (name, event) not in held)

    def firing(self, party: str, timer: Timer, parts: ProcessParts) -> Event:
        """The event of that timer of that party."""
        kind = next(one.kind for one in parts.members() if one.id == party)
        return self.process.fsm_of(kind).timer_registry()[timer[0]](timer[1])

    def _patient(self, parts: ProcessParts) -> Iterator[tuple[DueRank, str, Timer]]:
        """Of each party the first due timer that lets events go first, and may not be late."""
        for one in parts.members() if self.timings else ():
            timing = self.timings[one.kind]
            due = (pair for pair in rank_due(one.party.party, timing.authority) if pair[1][0] not in timing.late)
            first = next(due, None)
            if first is not None:
                yield first[0], one.id, first[1]

    # -- inside -------------------------------------------------------------------------------------------------

    def _checked(self, kind: str, party: Party, event: Event, now_ns: int) -> TakenStep:
        """The step, taken twice."""
        one, other = self._step(kind, party, event, now_ns), self._step(kind, party, event, now_ns)
        if one != other:
            raise Nondeterministic(
                f"{self.process.fsm_of(kind).full_name}: two results for {event!r} on one record: first {one!r}, then "
                f"{other!r}; a step may depend on nothing but its record and event"
            )
        return one

    def _step(self, kind: str, party: Party, event: Event, now_ns: int) -> TakenStep:
        watch: Watch = []
        fsm, timing = self.process.fsm_of(kind), self.timings.get(kind)
        stepped_to, effects = step_party(fsm, party, event, "", watch, now_ns, timing)
        if any(isinstance(one, Stop) for one in effects) and stepped_to.record.status not in fsm.final:
            raise InvariantViolated(fsm.name, "it stops where it is at its end", stepped_to.record, event)
        after = self.intern(stepped_to)
        leaving = tuple(one for one in effects if not isinstance(one, SetTimer | CancelTimer))
        at_ns, timed = (now_ns, ()) if timing is None else (timing.now_ns, timing.timers)
        soon = tuple(
            (one.timer, one.key)
            for one in effects
            if isinstance(one, SetTimer)
            and one.deadline_ns <= at_ns
            and one.timer not in fsm.authority
            and one.timer not in timed
        )
        touched = tuple((one.timer, one.key) for one in effects if isinstance(one, SetTimer | CancelTimer))
        if isinstance(event, TimerFired):
            touched = (*touched, (timer_of(fsm, event), event.key))
        # What the local state keeps is looked at with it, so it must be the very record.
        seen = (replace(one, after=after.record) if one.after == after.record else one for one in watch)
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

    def __init__(self, steps: ProcessSteps, parts: ProcessParts, watch: Watch | None, now_ns: int = 0) -> None:
        super().__init__(steps.process, parts.own.record.id)
        self.steps = steps
        self.watch = watch
        self.now_ns = now_ns
        self.out: Leaving = []
        self._parts: dict[str, ProcessPart] = {one.id: one for one in parts.parties}
        self._parts[self.id] = ProcessPart(PROCESS, parts.own, self.id)
        self.touched: set[tuple[str, Timer]] = set()
        self._soon: list[tuple[str, Timer]] = []

    def parts(self) -> ProcessParts:
        """The process after it."""
        own = self._parts[self.id].party
        return ProcessParts(own, tuple(part for name, part in sorted(self._parts.items()) if name != self.id))

    def start(self) -> None:
        """The parties that every life begins with."""
        self._finish(self._decide(self.process.begin(self.record), self.now_ns, self.out))

    def receive(self, sender: str, to: str, message: Message) -> None:
        """A message arrives."""
        self.feed(*self.event_for(sender, to, message))

    def feed(self, party: str, event: Event) -> None:
        """An event of a party, or of the process; if it is gone, nothing happens."""
        self._finish([(party, event)])

    def fire_late(self, party: str, event: LateFiring) -> None:
        """A timer that was taken back fires; that firing is in the party's queue no more."""
        after, fired = fire_late(self._fsm_of(party), self._parts[party].party.party, event)
        self._parts[party] = replace(self._parts[party], party=self.steps.intern(after))
        self.feed(party, fired)

    def go_on(self) -> None:
        """What is due comes before anything else."""
        self._finish(())

    def _finish(self, events: Iterable[tuple[str, Event]]) -> None:
        """Until nothing is left, then what goes on at once, then what is due before any other event."""
        self._run(events, self.now_ns, self.out)
        while True:
            if self._soon:
                party, _ = min(self._soon)
                effects: Iterable[Effect] = self._fire_soon(party)
            else:
                first = self.steps.first_due(self._parts.values())
                if first is None:
                    return
                party, (timer, key) = first
                effects = self._take(party, self._fsm_of(party).timer_registry()[timer](key))
            self._run(self._sort_out(party, effects, self.now_ns, self.out), self.now_ns, self.out)

    # -- how it is stepped -----------------------------------------------------------------------------------------

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
        while self.steps.timings and (due := self._find_due(party)) not in (None, event):
            first += self._take(party, due)
        return (*first, *self._take(party, event)) if first else self._take(party, event)

    def end_overdue(self, now_ns: int) -> Iterable[Effect]:
        """Nothing is due by itself: what fires is an event of its own."""
        return ()

    def begin(self, kind: str, party: str, record: Any, now_ns: int) -> None:
        living = sum(one.kind == kind for one in self._parts.values())
        self.process.check_begin(kind, party, self.id, living)
        self._parts[party] = ProcessPart(kind, self.steps.begin_party(kind, record, now_ns), party)

    def remove(self, party: str) -> None:
        self._parts.pop(party, None)
        if self._soon:
            self._soon = [one for one in self._soon if one[0] != party]

    def _take(self, name: str, event: Event) -> Effects:
        part = self._parts[name]
        if part.party.record.status in self._fsm_of(name).final:
            return ()  # it has stopped, and takes nothing
        try:
            taken = self.steps.take(part.kind, part.party, event, self.now_ns)
        except Exception:
            if self.watch is not None:
                self.steps.write_down(part, event, self.now_ns, self.watch)
            raise
        self._parts[name] = replace(part, party=taken.party)
        if self.watch is not None:
            self.watch += (replace(one, party=name) for one in taken.seen)
        self.touched.update((name, timer) for timer in taken.touched)
        if taken.soon:
            self._soon += [(name, timer) for timer in taken.soon]
        return taken.effects

    def _find_due(self, name: str) -> Any:
        """The firing of this party that comes before any other event of it (None: there is none)."""
        first = self.steps.first_due((self._parts[name],))
        return None if first is None else self._fsm_of(name).timer_registry()[first[1][0]](first[1][1])

    def _fire_soon(self, name: str) -> list[Effect]:
        """What this party set for now, if it is still set."""
        effects: list[Effect] = []
        while due := [one for one in self._soon if one[0] == name]:
            first = min(due)
            self._soon.remove(first)
            part = self._parts[name]
            timer, key = first[1]
            if (timer, key) in part.party.timers:
                effects += self._take(name, self._fsm_of(name).timer_registry()[timer](key))
        return effects

    def _fsm_of(self, name: str) -> Fsm[Any]:
        return self.process.fsm_of(self._parts[name].kind)


def change_machines(process: Process[Any], change: Callable[[Fsm[Any]], Fsm[Any]]) -> Process[Any]:
    """The declaration with other machines, of itself and of every kind of party."""
    kinds = tuple(replace(one, fsm=change(one.fsm)) for one in process.kinds.values())
    return copy_process(process, change(process.fsm), kinds)


def use_machine(process: Process[Any], kind: str, fsm: Fsm[Any]) -> Process[Any]:
    """The declaration with this machine for one kind of its parties."""
    if process.kinds[kind].fsm is fsm:
        return process
    kinds = tuple(replace(one, fsm=fsm) if one.name == kind else one for one in process.kinds.values())
    return copy_process(process, process.fsm, kinds)


def copy_process(process: Process[Any], fsm: Fsm[Any], kinds: tuple[PartyKind, ...]) -> Process[Any]:
    """The declaration with another machine, and other kinds of parties."""
    parts: dict[str, Any] = {"routes": process.routes, "begin": process.begin, "diverts": process.diverts}
    return ProcessCopy(process.name, fsm, kinds=kinds, **parts)


class ProcessCopy(Process[Any]):
    """A declared process with other machines, perhaps mistaken ones.  Its rules were read when it was declared."""

    def check_rules(self) -> None:
        """Not again."""

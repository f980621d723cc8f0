"""ProcessActor: a declared process as a component of a closed system, with no glue.

    office = ProcessActor("o1", OFFICE, lambda life: OfficeRecord(life, ...), faults=(Crash, Pause), lives=2,
                          calls=lambda record: (Check(),) if record.clerks else ())

It is an `FsmActor` for a machine with its parties.  What any of them sends goes into the network, to the nodes that
`route` names; what it asks goes to the component that is called like the service; what leaves the process as a `Tell`
goes to the components that `tells` names.  Every timer that is set may fire at any moment, of whatever party.  A
process that stands still takes nothing; the timers whose deadlines pass meanwhile fire when it goes on, those of
authority first, across all its parties.  One that has crashed comes back with a new record under the next number of
life.

In a system with a tick (`timings`, by kind of party) time passes for all its parties at once.  Of what is due in any of
them the first fires before anything else happens to the process: what has authority, then what goes on at once.

ProcessComponent: the base of components that run a declared process: its steps, and its time.

A local state of one has its process in a field `parts` (None: there is no process).  What may happen to it, and what it
makes of that, is for those that are built on it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Ask, ConfigurationError, Event, Fsm, Process, Send, Tell, incarnation
from statemachines.kernel.process import PROCESS
from statemachines_spec.explorer.actor import (
    Actor,
    At,
    Crash,
    Envelope,
    Hear,
    LoseDisk,
    Passed,
    Pause,
    Reaction,
    Restart,
    Timing,
    Wake,
    Watch,
    complete_timings,
    merge_timings,
)
from statemachines_spec.explorer.fsm_actor import DOWN, HEARING, PAUSED, RUNNING, Mode, fields_of
from statemachines_spec.explorer.party import LateFiring, PartyInput, Timer, is_due, timer_words
from statemachines_spec.explorer.process_steps import PartsTurn, ProcessParts, ProcessSteps, use_machine
from statemachines_spec.explorer.property import View


class ProcessComponent(Actor):
    """`late`: timers that were taken back may still fire; `timings`: kind, or `PROCESS` -> its timed timers and
    stamps."""

    keeps_time = True

    def __init__(
        self,
        name: str,
        process: Process[Any],
        *,
        silent: tuple[str, ...] = (),
        late: bool = False,
        timings: Mapping[str, Timing] | None = None,
    ) -> None:
        super().__init__(name, silent=silent)
        self.process = process
        self.late = late
        self._is_remembering = True
        self.set_timings(timings or {})

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return self.process.machines

    def set_timings(self, timings: Mapping[str, Timing]) -> None:
        """It is timed from now on: kind, or `PROCESS` -> its timed timers and stamps.  Raises `ConfigurationError` for
        what its machines do not have."""
        machines = {kind: self.process.fsm_of(kind) for kind in (PROCESS, *self.process.kinds)}
        timed = complete_timings(self.name, timings, machines, self.silent)
        self.timing = merge_timings(timed)
        if self.timing is not None and self.late:
            rule = "a timed timer that was taken back never fires: either late or timed"
            raise ConfigurationError(f"late timers of {self.name}", ", ".join(self.timing.timers), rule)
        self._use(ProcessSteps(self.process, late=self.late, timings=timed))

    def use_machine(self, kind: str, fsm: Fsm[Any]) -> None:
        """It runs this machine for one kind of its parties."""
        self.process = use_machine(self.process, kind, fsm)
        self._use(ProcessSteps(self.process, late=self.late, timings=self.steps.timings))

    def use_clock(self, process: Process[Any], now_ns: Callable[[], int]) -> None:
        """It takes each step when that happens, on machines that read this clock, and remembers none."""
        self.process = process
        self._use(ProcessSteps(process, late=self.late, clock=now_ns))

    def forget_steps(self) -> None:
        """It takes each step when that happens: its machines are watched, or changed, while they are explored."""
        self._is_remembering = False
        self._use(self.steps)

    def _use(self, steps: ProcessSteps) -> None:
        self.steps = steps
        steps.is_remembering = steps.is_remembering and self._is_remembering
        self._later: dict[int, ProcessComponent] = {}

    def map_parties(self, local: Any, change: Callable[[Timing, Any], Any]) -> Any:
        if self.timing is None or local.parts is None:
            return local
        return replace(local, parts=self.steps.map_parties(local.parts, change))

    def at_time(self, now_ns: int) -> ProcessComponent:
        """One that is kept: what its steps come to is remembered as well."""
        later = self._later.get(now_ns)
        if later is None:
            later = copy.copy(self)
            later.set_timings({kind: replace(one, now_ns=now_ns) for kind, one in self.steps.timings.items()})
            self._later[now_ns] = later
        return later

    # -- what is due --------------------------------------------------------------------------------------------

    def _pass_time(self, local: Any, ticks: int, *, standing: bool) -> Reaction | None:
        """What comes of `Passed`: time passes for all parties, or for none yet."""
        if self.timing is None or local.parts is None:
            return Reaction(local)
        parts = self.steps.age(local.parts, ticks, standing=standing)
        return None if parts is None else Reaction(replace(local, parts=parts))

    def _first_due(self, local: Any) -> tuple[str, Timer] | None:
        """The timer that fires before anything else happens to the process, with its party."""
        return None if local.parts is None else self.steps.first_due(local.parts.members())

    def _waits(self, local: Any, event: Any) -> bool:
        """Whether a due timer fires before this event is taken."""
        first = self._first_due(local)
        if first is None:
            return False
        assert local.parts is not None
        fired = self.steps.firing(*first, local.parts)
        return event not in (fired, PartyInput(first[0], fired))

    def _fired(self, local: Any) -> Iterator[Event]:
        """What may fire now, for a component that needs no name to find the party."""
        return (event for _, event in self.steps.firings(local.parts, self.silent))


class PartyPass(Event, frozen=True, gc=False):
    """Time passes, beyond the deadline of a timer of a party of the paused process."""

    party: str
    timer: str
    key: str


class ProcessActorLocal(msgspec.Struct, frozen=True, gc=False):
    """`life` of the process, from 1 on; `parts` (None: there is no process); `passed`: timers whose deadlines passed
    while it stood still and that have not fired yet, in that order; `kept`: the record that the next life begins with,
    where a disk survived; `now_ns`: the instant."""

    mode: Mode
    life: int
    parts: ProcessParts | None
    passed: tuple[tuple[str, Timer], ...] = ()
    kept: Any = None
    now_ns: int = 0


def _to_the_node(to: str) -> Iterable[str]:
    return (to,)


class ProcessActor(ProcessComponent):
    """`record(life)`: the record that the process begins with, given the name of its life.  All else has a default:

    `lives`: how often it may live; `faults` that may happen (`Crash`, `LoseDisk`, `Pause`; bound them by a budget);
    `disk(crashed, fresh)`: the record of the next life where its disk survives; `start`: the event that the process
    takes when a life begins; `calls(record)`: what the environment may call; `inputs_of`: kind -> what may happen to a
    party with this record; `route(to)`: the nodes, or ids of parties, that a `Send` goes to; `tells`: event told -> the
    component that takes it; `silent` timers never fire; `late`: timers that were taken back may still fire;
    `timings`: kind, or `PROCESS` -> its timed timers and stamps; `bound(parts)`: what lies within the bounds;
    `canonical(parts, steps)`: see `Actor.canonical`.
    """

    def __init__(
        self,
        name: str,
        process: Process[Any],
        record: Callable[[str], Any],
        *,
        lives: int = 1,
        faults: tuple[type[Event], ...] = (),
        disk: Callable[[Any, Any], Any] | None = None,
        start: Event | None = None,
        calls: Callable[[Any], Iterable[Event]] | None = None,
        inputs_of: Mapping[str, Callable[[Any], Iterable[Event]]] | None = None,
        route: Callable[[str], Iterable[str]] = _to_the_node,
        tells: Mapping[type[Event], str] | None = None,
        silent: tuple[str, ...] = (),
        late: bool = False,
        timings: Mapping[str, Timing] | None = None,
        bound: Callable[[ProcessParts], bool] | None = None,
        canonical: Callable[[ProcessParts, ProcessSteps], ProcessParts] | None = None,
    ) -> None:
        super().__init__(name, process, silent=silent, late=late, timings=timings)
        self.lives = lives
        self.faults = faults
        self.start = start
        self.route = route
        self.tells = dict(tells or {})
        self._record = record
        self._disk = disk
        self._calls = calls
        self._inputs_of = dict(inputs_of or {})
        self._bound = bound
        self._canonical = canonical
        self._authority = frozenset().union(*(fsm.authority for fsm in process.machines))

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> ProcessActorLocal:
        """Just begun; where a life begins with an event, about to."""
        if self.start is not None:
            return ProcessActorLocal(DOWN, 0, None)
        return ProcessActorLocal(RUNNING, 1, self.steps.begin(self._fresh(1)))

    def inputs(self, local: ProcessActorLocal) -> tuple[Any, ...]:
        if local.parts is None:
            return (Restart(),) if local.life < self.lives else ()
        gone = tuple(fault() for fault in self.faults if fault is not Pause)
        if local.mode is PAUSED:
            hears = (Hear(),) if any(timer[0] not in self._authority for _, timer in local.passed) else ()
            return (Wake(), *hears, *self._passing(local), *gone)
        calls = () if self._calls is None else tuple(self._calls(local.parts.own.record))
        calls = (*calls, *self._happening(local.parts))
        if local.mode is HEARING:
            return (Wake(), *calls, *gone)
        fired = tuple(PartyInput(*one) for one in self.steps.firings(local.parts, self.silent))
        pauses = (Pause(),) if Pause in self.faults else ()
        return (*fired, *(() if self._first_due(local) else calls), *gone, *pauses)

    def react(self, local: ProcessActorLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case At():
                return Reaction(replace(local, now_ns=event.now_ns))
            case Passed():
                return self._pass_time(local, event.ticks, standing=local.mode is PAUSED)
            case Crash() | LoseDisk():
                kept = self._surviving(local, event)
                return Reaction(ProcessActorLocal(DOWN, local.life, None, kept=kept, now_ns=local.now_ns))
            case Restart():
                return self._restart(local, watch)
            case Pause():
                return Reaction(replace(local, mode=PAUSED))
            case PartyPass(party, timer, key):
                return Reaction(replace(local, passed=(*local.passed, (party, (timer, key)))))
        if local.mode is PAUSED and not isinstance(event, Wake | Hear):
            return None
        if local.parts is None:
            return Reaction(local)  # who is gone takes nothing
        if local.mode is RUNNING and self._waits(local, event):
            return None
        turn = PartsTurn(self.steps, local.parts, watch, local.now_ns)
        mode = local.mode
        match event:
            case Wake() | Hear():
                mode = HEARING if isinstance(event, Hear) else RUNNING
                self._fire_passed(turn, local, isinstance(event, Hear))
                turn.go_on()
            case PartyInput(party, LateFiring() as late):
                turn.fire_late(party, late)
            case PartyInput(party, fed):
                turn.feed(party, fed)
            case Answer():
                turn.feed(envelope.to, event)
            case _ if envelope.sender:
                turn.receive(envelope.sender, envelope.to, event)
            case _:
                turn.feed(turn.id, event)
        return self._reaction(replace(local, mode=mode), turn)

    def within(self, local: ProcessActorLocal) -> bool:
        return self._bound is None or local.parts is None or bool(self._bound(local.parts))

    def canonical(self, local: ProcessActorLocal) -> ProcessActorLocal:
        if self._canonical is None or local.parts is None:
            return local
        return replace(local, parts=self._canonical(local.parts, self.steps))

    def describe(self, local: ProcessActorLocal) -> str:
        words = []
        for one in () if local.parts is None else local.parts.members():
            timers = ", ".join(timer_words(one.party.party))
            named = "" if one.kind == PROCESS else f"{one.kind} {one.id} "
            words.append(f"{named}{fields_of(one.party.record)}" + (f" (timers {timers})" if timers else ""))
        words += [f"{' '.join(timer).strip()} of {party} is due" for party, timer in local.passed]
        words += [str(local.mode.value)] if local.mode is not RUNNING else []
        words += [f"life {local.life}"] if local.life > 1 else []
        return "; ".join([*words, *([f"at {local.now_ns}"] if local.now_ns else [])])

    def view(
        self, of: Callable[[ProcessParts], int], size: int = 2, gone: int = 0, *, awake: bool = False, until: str = ""
    ) -> View:  # fmt: skip
        """What a property reads of it: `of(parts)` in range(`size`); `gone` where there is no process, and with `awake`
        also while it stands still, with `until` once the timed timer of that name of any party is due: it fires before
        anything else."""

        def read(local: ProcessActorLocal) -> int:
            if local.parts is None or (awake and local.mode is PAUSED):
                return gone
            if until and any(is_due(one.party.party, until) for one in local.parts.members()):
                return gone
            return int(of(local.parts))

        return View(self.name, size, read)

    # -- what may happen ----------------------------------------------------------------------------------------

    def _happening(self, parts: ProcessParts) -> Iterator[PartyInput]:
        for one in parts.members():
            happens = self._inputs_of.get(one.kind)
            for event in () if happens is None else happens(one.party.record):
                yield PartyInput(one.id, event)

    def _passing(self, local: ProcessActorLocal) -> Iterator[PartyPass]:
        assert local.parts is not None
        for one in local.parts.members() if self.timing is None else ():
            for timer in one.party.timers:
                if timer[0] not in self.silent and (one.id, timer) not in local.passed:
                    yield PartyPass(one.id, *timer)

    # -- reactions ----------------------------------------------------------------------------------------------

    def _fresh(self, life: int) -> Any:
        return self._record(incarnation(self.name, life))

    def _surviving(self, local: ProcessActorLocal, event: Event) -> Any:
        """The record that the next life begins with (None: nothing survives)."""
        if self._disk is None or local.parts is None or isinstance(event, LoseDisk) or local.life >= self.lives:
            return None
        return self._disk(local.parts.own.record, self._fresh(local.life + 1))

    def _restart(self, local: ProcessActorLocal, watch: Watch | None) -> Reaction:
        record = self._fresh(local.life + 1) if local.kept is None else local.kept
        turn = self.steps.start(record, watch, local.now_ns)
        if self.start is not None:
            turn.feed(turn.id, self.start)
        return self._reaction(ProcessActorLocal(RUNNING, local.life + 1, None, now_ns=local.now_ns), turn)

    def _fire_passed(self, turn: PartsTurn, local: ProcessActorLocal, hears: bool) -> None:
        """What is due fires, timers of authority before others; one that `hears` first leaves those of patience."""
        due = [one for one in local.passed if one[1][0] in self._authority]
        due += [] if hears else [one for one in local.passed if one not in due]
        for party, (timer, key) in due:
            if (party, (timer, key)) not in turn.touched and turn.kind_of(party):
                registry = self.process.fsm_of(turn.kind_of(party)).timer_registry()
                turn.feed(party, registry[timer](key))

    def _reaction(self, local: ProcessActorLocal, turn: PartsTurn) -> Reaction:
        """What is there afterwards, and what becomes of the effects.  A passed timer that has fired, is set anew, or is
        taken back, is not due any more."""
        passed = tuple(one for one in local.passed if one not in turn.touched and turn.kind_of(one[0]))
        mode = RUNNING if local.mode is HEARING and not passed else local.mode
        sends: list[Envelope] = []
        calls: list[Envelope] = []
        for party, effect in turn.out:
            match effect:
                case Send(to, message):
                    sends += [Envelope(party, node, message) for node in self.route(to)]
                case Ask(service, request):
                    calls.append(Envelope(party, service, request))
                case Tell(event) if type(event) in self.tells:
                    calls.append(Envelope(party, self.tells[type(event)], event))
        after = replace(local, parts=turn.parts(), passed=passed, mode=mode)
        return Reaction(after, tuple(sends), tuple(calls))

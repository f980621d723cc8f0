"""FsmActor: a declared machine as a component of a closed system, with no glue.

    holder = FsmActor("holder-1", HOLDER, HolderRecord("holder-1"), faults=(Crash, Pause), lives=2,
                      calls=lambda record: (Acquire(),) if record.status is IDLE else ())

It is one process with one machine.  What the machine sends goes into the network, to the nodes that `route` names; what
it asks goes to the component that is called like the service; what it tells goes to the components that `tells` names,
within the same step.  Every timer that is set may fire at any moment (`silent` ones never do).

A process that stands still (`Pause`) takes nothing: messages wait.  Deadlines may pass meanwhile (`Pass`), in any
order; when it goes on (`Wake`), the timers whose deadlines have passed fire, those of authority first, in that order.
It may hear before what had waited (`Hear`): then only those of authority come first, and the others fire after.  One
that has crashed (`Crash`) hears nothing, and comes back (`Restart`) with a new record under the next number of life, up
to `lives`; answers to what an earlier life asked are lost.  One whose machine has stopped hears nothing either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    Ask,
    CancelTimer,
    Effect,
    Event,
    Fsm,
    Map,
    Send,
    SetTimer,
    Status,
    Stop,
    Tell,
    TimerFired,
    incarnation,
    name_of,
)
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
    words_of,
)
from statemachines_spec.explorer.party import (
    LateFiring,
    Party,
    Timer,
    begin,
    clear_timers,
    fire_late,
    first_due,
    is_due,
    list_firings,
    pass_time,
    step_party,
    timer_of,
    timer_words,
    waits,
)
from statemachines_spec.explorer.property import View


class Pass(Event, frozen=True, gc=False):
    """Time passes, beyond the deadline of a timer of the paused process."""

    timer: str
    key: str


class Mode(Status):
    """How the process is: going on, standing still, hearing what waited, crashed (or not begun yet), at its end."""

    RUNNING = "running"
    PAUSED = "paused"
    HEARING = "hearing what waited"
    DOWN = "down"
    ENDED = "ended"


RUNNING, PAUSED, HEARING, DOWN, ENDED = Mode
GOING_ON = (RUNNING, HEARING)


class FsmLocal(msgspec.Struct, frozen=True, gc=False):
    """`life` of the process, from 1 on; `party` (None: there is no process); its `id`; `passed`: timers whose deadlines
    passed while it stood still and that have not fired yet, in that order; `kept`: the record that the next life begins
    with, where a disk survived; `now_ns`: the instant."""

    mode: Mode
    life: int
    party: Party | None
    id: str = ""
    passed: tuple[Timer, ...] = ()
    kept: Any = None
    now_ns: int = 0


def _to_the_node(to: str) -> Iterable[str]:
    return (to,)


class FsmActor(Actor):
    """`record`: the record that it begins with, or a function of the number of its life.  All else has a default:

    `lives`: how often it may live; `faults` that may happen (`Crash`, `LoseDisk`, `Pause`; bound them by a budget);
    `disk(crashed, fresh)`: the record of the next life where its disk survives (without it nothing does); `start`: the
    event that every life begins with; `calls(record)`: what the environment may call in this state; `route(to)`: the
    nodes, or ids of parties, that a `Send` to `to` goes to; `tells`: event told -> the component that takes it;
    `silent` timers never fire; `late`: timers that were taken back may still fire; `timing`: of a system with a tick,
    its timed timers and stamps; `bound(record)`: what lies within the bounds; `canonical(record)`: see
    `Actor.canonical`; `words(record)`: for people.
    """

    keeps_time = True

    def __init__(
        self,
        name: str,
        fsm: Fsm[Any],
        record: Any,
        *,
        lives: int = 1,
        faults: tuple[type[Event], ...] = (),
        disk: Callable[[Any, Any], Any] | None = None,
        start: Event | None = None,
        calls: Callable[[Any], Iterable[Event]] | None = None,
        route: Callable[[str], Iterable[str]] = _to_the_node,
        tells: Mapping[type[Event], str] | None = None,
        silent: tuple[str, ...] = (),
        late: bool = False,
        timing: Timing | None = None,
        bound: Callable[[Any], bool] | None = None,
        canonical: Callable[[Any], Any] | None = None,
        words: Callable[[Any], str] | None = None,
    ) -> None:
        super().__init__(name, silent=silent, timing=timing, fsm=fsm, late=late)
        self.fsm = fsm
        self.lives = lives
        self.faults = faults
        self.late = late
        self._record = record
        self._disk = disk
        self.start = start
        self._calls = calls
        self.route = route
        self.tells = dict(tells or {})
        self._bound = bound
        self._canonical = canonical
        self._words = words or fields_of

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> FsmLocal:
        """Just begun; where a life begins with an event, about to."""
        if self.start is not None:
            return FsmLocal(DOWN, 0, None)
        return self._begin_life(1, None, 0)

    def inputs(self, local: FsmLocal) -> tuple[Any, ...]:
        if local.mode is DOWN:
            return (Restart(),) if local.life < self.lives else ()
        if local.party is None or local.mode is ENDED:
            return ()
        gone = tuple(fault() for fault in self.faults if fault is not Pause)
        if local.mode is PAUSED:
            hears = (Hear(),) if any(timer[0] not in self.fsm.authority for timer in local.passed) else ()
            return (Wake(), *hears, *self._passing(local), *gone)
        calls = () if self._calls is None else self._calls(local.party.record)
        if local.mode is HEARING:
            return (Wake(), *calls, *gone)
        pauses = (Pause(),) if Pause in self.faults else ()
        fired = tuple(list_firings(self.fsm, local.party, self.silent, self.timing))
        if self.timing is not None and first_due(self.timing, local.party) is not None:
            return (*fired, *gone, *pauses)
        return (*fired, *calls, *gone, *pauses)

    def react(self, local: FsmLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case At():
                return Reaction(replace(local, now_ns=event.now_ns))
            case Passed():
                return pass_time(self.timing, local, event.ticks, standing=local.mode is PAUSED)
            case Crash() | LoseDisk():
                return Reaction(self._crashed(local, event))
            case Restart():
                begun = self._begin_life(local.life + 1, local.kept, local.now_ns)
                return Reaction(begun) if self.start is None else self._step(begun, [self.start], watch)
            case Pause():
                return Reaction(replace(local, mode=PAUSED))
            case Pass():
                return Reaction(replace(local, passed=(*local.passed, (event.timer, event.key))))
            case Wake() | Hear():
                return self._wake(local, isinstance(event, Hear), watch)
        if local.mode is PAUSED:
            return None
        if local.party is None or local.mode is ENDED or envelope.to not in self._names(local):
            return Reaction(local)  # who is gone takes nothing
        if waits(self.timing, self.fsm, local.party, event):
            return None
        if isinstance(event, LateFiring):
            party, event = fire_late(self.fsm, local.party, event)
            local = replace(local, party=party)
        return self._step(local, [event], watch)

    def within(self, local: FsmLocal) -> bool:
        return self._bound is None or local.party is None or bool(self._bound(local.party.record))

    def canonical(self, local: FsmLocal) -> FsmLocal:
        if self._canonical is None or local.party is None:
            return local
        return replace(local, party=replace(local.party, record=self._canonical(local.party.record)))

    def describe(self, local: FsmLocal) -> str:
        words = [] if local.party is None else [self._words(local.party.record)]
        if local.party is not None and local.party.timers:
            words.append(f"timers {', '.join(timer_words(local.party))}")
        words += [f"{name} {key}".strip() + " is due" for name, key in local.passed]
        if local.mode is not RUNNING:
            words.append(str(local.mode.value))
        if local.life > 1:
            words.append(f"life {local.life}")
        if local.now_ns:
            words.append(f"at {local.now_ns}")
        return "; ".join(words)

    def bounds(self) -> dict[str, str]:
        lines = {"lives": str(self.lives)} if self.lives > 1 else {}
        return lines if self._bound is None else {**lines, "bound": words_of(self._bound)}

    # -- reading it ---------------------------------------------------------------------------------------------

    def view(
        self, of: Callable[[Any], int], size: int = 2, gone: int = 0, *, awake: bool = False, until: str = ""
    ) -> View:  # fmt: skip
        """What a property reads of its record: `of(record)` in range(`size`); `gone` where there is none, and with
        `awake` also while the process stands still, with `until` once the timed timer of that name is due: it fires
        before anything else."""

        def read(local: FsmLocal) -> int:
            if local.party is None or (awake and local.mode is PAUSED) or is_due(local.party, until):
                return gone
            return int(of(local.party.record))

        return View(self.name, size, read)

    def is_in(self, *states: Enum, awake: bool = False, until: str = "") -> View:
        """Whether its machine is in one of these states (with `awake`: and goes on; with `until`: and that timed timer
        is not due): 1, else 0."""
        return self.view(lambda record: record.status in states, awake=awake, until=until)

    # -- reactions ----------------------------------------------------------------------------------------------

    def _begin_life(self, life: int, kept: Any, now_ns: int) -> FsmLocal:
        record = self.fresh(life) if kept is None else kept
        party = begin(self.fsm, record, self.late, now_ns, self.timing)
        return FsmLocal(RUNNING, life, party, getattr(record, "id", "") or self.name, now_ns=now_ns)

    def fresh(self, life: int) -> Any:
        """The record that a life begins with, where nothing of the one before survives."""
        return self._record(life) if callable(self._record) else self._record

    def survives(self, record: Any, life: int) -> Any:
        """The record that the life after `life` begins with, where the disk survives (None: nothing of it does)."""
        return None if self._disk is None or life >= self.lives else self._disk(record, self.fresh(life + 1))

    def _crashed(self, local: FsmLocal, event: Event) -> FsmLocal:
        kept = None
        if isinstance(event, Crash) and local.party is not None:
            kept = self.survives(local.party.record, local.life)
        return FsmLocal(DOWN, local.life, None, kept=kept, now_ns=local.now_ns)

    def _names(self, local: FsmLocal) -> tuple[str, ...]:
        return (self.name, local.id, incarnation(self.name, local.life))

    def _wake(self, local: FsmLocal, hears: bool, watch: Watch | None) -> Reaction:
        """What is due fires, timers of authority before others; one that `hears` first leaves those of patience."""
        out = _Out()
        registry = self.fsm.timer_registry()
        local = replace(local, mode=RUNNING if self.timing is not None or not hears else HEARING)
        while (timer := self._next_passed(local, hears)) is not None:
            local, _ = self._take(local, registry[timer[0]](timer[1]), out, watch)
        return out.reaction(self._settled(local, out, watch))

    def _next_passed(self, local: FsmLocal, hears: bool) -> Timer | None:
        """Of the timers whose deadlines passed the one that fires next."""
        authority = self.fsm.authority
        ends = [timer for timer in local.passed if timer[0] in authority]
        return next(iter(ends if hears else (*ends, *local.passed)), None) if local.mode in GOING_ON else None

    def _step(self, local: FsmLocal, events: list[Event], watch: Watch | None) -> Reaction:
        out = _Out()
        for event in events:
            if local.mode in GOING_ON:
                local, _ = self._take(local, event, out, watch)
        return out.reaction(self._settled(local, out, watch))

    def _settled(self, local: FsmLocal, out: _Out, watch: Watch | None) -> FsmLocal:
        """A timed timer of authority that is due, or one that was set for now, fires before anything else."""
        while self.timing is not None and local.mode is RUNNING:
            first = first_due(self.timing, _party_of(local))
            if first is None:
                break
            local, _ = self._take(local, self.fsm.timer_registry()[first[0]](first[1]), out, watch)
        return local

    def _take(
        self, local: FsmLocal, event: Event, out: _Out, watch: Watch | None
    ) -> tuple[FsmLocal, tuple[Effect, ...]]:
        """One step of the machine, and what becomes of its effects."""
        assert local.party is not None
        party, effects = step_party(self.fsm, local.party, event, local.id, watch, local.now_ns, self.timing)
        stops = party.record.status in self.fsm.final
        for effect in effects:
            match effect:
                case Send(to, message):
                    out.sends += [Envelope(local.id, node, message) for node in self.route(to)]
                case Ask(service, request):
                    out.calls.append(Envelope(self._asker(local), service, request))
                case Tell(told):
                    if type(told) in self.tells:
                        out.calls.append(Envelope(local.id, self.tells[type(told)], told))
                case Stop():
                    stops = True
        if stops:
            party = clear_timers(party)
        return self._gone_on(replace(local, party=party, mode=ENDED if stops else local.mode), event, effects), effects

    def _gone_on(self, local: FsmLocal, event: Event, effects: tuple[Effect, ...]) -> FsmLocal:
        """A passed timer that has fired, is set anew, or is taken back, is not due any more; without any the process
        goes on as ever."""
        if not local.passed:
            return local
        anew = {(one.timer, one.key) for one in effects if isinstance(one, SetTimer | CancelTimer)}
        if isinstance(event, TimerFired):
            anew.add((timer_of(self.fsm, event), event.key))
        armed = _party_of(local).timers
        passed = tuple(timer for timer in local.passed if timer in armed and timer not in anew)
        return replace(local, passed=passed, mode=RUNNING if local.mode is HEARING and not passed else local.mode)

    def _asker(self, local: FsmLocal) -> str:
        """Whom the answer is for: this life, and no later one."""
        return local.id if self.lives == 1 else incarnation(self.name, local.life)

    def _passing(self, local: FsmLocal) -> Iterator[Event]:
        assert local.party is not None
        for name, key in local.party.timers if self.timing is None else ():
            if name not in self.silent and (name, key) not in local.passed:
                yield Pass(name, key)


def _party_of(local: FsmLocal) -> Party:
    assert local.party is not None
    return local.party


class _Out:
    """What goes out of a component within one transition."""

    def __init__(self) -> None:
        self.sends: list[Envelope] = []
        self.calls: list[Envelope] = []

    def reaction(self, local: FsmLocal) -> Reaction:
        return Reaction(local, tuple(self.sends), tuple(self.calls))


def fields_of(record: Any) -> str:
    """A record in a few words: its status, and what it holds, as far as that is short."""
    words = [] if getattr(record, "status", None) is None else [str(record.status.value)]
    for field in record.__struct_fields__:
        value = getattr(record, field)
        if field not in ("status", "id") and value not in ("", None, ()) and isinstance(value, _SHORT):
            words.append(f"{field}={_describe(value)}")
    return " ".join(words)


_SHORT = (str, int, bool, tuple, Map, Enum)


def _describe(value: Any) -> str:
    if isinstance(value, Map):
        return "{" + ", ".join(f"{key}: {_describe(one)}" for key, one in sorted(value.items())) + "}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_describe, value))})"
    if isinstance(value, msgspec.Struct):
        return f"{name_of(type(value))}({fields_of(value)})"
    return str(cast(Any, value).value if isinstance(value, Enum) else value)

"""From a path of the explorer to a script that runs with real timers.

The actors of the system go the path again, with two differences: nothing is interned or renumbered, and time is
symbolic.  What they set and cancel, and which timers fire, are constraints between the moments of the steps, which
`times` solves.  Clocks run at the true rate.

`PathToScript` does for machines without glue; a protocol overrides what it says differently.

Times: moments for the steps of a run, so that every timer fires when it is due and no other is due before.

Difference constraints: "this moment lies at least so long after that one" (a negative time: at most so long before).
The earliest moments are the longest paths of the graph of constraints; a cycle that gains time cannot be satisfied, and
names the constraints that contradict each other.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from statemachines import registry
from statemachines.kernel import Call, Event, Fsm, GaplessError, TimerFired, name_of, node_of
from statemachines.kernel.pmap import enc_hook
from statemachines_spec.explorer.actor import (
    Actor,
    Crash,
    Envelope,
    LoseDisk,
    Observer,
    PassAll,
    PassLease,
    Pause,
    Reaction,
    Restart,
    Wake,
)
from statemachines_spec.explorer.clock import Clock
from statemachines_spec.explorer.explore import ExploredPath, Leg, follow
from statemachines_spec.explorer.fsm_actor import FsmActor, Pass
from statemachines_spec.explorer.moves import Kind
from statemachines_spec.explorer.party import InternedParty, Party
from statemachines_spec.explorer.process_actor import ProcessComponent
from statemachines_spec.explorer.process_steps import ProcessParts, change_machines
from statemachines_spec.explorer.service_actor import Asked, ServiceActor
from statemachines_spec.explorer.system import System
from statemachines_spec.script.protocol import DEFAULT, Own, Parts, ScriptProtocol, part_of
from statemachines_spec.script.script import Origin, Script, ScriptStep, SentMessage
from statemachines_spec.script.symbolic_clock import SetTimerMoment, Slot, SymbolicClock, TimedMachine
from statemachines_spec.script.words import MessageName


class Bound(msgspec.Struct, frozen=True):
    """Moment `later` lies at least `least_ns` after moment `earlier`, because of `why`.  A `soft` one may be given up:
    what happens then does not matter to the run."""

    earlier: int
    later: int
    least_ns: int
    why: str
    soft: bool = False
    about: Hashable = None


class Moments(msgspec.Struct, frozen=True):
    """The earliest moments in nanoseconds, and the reasons of the soft bounds that were given up."""

    at_ns: tuple[int, ...]
    given_up: tuple[str, ...]


class Contradiction(Exception):
    """No moments keep all of `bounds`."""

    def __init__(self, bounds: Sequence[Bound]) -> None:
        self.bounds = tuple(bounds)
        super().__init__("; ".join(dict.fromkeys(bound.why for bound in bounds if bound.why)))


def moments(count: int, bounds: Sequence[Bound]) -> Moments:
    """Moments 0 to `count` - 1, none below 0.  Raises `Contradiction`."""
    kept = list(bounds)
    given_up: list[str] = []
    while True:
        found = _longest(count, kept)
        if isinstance(found, tuple):
            return Moments(found, tuple(dict.fromkeys(given_up)))
        soft = next((bound for bound in found if bound.soft), None)
        if soft is None:
            raise Contradiction(found)
        # One timer is one reason: whatever else it bounds goes with it.
        kept = [bound for bound in kept if not (bound.soft and bound.why == soft.why)]
        given_up.append(soft.why)


def _longest(count: int, bounds: Sequence[Bound]) -> tuple[int, ...] | list[Bound]:
    """The moments, or the bounds of a cycle that gains time."""
    at = [0] * count
    by: list[Bound | None] = [None] * count
    for _ in range(count + 1):
        moved = -1
        for bound in bounds:
            reached = at[bound.earlier] + bound.least_ns
            if reached > at[bound.later]:
                at[bound.later], by[bound.later], moved = reached, bound, bound.later
        if moved < 0:
            return tuple(at)
    return _cycle(by, moved)


def _cycle(by: Sequence[Bound | None], place: int) -> list[Bound]:
    """Back along what moved each moment last: after as many steps as there are moments one is on the cycle."""
    for _ in by:
        bound = by[place]
        assert bound is not None
        place = bound.earlier
    cycle: list[Bound] = []
    at = place
    while True:
        bound = by[at]
        assert bound is not None
        cycle.append(bound)
        at = bound.earlier
        if at == place:
            return cycle[::-1]


MS: Final = 1_000_000
GAP_NS: Final = MS
"""Between two steps there is at least so much time."""

LONGER_MAX: Final = 256
"""A time that is free is made at most so many times as long."""

STANDING: Final = {
    Pause: "pause", Wake: "wake", PassLease: "pass", PassAll: "pass", Pass: "pass", Crash: "crash",
    LoseDisk: "lose_disk", Restart: "restart",
}  # fmt: skip
FLIGHT: Final = {Kind.DELIVER: "deliver", Kind.COPY: "copy", Kind.DROP: "drop"}


class Unscriptable(GaplessError):
    """A path that cannot be had with real timers, or with what the runtimes can be told to do."""


def script_of(system: System, path: ExploredPath, *, protocol: str = "", variant: str = "", bug: str = "") -> Script:
    """The script of `path`, a run of `system`; `bug`: the planted bug that the machines have now.

    Timers that the system leaves out get so much time that they are never due, where the run would meet them; calls of
    applications come later than in the path, where no real timer waits so long.  Raises `Unscriptable` where timers
    contradict each other all the same, or an event has no counterpart outside the explorer.
    """
    try:
        return _script_of(system, path, protocol, variant, bug)
    except Unscriptable:
        later = with_late_calls(system, path)
        if later is not None:
            with suppress(Unscriptable):
                return _script_of(system, later, protocol, variant, bug)
        raise


def with_late_calls(system: System, path: ExploredPath) -> ExploredPath | None:
    """The same steps, each call of an application just before the first step that needs it; None where the explorer
    does not take them in that order, or they do not break the same property."""
    legs = list(path.legs)
    for place in reversed(range(len(legs))):
        if isinstance(legs[place].envelope.event, Call):
            call = legs.pop(place)
            touched = {turn.actor for turn in call.turns}
            sent = {envelope for turn in call.turns for envelope in turn.sends}
            while place < len(legs) and not _needs(legs[place], touched, sent):
                place += 1
            legs.insert(place, call)
    try:
        later = follow(system, [leg.line for leg in legs])
    except GaplessError:
        return None
    return later if later.broken == path.broken and len(later.legs) == len(legs) else None


def _needs(leg: Leg, touched: Set[str], sent: Set[Envelope]) -> bool:
    return leg.envelope in sent or not touched.isdisjoint(turn.actor for turn in leg.turns)


def _script_of(system: System, path: ExploredPath, protocol: str, variant: str, bug: str) -> Script:
    part = part_of(protocol)
    make: Any = registry.load(part.path, type, "how a path becomes a script")
    best: Script | None = None
    failed: Unscriptable | None = None
    for one in make.slower(system):
        try:
            made: Script = make(one, path, protocol, part).script(variant, bug)
        except Unscriptable as error:
            failed = failed or error
            continue
        if best is None or len(made.timers) < len(best.timers):
            best = made
        if not best.timers:
            return best
    if best is None:
        assert failed is not None
        raise failed
    return best


class TimerMoment(NamedTuple):
    """A timer at a moment: it fires there (`due`; after a pause maybe late: not `exact`), or is set and not due."""

    slot: Slot
    armed: SetTimerMoment
    moment: int
    due: bool
    exact: bool = True


class InFlightMessage(NamedTuple):
    """A message in flight, the `nth` of its name that was sent in a step."""

    envelope: Envelope
    words: MessageName
    sent_in: int
    nth: int


class ToldEvent(NamedTuple):
    """What an event of the environment is in a script: a word, and what goes with it."""

    do: str
    what: str = ""
    about: str = ""
    fields: str = ""


class PathToScript:
    """Goes the path.  `free_timers`: whose time each node may have of its own, since no other relies on it."""

    free_timers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, system: System, path: ExploredPath, protocol: str, part: ScriptProtocol) -> None:
        self.system = system
        self.path = path
        self.part = part
        self.clock = SymbolicClock()
        self.longer: dict[tuple[str, str], int] = {}
        self._protocol = protocol
        self.actors = {one.name: self._timed(one) for one in system.actors if self.takes_part(one)}
        self.locals: dict[str, Any] = {}
        self._flying: list[InFlightMessage] = []
        self._steps: list[ScriptStep] = []
        self._waits: list[TimerMoment] = []
        self._standing: set[str] = set()
        self._passed: set[Slot] = set()
        self._no_scripts()
        for name, actor in self.actors.items():
            if self.find_start(actor) is None:
                self._begin(name, actor)

    # -- what a protocol may say differently ----------------------------------------------------------------------

    @classmethod
    def slower(cls, system: System) -> Iterator[System]:
        """The system, and the same with longer times for timers that it leaves out."""
        yield system

    def refusal(self) -> str:
        """Why the system has no scripts at all ("": it has)."""
        for one in self.actors.values():
            if isinstance(one, Clock):
                return "its time is a list of instants, and no timer has a duration there"
            if self.part.path == DEFAULT.path and not isinstance(one, FsmActor | ServiceActor):
                return (
                    f"{one.name} is a {type(one).__name__}, and only an FsmActor or a ServiceActor can follow a script"
                )
        return ""

    def takes_part(self, actor: Actor) -> bool:
        """Whether the actor goes the path, too; an observer that only judges need not."""
        return not isinstance(actor, Observer)

    def following(self, actor: Actor, before: Any, event: Any, reaction: Reaction) -> tuple[Envelope, ...]:
        """What others take within the same transition."""
        return reaction.calls

    def find_start(self, actor: Actor) -> tuple[SentMessage, ...] | None:
        """What an actor that a step starts sends then; None: it is there from the beginning."""
        return None

    def own(self) -> Own:
        """The protocol's part of the script."""
        return Parts({name: "machine" if self._machines(one) else "service" for name, one in self.actors.items()})

    def may_last(self, timer: str, times: int) -> bool:
        """Whether one node's free timer may last so many times as long."""
        return False

    def describe_event(self, event: Any) -> ToldEvent | None:
        """What an event of the environment is; None: nobody can be told to do it."""
        if isinstance(event, Call):
            return ToldEvent("call", name_of(type(event)), "", msgspec.json.encode(event, enc_hook=enc_hook).decode())
        return None

    def stand(self, node: str, event: Any) -> None:
        """Time passes for something else than a process."""

    def note_taken(self, envelope: Envelope) -> None:
        """An event was taken."""

    def keeps(self, slot: Slot) -> bool:
        """Whether a timer that is no machine's is there still."""
        return False

    # -- the whole ------------------------------------------------------------------------------------------------

    def script(self, variant: str, bug: str) -> Script:
        """The script."""
        self._start()
        for n, leg in enumerate(self.path.legs, 1):
            self._go(n, leg)
        self._settle_rest()
        timed = self._times()
        steps = [replace(step, at_ns=at) for step, at in zip(self._steps, timed.at_ns, strict=False)]
        steps.sort(key=lambda step: step.at_ns)  # a start has its place by its time alone
        origin = self.system.origin
        return Script(
            protocol=self._protocol,
            system=self.system.name,
            variant=variant,
            bug=bug,
            breaks=self.path.broken,
            why=self.path.why[:200],
            origin=None if origin is None else Origin(*origin),
            own=self.own(),
            timers=tuple(f"{why[:150]}; it may fire of itself" for why in timed.given_up),
            steps=tuple(steps),
        ).check()

    def _no_scripts(self) -> None:
        if refusal := self.refusal():
            raise Unscriptable(f"{self.system.name}: {refusal}")

    def _timed(self, actor: Actor) -> Actor:
        """The actor with machines that keep time."""
        timed = copy.copy(actor)
        if isinstance(timed, ProcessComponent):
            process = change_machines(timed.process, lambda fsm: TimedMachine(fsm, self.clock, actor.name))
            timed.use_clock(process, lambda: self.clock.now_ns)
        for name, fsm in self._machines(actor).items():
            setattr(timed, name, TimedMachine(fsm, self.clock, actor.name))
        return timed

    @staticmethod
    def _machines(actor: Actor) -> Mapping[str, Fsm[Any]]:
        return {name: one for name, one in vars(actor).items() if isinstance(one, Fsm)}

    def _begin(self, name: str, actor: Actor) -> None:
        self.clock.silent = actor.silent
        self.locals[name] = actor.initial()

    # -- times ----------------------------------------------------------------------------------------------------

    def _times(self) -> Moments:
        """Moments for all steps.  Where a timer of one party that nobody else depends on is due too early, it is given
        more time than the configuration says, again and again."""
        order = self._order()
        while True:
            bounds = [bound for wait in self._waits for bound in self._bounds(wait)]
            try:
                return moments(len(self._steps) + 1, [*order, *bounds])
            except Contradiction as error:
                early = min(self._bounded_above(error), key=lambda one: self.longer.get(one, 1), default=None)
                twice = 0 if early is None else 2 * self.longer.get(early, 1)
                if early is None or twice > LONGER_MAX or not self.may_last(early[1], twice):
                    why = f"no real run takes these steps, timers contradict each other: {error}"
                    raise Unscriptable(why) from error
                self.longer[early] = twice

    def _order(self) -> list[Bound]:
        """Step after step, and the end; a start comes before what its node does first."""
        count, starts = len(self._steps), sum(step.do == "start" for step in self._steps)
        order = [Bound(place, place + 1, GAP_NS, "") for place in range(starts, count)]
        for place, start in enumerate(self._steps[:starts]):
            first = next(at for at, step in enumerate(self._steps) if at >= starts and self._acts(start.node, step))
            order.append(Bound(place, first, GAP_NS, ""))
        return order

    def _bounds(self, wait: TimerMoment) -> tuple[Bound, ...]:
        slot, armed, moment, due, exact = wait
        about = (node_of(slot.party), slot.timer)
        for_ns = armed.for_ns * self.longer.get(about, 1)
        text = f"{slot} ({for_ns // MS} ms) is set in step {self._number(armed.since)}"
        if not due:
            text += f" and not fired before step {self._number(moment)}"
            return (Bound(moment, armed.since, 1 - for_ns, text, armed.soft, about),)
        text += f" and fires in step {self._number(moment)}"
        least = Bound(armed.since, moment, for_ns, text, about=about)
        return (least, Bound(moment, armed.since, -for_ns, text, about=about)) if exact else (least,)

    @staticmethod
    def _acts(node: str, step: ScriptStep) -> bool:
        return step.node == node or any(sent.sender == node for sent in step.sends)

    def _bounded_above(self, error: Contradiction) -> Iterator[tuple[str, str]]:
        """Of the timers that would have to be due later, those whose time is free."""
        for bound in error.bounds:
            if isinstance(bound.about, tuple) and bound.about[1] in self.free_timers and bound.least_ns < 0:
                yield bound.about

    # -- steps ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Those that a step starts begin at moments of their own, each before its first step."""
        for turn in (turn for leg in self.path.legs for turn in leg.turns):
            actor = self.actors.get(turn.actor)
            if actor is None or turn.actor in self.locals:
                continue
            self.clock.moment = len(self._steps)
            self._begin(turn.actor, actor)
            self._steps.append(ScriptStep(0, 0, "start", turn.actor, sends=self.find_start(actor) or ()))

    def _go(self, n: int, leg: Leg) -> None:
        envelope, flight = leg.envelope, None
        if leg.kind is not Kind.INPUT:
            flight = self._find(n, leg.envelope)
            envelope = flight.envelope
            if leg.kind is not Kind.COPY:
                self._flying.remove(flight)
        self.clock.moment = len(self._steps)
        self.clock.fired.clear()
        sends = () if leg.kind is Kind.DROP else self._carried_out(envelope)
        self._bind_fired()
        self._steps.append(self._step(n, leg, envelope, flight, self._posted(n, leg, sends)))
        self._bind_ended()

    def _carried_out(self, envelope: Envelope) -> tuple[Envelope, ...]:
        """The event and the calls that follow; one that raises sends nothing."""
        sends: list[Envelope] = []
        queue = [envelope]
        for one in queue:
            name = node_of(one.to)
            actor = self.actors.get(name)
            if actor is None or name not in self.locals:
                continue  # an observer, or the promise of an answer to one that is not there
            self.clock.silent = actor.silent
            reaction = self._react(actor, one)
            if reaction is None:
                return tuple(sends)
            before, self.locals[name] = self.locals[name], reaction.local
            self.note_taken(one)
            sends += reaction.sends
            queue += self.following(actor, before, one.event, reaction)
        self._forget_gone()
        return tuple(sends)

    def _react(self, actor: Actor, envelope: Envelope) -> Reaction | None:
        try:
            return actor.react(self.locals[actor.name], envelope)
        except Exception:
            return None  # that no step raises is what breaks here

    def _posted(self, n: int, leg: Leg, sends: Iterable[Envelope]) -> tuple[SentMessage, ...]:
        """What is in flight now, and what found no room."""
        lost = list(leg.left_out)
        counted: Counter[MessageName] = Counter()
        posted: list[SentMessage] = []
        for envelope in sends:
            words = self._words(envelope)
            gone = envelope in lost or (envelope not in leg.left_out and any(self._words(one) == words for one in lost))
            if gone:
                lost.remove(next(one for one in lost if one == envelope or self._words(one) == words))
            else:
                self._flying.append(InFlightMessage(envelope, words, n, counted[words]))
                counted[words] += 1
            posted.append(SentMessage(words.what, words.sender, words.to, words.about, words.final, gone))
        return tuple(posted)

    def _find(self, n: int, envelope: Envelope) -> InFlightMessage:
        """The message in flight that the explorer means: the same, or, where it has renamed numbers, of that name."""
        words = self._words(envelope)
        found = [one for one in self._flying if one.envelope == envelope]
        found = found or [one for one in self._flying if one.words == words]
        if not found:
            raise Unscriptable(f"step {n}: {words} is not in flight when the machines go that way")
        return found[0]

    def _step(
        self, n: int, leg: Leg, envelope: Envelope, flight: InFlightMessage | None, sends: tuple[SentMessage, ...]
    ) -> ScriptStep:
        event = envelope.event
        node = node_of(envelope.to)
        if flight is not None:
            words = flight.words
            return ScriptStep(
                n, 0, FLIGHT[leg.kind], node, words.what, words.about, words.sender, words.final, flight.sent_in,
                flight.nth, sends,
            )  # fmt: skip
        if isinstance(event, TimerFired):
            return ScriptStep(n, 0, "fire", node, name_of(type(event)), event.key, sends=sends)
        told = ToldEvent(STANDING[type(event)]) if type(event) in STANDING else self.describe_event(event)
        if told is None:
            raise Unscriptable(f"step {n}: nobody can be told to do {name_of(type(event))}")
        self._stand(node, event)
        return ScriptStep(n, 0, told.do, node, told.what, told.about, sends=sends, fields=told.fields)

    def _words(self, envelope: Envelope) -> MessageName:
        event = envelope.event.request if isinstance(envelope.event, Asked) else envelope.event
        return self.part.words_of(event, node_of(envelope.sender), node_of(envelope.to))

    # -- constraints ----------------------------------------------------------------------------------------------

    def _bind_fired(self) -> None:
        """What fires is due just then; after a pause, it has been due."""
        clock = self.clock
        for slot, armed in clock.fired:
            exact = node_of(slot.party) not in self._standing
            self.bind(TimerMoment(slot, armed, clock.moment, True, exact))

    def _bind_ended(self) -> None:
        """What is taken back in this step was not due before, nor in it."""
        for slot, armed in self.clock.ended:
            self.bind_open(slot, armed, self.clock.moment)
        self.clock.ended.clear()
        if self._steps[-1].do == "wake":
            self._standing.discard(self._steps[-1].node)

    def bind(self, wait: TimerMoment) -> None:
        """The timer is so at this moment."""
        self._waits.append(wait)

    def bind_open(self, slot: Slot, armed: SetTimerMoment, moment: int) -> None:
        """At this moment it is set, and not due."""
        if armed.since >= moment or node_of(slot.party) in self._standing:
            return
        self.bind(TimerMoment(slot, armed, moment, False))

    def _settle_rest(self) -> None:
        """Nothing more is due before the end, a moment after the last step: applications take their turns there."""
        for slot, armed in self.clock.armed.items():
            self.bind_open(slot, armed, len(self._steps))

    def _stand(self, node: str, event: Event) -> None:
        """A process that stands still fires nothing, until it wakes: what it does not fire then is not due yet."""
        armed = [(slot, one) for slot, one in self.clock.armed.items() if node_of(slot.party) == node]
        if isinstance(event, Pause):
            for slot, one in armed:
                self.bind_open(slot, one, self.clock.moment)
            self._standing.add(node)
            self._passed = {slot for slot in self._passed if node_of(slot.party) != node}
        elif isinstance(event, Wake):
            self._standing.discard(node)
            for slot, one in armed:
                self.bind_open(slot, one, self.clock.moment)
        elif isinstance(event, Pass):
            self._pass(armed, event)
        elif isinstance(event, Crash | LoseDisk):
            self._standing.discard(node)
        else:
            self.stand(node, event)

    def _pass(self, armed: list[tuple[Slot, SetTimerMoment]], event: Pass) -> None:
        """The deadline of one timer of a node that stands still has passed, and those that pass later have not yet."""
        for slot, one in armed:
            is_it = (slot.timer, slot.key) == (event.timer, event.key)
            if is_it:
                self._passed.add(slot)
            if is_it or slot not in self._passed:
                self.bind(TimerMoment(slot, one, self.clock.moment, is_it, False))

    def _forget_gone(self) -> None:
        """A process that crashed has no timers."""
        living = {party for name, local in self.locals.items() for party in parties_of(name, local)}
        for slot in [slot for slot in self.clock.armed if slot.party not in living and not self.keeps(slot)]:
            self.clock.drop(slot)

    def _number(self, moment: int) -> int:
        """The number of the step at a moment (0: a start)."""
        return self._steps[min(moment, len(self._steps) - 1)].n


def parties_of(name: str, local: Any) -> Iterator[str]:
    """The parties that live in a local state of the component `name`."""
    if isinstance(local, InternedParty):
        yield local.record.id
    elif isinstance(local, Party):
        yield getattr(local.record, "id", name)
    elif isinstance(local, ProcessParts):
        for one in local.members():
            yield from parties_of(name, one.party)
    elif isinstance(local, msgspec.Struct):
        for field in local.__struct_fields__:
            value = getattr(local, field)
            if isinstance(value, Party | ProcessParts):
                yield from parties_of(name, value)

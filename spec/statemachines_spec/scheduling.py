"""Scheduling: from a path of the explorer to a schedule that runs with real timers.

The actors of the system go the path again, with two differences: nothing is interned or renumbered, and time is
symbolic.  What they set and cancel, and which timers fire, are constraints between the moments of the steps, which
`times` solves.  Clocks run at the true rate.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from statemachines.kernel import ConfigurationError, Event, GaplessError, TimerFired, name_of, node_of
from statemachines.shared_subscriptions.borrower import OnUnsubscribe
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import Claim, Commit, Read
from statemachines.shared_subscriptions.stream import StreamProgress
from statemachines_spec import schedule as plan
from statemachines_spec.explorer.actor import (
    Actor,
    Crash,
    Envelope,
    Observer,
    PassAll,
    PassLease,
    Pause,
    Reaction,
    Wake,
)
from statemachines_spec.explorer.moves import Kind
from statemachines_spec.explorer.path import Leg, Path
from statemachines_spec.explorer.system import System
from statemachines_spec.schedule import FORMAT, Schedule, Sent, Words, words_of
from statemachines_spec.shared_subscriptions.consumer import GROUP, Consumer
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.session_consumer import SessionConsumer
from statemachines_spec.shared_subscriptions.stores import Age, Store
from statemachines_spec.symbolic import Armed, Slot, SymbolicClock, Timed
from statemachines_spec.times import Bound, Contradiction, Moments, moments
from statemachines_spec.unhurried import unhurried

GAP_NS: Final = MS
"""Between two steps there is at least so much time."""

MESSAGES: Final = 8
"""Messages in each stream, if the system does not need more: applications take some at the end."""

FREE_TIMES: Final = {"find_leader": "find_leader_ms", "resend": "resend_interval_ms"}
"""Timer -> its time in the configuration: each node may have its own, since no other relies on it."""

LONGER_MAX: Final = 256
"""Such a time is made at most so many times as long."""

STANDING: Final = {Pause: "pause", Wake: "wake", PassLease: "pass", PassAll: "pass", Age: "pass", Crash: "crash"}


class Unschedulable(GaplessError):
    """A path that cannot be had with real timers, or with what the runtimes can be told to do."""


def schedule_of(system: System, path: Path, *, variant: str = "settled", bug: str = "") -> Schedule:
    """The schedule of `path`, a run of `system`; `bug`: the planted bug that the machines have now.

    Timers that the system leaves out get so much time that they are never due, where the run would meet them.  Raises
    `Unschedulable` where timers contradict each other, or an event has no counterpart outside the explorer.
    """
    best: Schedule | None = None
    failed: Unschedulable | None = None
    for pings in (None, False, True):
        one = system if pings is None else unhurried(system, pings=pings)
        try:
            made = _Scheduler(one, path).schedule(variant, bug)
        except Unschedulable as error:
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


class Wait(NamedTuple):
    """A timer at a moment: it fires there (`due`; after a pause maybe late: not `exact`), or is set and not due."""

    slot: Slot
    armed: Armed
    moment: int
    due: bool
    exact: bool = True


class _Flight(NamedTuple):
    envelope: Envelope
    words: Words
    sent_in: int
    nth: int


class _Scheduler:
    """Goes the path."""

    def __init__(self, system: System, path: Path) -> None:
        self._system = system
        self._path = path
        self._clock = SymbolicClock()
        self._actors = {actor.name: self._timed(actor) for actor in system.actors if not isinstance(actor, Observer)}
        self._consumers = {name: one for name, one in self._actors.items() if isinstance(one, Consumer)}
        if any(isinstance(one, SessionConsumer) for one in self._consumers.values()):
            raise Unschedulable(f"{system.name}: what whole sessions do has no steps that a runtime can be told")
        self._locals: dict[str, Any] = {}
        self._flying: list[_Flight] = []
        self._steps: list[plan.Step] = []
        self._waits: list[Wait] = []
        self._longer: dict[tuple[str, str], int] = {}
        self._standing: set[str] = set()
        self._read_at = 0
        for name, actor in self._actors.items():
            if name not in self._consumers:
                self._locals[name] = actor.initial()

    def _timed(self, actor: Actor) -> Actor:
        """The actor with machines that keep time."""
        if not isinstance(actor, Consumer | LeaderHost):
            return actor
        timed = copy.copy(actor)
        timed.fsm = Timed(actor.fsm, self._clock)
        return timed

    # -- the whole ----------------------------------------------------------------------------------------------

    def schedule(self, variant: str, bug: str) -> Schedule:
        self._start()
        for n, leg in enumerate(self._path.legs, 1):
            self._go(n, leg)
        self._settle_rest()
        timed = self._times()
        hosts = [one for one in self._actors.values() if isinstance(one, LeaderHost)]
        steps = [msgspec.structs.replace(step, at_ns=at) for step, at in zip(self._steps, timed.at_ns, strict=False)]
        steps.sort(key=lambda step: step.at_ns)  # a start has its place by its time alone
        system, path = self._system, self._path
        return Schedule(
            FORMAT,
            "shared_subscriptions",
            system.name,
            variant,
            bug,
            path.broken,
            path.why[:200],
            GROUP,
            self._configuration,
            self._own_times(self._configuration),
            {name: one.registry for name, one in self._consumers.items() if name in self._locals},
            tuple(host.name for host in hosts),
            self._topics(),
            self._messages(),
            tuple(f"{why[:150]}; it may fire of itself" for why in timed.given_up),
            tuple(steps),
        ).check()

    def _own_times(self, configuration: Configuration) -> dict[str, dict[Any, int]]:
        times: dict[str, dict[Any, int]] = {}
        for (node, timer), longer in sorted(self._longer.items()):
            field = FREE_TIMES[timer]
            times.setdefault(node, {})[field] = longer * getattr(configuration, field)
        return times

    def _may_double(self, timer: tuple[str, str]) -> bool:
        """Whether twice the time of the timer still keeps every relation of the configuration."""
        longer, field = 2 * self._longer.get(timer, 1), FREE_TIMES[timer[1]]
        ours = self._configuration
        try:
            msgspec.structs.replace(ours, **{field: longer * getattr(ours, field)}).check()
        except ConfigurationError:
            return False
        return longer <= LONGER_MAX

    @property
    def _configuration(self) -> Configuration:
        return next(one.configuration for one in self._actors.values() if isinstance(one, LeaderHost))

    def _topics(self) -> tuple[str, ...]:
        store = next(one for one in self._actors.values() if isinstance(one, Store) and one.name == "stream_store")
        return tuple(sorted(stored.topic for stored in store.state.by_id.values()))

    def _messages(self) -> int:
        return MESSAGES + max((one.offsets for one in self._consumers.values()), default=0)

    def _times(self) -> Moments:
        """Moments for all steps.  Where a timer of one party that nobody else depends on is due too early, it is given
        more time than the configuration says, again and again."""
        order = self._order()
        while True:
            bounds = [bound for wait in self._waits for bound in self._bounds(wait)]
            try:
                return moments(len(self._steps) + 1, [*order, *bounds])
            except Contradiction as error:
                early = min(_bounded_above(error), key=lambda one: self._longer.get(one, 1), default=None)
                if early is None or not self._may_double(early):
                    why = f"no real run takes these steps, timers contradict each other: {error}"
                    raise Unschedulable(why) from error
                self._longer[early] = 2 * self._longer.get(early, 1)

    def _order(self) -> list[Bound]:
        """Step after step, and the end; a start comes before what its consumer does first."""
        count, starts = len(self._steps), sum(step.do == "start" for step in self._steps)
        order = [Bound(place, place + 1, GAP_NS, "") for place in range(starts, count)]
        for place, start in enumerate(self._steps[:starts]):
            first = next(at for at, step in enumerate(self._steps) if at >= starts and self._acts(start.node, step))
            order.append(Bound(place, first, GAP_NS, ""))
        return order

    def _bounds(self, wait: Wait) -> tuple[Bound, ...]:
        slot, armed, moment, due, exact = wait
        about = (node_of(slot.party), slot.timer)
        for_ns = armed.for_ns * self._longer.get(about, 1)
        text = f"{slot} ({for_ns // MS} ms) is set in step {self._number(armed.since)}"
        if not due:
            text += f" and not fired before step {self._number(moment)}"
            return (Bound(moment, armed.since, 1 - for_ns, text, armed.soft, about),)
        text += f" and fires in step {self._number(moment)}"
        least = Bound(armed.since, moment, for_ns, text, about=about)
        return (least, Bound(moment, armed.since, -for_ns, text, about=about)) if exact else (least,)

    @staticmethod
    def _acts(node: str, step: plan.Step) -> bool:
        return step.node == node or any(sent.sender == node for sent in step.sends)

    # -- steps --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Consumers that take part start at moments of their own, each before its first step; their first leader_wanted
        is lost, as in the explorer."""
        for turn in (turn for leg in self._path.legs for turn in leg.turns):
            actor = self._consumers.get(turn.actor)
            if actor is None or turn.actor in self._locals:
                continue
            self._clock.moment = len(self._steps)
            self._clock.silent = actor.silent
            self._locals[turn.actor] = actor.initial()
            wanted = Sent("leader_wanted", turn.actor, actor.registry, lost=True)
            self._steps.append(plan.Step(0, 0, "start", turn.actor, sends=(wanted,)))

    def _go(self, n: int, leg: Leg) -> None:
        envelope, flight = leg.envelope, None
        if leg.kind is not Kind.INPUT:
            flight = self._find(n, leg.envelope)
            envelope = flight.envelope
            if leg.kind is not Kind.COPY:
                self._flying.remove(flight)
        self._clock.moment = len(self._steps)
        self._clock.fired.clear()
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
            actor = self._actors.get(name)
            if actor is None or name not in self._locals:
                continue  # an observer, or the promise of an answer to one that is not there
            self._clock.silent = actor.silent
            reaction = self._react(actor, one)
            if reaction is None:
                return tuple(sends)
            self._locals[name] = reaction.local
            self._note_claim(one)
            sends += reaction.sends
            queue += reaction.calls
        self._forget_gone()
        return tuple(sends)

    def _react(self, actor: Actor, envelope: Envelope) -> Reaction | None:
        try:
            return actor.react(self._locals[actor.name], envelope)
        except Exception:
            return None  # that no step raises is what breaks here

    def _posted(self, n: int, leg: Leg, sends: Iterable[Envelope]) -> tuple[Sent, ...]:
        """What is in flight now, and what found no room."""
        lost = list(leg.left_out)
        counted: Counter[Words] = Counter()
        posted: list[Sent] = []
        for envelope in sends:
            words = called(envelope)
            gone = envelope in lost or (envelope not in leg.left_out and any(called(one) == words for one in lost))
            if gone:
                lost.remove(next(one for one in lost if one == envelope or called(one) == words))
            else:
                self._flying.append(_Flight(envelope, words, n, counted[words]))
                counted[words] += 1
            posted.append(Sent(words.what, words.sender, words.to, words.about, words.final, gone))
        return tuple(posted)

    def _find(self, n: int, envelope: Envelope) -> _Flight:
        """The message in flight that the explorer means: the same, or, where it has renamed numbers, of that name."""
        words = called(envelope)
        found = [one for one in self._flying if one.envelope == envelope]
        found = found or [one for one in self._flying if one.words == words]
        if not found:
            raise Unschedulable(f"step {n}: {words} is not in flight when the machines go that way")
        return found[0]

    def _step(self, n: int, leg: Leg, envelope: Envelope, flight: _Flight | None, sends: tuple[Sent, ...]) -> plan.Step:
        event = envelope.event
        node = node_of(envelope.to)
        if flight is not None:
            words = flight.words
            do: Any = {Kind.DELIVER: "deliver", Kind.COPY: "copy", Kind.DROP: "drop"}[leg.kind]
            return plan.Step(
                n, 0, do, node, words.what, words.about, words.sender, words.final, flight.sent_in, flight.nth, sends
            )
        if isinstance(event, TimerFired):
            return plan.Step(n, 0, "fire", node, name_of(type(event)), event.key, sends=sends)
        if isinstance(event, StreamProgress):
            return plan.Step(n, 0, "finish" if event.finished else "acknowledge", node, "", event.stream, sends=sends)
        if isinstance(event, OnUnsubscribe):
            return plan.Step(n, 0, "unsubscribe", node, sends=sends)
        done: Any = STANDING.get(type(event))
        if done is None:
            raise Unschedulable(f"step {n}: nobody can be told to do {name_of(type(event))}")
        self._stand(node, event)
        return plan.Step(n, 0, done, node, sends=sends)

    # -- constraints --------------------------------------------------------------------------------------------

    def _bind_fired(self) -> None:
        """What fires is due just then; after a pause, it has been due."""
        clock = self._clock
        for slot, armed in clock.fired:
            exact = node_of(slot.party) not in self._standing
            self._waits.append(Wait(slot, armed, clock.moment, True, exact))

    def _bind_ended(self) -> None:
        """What is taken back in this step was not due before, nor in it."""
        for slot, armed in self._clock.ended:
            self._bind_open(slot, armed, self._clock.moment)
        self._clock.ended.clear()
        if self._steps[-1].do == "wake":
            self._standing.discard(self._steps[-1].node)

    def _bind_open(self, slot: Slot, armed: Armed, moment: int) -> None:
        """At this moment it is set, and not due."""
        if armed.since >= moment or node_of(slot.party) in self._standing:
            return
        self._waits.append(Wait(slot, armed, moment, False))

    def _settle_rest(self) -> None:
        """Nothing more is due before the end, a moment after the last step: applications take their turns there."""
        for slot, armed in self._clock.armed.items():
            self._bind_open(slot, armed, len(self._steps))

    def _stand(self, node: str, event: Event) -> None:
        """A process that stands still fires nothing, until it wakes: what it does not fire then is not due yet."""
        clock = self._clock
        if isinstance(event, Pause):
            for slot, armed in clock.armed.items():
                if node_of(slot.party) == node:
                    self._bind_open(slot, armed, clock.moment)
            self._standing.add(node)
        elif isinstance(event, Wake):
            self._standing.discard(node)
            for slot, armed in clock.armed.items():
                if node_of(slot.party) == node:
                    self._bind_open(slot, armed, clock.moment)
        elif isinstance(event, Age):
            slot, age = next((slot, armed) for slot, armed in clock.armed.items() if slot.timer == "age of the claim")
            del clock.armed[slot]
            self._bind_open(slot, age, self._read_at)
            self._waits.append(Wait(slot, age, clock.moment, True, False))

    def _note_claim(self, envelope: Envelope) -> None:
        """A claim that was committed grows old, by the store's time; who reads it before is told that it is not."""
        if isinstance(envelope.event, Read):
            self._read_at = self._clock.moment
        if not isinstance(envelope.event, Commit):
            return
        if any(isinstance(value, Claim) for _, value in envelope.event.put):
            slot = Slot(envelope.to, "age of the claim", "")
            self._clock.drop(slot)
            store, host = self._actors[envelope.to], self._actors[node_of(envelope.sender)]
            assert isinstance(store, Store)
            assert isinstance(host, LeaderHost)
            ttl_ns = host.configuration.claim_ttl_ms * MS
            self._clock.armed[slot] = Armed(self._clock.moment, ttl_ns, not store.ages)

    def _forget_gone(self) -> None:
        """A process that crashed has no timers."""
        living = {local.party.record.id for local in self._locals.values() if getattr(local, "party", None) is not None}
        living |= {name for name, one in self._actors.items() if isinstance(one, Store)}
        for slot in [slot for slot in self._clock.armed if slot.party not in living]:
            self._clock.drop(slot)

    def _number(self, moment: int) -> int:
        """The number of the step at a moment (0: a start)."""
        return self._steps[min(moment, len(self._steps) - 1)].n


def _bounded_above(error: Contradiction) -> Iterator[tuple[str, str]]:
    """Of the timers that would have to be due later, those whose time is free."""
    for bound in error.bounds:
        if isinstance(bound.about, tuple) and bound.about[1] in FREE_TIMES and bound.least_ns < 0:
            yield bound.about


def called(envelope: Envelope) -> Words:
    """What a message of the explorer is called."""
    return words_of(envelope.event, node_of(envelope.sender), node_of(envelope.to))

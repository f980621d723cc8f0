"""Contract: one shipped machine among everything that may be said to it, and what it owes to those who say it.

Two components: the machine, and its *counterpart*, which stands for everybody else, peers, stores and application.  The
counterpart says whatever the system lets it say, in any order and as often as it likes; it is told all that the machine
sends, asks and tells, and nothing else.  What it makes of that it `learns`.  A `Rule` is about what was known, the
event that the machine took, and what it said then: it reads no record, so it holds for any other machine that keeps the
same clauses.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import CancelTimer, Event, Fsm, SetTimer, Stop, name_of
from statemachines_spec.explorer.actor import Actor, Envelope, Passed, Reaction, Timing, Watch
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.party import (
    Party,
    begin,
    clear_timers,
    fire_next,
    list_firings,
    pass_time,
    step_party,
    waits,
)
from statemachines_spec.explorer.property import Always, Property, Sometimes, View
from statemachines_spec.explorer.system import System

MACHINE, COUNTERPART, TALLY = "machine", "counterpart", "tally"


class Say(Event, frozen=True, gc=False):
    """The counterpart says this to the machine, or calls it so.  `kinds`: what it is called, for those that have the
    same fields."""

    event: Any
    kinds: tuple[str, ...]


class Did(Event, frozen=True, gc=False):
    """The machine took an event, and `said` so: its effects but for those on timers, in their order.  `kinds`: as in
    `Say`, of the event and of what was said."""

    event: Any
    said: tuple[Any, ...]
    kinds: tuple[str, ...]


def kinds_of(event: Any, said: tuple[Any, ...] = ()) -> tuple[str, ...]:
    """What an event, and what effects carry, is called."""
    carried = (getattr(one, "event", None) or getattr(one, "message", None) or one for one in said)
    return tuple(name_of(type(one)) for one in (event, *carried))


class Rule(msgspec.Struct, frozen=True):
    """`when(known, event)` the machine is bound by it, and `keeps(known, event, said)`: whether it does; `clause` that
    it stands for."""

    name: str
    clause: str
    text: str
    when: Callable[[Any, Any], bool]
    keeps: Callable[[Any, Any, tuple[Any, ...]], bool]


class Running(msgspec.Struct, frozen=True, gc=False):
    """The machine, as a component.  `stopped`: its host was told that it has; `agrees`: its status says the same."""

    party: Party
    stopped: bool = False
    agrees: bool = True


class Machine(Actor):
    """`fsm` from `record` on.  `kept(record)`: it under canonical names (`Actor.canonical`); `bound(record)`: what lies
    within the bounds; `says_so`: it tells its host to stop it, which else sees that from its status."""

    def __init__(
        self,
        fsm: Fsm[Any],
        record: Any,
        *,
        timing: Timing | None = None,
        silent: tuple[str, ...] = (),
        kept: Callable[[Any], Any] | None = None,
        bound: Callable[[Any], bool] | None = None,
        says_so: bool = True,
    ) -> None:
        super().__init__(MACHINE, silent=silent, timing=timing, fsm=fsm)
        self.fsm = fsm
        self.record = record
        self._kept = kept
        self._bound = bound
        self.says_so = says_so

    def initial(self) -> Running:
        """Just made: the timers of its first state are set."""
        return Running(begin(self.fsm, self.record, timing=self.timing))

    def inputs(self, local: Running) -> tuple[Any, ...]:
        return tuple(list_firings(self.fsm, local.party, self.silent, self.timing))

    def react(self, local: Running, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Passed):
            return pass_time(self.timing, local, event.ticks, standing=False)
        if local.stopped:
            return Reaction(local)  # its host has forgotten it
        if waits(self.timing, self.fsm, local.party, event):
            return None
        calls: list[Envelope] = []
        events = [event]
        for one in events:
            local, call = self._take(local, one, watch)
            calls.append(call)
            events += fire_next(self.timing, self.fsm, local.party)
        return Reaction(local, (), tuple(calls))

    def _take(self, local: Running, event: Any, watch: Watch | None) -> tuple[Running, Envelope]:
        party, effects = step_party(self.fsm, local.party, event, MACHINE, watch, timing=self.timing)
        said = tuple(effect for effect in effects if not isinstance(effect, SetTimer | CancelTimer))
        at_end = party.record.status in self.fsm.final
        if at_end and not self.says_so:
            said = (*said, Stop())  # its host sees it
        stopped = Stop() in said
        agrees = stopped is at_end
        did = Envelope(MACHINE, COUNTERPART, Did(event, said, kinds_of(event, said)))
        return Running(clear_timers(party) if stopped else party, stopped, agrees), did

    def within(self, local: Running) -> bool:
        return self._bound is None or self._bound(local.party.record)

    def canonical(self, local: Running) -> Running:
        if self._kept is None:
            return local
        return replace(local, party=replace(local.party, record=self._kept(local.party.record)))


class Met(Event, frozen=True, gc=False):
    """The machine was bound by these rules, as bits."""

    rules: int


class Last(msgspec.Struct, frozen=True, gc=False):
    """The rules by which the machine was bound last."""

    rules: int = 0


class RuleTally(Actor):
    """Remembers by which rules the machine was bound last: a component of its own, since it tells the counterpart
    nothing."""

    def __init__(self) -> None:
        super().__init__(TALLY)

    def initial(self) -> Last:
        return Last()

    def inputs(self, local: Last) -> tuple[Any, ...]:
        return ()

    def react(self, local: Last, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        return Reaction(Last(envelope.event.rules))


class HeardEvent(msgspec.Struct, frozen=True, gc=False):
    """What the counterpart has learnt; the number of the rule that was `broken` (from 1 on; 0: none)."""

    known: Any
    broken: int = 0


class Counterpart(Actor):
    """Everybody else.  `rules` that it judges by; `idle`: names of those for which nothing is ever said."""

    keeps_time = True
    owes = "OWES"
    """What properties that a rule is kept, and met, are called by, before its name."""
    ends = "ENDS"
    """The property that a machine at its end has its host stop it."""

    def __init__(self, rules: tuple[Rule, ...], idle: tuple[str, ...] = ()) -> None:
        super().__init__(COUNTERPART)
        self.rules = rules
        self.idle = idle

    @abstractmethod
    def begins(self) -> Any:
        """What is known at first."""

    @abstractmethod
    def says(self, known: Any) -> Iterable[Any]:
        """What may be said to the machine now."""

    @abstractmethod
    def learns(self, known: Any, event: Any, said: tuple[Any, ...]) -> Any:
        """What is known when the machine has taken the event, and said so."""

    def ages(self, known: Any, ticks: int) -> Any:
        """What is known when so much time has passed; None: something comes first, and it does not pass."""
        return known

    def is_late(self, known: Any) -> int:
        """The number of the rule that is broken since too much time has passed (0: none)."""
        return 0

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> HeardEvent:
        return HeardEvent(self.begins())

    def inputs(self, local: HeardEvent) -> tuple[Any, ...]:
        return () if local.broken else tuple(Say(one, kinds_of(one)) for one in self.says(local.known))

    def react(self, local: HeardEvent, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Say(event):
                return Reaction(local, (), (Envelope(COUNTERPART, MACHINE, event),))
            case Did(event, said):
                return self._judged(local, event, said)
            case Passed(ticks):
                known = self.ages(local.known, ticks)
                if known is None:
                    return None
                return Reaction(HeardEvent(known, local.broken or self.is_late(known)))
        raise TypeError(f"nobody says this to a counterpart: {envelope.event!r}")

    def _judged(self, local: HeardEvent, event: Any, said: tuple[Any, ...]) -> Reaction:
        bound = [number for number, rule in enumerate(self.rules) if rule.when(local.known, event)]
        wrong = (number + 1 for number in bound if not self.rules[number].keeps(local.known, event, said))
        broken = local.broken or next(wrong, 0)
        met = Envelope(COUNTERPART, TALLY, Met(sum(1 << number for number in bound)))
        known = local.known if broken else self.learns(local.known, event, said)
        return Reaction(HeardEvent(known, broken), (), (met,))

    # -- what holds ---------------------------------------------------------------------------------------------

    def properties(self) -> tuple[Property, ...]:
        """A rule is never broken, and sometimes met."""
        size = len(self.rules) + 1
        found: list[Property] = []
        for number, rule in enumerate(self.rules, 1):
            broken = View(COUNTERPART, size, lambda local: int(local.broken))
            found.append(
                Always(
                    f"{self.owes} {rule.name}", f"{rule.text} [{rule.clause}]", (broken,), lambda at, n=number: at != n
                )
            )
        for number, rule in enumerate(self.rules):
            if rule.name in self.idle:
                continue
            met = View(TALLY, 2, lambda local, n=number: int(local.rules >> n & 1))  # type: ignore[misc]
            found.append(Sometimes(f"{self.owes} {rule.name} is met", rule.text, (met,), bool))
        return tuple(found)


def contract(name: str, about: str, machine: Machine, counterpart: Counterpart, *others: Actor) -> System:
    """The closed system of the two; `others`: a clock, where time is counted."""
    text = "a machine that has come to its end has told its host to stop it, and no other has"
    agrees = View(MACHINE, 2, lambda local: int(local.agrees))
    ends = (Always(counterpart.ends, text, (agrees,), bool),) if machine.says_so else ()
    bounds = {"counterpart": (type(counterpart).__doc__ or "").partition("\n")[0]}
    actors = (machine, counterpart, RuleTally(), *others)
    return System(name, about, actors, Network(1), (*ends, *counterpart.properties()), bounds=bounds)

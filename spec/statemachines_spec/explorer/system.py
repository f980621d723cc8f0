"""System: a closed system, declared in a few lines: actors, network, budgets, orders, properties, bounds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Fsm
from statemachines.kernel.record_fields import find_unfit
from statemachines_spec.explorer import symmetry
from statemachines_spec.explorer.actor import EVERYBODY, Actor, Envelope, Observer, Reaction
from statemachines_spec.explorer.clock import Clock
from statemachines_spec.explorer.invariants import MachineInvariant, machine_invariants
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.order import Order
from statemachines_spec.explorer.post import MessageSet, MessageTransport
from statemachines_spec.explorer.property import (
    COMBINATIONS_MAX,
    Always,
    Eventually,
    Property,
    Sometimes,
    Stepwise,
    check_views,
)
from statemachines_spec.explorer.symmetry import Symmetry
from statemachines_spec.explorer.tick import TickClock

SYMMETRY = "symmetry"
"""Its line among the bounds: there if and only if one state stands for those that differ only in who is who."""


def nothing(envelope: Envelope) -> Iterable[Hashable]:
    """No subject."""
    return ()


class Due(msgspec.Struct, frozen=True):
    """When an event with a budget is no fault: as long as nobody speaks for whom it is `about`.

    `about(actor, local, event)`: the subject, such as the holder whose lease it is (None: it stays a fault);
    `kept(actor, local)`: the subjects that a component speaks for in a local state, such as the holder that runs there;
    `carried(envelope)`: those that what is on its way between components speaks for.  It matters to `liveness` alone:
    once faults have stopped, an event that is due happens sooner or later, whatever is left of the budget, and one that
    is not due never does.
    """

    about: Callable[[str, Any, Any], Hashable | None]
    kept: Callable[[str, Any], Iterable[Hashable]]
    carried: Callable[[Envelope], Iterable[Hashable]] = nothing


class Budget(msgspec.Struct, frozen=True):
    """Events for which `spends(actor, event)` happen at most `limit` times in a run, all together."""

    name: str
    limit: int
    spends: Callable[[str, Any], bool]
    due: Due | None = None


def at_most(name: str, limit: int, *kinds: type[Any], actors: tuple[str, ...] = ()) -> Budget:
    """Events of these kinds happen at most `limit` times in a run, all together; `actors`: to these (none: to any)."""
    return Budget(name, limit, lambda actor, event: isinstance(event, kinds) and (not actors or actor in actors))


class System(msgspec.Struct, frozen=True, dict=True):
    """`bounds`: what else is bounded, as it is printed.  `origin`: how another process makes the same system: a
    function as `module:name` and its keyword arguments; None: it cannot.  `symmetries`: components that may change
    places, so that of the states that differ only in who is who one is explored; none stands in two of them.
    `obligations`: what must be met sooner or later once faults stop (`liveness`)."""

    name: str
    about: str
    actors: tuple[Actor, ...]
    network: Network = Network(1)
    properties: tuple[Property, ...] = ()
    budgets: tuple[Budget, ...] = ()
    orders: tuple[Order, ...] = ()
    bounds: dict[str, str] = {}
    origin: tuple[str, dict[str, Any]] | None = None
    symmetries: tuple[Symmetry, ...] = ()
    obligations: tuple[Eventually, ...] = ()

    def check(self) -> System:
        """Itself; raises `ConfigurationError` where names clash, a record has no one encoding, or a property reads what
        is not there."""
        self.network.check()
        names = [actor.name for actor in self.actors]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError("actors", name, "two components have this name; rename one")
        for fsm in self.machines:
            unfit = find_unfit(fsm.record_type)
            if unfit:
                raise ConfigurationError("record", fsm.full_name, f"its states have no one form in bytes: {unfit}")
        self._check_time()
        symmetry.check(self.symmetries, names)
        for budget in self.budgets:
            if not 0 <= budget.limit <= 255:
                raise ConfigurationError(f"budget {budget.name!r}", budget.limit, "must lie between 0 and 255")
        for one in self.properties:
            if isinstance(one, Stepwise):
                continue
            combinations = 1
            check_views(one.name, one.views)
            for view in one.views:
                combinations *= view.size
                if view.actor not in names:
                    raise ConfigurationError(
                        f"property {one.name!r}", view.actor, f"no such component; there are: {', '.join(names)}"
                    )
            if combinations > COMBINATIONS_MAX:
                rule = f"its views have more than {COMBINATIONS_MAX} combinations; make them coarser"
                raise ConfigurationError(f"property {one.name!r}", combinations, rule)
        return self

    def _check_time(self) -> None:
        """Instants or a tick, never both; and who is timed has a clock with the same tick."""
        instants = [actor.name for actor in self.actors if isinstance(actor, Clock)]
        ticks = [actor for actor in self.actors if isinstance(actor, TickClock)]
        timed = [actor for actor in self.actors if actor.timing is not None]
        if ticks and instants:
            rule = "a system declares instants or a tick, never both; take one of the clocks out"
            raise ConfigurationError("time", ", ".join((*instants, ticks[0].name)), rule)
        transports = [actor.name for actor in self.actors if isinstance(actor, MessageTransport)]
        if len(transports) > 1:
            rule = "a system has one post or set of messages, which carries everything"
            raise ConfigurationError("post", ", ".join(transports), rule)
        if len(ticks) > 1:
            rule = "a system has one tick; clocks that drift are declared with it"
            raise ConfigurationError("time", ", ".join(one.name for one in ticks), rule)
        for actor in timed:
            assert actor.timing is not None
            if not ticks:
                raise ConfigurationError(f"timing of {actor.name}", actor.name, "no time passes; add a TickClock")
            if actor.timing.tick_ns != ticks[0].tick_ns:
                rule = f"must be the tick of {ticks[0].name}, {ticks[0].tick_ns} ns"
                raise ConfigurationError(f"tick of {actor.name}", actor.timing.tick_ns, rule)
        if ticks and not timed:
            raise ConfigurationError("time", ticks[0].name, "nothing is timed; give a component a Timing")
        for node in ticks[0].drift if ticks else ():
            if node not in [actor.name for actor in timed]:
                there = ", ".join(actor.name for actor in timed)
                raise ConfigurationError(f"drift of {node}", node, f"is no timed component; there are: {there}")

    @cached_property
    def spendable(self) -> tuple[Budget, ...]:
        """The budgets that are part of a state: an event whose budget is 0 never happens."""
        return tuple(budget for budget in self.budgets if budget.limit)

    @cached_property
    def over_states(self) -> tuple[Always | Sometimes, ...]:
        """The properties that are read in states."""
        return tuple(one for one in self.properties if not isinstance(one, Stepwise))

    @cached_property
    def over_steps(self) -> tuple[Stepwise, ...]:
        """The properties that are read in steps."""
        return tuple(one for one in self.properties if isinstance(one, Stepwise))

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        """The machines that run in its components; one that each component makes anew is one all the same."""
        found = (fsm for actor in self.actors for fsm in actor.machines)
        return tuple({fsm.full_name: fsm for fsm in found}.values())

    @property
    def step_properties(self) -> tuple[Stepwise | MachineInvariant, ...]:
        """What a step may break, besides raising: those over steps, then the invariants of all machines."""
        return (*self.over_steps, *machine_invariants(self.machines))

    @cached_property
    def observers(self) -> tuple[Observer, ...]:
        """The components that are properties with memory."""
        return tuple(actor for actor in self.actors if isinstance(actor, Observer))

    @cached_property
    def post(self) -> MessageTransport | None:
        """The component that carries what is sent, in place of the network."""
        return next((actor for actor in self.actors if isinstance(actor, MessageTransport)), None)

    def list_sent(self, reaction: Reaction) -> tuple[Envelope, ...]:
        """What goes into the network."""
        return reaction.sends if self.post is None else ()

    def calls_after(
        self, actor: Actor, before: Any, event: Any, reaction: Reaction, after: Any
    ) -> tuple[Envelope, ...]:
        """What other components take within the transition in which `actor` went from `before` to `after`: those that
        the reaction calls, then the observers that are interested."""
        calls = [] if self.post is None else [self.post.carries(one) for one in reaction.sends]
        named = [one.to for one in reaction.calls]
        for one in reaction.calls:
            if one.to == EVERYBODY:
                others = (other.name for other in self.actors if other.keeps_time and other.name not in named)
                calls += [replace(one, to=other) for other in others]
            else:
                calls.append(one)
        for observer in self.observers:
            if observer is not actor and (seen := observer.sees(actor.name, before, event, after)) is not None:
                calls.append(Envelope("", observer.name, seen))
        return tuple(calls)

    def describe_bounds(self) -> dict[str, str]:
        """The bounds, one line each, as they are printed beside every verdict."""
        lines = {"actors": ", ".join(actor.name for actor in self.actors)}
        if not isinstance(self.post, MessageSet):
            lines["network"] = str(self.network)
        for budget in self.budgets:
            lines[f"at most: {budget.name}"] = str(budget.limit)
        lines.update(self.bounds)
        for actor in self.actors:
            if actor.silent:
                lines[f"{actor.name}: timers that never fire"] = ", ".join(sorted(actor.silent))
            for one in actor.environments:
                lines[f"{actor.name}: in place of {one.parties}"] = one.tells
            timed = {} if actor.timing is None else actor.timing.describe_timing()
            for key, value in (*actor.bounds().items(), *timed.items()):
                lines[f"{actor.name}: {key}"] = value
        for order in self.orders:
            lines[f"deadline order: {order.name}"] = order.relation
        if self.symmetries:
            lines[SYMMETRY] = f"{'; '.join(map(str, self.symmetries))}; one state stands for all that differ only so"
        return lines

    def in_full(self) -> System:
        """The same system, to be explored without symmetry."""
        return replace(self, symmetries=())

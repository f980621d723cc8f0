"""ServiceActor: a service that machines ask things of, as a component: its shipped `apply`, and nothing else.

It is reached at once: request, `apply` and answers lie within the step that asks.  A `remote` one is reached through
the network: requests and answers travel, are neither lost nor doubled, and others may come in between.

Direct: the plainest search there is, without tables or numbers: a second opinion on counts, and what speed is
measured against.  It calls `react` for every transition and keeps whole local states in a set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from time import process_time
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Message, Request, Service, identity
from statemachines_spec.explorer.actor import Actor, At, Envelope, Reaction, Watch, words_of
from statemachines_spec.explorer.entry_tables import encode_envelope
from statemachines_spec.explorer.fsm_actor import fields_of
from statemachines_spec.explorer.property import Always, View
from statemachines_spec.explorer.system import System


class Asked(Event, frozen=True, gc=False):
    """A request on its way to a remote service."""

    request: Any


class ServiceLocal(msgspec.Struct, frozen=True, gc=False):
    """What the service keeps; `now_ns`: the instant."""

    state: Any
    now_ns: int = 0


class ServiceActor(Actor):
    """`service`: what is asked, under its own name; `remote`: requests and answers travel; `state` that it begins with
    (else the empty one); `calls(state)`: requests that the environment may make; `bound(state)`: what lies within the
    bounds; `canonical(state)`: see `Actor.canonical`; `words(state)`: for people."""

    keeps_time = True

    def __init__(
        self,
        service: Service[Any],
        *,
        remote: bool = False,
        state: Any = None,
        calls: Callable[[Any], Iterable[Request]] | None = None,
        bound: Callable[[Any], bool] | None = None,
        canonical: Callable[[Any], Any] | None = None,
        words: Callable[[Any], str] | None = None,
    ) -> None:
        super().__init__(service.name)
        self.service = service
        self.remote = remote
        self._state = service.initial() if state is None else state
        self._calls = calls
        self._bound = bound
        self._canonical = canonical
        self._words = words or _words

    def initial(self) -> ServiceLocal:
        return ServiceLocal(self._state)

    def inputs(self, local: ServiceLocal) -> tuple[Any, ...]:
        return () if self._calls is None else tuple(self._calls(local.state))

    def react(self, local: ServiceLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, At):
            return Reaction(replace(local, now_ns=event.now_ns))
        if isinstance(event, Asked):
            return self._applied(local, envelope.sender, event.request)
        if self.remote and envelope.sender:
            return Reaction(local, (Envelope(envelope.sender, self.name, Asked(event)),))
        return self._applied(local, envelope.sender, event)

    def within(self, local: ServiceLocal) -> bool:
        return self._bound is None or bool(self._bound(local.state))

    def canonical(self, local: ServiceLocal) -> ServiceLocal:
        return local if self._canonical is None else replace(local, state=self._canonical(local.state))

    def describe(self, local: ServiceLocal) -> str:
        return self._words(local.state) + (f"; at {local.now_ns}" if local.now_ns else "")

    def bounds(self) -> dict[str, str]:
        lines = {"requests and answers": "travel"} if self.remote else {}
        return lines if self._bound is None else {**lines, "bound": words_of(self._bound)}

    def view(self, of: Callable[[Any], int], size: int = 2) -> View:
        """What a property reads of its state: `of(state)` in range(`size`)."""
        return View(self.name, size, lambda local: int(of(local.state)))

    def _applied(self, local: ServiceLocal, asker: str, request: Request) -> Reaction:
        state, answers = self.service.apply(local.state, request, local.now_ns)
        back = tuple(Envelope(self.name, asker, answer) for answer in answers if asker)
        local = replace(local, state=state)
        return Reaction(local, back) if self.remote else Reaction(local, (), back)


def _words(state: Any) -> str:
    return fields_of(state) if isinstance(state, msgspec.Struct) else str(state)


class GlobalState(NamedTuple):
    """A global state: local states by component, what is left of the budgets, messages in flight."""

    locals: tuple[Any, ...]
    budgets: tuple[int, ...]
    messages: tuple[Envelope, ...]


class SearchCounts(NamedTuple):
    """What a search came to: states, transitions, depth, the property that broke first ("" = none), seconds of
    processor time."""

    states: int
    transitions: int
    depth: int
    broken: str
    seconds: float


def search(system: System, states_max: int) -> SearchCounts:
    """Breadth first, up to `states_max` states or the end of the level in which a property breaks."""
    began = process_time()
    first = GlobalState(
        tuple(actor.canonical(actor.initial()) for actor in system.actors),
        tuple(budget.limit for budget in system.budgets),
        (),
    )
    seen, level, depth, transitions = {first}, [first], 0, 0
    broken = _broken(system, first)
    while level and not broken and len(seen) < states_max:
        found: list[GlobalState] = []
        for world in level:
            for target in _targets(system, world):
                transitions += 1
                if target not in seen:
                    seen.add(target)
                    found.append(target)
                    broken = broken or _broken(system, target)
            if len(seen) >= states_max:
                break
        level = found
        depth += bool(found)
    return SearchCounts(len(seen), transitions, depth, broken, process_time() - began)


def _targets(system: System, world: GlobalState) -> Iterator[GlobalState]:
    network = system.network
    for number, actor in enumerate(system.actors):
        for event in actor.inputs(world.locals[number]):
            spends = next((n for n, budget in enumerate(system.budgets) if budget.spends(actor.name, event)), None)
            if spends is not None and not world.budgets[spends]:
                continue
            if not _waits(system, world, actor.name, world.locals[number], event):
                left = tuple(count - (n == spends) for n, count in enumerate(world.budgets))
                yield from _handled(system, world._replace(budgets=left), Envelope("", actor.name, event))
    for envelope in dict.fromkeys(world.messages):
        place = world.messages.index(envelope)
        if network.ordered and any(_channel(other) == _channel(envelope) for other in world.messages[:place]):
            continue
        rest = world._replace(messages=world.messages[:place] + world.messages[place + 1 :])
        yield from _handled(system, rest, envelope)
        if isinstance(envelope.event, Message):
            if network.duplicating:
                yield from _handled(system, world, envelope)
            if network.lossy:
                yield rest


def _waits(system: System, world: GlobalState, name: str, local: Any, event: Any) -> bool:
    for order in system.orders:
        waiting = order.waiting(name, local, event)
        for actor, other in zip(system.actors, world.locals, strict=True):
            pending = order.pending(actor.name, other)
            if waiting is not None and pending is not None and order.before(pending, waiting):
                return True
    return False


def _handled(system: System, world: GlobalState, envelope: Envelope) -> Iterator[GlobalState]:
    names = [actor.name for actor in system.actors]
    after, queue = list(world.locals), [envelope]
    sends: list[Envelope] = []
    for one in queue:
        number = names.index(identity.node_of(one.to))
        before = after[number]
        reaction = system.actors[number].react(before, one)
        if reaction is None:
            return
        local = after[number] = system.actors[number].canonical(reaction.local)
        if not system.actors[number].within(local):
            return
        sends += system.list_sent(reaction)
        queue += system.calls_after(system.actors[number], before, one.event, reaction, local)
    for messages in _filled(system, world.messages, sends):
        yield GlobalState(tuple(after), world.budgets, messages)


def _filled(system: System, there: tuple[Envelope, ...], sends: list[Envelope]) -> Iterator[tuple[Envelope, ...]]:
    network = system.network
    if network.duplicating:
        sends = [one for one in dict.fromkeys(sends) if one not in there or not isinstance(one.event, Message)]
    room = network.in_flight - len(there)
    if len(sends) <= room:
        yield _sorted(system, (*there, *sends))
        return
    for kept in combinations(range(len(sends)), room):
        lost = [one for number, one in enumerate(sends) if number not in kept]
        if network.lossy and all(isinstance(one.event, Message) for one in lost):
            yield _sorted(system, (*there, *(sends[number] for number in kept)))


def _sorted(system: System, messages: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
    return tuple(sorted(messages, key=_channel if system.network.ordered else encode_envelope))


def _channel(envelope: Envelope) -> Any:
    return (identity.node_of(envelope.sender), identity.node_of(envelope.to))


def _broken(system: System, world: GlobalState) -> str:
    names = [actor.name for actor in system.actors]
    for one in system.over_states:
        if isinstance(one, Always) and not (one.quiet and world.messages):
            values = (view.of(world.locals[names.index(view.actor)]) for view in one.views)
            if not one.holds(*values):
                return one.name
    return ""

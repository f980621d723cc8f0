"""Role: what a protocol says about testing implementations of one of its machines.

    ROLES = {"borrower": ConformanceRole(BORROWER, starts=(...), relation=RELATION)}

A protocol names the place of its roles in its part for testing (`TestProtocol.roles`)..  A machine of which nothing is
said is tested all the same: it begins with drawn records, is told drawn events, and must do exactly what its table
says.

Services: the stores that the kit plays for an implementation, by the pure services of its protocol.

    Start("one group", record, told, services=(PlayedService(GroupStore(), failed=store_failed),))

A request is answered when the kit says so, in the order of the requests to one service.  After an answer that leaves
open whether the request was carried out, the kit goes on with both: whatever comes later may show either.  So what the
services hold follows from the inputs alone, and a list of inputs repeats a run.

WireRole: what a protocol says about testing implementations of a role over the wire.

    WIRE = WireRole(plays=SERVER, peer="holder", takes=Acquire | Renew, begin=begin_record, unseen=find_unseen, ...)

Over the wire the kit sees the messages of an implementation, and neither its application nor its timers.  The protocol
names the calls that an application may make unseen, and how peers behave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from math import gcd
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from statemachines import catalogue, registry
from statemachines.drivers.role import NodeRole
from statemachines.kernel import (
    Answer,
    Ask,
    Call,
    ConfigurationError,
    Effect,
    Event,
    Fsm,
    Line,
    Message,
    Request,
    Service,
    TimerFired,
)
from statemachines.testing.conformance.interface import Alphabet, Interface, alphabet_of
from statemachines.testing.conformance.relation import Output, Relation
from statemachines.testing.protocol import Legal, environment_of, testing_of
from statemachines.testing.struct_values import Pool, draw_example
from statemachines_spec.explorer.actor import Timing

POSSIBLE_MAX: Final = 32
"""So many states of one service are gone on with at a time."""

KNOWN_MAX: Final = 10_000
"""So many states of services are not reckoned again."""


def never(*of: Any) -> tuple[()]:
    """No request fails, nobody else asks, no instance begins, and the application calls nothing unseen."""
    return ()


class PlayedService(msgspec.Struct, frozen=True):
    """A service, which answers a request once or not at all.  `failed(request)` are the answers that leave its outcome
    open, `others(state)` what other parties may ask of it before the next answer: finitely often."""

    service: Service[Any]
    failed: Callable[[Any], Iterable[Answer]] = never
    others: Callable[[Any], Iterable[Request]] = never


class ServiceState(msgspec.Struct, frozen=True):
    """What one service may hold, and the requests that were not answered yet."""

    possible: tuple[Any, ...]
    asked: tuple[Request, ...] = ()


PlayedWorld = tuple[ServiceState, ...]
"""The states of all services, in the order of their declaration."""


class Services:
    """The services of a start."""

    def __init__(self, played: tuple[PlayedService, ...]) -> None:
        self._played = played
        self._places = {one.service.name: place for place, one in enumerate(played)}
        self._known: dict[int, tuple[ServiceState, tuple[tuple[Answer, Any], ...]]] = {}

    def begin(self) -> PlayedWorld:
        """What they hold at first."""
        return tuple(ServiceState((one.service.initial(),)) for one in self._played)

    def answers(self, world: PlayedWorld) -> Iterator[Answer]:
        """What may be answered next."""
        for played, state in zip(self._played, world, strict=True):
            yield from dict.fromkeys(answer for answer, _ in self._outcomes(played, state))

    def after(self, world: PlayedWorld, event: Event | None, effects: Iterable[Effect]) -> PlayedWorld:
        """What they hold after an event (None: time passed) and what was asked at it."""
        asks = [one for one in effects if isinstance(one, Ask)] if self._played else []
        if not asks and not isinstance(event, Answer):
            return world
        states = [self._answered(*both, event) for both in zip(self._played, world, strict=True)]
        for one in asks:
            place = self._places.get(one.service)
            if place is None:
                rule = f"is asked, and the start plays {', '.join(self._places) or 'none'}"
                raise ConfigurationError("service", one.service, rule)
            states[place] = replace(states[place], asked=(*states[place].asked, one.request))
        return tuple(self._unanswered(*both) for both in zip(self._played, states, strict=True))

    def _outcomes(self, played: PlayedService, state: ServiceState) -> tuple[tuple[Answer, Any], ...]:
        """Each answer to the first request, and what the service holds after it; reckoned once for a state."""
        known = self._known.get(id(state))
        if known is None:
            if len(self._known) == KNOWN_MAX:
                self._known.clear()
            known = self._known[id(state)] = (state, tuple(_outcomes(played, state)))
        return known[1]

    def _answered(self, played: PlayedService, state: ServiceState, event: Event | None) -> ServiceState:
        """After an answer, if it is one to the first request."""
        if not isinstance(event, Answer) or not state.asked:
            return state
        kept: list[Any] = []
        for answer, after in self._outcomes(played, state):
            if answer == event and after not in kept:
                kept.append(after)
        return ServiceState(tuple(kept[:POSSIBLE_MAX]), state.asked[1:]) if kept else state

    def _unanswered(self, played: PlayedService, state: ServiceState) -> ServiceState:
        """With the requests carried out that get no answer."""
        while state.asked and not self._outcomes(played, state):
            after = [played.service.apply(one, state.asked[0], 0)[0] for one in state.possible]
            state = ServiceState(tuple(after), state.asked[1:])
        return state


def _outcomes(played: PlayedService, state: ServiceState) -> Iterator[tuple[Answer, Any]]:
    """Each answer to the first request, and what the service holds after it."""
    if not state.asked:
        return
    request, service = state.asked[0], played.service
    for before in _reachable(played, state.possible):
        after, answers = service.apply(before, request, 0)
        for answer in answers:
            yield answer, after
        for failure in played.failed(request):
            yield from ((failure, before), (failure, after))


def _reachable(played: PlayedService, possible: tuple[Any, ...]) -> list[Any]:
    """With what other parties may have asked meanwhile."""
    found = list(possible)
    for state in found:
        for request in played.others(state):
            after, _ = played.service.apply(state, request, 0)
            if after not in found and len(found) < POSSIBLE_MAX:
                found.append(after)
    return found


class PeerPlayer(Protocol):
    """The other parties of an implementation: answers to its messages, and messages of their own."""

    def greet(self) -> Iterable[Message]:
        """What the peers say where no instance is known; it is said again until one is."""

    def answer(self, record: Any, message: Any) -> Iterable[Message]:
        """What the peers say to this message; `record`: the likeliest state of the implementation after it."""

    def propose(self, record: Any) -> Iterable[Message]:
        """What else the peers may say in this state, sensible or not."""

    def probe(self, record: Any) -> Message | None:
        """A message that is answered whatever came before it (None: none is, in this state)."""

    def sender(self, message: Any) -> str:
        """The party of the kit's node that says this message."""


def no_answer(record: Any, request: Request) -> Answer | None:
    """No request is answered."""
    return None


class EarlierInstance(msgspec.Struct, frozen=True):
    """An earlier instance of the same node."""

    first: Any
    """The message that began it."""
    ends: tuple[tuple[Any, tuple[Output, ...]], ...]
    """Each state that it may be in: the record, and what it told its application last where it has ended."""


class BegunRecord(msgspec.Struct, frozen=True):
    """A record that a new instance may begin with."""

    record: Any
    goes_on: bool = False
    """This is so only if the instance before it has not ended."""


class WireParty(Protocol):
    """What the kit is in one run, where no table judges: its connections, its messages, its rules."""

    coverage: Any

    def join(self, peer: Any) -> str:
        """A greeting is over; why the peer may not stay."""

    def leave(self, peer: Any) -> None:
        """A connection is gone."""

    def receive(self, peer: Any, packet: Any) -> None:
        """A message has come."""

    def beat(self, now_ns: int) -> None:
        """Time has passed."""

    def find_missing(self) -> str:
        """Why a run in which nothing was wrong shows nothing."""

    def list_table(self) -> frozenset[tuple[str, int, str]]:
        """The rows of the table, state by state."""

    def list_rules(self) -> dict[str, int]:
        """How often each rule was applied, by its clause."""


class WireRole(msgspec.Struct, frozen=True):
    """How the kit plays the peers of one role, and judges it by its messages alone."""

    plays: NodeRole
    """The role that the kit has on its connections."""
    peer: str
    """The name of the role under test, as a hello says it."""
    takes: Any
    """The union of messages that the implementation may send."""
    configuration: Any = {}
    """The default times: short ones, since a run is real time."""
    begin: Callable[[str, Any, Any, tuple[EarlierInstance, ...]], tuple[BegunRecord, ...]] = never
    """(`to`, first message, configuration, earlier instances) -> records that a new instance may have before it."""
    opening: tuple[Call, ...] = ()
    """What an application calls first; the first message is an answer to it."""
    unseen: Callable[[Any, Output | None], Iterable[Event]] = never
    """(record, message that has come) -> calls of the application that may have been before it (None: at any time)."""
    player: Callable[[str, Random], PeerPlayer] | None = None
    """(life of the kit, chance) -> the peers of one node."""
    speaker: str = ""
    """The field of its messages that holds its id ("": none does)."""
    addressee: str = ""
    """The field of its messages that holds the party of the kit that they are for ("": none does)."""
    after_end: tuple[str, ...] = ()
    """Names of messages that an instance may repeat when it has ended."""
    dials: bool = False
    """The kit dials the implementation, which listens; else the implementation dials the kit."""
    host: str = ""
    """The name under which the kit writes to a node of which it knows no instance."""
    node_says: tuple[str, ...] = ()
    """Names of messages that the node says itself, where the instance that they are about is gone."""
    reply: Callable[[Any, Request], Answer | None] = no_answer
    """(record, request) -> what a store behind the implementation answers; the kit does not see it."""
    prepare: Callable[[Path, Any], None] | None = None
    """(file, configuration): makes the store that the implementation works on (None: it needs none)."""
    connections: int = 1
    """The kit keeps so many connections, each as a node of its own, where it dials."""
    party: Callable[[Any], WireParty] | None = None
    """Course of a run -> what judges it by rules (None: the table judges each instance)."""


SECOND_NS: Final = 1_000_000_000
DRAWN: Final = 3
"""Of a machine of which nothing is said, so many events of each kind may be told in a state."""


def anything(record: Any) -> bool:
    """Nothing is out of bounds."""
    return True


class Start(msgspec.Struct, frozen=True, dict=True):
    """A bounded system of the role and its environment: the `record` that the machine begins with, what may be `told`
    to it in a state, which records lie within the `bound`, and the services that the kit plays."""

    name: str
    record: Any
    told: Callable[[Any], Iterable[Event]]
    bound: Callable[[Any], bool] = anything
    services: tuple[PlayedService, ...] = ()

    @cached_property
    def world(self) -> Services:
        """The services."""
        return Services(self.services)

    def next_inputs(self, record: Any, world: PlayedWorld) -> Iterator[Event]:
        """What may come next: what is told, and the answers of services."""
        yield from self.told(record)
        yield from self.world.answers(world)


class ConformanceRole(msgspec.Struct, frozen=True, dict=True):
    """A machine that others implement.

    `starts`: bounded systems, the smallest first; `timing`: how long a tick is, and which fields hold times; `given`:
    the fields of the record that an implementation begins with (none: those without a default); `alphabet`: what
    passes between the two (None: all that the protocol declares); `legal`: which drawn events may be told (None: those
    that the environment of the machine allows); `wire`: how it is tested over the wire (None: it cannot be)."""

    fsm: Fsm[Any]
    starts: tuple[Start, ...]
    timing: Timing
    relation: Relation = Relation()
    given: tuple[str, ...] = ()
    alphabet: Alphabet | None = None
    legal: Legal | None = None
    wire: WireRole | None = None

    @cached_property
    def interface(self) -> Interface:
        """The lines between the kit and an implementation."""
        fields = msgspec.structs.fields(self.fsm.record_type)
        given = self.given or tuple(one.name for one in fields if one.required)
        return Interface(self.fsm, self.alphabet or alphabet_of(self.fsm), given)

    def line_of(self, machine: str, row: int) -> Line:
        """A row of one of its machines, named in full."""
        return next(one for one in self.fsm.family() if one.full_name == machine).lines[row]


def roles_of(protocol: str) -> Mapping[str, ConformanceRole]:
    """The roles that the protocol declares, by their names: those of their machines, or what the field calls them."""
    place = testing_of(protocol).roles
    found: dict[str, ConformanceRole] = registry.load(place, dict, f"{protocol}, roles") if place else {}
    return found


def role_of(name: str) -> ConformanceRole:
    """The role called `name` or `protocol/name`, or that of the machine of this name: as its protocol declares it, else
    one that is made of its declaration.

    Raises `ConfigurationError` for an unknown name, and for one that several protocols have.
    """
    if ":" in name:
        return role_of_machine(catalogue.machine(name))
    owner, _, short = name.rpartition("/")
    declared: dict[str, ConformanceRole] = {}
    broken: ConfigurationError | None = None
    for one in registry.names():
        try:
            if owner in ("", one) and short in (roles := roles_of(one)):
                declared[one] = roles[short]
        except ConfigurationError as error:  # the role may be one of those
            broken = error
    if len(declared) > 1:
        known = " or ".join(f"{one}/{short}" for one in declared)
        raise ConfigurationError("role", name, f"several protocols have one: say {known}")
    if declared:
        return next(iter(declared.values()))
    if broken is not None:
        raise broken
    return role_of_machine(catalogue.machine(name))


def role_of_machine(fsm: Fsm[Any]) -> ConformanceRole:
    """The role of a machine, registered or not."""
    declared = roles_of(fsm.protocol).values() if fsm.protocol else ()
    return next((one for one in declared if one.fsm is fsm), None) or drawn_role(fsm)


def drawn_role(fsm: Fsm[Any]) -> ConformanceRole:
    """The role of a machine of which nothing is said: one record, and drawn events of each kind."""
    kinds = [kind for kind in fsm.alphabet if not issubclass(kind, TimerFired)]
    legal = environment_of(fsm).legal

    def draw_events(record: Any) -> Iterable[Event]:
        pool = Pool(record)
        found: list[Event] = []
        for kind in kinds:
            for seed in range(DRAWN):
                event: Event = draw_example(kind, Random(seed), pool)
                if event not in found and legal(record, event) and _is_taken(fsm, record, event):
                    found.append(event)
        return found

    record = _first_record(fsm)
    periods = [timer.period_ns(record) for timer in fsm.timers if timer.period_ns is not None]
    tick_ns = gcd(*(one for one in periods if one > 0)) or SECOND_NS
    timing = Timing(tick_ns, tuple(fsm.timer_registry()))
    return ConformanceRole(fsm, (Start("drawn", record, draw_events),), timing)


def _first_record(fsm: Fsm[Any]) -> Any:
    """A record as the machine begins with it: what has no default is drawn."""
    fields = msgspec.structs.fields(fsm.record_type)
    drawn = draw_example(fsm.record_type, Random(1))
    record = fsm.record_type(**{one.name: getattr(drawn, one.name) for one in fields if one.required})
    if record.status is not fsm.initial:
        rule = f"does not begin in {fsm.initial.value}; give the status a default, or declare a role of its own"
        raise ConfigurationError("machine", fsm.full_name, rule)
    return record


def _is_taken(fsm: Fsm[Any], record: Any, event: Event) -> bool:
    """Whether the table takes the event: what it refuses is not told, nor an answer that no service gives."""
    try:
        fsm.step(record, event, 0)
    except Exception:  # a guard may count on what a service promises
        return False
    return True

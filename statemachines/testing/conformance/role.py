"""Role: what a protocol says about testing implementations of one of its machines.

    ROLES = {"borrower": ConformanceRole(BORROWER, starts=(...), relation=RELATION)}

A protocol names the place of its roles in its part for testing (`TestProtocol.roles`)..  A machine of which nothing is
said is tested all the same: it begins with drawn records, is told drawn events, and must do exactly what its table
says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from math import gcd
from random import Random
from typing import Any, Final

import msgspec

from statemachines import catalogue, registry
from statemachines.kernel import ConfigurationError, Event, Fsm, TimerFired
from statemachines.testing.conformance.interface import Alphabet, Interface, alphabet_of
from statemachines.testing.conformance.relation import Relation
from statemachines.testing.conformance.services import PlayedService, PlayedWorld, Services
from statemachines.testing.conformance.wire_role import WireRole
from statemachines.testing.pool import Pool
from statemachines.testing.protocol import Legal, environment_of, testing_of
from statemachines.testing.struct_values import draw_example
from statemachines_spec.explorer.timing import Timing

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

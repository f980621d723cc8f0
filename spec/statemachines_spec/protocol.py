"""CheckProtocol: what a protocol gives the explorer; its registration names where it stands (area `spec`).

    SPEC = CheckProtocol(
        systems={"paused": "a holder stands still until its lease has passed"},
        build=system,                                    # (name, size, variant, without) -> System
    )

Everything else has a default.  `gapless check PROTOCOL` goes through it and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines import registry
from statemachines.kernel import ConfigurationError, Protocol
from statemachines_spec.bug import Bug
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.order import Order
from statemachines_spec.explorer.property import Eventually
from statemachines_spec.explorer.system import System

Build = Callable[[str, str, str, tuple[str, ...]], System]
"""(name, size, variant, deadline orders that are switched off) -> the closed system; all four are known names."""


class AllowedMutants(msgspec.Struct, frozen=True):
    """Mutants (by name, or a pattern with *) that may live, since the `clause` allows what they do; `why`."""

    mutants: tuple[str, ...]
    clause: str
    why: str


def list_obligations(system: System) -> tuple[Eventually, ...]:
    """Those that the system itself declares."""
    return system.obligations


class CheckProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """`systems`: name -> what happens in it; `build` makes one; `sizes` and `variants` (name -> what it is): the first
    is meant where none is given; `orders`: deadline orders that may be switched off; `bugs` that can be planted;
    `obligations_of(system)`: what must be met sooner or later; `directed`: small systems in which planted bugs are
    looked for (none: every system at its first size); `allowed`: mutants that no judge need notice; `script`: how
    counterexamples become runs of real hosts (None: they do not); `aside`: systems like `systems`, explored only where
    they are named: those in which something is to break."""

    systems: dict[str, str]
    build: Build
    sizes: tuple[str, ...] = ("small",)
    variants: dict[str, str] = msgspec.field(default_factory=lambda: {"settled": "the protocol as it is shipped"})
    orders: tuple[Order, ...] = ()
    bugs: tuple[Bug, ...] = ()
    obligations_of: Callable[[System], tuple[Eventually, ...]] = list_obligations
    directed: tuple[DirectedSystem, ...] = ()
    allowed: tuple[AllowedMutants, ...] = ()
    script: Any = None
    aside: dict[str, str] = msgspec.field(default_factory=dict)

    def system(self, name: str, size: str = "", variant: str = "", without: tuple[str, ...] = ()) -> System:
        """The system called so; raises `ConfigurationError` for unknown names, with those there are."""
        size, variant = size or self.sizes[0], variant or next(iter(self.variants))
        _check("system", name, {**self.systems, **self.aside})
        _check("size", size, self.sizes)
        _check("variant", variant, self.variants)
        for order in without:
            _check("deadline order", order, [one.name for one in self.orders])
        return self.build(name, size, variant, without)

    def obligations(self, system: System) -> tuple[Eventually, ...]:
        """What must be met sooner or later in one of these systems, once faults have stopped."""
        return self.obligations_of(system)

    def list_directed(self) -> tuple[DirectedSystem, ...]:
        """Small systems in which planted bugs are looked for, in turn."""
        return self.directed or tuple(
            DirectedSystem(name, about, partial(self.system, name), self.obligations_of)
            for name, about in self.systems.items()
        )


def _check(key: str, name: str, known: Any) -> None:
    if name not in known:
        raise registry.make_unknown_error(key, name, known) if known else ConfigurationError(key, name, "there is none")


# -- by name --------------------------------------------------------------------------------------------------------


class SystemSelection(msgspec.Struct, frozen=True, kw_only=True):
    """What a name stands for: a protocol's `part` with its `systems` at one size and variant, or (without a part) the
    one system that stands at `module:ATTRIBUTE`.  `owner`: the name of the registered protocol ("": none)."""

    name: str
    owner: str
    size: str
    variant: str
    systems: tuple[System, ...]
    part: CheckProtocol | None = None

    @property
    def module(self) -> str:
        """The module whose code makes these systems."""
        if self.part is None:
            return self.name.partition(":")[0]
        build: Any = self.part.build
        while isinstance(build, partial):
            build = build.func
        return str(build.__module__)

    def obligations(self, system: System) -> tuple[Eventually, ...]:
        """What must be met sooner or later in one of them."""
        return system.obligations if self.part is None else self.part.obligations(system)


def choose_systems(
    name: str, systems: tuple[str, ...] = (), size: str = "", variant: str = "", without: tuple[str, ...] = ()
) -> SystemSelection:
    """The `systems` (none named: all) of the protocol called `name`; or, where `name` is the `module:ATTRIBUTE` of a
    `System` or of a function that makes one, that system.

    Raises `ConfigurationError` for names that are not there, with those there are.
    """
    owner, part = _part(name)
    if part is None:
        if systems:
            raise ConfigurationError("system", systems[0], f"{name} is one system, and has no others")
        given: dict[str, Any] = {"size": size, "variant": variant, "without": without}
        made = system_at(name, **{key: value for key, value in given.items() if value})
        return SystemSelection(name=name, owner="", size=size, variant=variant, systems=(made,))
    size, variant = size or part.sizes[0], variant or next(iter(part.variants))
    place = registry.protocol(owner).areas["spec"] if owner else name
    arguments: dict[str, Any] = {"size": size, "variant": variant}
    arguments |= {"without": without} if without else {}
    made_all = tuple(system_at(place, name=one, **arguments) for one in systems or part.systems)
    return SystemSelection(name=name, owner=owner, size=size, variant=variant, systems=made_all, part=part)


def is_alone(name: str) -> bool:
    """Whether one system stands at this `module:ATTRIBUTE`, and no protocol."""
    return _part(name)[1] is None


def of_protocol(name: str) -> CheckProtocol:
    """What the protocol gives; raises `ConfigurationError` where it gives nothing, naming those that do."""
    one = registry.protocol(name)
    found = registry.load_area(one.name, "spec")
    if not isinstance(found, CheckProtocol):
        rule = f"at {one.areas['spec']} stands a {type(found).__name__}, and no CheckProtocol"
        raise ConfigurationError("protocol", one.name, rule)
    return found


def all_parts() -> dict[str, CheckProtocol]:
    """Name -> what it gives, of every protocol that has systems and can be loaded."""
    return {one.name: of_protocol(one.name) for one in registry.protocols() if "spec" in one.areas}


def system_at(place: str, **arguments: Any) -> System:
    """The system that stands at `module:ATTRIBUTE`: itself, or what a function there, or the `system` of a
    `CheckProtocol` there, makes of these arguments.

    Raises `ConfigurationError` for something else, and for arguments that the function does not take.
    """
    found = registry.load(place, object, "system")
    ours = f"{__name__}:system_at"
    if isinstance(found, System):
        if arguments:
            raise ConfigurationError("system", place, f"is one by itself, and takes no {', '.join(arguments)}")
        made, origin = found, (ours, {"place": place})
    elif isinstance(found, CheckProtocol):
        made, origin = found.system(**arguments), (ours, {"place": place, **arguments})
    else:
        made, origin = _called(place, found, arguments), (place, arguments)
    return made if made.origin is not None else replace(made, origin=origin)


def _part(name: str) -> tuple[str, CheckProtocol | None]:
    """The protocol that is meant, as it was named, so that any process finds it ("": none), and its part, if it is not
    one system."""
    if ":" not in name:
        return name, of_protocol(name)
    found = registry.load(name, object, "protocol or system")
    if isinstance(found, Protocol):
        return name, of_protocol(name)
    return "", found if isinstance(found, CheckProtocol) else None


def _called(place: str, make: Any, arguments: dict[str, Any]) -> System:
    if not callable(make):
        raise ConfigurationError("system", place, f"is neither a System nor a function, but a {type(make).__name__}")
    taken = signature(make).parameters
    many = any(one.kind is Parameter.VAR_KEYWORD for one in taken.values())
    strange = [name for name in arguments if name not in taken and not many]
    if strange:
        raise ConfigurationError("system", place, f"its function takes no {strange[0]!r}")
    needed = [one for one in taken.values() if one.default is Parameter.empty and one.kind not in _MANY]
    missing = [one.name for one in needed if one.name not in arguments]
    if missing:
        raise ConfigurationError("system", place, f"its function needs {missing[0]!r}; give it a default")
    made = make(**arguments)
    if not isinstance(made, System):
        raise ConfigurationError("system", place, f"its function gives a {type(made).__name__}, and no System")
    return made


_MANY = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)

"""What a protocol may give to tests: the part `testing` of its registration.  Everything has a default.

    TESTING = TestProtocol(
        values=Values(ints={"token": (0, 1, 7)}, names={"holder": ("holder-1~1/1", "holder-2~1/1")}),
        environments={"server": Environment(services={"store": Store()}, failed={"store": StoreFailed})},
    )

A protocol without such a part is tested all the same: numbers are small, texts are letters, and nothing answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any, ClassVar

import msgspec

from statemachines import registry
from statemachines.kernel import Answer, Event, Fsm, Message, Protocol, Service

Legal = Callable[[Any, Event], bool]
Move = Callable[[Any], Event]


class Values(msgspec.Struct, frozen=True):
    """What is drawn for the fields of a protocol's types.

    `ints`: numbers by the name of a field, the simplest first; `names`: texts by the name of a field; `choices`: types
    of which only certain values make sense together.  A field of a list goes by the singular (`streams`: `stream`).
    `closed`: fields of which `ints` has all numbers that there are, so that none beyond them is drawn.
    """

    ints: dict[str, tuple[int, ...]] = {}
    names: dict[str, tuple[str, ...]] = {}
    choices: dict[type[Any], tuple[Any, ...]] = {}
    closed: tuple[str, ...] = ()


def anything(record: Any, event: Event) -> bool:
    """The environment promises nothing."""
    return True


class Environment(msgspec.Struct, frozen=True):
    """What a machine lives among.

    `start`: a Hypothesis strategy of records to begin with (None: what has no default is drawn).  `services`: what it
    asks, by name; answers then come from them alone; `failed[name](n)` is the answer to a request `n` that was not
    carried out, or nobody knows; `others[name](record)` is a strategy of what others ask of that service meanwhile.
    `legal(record, event)`: what the environment promises about events of ours (calls, answers); messages need no
    promise.  `opening`: how a run usually begins, each move an event made from the record; a run plays a drawn part of
    it, with every request answered, so that states deep in the table are as near as the first one.
    """

    start: Any = None
    services: Mapping[str, Service[Any]] = {}
    failed: Mapping[str, Callable[[int], Answer]] = {}
    others: Mapping[str, Callable[[Any], Any]] = {}
    legal: Legal = anything
    opening: tuple[Move, ...] = ()


class Reader(msgspec.Struct, frozen=True):
    """A role that reads frames, for `frames.fuzz`.

    `speaker`: the role that speaks to it; `takes`: the union of messages that it takes; `life`: one that it might have;
    `dials`: it opens the connection; `names`: other names that it goes by.  `messages`: each makes a message from
    chance and the party that it concerns; without any they are drawn by their types.
    """

    speaker: str
    takes: Any
    life: str
    dials: bool = False
    names: tuple[str, ...] = ()
    messages: tuple[Callable[[Random, str], Message], ...] = ()


class TestProtocol(msgspec.Struct, frozen=True):
    """The part.

    `environments` by the short name of the machine; `readers`: who reads frames, by role; `searches`: where the
    `finding.Searches` for its planted bugs stand, and `roles`: where its `conformance.role.ConformanceRole`s do, by
    machine; both as `module:ATTRIBUTE` (they need more extras than tests do)."""

    __test__: ClassVar[bool] = False  # for pytest: this is no test

    values: Values = Values()
    environments: Mapping[str, Environment] = {}
    readers: Mapping[str, Reader] = {}
    searches: str = ""
    roles: str = ""


NOTHING = TestProtocol()
"""What a protocol without such a part gives."""


def testing_of(name: str) -> TestProtocol:
    """What the protocol `name` gives to tests; `NOTHING` where it has no such part, or is not registered.

    Raises `ConfigurationError` where its registration names something else.
    """
    if name not in registry.names():
        return NOTHING
    return part_of(registry.protocol(name))


def part_of(protocol: Protocol) -> TestProtocol:
    """The same for a protocol itself."""
    if "testing" not in protocol.areas:
        return NOTHING
    return registry.load(protocol.areas["testing"], TestProtocol, f"{protocol.name}, testing")


def environment_of(fsm: Fsm[Any]) -> Environment:
    """What the machine lives among, as its protocol says; nothing in particular where it says nothing."""
    return testing_of(fsm.protocol).environments.get(fsm.name, Environment())


def values_of(kind: type[Any]) -> Values:
    """What is drawn for the fields of this type: the values of the protocol beside whose machines it is declared."""
    return _values_of(kind, registry.names())  # type: ignore[arg-type]


@cache
def _values_of(kind: type[Any], known: tuple[str, ...]) -> Values:
    home = home_of(kind)
    return NOTHING.values if home is None else part_of(home).values


def home_of(kind: type[Any]) -> Protocol | None:
    """The protocol that declares the type: one with a machine in the same module, else in the same package.

    None where no protocol does, or several in one package might.
    """
    fits = [(near, one) for one in registry.protocols() if (near := _nearness(one, kind.__module__))]
    nearest = [one for near, one in fits if near == max(fits, key=lambda fit: fit[0])[0]]
    return nearest[0] if len(nearest) == 1 else None


def _nearness(protocol: Protocol, module: str) -> int:
    """How much of the module's name it shares with a machine's; 0: it is not of this protocol."""
    near = 0
    for place in protocol.machines.values():
        at = place.partition(":")[0]
        package = at.rpartition(".")[0]
        if module == at:
            return len(at) + 1
        if package and f"{module}.".startswith(f"{package}."):
            near = max(near, len(package))
    return near

"""Forged message: messages of which one field says something else, for any type of message: what the type allows, and
the wire would carry.

A forger is told names and numbers that go round; what it says in place of one is another of these, or one at the edge
of what the type allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from statemachines.kernel import Message
from statemachines_sim.recorder import Recorder

M = TypeVar("M", bound=msgspec.Struct)

KNOWN_MAX: Final = 256
"""So many names, and so many numbers of each field, a forger remembers; of more, the first."""

HUGE: Final = 2**62


class Forger:
    """`chance` draws; `names`: what strings it may say, beside those that it learns."""

    def __init__(self, chance: Random, names: Iterable[str] = ()) -> None:
        self._chance = chance
        self._names = list(dict.fromkeys(names))[:KNOWN_MAX]
        self._numbers: dict[str, list[int]] = {}

    def learn(self, struct: msgspec.Struct) -> None:
        """Names and numbers of a message, by the names of its fields."""
        for name in struct.__struct_fields__:
            self._learn(name, getattr(struct, name))

    def forge(self, message: M) -> M:
        """The same with one field changed; as it is, where no field has another value."""
        fields = [field for field in fields_of(type(message)) if self._others(field, getattr(message, field.name))]
        if not fields:
            return message
        field = self._chance.choice(fields)
        value = self._chance.choice(self._others(field, getattr(message, field.name)))
        return replace(message, **{field.name: value})

    def make(self, kind: type[M], **given: object) -> M:
        """A message of this kind: the fields that are given, and any values in the others."""
        drawn = {
            field.name: self._chance.choice(self._others(field, None))
            for field in fields_of(kind)
            if field.name not in given
        }
        return kind(**given, **drawn)

    def _learn(self, name: str, value: object) -> None:
        if isinstance(value, str):
            keep(self._names, value)
        elif type(value) is int:
            keep(self._numbers.setdefault(name, []), value)
        elif isinstance(value, msgspec.Struct):
            self.learn(value)
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, msgspec.Struct):
                    self.learn(item)

    def _others(self, field: inspect.Field, value: Any) -> list[Any]:
        """What may stand in a field beside what does (None: nothing)."""
        others = list(dict.fromkeys(self._values(field.name, field.type, value)))
        return [one for one in others if one != value or type(one) is not type(value)]

    def _values(self, name: str, kind: inspect.Type, value: Any) -> list[Any]:
        match kind:
            case inspect.BoolType():
                return [False, True]
            case inspect.IntType(ge=low, le=high):
                at = value or 0
                near = (0, 1, at - 1, at + 1, 2 * at + 1, HUGE, *(() if high is None else (high,)))
                known = self._numbers.get(name, ())
                return [n for n in (*near, *known) if (low is None or n >= low) and (high is None or n <= high)]
            case inspect.StrType(max_length=most):
                at = value or "x"
                texts = (*self._names, "", at[:-1], f"{at}x", f"{at}\n", at * 200)
                return [one for one in texts if most is None or len(one) <= most]
            case inspect.VarTupleType(item_type=inspect.StructType(cls=of)):
                return self._lists(of, value or ())
            case inspect.VarTupleType(item_type=inspect.TupleType(item_types=kinds)):
                made = tuple(self._chance.choice(self._values(name, one, None)) for one in kinds)
                items = value or ()
                return [(), items[1:], (*items, made)]
            case inspect.UnionType(types=kinds):
                structs = [one.cls for one in kinds if isinstance(one, inspect.StructType)]
                return [self.forge(value)] if value is not None else [self.make(self._chance.choice(structs))]
        raise TypeError(f"{name}: nobody knows how to forge a {type(kind).__name__}")

    def _lists(self, of: type[msgspec.Struct], items: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """One less, one twice, one changed, one that was made up."""
        lists = [(), (*items, self.make(of))]
        if items:
            at = self._chance.randrange(len(items))
            before, after = items[:at], items[at + 1 :]
            lists += [
                (*before, *after),
                (*items, items[at]),
                *((*before, self.forge(items[at]), *after) for _ in items),
            ]
        return lists


class Sends(Protocol):
    """What a process says goes by one: the network, or what stands before it."""

    def send(self, node: str, party: str, to: str, message: Message, now_ns: int) -> None:
        """From `party` on `node` to the party `to`, now."""


class ForgingTransport:
    """In the place of what a process sends by (`beneath`): of what it sends a share `rate` is forged."""

    def __init__(self, beneath: Sends, recorder: Recorder, forger: Forger, rate: float, chance: Random) -> None:
        self.beneath = beneath
        self._recorder = recorder
        self._forger = forger
        self._rate = rate
        self._chance = chance

    def send(self, node: str, party: str, to: str, message: Message, now_ns: int) -> None:
        """As the network does; who watches hears of a forged one before it is sent."""
        self._forger.learn(message)
        if self._chance.random() < self._rate:
            true, message = message, self._forger.forge(message)
            if message != true:
                self._recorder.hit("forge", node, party, to, message, now_ns)
        self.beneath.send(node, party, to, message, now_ns)


def fields_of(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    """What a message of this kind has."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return info.fields


def keep(known: list[Any], value: Any) -> None:
    """Once, while there is room."""
    if len(known) < KNOWN_MAX and value not in known:
        known.append(value)

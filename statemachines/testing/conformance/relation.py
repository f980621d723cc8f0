"""Relation: what an implementation must do as the table says, and what it may do otherwise, as data with clauses.

    Relation(
        before=(Before("uninstall", "revoke_finished", "stream", "SS-37"),),
        chosen=(Chosen("number of a ping", (("ping", "n"), ("ping_response", "n")), "SS-07"),),
    )

Without anything declared the answer to an input has exactly the effects of the table.  Order binds within a destination
only: a party that is sent to, a service that is asked, what the application is told about one key.  Timers are never
compared, but by what they cause.

JSON values: records, events and requests as objects with the names of their fields.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, cached_property
from itertools import groupby
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    Ask,
    CancelTimer,
    Effect,
    Event,
    Map,
    Request,
    Send,
    SetTimer,
    Stop,
    Tell,
    in_order,
    name_of,
)
from statemachines.kernel.event import column_fields


def make_plain(value: Any) -> Any:
    """A value as JSON has it: objects, lists, texts, numbers; bytes are texts in Base64.  Events and tagged Structs
    have their name as `type`."""
    if isinstance(value, msgspec.Struct):
        fields = {field: make_plain(getattr(value, field)) for field in value.__struct_fields__}
        for field in _fields_of_pairs(type(value)):
            fields[field] = fields[field] or []
        return {"type": name_of(type(value)), **fields} if has_name(type(value)) else fields
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Map):
        items = [(make_plain(key), make_plain(one)) for key, one in in_order(value)]
        return dict(items) if all(isinstance(key, str) for key, _ in items) else items
    if isinstance(value, tuple):
        return tuple([make_plain(one) for one in value])  # as `msgspec.to_builtins` has it: the two are compared
    if isinstance(value, list):
        return [make_plain(one) for one in value]
    return value


def words_of(event: Any) -> str:
    """A message or another event for people."""
    fields = ", ".join(f"{field}={getattr(event, field)!r}" for field in event.__struct_fields__)
    return f"{name_of(type(event))}({fields})"


def has_name(kind: type[Any]) -> bool:
    """Whether an object of it says which it is."""
    return issubclass(kind, Event | Request) or bool(kind.__struct_config__.tag)


@cache
def _fields_of_pairs(kind: type[Any]) -> tuple[str, ...]:
    """The fields that hold maps whose keys are no texts: JSON has them as lists of pairs, empty ones, too."""
    if not any(field.type is Map or get_origin(field.type) is Map for field in msgspec.structs.fields(kind)):
        return ()
    hints = get_type_hints(kind)
    return tuple(
        field
        for field in kind.__struct_fields__
        if get_origin(hints[field]) is Map and get_args(hints[field])[0] is not str
    )


class Before(msgspec.Struct, frozen=True):
    """Of one answer everything called `first` stands before everything called `then` with the same value of `field`
    ("": whatever its fields), though they go to different destinations."""

    first: str
    then: str
    field: str
    clause: str


class Chosen(msgspec.Struct, frozen=True):
    """Numbers or names that the implementation chooses: a value is bound to that of the table at its first use, and two
    are never bound to the same.  `fields`: (name of the message, event or request, field) that hold them; a field of
    the structs in a list of an event is "list.field".  `echoed`: fields of outputs that may repeat a value which was
    never chosen.  `rises`: what is bound at one input is greater than all that was bound before.  `per`: they are
    chosen anew for each value of that field ("": once for all)."""

    name: str
    fields: tuple[tuple[str, str], ...]
    clause: str
    echoed: tuple[tuple[str, str], ...] = ()
    rises: bool = False
    per: str = ""

    def scope_of(self, carrier: Mapping[str, Any]) -> str:
        """Under which name the values are bound that something with these fields carries."""
        return f"{self.name} of {carrier[self.per]}" if self.per else self.name


class Free(msgspec.Struct, frozen=True):
    """A field that may hold anything, such as a text for people: `field` of what is called `kind`."""

    kind: str
    field: str
    clause: str


class AnyOrder(msgspec.Struct, frozen=True):
    """Those called `kind` that follow each other in one destination keep their order only where all of `fields` are the
    same."""

    kind: str
    fields: tuple[str, ...]
    clause: str


class Unordered(msgspec.Struct, frozen=True):
    """A list whose order means nothing: `field` of what is called `kind`."""

    kind: str
    field: str
    clause: str


class Ranged(msgspec.Struct, frozen=True):
    """What is called `kind` carries a range `first`..`last`, which may be split into several that follow each other, or
    put together from them.  `alone`: this as `last` means `first` (None: nothing does).  `round_at`: numbers come round
    to 0 here, and `last` may be beyond (0: they do not).  `rest`: what the fields of all but the first of a range
    become where they are told apart, but for those that have one of the values `whole`."""

    kind: str
    first: str
    last: str
    clause: str
    alone: int | None = None
    round_at: int = 0
    rest: dict[str, Any] = {}
    whole: tuple[Any, ...] = ()

    def parts_of(self, one: Output) -> list[Output]:
        """The range as it is compared: what is said of its first number alone stands by itself."""
        first = one.fields[self.first]
        if self.alone is not None and one.fields[self.last] == self.alone:
            one = replace(one, fields={**one.fields, self.last: first})
        is_whole = not self.rest or any(one.fields[field] in self.whole for field in self.rest)
        if is_whole or first == one.fields[self.last]:
            return [one]
        rest = replace(one, fields={**one.fields, **self.rest, self.first: first + 1})
        return [replace(one, fields={**one.fields, self.last: first}), rest]


class Repeated(msgspec.Struct, frozen=True):
    """What is called `kind` may stand in an answer several times."""

    kind: str
    clause: str


class LateEffect(msgspec.Struct, frozen=True):
    """What the timer called `timer` in the table causes is owed from its deadline to `late_ns` after it (other timers:
    at their deadlines)."""

    timer: str
    late_ns: int
    clause: str


class Relation(msgspec.Struct, frozen=True, dict=True):
    """The choices of an implementation; `hidden`: names of messages, events and requests that are not compared."""

    before: tuple[Before, ...] = ()
    chosen: tuple[Chosen, ...] = ()
    free: tuple[Free, ...] = ()
    any_order: tuple[AnyOrder, ...] = ()
    unordered: tuple[Unordered, ...] = ()
    ranged: tuple[Ranged, ...] = ()
    repeated: tuple[Repeated, ...] = ()
    owed: tuple[LateEffect, ...] = ()
    hidden: tuple[str, ...] = ()

    @cached_property
    def chosen_in(self) -> frozenset[str]:
        """The names of what holds something that the implementation chooses."""
        return frozenset(kind for one in self.chosen for kind, _ in (*one.fields, *one.echoed))

    def late_ns(self, timer: str) -> int:
        """How long after its deadline what a timer of the table causes may come."""
        return next((one.late_ns for one in self.owed if one.timer == timer), 0)


class Output(msgspec.Struct, frozen=True):
    """One visible effect: its `channel` (order binds within one), the `name` of what it carries, and all its fields as
    JSON has them."""

    channel: tuple[str, str]
    name: str
    to: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        if self.name == self.channel[0]:
            return self.name
        fields = ", ".join(f"{field}={_text(value)}" for field, value in self.fields.items())
        return f"{self.channel[0]} {self.to + ' ' if self.to else ''}{self.name}{f'({fields})' if fields else ''}"


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


KNOWN_MAX: Final = 10_000


class OutputsOf:
    """What is seen of the effects of a machine; what was seen once is not put together again."""

    def __init__(self, relation: Relation) -> None:
        self._hidden = frozenset(relation.hidden)
        self._known: dict[Effect, Output | None] = {}

    def of(self, effects: tuple[Effect, ...]) -> tuple[Output, ...]:
        """The outputs, in order."""
        found: list[Output] = []
        for effect in effects:
            if type(effect) is SetTimer or type(effect) is CancelTimer:
                continue
            if effect not in self._known:
                if len(self._known) == KNOWN_MAX:
                    self._known.clear()
                one = _output(effect)
                self._known[effect] = None if one is None or one.name in self._hidden else one
            if (seen := self._known[effect]) is not None:
                found.append(seen)
        return tuple(found)


def _output(effect: Effect) -> Output | None:
    match effect:
        case Send(to, message):
            return Output(("send", to), name_of(type(message)), to, _untyped(make_plain(message)))
        case Tell(event):
            return Output(("tell", _key_of(event)), name_of(type(event)), "", _untyped(make_plain(event)))
        case Stop():
            return STOPPED
    if not isinstance(effect, Ask):
        return None
    request = effect.request
    return Output(("ask", effect.service), name_of(type(request)), effect.service, _untyped(make_plain(request)))


def _untyped(fields: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if field != "type"}


def _key_of(event: Event) -> str:
    """What an event is about: order binds among those about one thing."""
    field = key_field(type(event))
    return str(getattr(event, field)) if field else ""


def key_field(kind: type[Event]) -> str:
    """The field that says what events of this kind are about ("": none does)."""
    field = column_fields(kind)[0]
    return field if field in kind.__struct_fields__ else ""


STOPPED: Final = Output(("stop", ""), "stop", "", {})

Binding = Mapping[str, Mapping[Any, Any]]
"""Name of a choice -> value of the table -> value of the implementation."""

Difference = str


def match_answer(
    relation: Relation, expected: tuple[Output, ...], came: tuple[Output, ...], binding: Binding
) -> Binding | Difference:
    """The binding after this answer, where it is one that the relation allows; else what is wrong with it."""
    if expected == came and (not relation.chosen or relation.chosen_in.isdisjoint([one.name for one in expected])):
        return binding
    wrong_order, before = _in_order(relation, came), binding
    expected, came = _normal(relation, expected), _normal(relation, came)
    channels = dict.fromkeys(one.channel for one in (*expected, *came))
    for channel in channels:
        wanted = [one for one in expected if one.channel == channel]
        found = [one for one in came if one.channel == channel]
        for place in range(max(len(wanted), len(found))):
            if place == len(found):
                return f"missing: {wanted[place]}"
            if place == len(wanted):
                return f"not expected: {found[place]}"
            bound = _same(relation, wanted[place], found[place], binding, before)
            if isinstance(bound, str):
                return bound
            binding = bound
    return wrong_order or binding


def _same(relation: Relation, wanted: Output, found: Output, binding: Binding, before: Binding) -> Binding | Difference:
    """The binding with what these two bind; `before`: that of earlier inputs."""
    if wanted.name != found.name:
        return f"expected {wanted}, came {found}"
    for field, value in wanted.fields.items():
        other = found.fields.get(field)
        place = (wanted.name, field)
        choice = next((one for one in relation.chosen if place in (*one.fields, *one.echoed)), None)
        if choice is not None:
            scope = choice.scope_of(wanted.fields)
            values = dict(binding.get(scope, {}))
            if value not in values and place in choice.echoed:
                continue
            if value not in values:
                if other in values.values():
                    rule = f"which was used before; each {choice.name} is another"
                    return f"{wanted.name}: {field} is {_text(other)}, {rule}"
                if choice.rises and (earlier := before.get(scope)) and not _is_above(other, earlier.values()):
                    rule = f"which is not above each {choice.name} before [{choice.clause}]"
                    return f"{wanted.name}: {field} is {_text(other)}, {rule}"
                values[value] = other
                binding = {**binding, scope: values}
            value = values[value]
        if value != other:
            return f"{wanted.name}: {field} is {_text(other)}, expected {_text(value)}"
    return binding


def _is_above(value: Any, others: Iterable[Any]) -> bool:
    return isinstance(value, int) and value > max(others)


def _normal(relation: Relation, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """The outputs without what the relation does not look at: repetitions, order of lists, cuts of ranges, free
    fields."""
    lists = {(one.kind, one.field) for one in relation.unordered}
    free = {(one.kind, one.field) for one in relation.free}
    repeated = {one.kind for one in relation.repeated}
    ranges = {one.kind: one for one in relation.ranged}
    found: list[Output] = []
    for one in _sorted(relation, outputs):
        changed: dict[str, Any] = {
            field: sorted(one.fields[field], key=_text) for kind, field in lists if kind == one.name
        }
        changed |= {field: None for kind, field in free if kind == one.name}
        one = replace(one, fields={**one.fields, **changed}) if changed else one
        if one.name in repeated and one in found:
            continue
        for part in ranges[one.name].parts_of(one) if one.name in ranges else [one]:
            at, joined = _joined(ranges[one.name], found, part) if one.name in ranges else (0, None)
            if joined is None:
                found.append(part)
            else:
                found[at] = joined
    return tuple(found)


def _sorted(relation: Relation, outputs: tuple[Output, ...]) -> Iterable[Output]:
    """The outputs, channel by channel, those in order whose order means nothing."""
    kinds = {one.kind: one.fields for one in relation.any_order}
    if kinds.keys().isdisjoint([one.name for one in outputs]):
        return outputs
    found: list[Output] = []
    for channel in dict.fromkeys(one.channel for one in outputs):
        for name, run in groupby((one for one in outputs if one.channel == channel), lambda one: one.name):
            fields = kinds.get(name, ())
            found += sorted(run, key=lambda one: [_text(one.fields[field]) for field in fields])
    return found


def _joined(ranged: Ranged, found: list[Output], one: Output) -> tuple[int, Output | None]:
    """The last of the destination of `one` (its place, and itself with `one`), where `one` follows on."""
    at = next((n for n in reversed(range(len(found))) if found[n].channel == one.channel), -1)
    if at < 0 or found[at].name != one.name:
        return at, None
    before, first, last = found[at].fields, one.fields[ranged.first], one.fields[ranged.last]
    end = before[ranged.last] + 1
    together = {**one.fields, ranged.first: before[ranged.first], ranged.last: 0}
    if together != {**before, ranged.last: 0} or first != (end % ranged.round_at if ranged.round_at else end):
        return at, None
    return at, replace(one, fields={**together, ranged.last: end + last - first})


def _in_order(relation: Relation, came: tuple[Output, ...]) -> Difference | None:
    for rule in relation.before:
        for then, first in _pairs(rule, came):
            return f"{first} must come before {then} [{rule.clause}]"
    return None


def _pairs(rule: Before, came: tuple[Output, ...]) -> Iterator[tuple[Output, Output]]:
    """Those that stand in the wrong order."""
    for place, then in enumerate(came):
        if then.name == rule.then:
            for first in came[place + 1 :]:
                if first.name == rule.first and first.fields.get(rule.field) == then.fields.get(rule.field):
                    yield then, first


def answered_values(relation: Relation, event: Event, binding: Binding) -> Event:
    """The event as the implementation is to hear it: with the values that it has chosen itself."""
    return _translate(relation, event, binding, _answered_value)


def table_values(relation: Relation, event: Event, binding: Binding) -> Event:
    """The event of the wire as the table has it: with the values of the table for those that the implementation has
    chosen itself; a value that it never chose is one that the table never chose either."""
    return _translate(relation, event, binding, _table_value)


def _translate(
    relation: Relation, event: Event, binding: Binding, translate: Callable[[Any, Mapping[Any, Any]], Any]
) -> Event:
    name = name_of(type(event))
    if name not in relation.chosen_in:
        return event
    for choice in relation.chosen:
        for kind, field in choice.fields:
            if kind != name:
                continue
            carrier = {one: getattr(event, one) for one in event.__struct_fields__}
            values = binding.get(choice.scope_of(carrier), {})
            outer, _, inner = field.partition(".")
            value = carrier[outer]
            if inner:
                each = (replace(one, **{inner: translate(getattr(one, inner), values)}) for one in value)
                event = replace(event, **{outer: tuple(each)})
            else:
                event = replace(event, **{field: translate(value, values)})
    return event


def _answered_value(value: Any, values: Mapping[Any, Any]) -> Any:
    """What the implementation calls it; one that it has not chosen is none of those that it has."""
    other = values.get(value, value)
    if value not in values and other in values.values():
        other = max(values.values()) + 1 if isinstance(other, int) else f"{other}-unknown"
    return other


def _table_value(value: Any, values: Mapping[Any, Any]) -> Any:
    known = next((ours for ours, theirs in values.items() if theirs == value), value)
    if known == value and value in values and values[value] != value:
        known = max(values) + 1 if isinstance(value, int) else f"{value}-unknown"
    return known

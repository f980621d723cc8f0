"""Interface: the JSON lines between the kit and an implementation, made from the declarations of a machine.

    -> {"init": {...}, "interface": 1, "machine": "protocol/machine", "now_ns": 0, "n": 1}
    <- {"effects": [{"effect": "set_timer", "timer": "retry", "deadline_ns": 1000000}]}
    -> {"event": {"type": "granted", ...}, "now_ns": 5, "n": 2}
    -> {"timer": "retry", "now_ns": 1000000, "n": 3}

Messages are arrays on the wire and records hold maps; here everything is an object with the names of the fields.  For
each type of a declaration there is a *twin*: a Struct with the same fields that reads and writes such objects, and that
`msgspec` makes a JSON Schema of.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from statemachines import kernel
from statemachines.testing.conformance.relation import Output, has_name, key_field, make_plain

INTERFACE: Final = 1
"""The version of the lines; an implementation may answer `init` with the one that it speaks."""


EFFECTS_MAX: Final = 4_096
"""An answer has no more effects."""

KNOWN_MAX: Final = 10_000
"""So many events and effects are not put together again."""


class InterfaceError(kernel.GaplessError):
    """An answer is no line of the interface: what is wrong with it, what was expected, and what to do."""


def twin_of(kind: Any, tagged: bool = False) -> type[msgspec.Struct]:
    """A Struct with the fields of `kind` that is an object in JSON; `tagged`: with its name as `type`."""
    return _twin_of(kind, tagged)


@cache
def _twin_of(kind: Hashable, tagged: bool) -> type[msgspec.Struct]:
    assert isinstance(kind, type)
    hints = get_type_hints(kind, include_extras=True)
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        hint = _twin_hint(hints[field.name])
        if field.required:
            fields.append((field.name, hint))
        else:
            fields.append((field.name, hint, msgspec.field(default_factory=_default_of(field, hint))))
    tag: dict[str, Any] = {"tag": kernel.name_of(kind), "tag_field": "type"} if tagged else {}
    return msgspec.defstruct(
        kind.__name__,
        fields,
        forbid_unknown_fields=True,
        frozen=True,
        kw_only=True,
        namespace={"__doc__": kind.__doc__},
        **tag,
    )


def _default_of(field: msgspec.structs.FieldInfo, hint: Any) -> Callable[[], Any]:
    """What gives the default of a field, as its twin has it."""
    if field.default is msgspec.NODEFAULT:
        made: Callable[[], Any] = field.default_factory
        return made
    value = make_plain(field.default)
    return lambda: msgspec.convert(value, hint)


def _twin_hint(hint: Any) -> Any:
    """The hint of a field of a twin: Structs become twins, maps become objects or lists of pairs."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(_twin_hint(args[0]), *args[1:])]
    if origin is kernel.Map or hint is kernel.Map:
        key, value = (_twin_hint(one) for one in args or (str, Any))
        return dict[str, value] if key is str else list[tuple[key, value]]  # type: ignore[valid-type]
    if origin in (Union, types.UnionType):
        kinds = [one for one in args if isinstance(one, type) and issubclass(one, msgspec.Struct)]
        return Union[tuple(twin_of(one, len(kinds) > 1) if one in kinds else _twin_hint(one) for one in args)]  # noqa: UP007
    if origin is tuple:
        return tuple[tuple(one if one is ... else _twin_hint(one) for one in args)]  # type: ignore[misc]
    if origin is list:
        return list[_twin_hint(args[0])]  # type: ignore[misc]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return twin_of(hint, has_name(hint))
    return hint


class Alphabet(msgspec.Struct, frozen=True):
    """The types that pass between the kit and an implementation: `takes` are its inputs, timers excluded; `sends`,
    `asks` and `tells` are what its effects carry."""

    takes: tuple[type[Any], ...]
    sends: tuple[type[Any], ...]
    asks: tuple[type[Any], ...]
    tells: tuple[type[Any], ...]


def alphabet_of(fsm: kernel.Fsm[Any]) -> Alphabet:
    """The alphabet of a machine of which nothing else is known: everything that its modules declare may be said."""
    packages = {
        member.record_type.__module__.rpartition(".")[0] or member.record_type.__module__ for member in fsm.family()
    }

    def declared(base: type[Any]) -> Iterable[type[Any]]:
        for kind in base.__subclasses__():
            yield kind
            yield from declared(kind)

    def ours(base: type[Any], but: tuple[type[Any], ...] = ()) -> tuple[type[Any], ...]:
        found = {
            kernel.name_of(kind): kind
            for kind in declared(base)
            if any(f"{kind.__module__}.".startswith(f"{one}.") for one in packages) and not issubclass(kind, but or ())
        }
        return tuple(found[name] for name in sorted(found))

    takes = tuple(kind for kind in fsm.alphabet if not issubclass(kind, kernel.TimerFired))
    return Alphabet(
        takes,
        ours(kernel.Message),
        ours(kernel.Request),
        ours(kernel.Event, (kernel.Message, kernel.Call, kernel.Answer, kernel.TimerFired)),
    )


class Interface:
    """The lines of one machine.  `given`: the fields of the record that `init` carries."""

    def __init__(self, fsm: kernel.Fsm[Any], alphabet: Alphabet, given: tuple[str, ...]) -> None:
        self.fsm = fsm
        self.alphabet = alphabet
        self.given = given
        self.init = self._init_type()
        self.effect = _union(_effect_types(alphabet))
        self.answer: Any = msgspec.defstruct(
            "Answer",
            [
                ("effects", list[self.effect]),  # type: ignore[name-defined]
                ("interface", int, INTERFACE),
                ("n", int | None, None),
                ("state", Any, None),
            ],
            forbid_unknown_fields=True,
            namespace={"__doc__": "One line for each input: what the implementation does, in order."},
        )
        self._keys = {kernel.name_of(kind): key_field(kind) for kind in alphabet.tells}
        self._decoder = msgspec.json.Decoder(self.answer)
        self._lines: dict[Any, bytes] = {}
        self._outputs: dict[Any, Output] = {}
        self._given: dict[int, tuple[Any, bytes]] = {}

    def _init_type(self) -> type[msgspec.Struct]:
        hints = get_type_hints(self.fsm.record_type, include_extras=True)
        return msgspec.defstruct(
            "Init",
            [(field, _twin_hint(hints[field])) for field in self.given],
            namespace={"__doc__": "What an implementation begins with."},
        )

    # -- to the implementation ----------------------------------------------------------------------------------

    def init_line(self, record: Any, now_ns: int, number: int) -> bytes:
        """The line that begins an instance."""
        known = self._given.get(id(record))
        if known is None or known[0] is not record:
            given = msgspec.json.encode({field: make_plain(getattr(record, field)) for field in self.given})
            machine = msgspec.json.encode(self.fsm.full_name)
            text = b'{"init":%b,"interface":%d,"machine":%b' % (given, INTERFACE, machine)
            known = self._given[id(record)] = (record, text)
        return b'%b,"now_ns":%d,"n":%d}' % (known[1], now_ns, number)

    def event_line(self, event: kernel.Event, now_ns: int, number: int) -> bytes:
        """The line of an event."""
        text = self._lines.get(event)
        if text is None:
            if len(self._lines) == KNOWN_MAX:
                self._lines.clear()
            text = self._lines[event] = msgspec.json.encode(make_plain(event))
        return b'{"event":%b,"now_ns":%d,"n":%d}' % (text, now_ns, number)

    def timer_line(self, timer: str, now_ns: int, number: int) -> bytes:
        """The line of a timer that is due; `timer` as the implementation has called it."""
        return b'{"timer":%b,"now_ns":%d,"n":%d}' % (msgspec.json.encode(timer), now_ns, number)

    # -- from it ------------------------------------------------------------------------------------------------

    def effects(self, line: bytes, number: int) -> list[Any]:
        """The effects of an answer to line `number`.  Raises `InterfaceError` for a line that is no answer to it."""
        try:
            answer: Any = self._decoder.decode(line)
        except msgspec.ValidationError as error:
            raise InterfaceError(self._about(line, str(error))) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            shown = quote_line(line)
            rule = f"answers with no JSON ({error}): {shown}; an answer is one line of it, and logs go to stderr"
            raise InterfaceError(rule) from None
        if answer.interface != INTERFACE:
            raise InterfaceError(_of_version(answer.interface))
        if answer.n is not None and answer.n != number:
            rule = f"says that it answers line {answer.n}; each line is answered once, before the next one comes"
            raise InterfaceError(rule)
        if len(answer.effects) > EFFECTS_MAX:
            raise InterfaceError(f"answers with {len(answer.effects):,} effects; an answer has {EFFECTS_MAX:,} at most")
        return list(answer.effects)

    @staticmethod
    def _about(line: bytes, error: str) -> str:
        """What is wrong with a line of JSON: an object of another version is first of all that."""
        try:
            found = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found = None
        version = found.get("interface", INTERFACE) if isinstance(found, dict) else INTERFACE
        if version != INTERFACE:
            return _of_version(version)
        shown = quote_line(line)
        return f"does not keep to the interface: {error}; `gapless schema ROLE` prints what an answer may hold: {shown}"

    def output(self, effect: Any) -> Output:
        """What is seen of an effect of an answer that sends, asks or tells."""
        try:
            known = self._outputs.get(effect)
        except TypeError:  # it holds an object or a list
            return self._output(effect)
        if known is None:
            if len(self._outputs) == KNOWN_MAX:
                self._outputs.clear()
            known = self._outputs[effect] = self._output(effect)
        return known

    def _output(self, effect: Any) -> Output:
        name = type(effect).__name__
        carried = effect.message if name == "Send" else effect.request if name == "Ask" else effect.event
        fields = msgspec.to_builtins(carried)
        kind = fields.pop("type")
        if name == "Tell":
            key = self._keys[kind]
            return Output(("tell", str(fields[key]) if key else ""), kind, "", fields)
        to = effect.to if name == "Send" else effect.service
        return Output((name.lower(), to), kind, to, fields)


def _of_version(version: Any) -> str:
    rule = f"and this kit speaks {INTERFACE}: install the gapless that it is for"
    return f"speaks version {version} of the interface, {rule}"


def quote_line(line: bytes) -> str:
    """A line as an error shows it: its beginning."""
    text = line[:80].decode(errors="backslashreplace").rstrip("\n")
    return repr(text) + (" ..." if len(line) > 81 else "")


class SetTimerEffect(msgspec.Struct, tag_field="effect", tag="set_timer", frozen=True, forbid_unknown_fields=True):
    """Set the timer of this name, or set it anew; when `deadline_ns` is reached, the kit says so.  `authority`: of the
    timers that are due at one moment it comes first."""

    timer: str
    deadline_ns: int
    authority: bool = False


class CancelTimerEffect(
    msgspec.Struct, tag_field="effect", tag="cancel_timer", frozen=True, forbid_unknown_fields=True
):
    """Take the timer of this name back; it may be due once all the same."""

    timer: str


class StopEffect(msgspec.Struct, tag_field="effect", tag="stop", frozen=True, forbid_unknown_fields=True):
    """The instance has ended: the next line is another `init`."""


@cache
def _carrier(name: str, document: str, fields: tuple[tuple[str, Any], ...]) -> Any:
    return msgspec.defstruct(
        name,
        list(fields),
        tag_field="effect",
        tag=name.lower(),
        frozen=True,
        forbid_unknown_fields=True,
        namespace={"__doc__": document},
    )


def _union(kinds: Iterable[Any]) -> Any:
    return Union[tuple(kinds)]  # noqa: UP007


def _twins(kinds: tuple[type[Any], ...]) -> Any:
    return _union(twin_of(kind, True) for kind in kinds)


CARRIERS: Final = {
    "Send": ("Send a message to a party.", "to", "message"),
    "Ask": ("Ask a service.", "service", "request"),
    "Tell": ("Tell the application.", "", "event"),
}
"""Effect that carries something -> what it does, whom it names, and what it carries."""


def _effect_types(alphabet: Alphabet) -> Iterable[Any]:
    carried = (alphabet.sends, alphabet.asks, alphabet.tells)
    for (name, (document, to, field)), kinds in zip(CARRIERS.items(), carried, strict=True):
        if kinds:
            yield _carrier(name, document, (*(((to, str),) if to else ()), (field, _twins(kinds))))
    yield from (SetTimerEffect, CancelTimerEffect, StopEffect)


# -- schema -----------------------------------------------------------------------------------------------------------


def schema(interfaces: dict[str, Interface]) -> dict[str, Any]:
    """The JSON Schema of the lines of these roles: for each the schemas of `init`, `event`, `timer` and `answer`, and
    its own definitions, since two roles may have different types of one name."""
    kinds = ("init", "event", "timer", "answer")
    roles = {}
    for role, interface in interfaces.items():
        types, place = list(_line_types(interface)), f"#/roles/{role}/$defs/{{name}}"
        found, definitions = msgspec.json.schema_components(types, ref_template=place)
        roles[role] = {**dict(zip(kinds, found, strict=True)), "$defs": definitions}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "interface": INTERFACE, "roles": roles}


def _line_types(interface: Interface) -> Iterable[Any]:
    """The types of all lines."""
    shared: list[Any] = [("now_ns", int), ("n", int)]
    begin: list[Any] = [("init", interface.init), ("interface", int), ("machine", Literal[interface.fsm.full_name])]
    yield msgspec.defstruct("InitLine", [*begin, *shared])
    yield msgspec.defstruct("EventLine", [("event", _twins(interface.alphabet.takes)), *shared])
    yield msgspec.defstruct("TimerLine", [("timer", str), *shared])
    yield interface.answer

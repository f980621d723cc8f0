"""ITF: traces in the Informal Trace Format, the JSON in which Quint and Apalache write their runs.

    {"#meta": {...}, "vars": ["x"], "states": [{"#meta": {"index": 0}, "x": {"#bigint": "1"}}], "loop": 0}

A state gives each variable a value: text, truth, `{"#bigint": "7"}`, a list, a record, `{"#tup": []}`, `{"#set": []}`,
`{"#map": [[key, value]]}`, or `{"tag": "Some", "value": ...}` of a sum type.  `loop` is the state that follows the last
one, in a run without end.  Source: Apalache, ADR-015, revision of 2023-09-14; numbers of JSON are read, too.

`canonical` brings equal values to one form: sets and maps are sorted, a tuple is a list, and a variant without a value
is its tag.  So values of traces compare with `encode_itf` of our own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec

from statemachines import __version__
from statemachines.input_file import decode_input, read_input
from statemachines.whole_file import write_whole

Value = Any
"""A value as JSON has it: bool, str, list, or dict."""

META: Final = "#meta"
BYTES_MAX: Final = 16 * 2**20
STATES_MAX: Final = 10_000
DEPTH_MAX: Final = 64
VARS_MAX: Final = 1_000
_BIGINT: Final = re.compile(r"-?[0-9]{1,1000}")


class ItfTrace(msgspec.Struct, frozen=True):
    """A run: `states` give each of `vars` a value; `loop`: the state that follows the last one (None: none does)."""

    vars: tuple[str, ...]
    states: tuple[dict[str, Value], ...]
    loop: int | None = None

    @property
    def steps(self) -> tuple[dict[str, Value], ...]:
        """The states in a row; a loop once more from its first state."""
        return self.states if self.loop is None else (*self.states, self.states[self.loop])


def read_itf(path: Path) -> ItfTrace:
    """The trace in a file; raises `ConfigurationError` for a file that holds none, or one that is too large."""
    data = read_input(path, "ITF trace", BYTES_MAX)
    return decode_input(path, "ITF trace", "an ITF trace", data, _decode)


def write_itf(
    path: Path, variables: tuple[str, ...], states: list[dict[str, Value]], about: str, actions: list[str]
) -> None:
    """Write a run; `actions`: what led to each state ("" to the first one)."""
    numbered = [
        {META: {"index": number, "action": action}, **state}
        for number, (state, action) in enumerate(zip(states, actions, strict=True))
    ]
    meta = {"format": "ITF", "source": f"gapless {__version__}", "description": about}
    write_whole(path, msgspec.json.encode({META: meta, "vars": variables, "states": numbered}) + b"\n")


def encode_itf(value: Any) -> Value:
    """A value of a record in canonical form."""
    match value:
        case Enum():
            return encode_itf(value.value)
        case bool() | str():
            return value
        case int():
            return {"#bigint": str(value)}
        case None:
            return []
        case msgspec.Struct():
            return {name: encode_itf(getattr(value, name)) for name in value.__struct_fields__}
        case list() | tuple():
            return [encode_itf(one) for one in value]
        case set() | frozenset():
            return {"#set": sorted(map(encode_itf, value), key=_order)}
        case Mapping():
            pairs = ([encode_itf(key), encode_itf(one)] for key, one in value.items())
            return {"#map": sorted(pairs, key=_order)}
    return {"#unserializable": value.hex() if isinstance(value, bytes) else str(value)}


def make_canonical(value: Any, depth: int = 0) -> Value:
    """A value that was read, in canonical form; raises ValueError for one that the format does not have."""
    if depth > DEPTH_MAX:
        raise ValueError(f"a value is nested more than {DEPTH_MAX} deep")

    def inner(some: list[Any]) -> list[Value]:
        return [make_canonical(one, depth + 1) for one in some]

    match value:
        case bool() | str():
            return value
        case int():
            return {"#bigint": str(value)}
        case list():
            return inner(value)
        case {"#bigint": str(digits)} if _BIGINT.fullmatch(digits):
            return {"#bigint": str(int(digits))}
        case {"#tup": list(parts)}:
            return inner(parts)
        case {"#set": list(parts)}:
            members = {_order(one): one for one in inner(parts)}
            return {"#set": [members[key] for key in sorted(members)]}
        case {"#map": list(pairs)} if all(isinstance(one, list) and len(one) == 2 for one in pairs):
            return {"#map": sorted(inner(pairs), key=_order)}
        case {"#unserializable": str()}:
            return value
        case {"tag": str(tag), "value": held, **rest} if not rest:
            (inside,) = inner([held])
            return tag if inside in ([], {}) else {"tag": tag, "value": inside}
        case dict() if not any(name.startswith("#") for name in value):
            return dict(zip(value, inner(list(value.values())), strict=True))
    raise ValueError(f"{json.dumps(value)[:80]} is no value of the format")


def has_part(whole: Value, part: Value) -> bool:
    """Whether a value is `part`, where records in `part` may leave fields out."""
    if isinstance(whole, dict) and isinstance(part, dict) and not any(name.startswith("#") for name in part):
        return all(name in whole and has_part(whole[name], one) for name, one in part.items())
    return _order(whole) == _order(part)


def entries_of(value: Value) -> dict[str, Value] | None:
    """What a map from texts, or a record, has by its keys; None for another value."""
    if not isinstance(value, dict):
        return None
    pairs = value.get("#map")
    if pairs is None:
        return None if any(name.startswith("#") for name in value) else value
    return dict(pairs) if all(isinstance(key, str) for key, _ in pairs) else None


def _order(value: Value) -> str:
    return json.dumps(value, sort_keys=True)


def _decode(data: bytes) -> ItfTrace:
    found = msgspec.json.decode(data)
    if not isinstance(found, dict) or not {"vars", "states"} <= set(found):
        raise ValueError('it must be an object with "vars" and "states"')
    variables, states, loop = found["vars"], found["states"], found.get("loop")
    if not isinstance(variables, list) or not all(isinstance(one, str) for one in variables) or not variables:
        raise ValueError('"vars" must be a list of names')
    if len(set(variables)) != len(variables) or len(variables) > VARS_MAX:
        raise ValueError(f'"vars" must be different names, {VARS_MAX} at most')
    if not isinstance(states, list) or not 1 <= len(states) <= STATES_MAX:
        raise ValueError(f'"states" must be a list of 1 to {STATES_MAX} states')
    if loop is not None and (type(loop) is not int or not 0 <= loop < len(states)):
        raise ValueError(f'"loop" must be the number of a state, 0 to {len(states) - 1}')
    return ItfTrace(
        tuple(variables), tuple(_decode_state(number, one, variables) for number, one in enumerate(states)), loop
    )


def _decode_state(number: int, state: Any, variables: list[str]) -> dict[str, Value]:
    if not isinstance(state, dict):
        raise ValueError(f"state {number} must be an object")
    if missing := [name for name in variables if name not in state]:
        raise ValueError(f"state {number} gives no value to {missing[0]!r}")
    if unknown := [name for name in state if name not in variables and name != META]:
        raise ValueError(f"state {number} has a variable {unknown[0]!r} that is not among the vars")
    try:
        return {name: make_canonical(state[name]) for name in variables}
    except ValueError as error:
        raise ValueError(f"state {number}: {error}") from None

"""ScriptFile: the inputs of a run as lines of JSON, to be kept, read and played again.

{"begin": 0}
{"feed": {"type": "granted", "token": 1}}
{"wait_ns": 1000000000}
{"late": "retry"}
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from statemachines.kernel import ConfigurationError, Map, name_of
from statemachines.kernel.pmap import dec_hook
from statemachines.testing.conformance.conformance_run import Begin, FedInput, Late, Move, Wait
from statemachines.testing.conformance.interface import twin_of
from statemachines.testing.conformance.json_values import make_plain
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.whole_file import write_whole


def line_of(move: Move) -> dict[str, Any]:
    """A move as its line has it."""
    match move:
        case Begin(start):
            return {"begin": start}
        case FedInput(event):
            return {"feed": make_plain(event)}
        case Wait(ns, is_turned):
            return {"wait_turned_ns" if is_turned else "wait_ns": ns}
    return {"late": move.timer}


def save(path: Path, moves: Iterable[Move]) -> None:
    """Write the moves; the folder is made.  Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, b"".join(msgspec.json.encode(line_of(move)) + b"\n" for move in moves))


def load(path: Path, role: ConformanceRole) -> tuple[Move, ...]:
    """The moves in a file.  Raises `ConfigurationError`, with the number of the line, for what is none."""
    moves: list[Move] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            moves.append(_move(msgspec.json.decode(line), role))
        except (msgspec.MsgspecError, ValueError) as error:
            rule = f"is no move of {role.fsm.full_name}: {error}; a line is begin, feed, wait_ns or late"
            raise ConfigurationError(f"{path}, line {number}", line[:80].decode(errors="replace"), rule) from None
    if not moves or not isinstance(moves[0], Begin):
        raise ConfigurationError("script", str(path), 'must begin with a line {"begin": 0}')
    return tuple(moves)


def _move(line: Any, role: ConformanceRole) -> Move:
    if not isinstance(line, dict) or len(line) != 1:
        raise ValueError("it is no object with one key")
    (what, value), *_ = line.items()
    match what, value:
        case "begin", int(start) if 0 <= start < len(role.starts):
            return Begin(start)
        case ("wait_ns" | "wait_turned_ns") as kind, int(ns) if ns >= 0:
            return Wait(ns, kind != "wait_ns")
        case "late", str(timer) if timer.partition(" ")[0] in role.fsm.timer_registry():
            return Late(timer)
        case "feed", {"type": str(name)}:
            kinds = {name_of(kind): kind for kind in role.interface.alphabet.takes}
            if name not in kinds:
                raise ValueError(f"no event is called {name!r}; there are: {', '.join(kinds)}")
            return FedInput(event_from(kinds[name], value))
    raise ValueError(f"{what!r} cannot be {value!r}")


def event_from(kind: type[Any], value: dict[str, Any]) -> Any:
    """The event that an object is.  Raises `msgspec.ValidationError` for fields that it has not."""
    msgspec.convert(value, twin_of(kind, True))
    return value_from(kind, {field: one for field, one in value.items() if field != "type"})


def value_from(hint: Any, value: Any) -> Any:
    """The value of this type that JSON has so (`json_values.make_plain`)."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Map:
        key, one = args
        pairs = value.items() if isinstance(value, dict) else value
        return Map([(value_from(key, name), value_from(one, item)) for name, item in pairs])
    if origin is Annotated:
        return value_from(args[0], value)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and isinstance(value, dict):
        hints = get_type_hints(hint, include_extras=True)
        return hint(**{field: value_from(hints[field], one) for field, one in value.items() if field != "type"})
    if origin is tuple and isinstance(value, list):
        each = [args[0]] * len(value) if args[-1] is ... else args
        return tuple(value_from(one, item) for one, item in zip(each, value, strict=True))
    if origin in (Union, types.UnionType) and isinstance(value, dict):
        kinds = {name_of(one): one for one in args if isinstance(one, type) and issubclass(one, msgspec.Struct)}
        return value_from(kinds[value["type"]] if "type" in value else next(iter(kinds.values())), value)
    return msgspec.convert(value, hint, dec_hook=dec_hook)

"""Input files: a file that somebody names is read once, within bounds, and decoded here.

    data = read_input(path, "scenario")
    plain = decode_input(path, "scenario", "a scenario", data, msgspec.toml.decode)
    value = convert_input(plain, Scenario)

Whatever is wrong with it is a `ConfigurationError` that names the file, what was expected and where it fails.  A pipe
(`/dev/stdin`, `<(...)`) serves as a file does.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.registry import make_unknown_error

BYTES_MAX: Final = 64 * 2**20
"""Bytes of a file that is decoded as a whole."""

STDIN: Final = "must be a file; for the standard input give /dev/stdin"

REFUSED: Final = re.compile(
    r"(?:Object contains unknown field `([^`]*)`|Invalid enum value '([^']*)')(?: - at `\$(.*)`)?"
)
"""A key, or one of a few values, that the type does not have, and the path to it: ".members", ".rows[...]"."""

MISTYPED: Final = re.compile(r"E(xpected .*) - at `\$\.?(.+)`")
"""What is expected, and the path to what is not so; msgspec writes a key of a mapping as "[...]"."""

STEP: Final = re.compile(r"[^.\[\]]+|\[[^\]]*\]")

T = TypeVar("T")


def read_input(path: Path, key: str, bytes_max: int = BYTES_MAX) -> bytes:
    """The bytes of a file; raises `ConfigurationError` where it cannot be read, or has more than `bytes_max`."""
    if str(path) == "-":
        raise ConfigurationError(key, "-", STDIN)
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise ConfigurationError(key, str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # a null character in its name
        raise ConfigurationError(key, str(path), f"cannot be the name of a file: {error}") from error
    if len(data) > bytes_max:
        raise ConfigurationError(key, str(path), f"has more than {bytes_max} bytes")
    return data


def decode_input(path: Path, key: str, kind: str, data: bytes, decode: Callable[[bytes], T]) -> T:
    """What `decode` makes of the bytes of a file; `kind`: what it should be ("a scenario").

    Raises `ConfigurationError` where they are not UTF-8, or not what `decode` takes.
    """
    try:
        data.decode()
        return decode(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        rule = f"is not {kind}: it must be UTF-8, and line {line} has the byte 0x{data[error.start]:02x}"
        raise ConfigurationError(key, str(path), rule) from error
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise ConfigurationError(key, str(path), f"is not {kind}: {error}") from error


def read_toml(path: Path, key: str, kind: str, of: type[T]) -> T:
    """The value of this type that a TOML file holds; raises `ConfigurationError` where it holds none."""
    return decode_input(
        path, key, kind, read_input(path, key), lambda data: convert_input(msgspec.toml.decode(data), of)
    )


def convert_input(plain: Any, kind: type[T]) -> T:
    """A value of this type, of what a file says.

    Raises `msgspec.ValidationError`: of a key or value that is not there it says what was meant perhaps, and what
    there is; of a value of another type its key, the value, and what is expected.
    """
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        match = REFUSED.fullmatch(str(error))
        if match is None:
            raise msgspec.ValidationError(_name_mistyped(plain, kind, str(error))) from error
        key, value, path = match.groups()
        place = (path or "").removeprefix(".")
        what = place or "value" if key is None else f"key {key!r} in {place}" if place else f"key {key!r}"
        rule = make_unknown_error("", key or value, _list_known(kind, place)).rule
        raise msgspec.ValidationError(f"{what} is {rule}" if key else f"{what} = {value!r} is {rule}") from error


def _list_known(kind: Any, place: str) -> list[str]:
    """The keys of the type at this place ("deliveries", "rows[...].kind"), or its values where they are few."""
    known: list[Any] = []
    for one in _list_types(kind, place):
        if isinstance(one, msgspec.inspect.StructType):
            known += [field.encode_name for field in one.fields]
        elif isinstance(one, msgspec.inspect.EnumType):
            known += [value.value for value in one.cls]
        elif isinstance(one, msgspec.inspect.LiteralType):
            known += one.values
    return [str(one) for one in known]


def _name_mistyped(plain: Any, kind: Any, said: str) -> str:
    """What msgspec says of a value of another type, with the keys that it leaves out, and the value."""
    match = MISTYPED.fullmatch(said)
    if match is None:
        return said
    expected, place = f"e{match[1]}", match[2]
    whole = found = copy.deepcopy(plain)
    named = ""
    for step in STEP.findall(place):
        if step == "[...]":
            key = _find_refused(whole, kind, said, found)
            if key is None:
                return said
        else:
            key = int(step[1:-1]) if step.startswith("[") else step
        named += f"[{key}]" if isinstance(found, list) else f".{key}"
        found = found[key]
    tuples = [one for one in _list_types(kind, place) if isinstance(one, msgspec.inspect.TupleType)]
    if tuples:
        parts = (type(one).__name__.removesuffix("Type").lower() for one in tuples[0].item_types)
        expected = f"expected [{', '.join(parts)}]"
    return f"{named.removeprefix('.')} = {found!r:.60}: {expected}"


def _find_refused(whole: Any, kind: Any, said: str, mapping: dict[Any, Any]) -> Any:
    """The key of a mapping within `whole` of which msgspec says so; the others are taken out."""
    for key, value in list(mapping.items()):
        mapping.clear()
        mapping[key] = value
        try:
            msgspec.convert(whole, kind)
        except msgspec.ValidationError as error:
            if str(error) == said:
                return key
    return None


def _list_types(kind: Any, place: str) -> list[msgspec.inspect.Type]:
    """The types that a value at this place of the type may have."""
    found = _list_options(msgspec.inspect.type_info(kind))
    for step in STEP.findall(place):
        found = [option for one in found for inner in _list_inner(one, step) for option in _list_options(inner)]
    return found


def _list_options(info: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    """The types of which a value has one."""
    return list(info.types) if isinstance(info, msgspec.inspect.UnionType) else [info]


def _list_inner(info: msgspec.inspect.Type, step: str) -> list[msgspec.inspect.Type]:
    """The types of what stands at a field, or (`[...]`) at any key or index."""
    if isinstance(info, msgspec.inspect.StructType):
        return [field.type for field in info.fields if field.encode_name == step]
    if isinstance(info, msgspec.inspect.DictType):
        return [info.value_type]
    return [info.item_type] if isinstance(info, msgspec.inspect.VarTupleType | msgspec.inspect.ListType) else []

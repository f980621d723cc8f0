"""Input files: a file that somebody names is read once, within bounds, and decoded here.

    data = read_input(path, "scenario")
    plain = decode_input(path, "scenario", "a scenario", data, msgspec.toml.decode)

Whatever is wrong with it is a `ConfigurationError` that names the file, what was expected and where it fails.  A pipe
(`/dev/stdin`, `<(...)`) serves as a file does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from statemachines.kernel import ConfigurationError

BYTES_MAX: Final = 64 * 2**20
"""Bytes of a file that is decoded as a whole."""

STDIN: Final = "must be a file; for the standard input give /dev/stdin"

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

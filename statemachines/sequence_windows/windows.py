"""Windows: sizes and times of both, as `parameters` say them (source: "Configuration for sequence windows").

    windows_of({"pub-window-size": "10 mb", "pub-window-time": "60 sec"})

Sizes are bytes, or k, m, g of 1024; times are seconds, or minutes.  What cannot be is refused by the name of its key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.sequence_windows.rotation import Window

S = 1_000_000_000
SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
SECONDS, MINUTES = ("", "s", "sec", "secs", "second", "seconds"), ("m", "min", "mins", "minute", "minutes")
TIME_UNITS = dict.fromkeys(SECONDS, S) | dict.fromkeys(MINUTES, 60 * S)
LARGEST = {"size": 1 << 50, "time": 366 * 24 * 3600 * S}
KEYS = ("pub-window-size", "pub-window-time", "sub-window-size", "sub-window-time")
_FORM = re.compile(r"\s*(\d{1,18})\s*([a-zA-Z]*)\s*\Z", re.ASCII)


class Windows(msgspec.Struct, frozen=True):
    """The window of publishers, and that of receivers."""

    publisher: Window = Window()
    subscriber: Window = Window()


def windows_of(parameters: Mapping[str, object]) -> Windows:
    """What the parameters say; a key has `-` or `_`, and what is not there is as it is by default.

    Raises `ConfigurationError` for a value that is no size or time, or too small, for a key that is there twice, and
    for one that is none of ours and speaks of windows.  Other keys are other people's.
    """
    given: dict[str, int] = {}
    for name, value in parameters.items():
        key = str(name).replace("_", "-")
        if key not in KEYS:
            if "window" in key:
                raise ConfigurationError(str(name), value, f"unknown; there are: {', '.join(KEYS)}")
            continue
        if key in given:
            raise ConfigurationError(str(name), value, "is there twice, with - and with _")
        given[key] = size_of(key, value) if key.endswith("size") else time_of(key, value)
    return Windows(_window("pub", given), _window("sub", given))


def size_of(key: str, value: object) -> int:
    """Bytes: `4194304`, `"4096 kb"`, `"4 mb"`."""
    return _amount(key, value, "size", SIZE_UNITS, "a size: a whole number, then b, kb, mb or gb (powers of 1024)")


def time_of(key: str, value: object) -> int:
    """Nanoseconds: of `60`, `"60 sec"`, `"1 m"`."""
    return _amount(key, value, "time", TIME_UNITS, "a time: a whole number, then sec or min (bare: seconds)")


def _amount(key: str, value: object, kind: str, units: Mapping[str, int], rule: str) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ConfigurationError(key, value, f"must be {rule}")
    found = _FORM.match(str(value))
    if found is None or found[2].lower() not in units:
        raise ConfigurationError(key, value, f"must be {rule}")
    amount = int(found[1]) * units[found[2].lower()]
    if amount > LARGEST[kind]:
        raise ConfigurationError(key, value, f"must be no more than {LARGEST[kind] // units['']} {_OF[kind]}")
    return amount


_OF = {"size": "bytes", "time": "seconds"}


def _window(side: str, given: Mapping[str, int]) -> Window:
    """The window of a side; what `Window` refuses is refused by the name of the key."""
    usual = Window()
    size, time = given.get(f"{side}-window-size", usual.size), given.get(f"{side}-window-time", usual.time_ns)
    try:
        return Window(size, time)
    except ConfigurationError as error:
        key = f"{side}-window-{'size' if error.key == 'size' else 'time'}"
        raise ConfigurationError(key, error.value, error.rule) from None

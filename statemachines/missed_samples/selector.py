"""Selector: which samples a query is about: the parameters `_sn`, `_max` and `_time` of its text.

    _sn=12..24    _sn=12..    _sn=..24    _sn=..    _sn=12        numbers of the wire, both ends included
    _max=3                                                        the newest three of each queue, in order
    _time=[now(-2s)..now()]    _time=]1700000000000000000..       times in nanoseconds since 1970, or around now

Parameters are apart by `;`; others than these are for others.  What cannot be read is refused: to take a malformed
range for no range is to send everything to whoever made a mistake (source: "The `ReliabilityCache`").
"""

from __future__ import annotations

import re

import msgspec

from statemachines.missed_samples.message import EVERY_SOURCE, Query
from statemachines.missed_samples.serial_number import is_range, wrap_number

TEXT_MAX = 4_096
"""Characters of all parameters of a query."""

_NUMBER = re.compile(r"[0-9]{1,20}\Z", re.ASCII)
_INSTANT = re.compile(r"now\((?:(?P<sign>[-+]?)(?P<count>[0-9]{1,12})(?P<unit>ns|us|u|ms|s|m|h|d|w))?\)\Z", re.ASCII)
_UNITS = {"ns": 1, "us": 10**3, "u": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9,
          "d": 86_400 * 10**9, "w": 604_800 * 10**9}  # fmt: skip
_TIME = re.compile(r"(?P<open>[\[\]])(?P<begin>[^\[\]]*?)\.\.(?P<end>[^\[\]]*)(?P<close>[\[\]])\Z", re.ASCII)


class Malformed(ValueError):
    """The parameters of a query cannot be read; the text says which, what was seen, and what is expected."""

    def __init__(self, what: str, seen: str, expected: str) -> None:
        super().__init__(f"{what}={seen[:64]!r}: expected {expected}")


class Selector(msgspec.Struct, frozen=True):
    """`first`, `last`: numbers of the wire (None: open); `newest`: so many (None: all); `begin_ns`, `end_ns`: times,
    both included (None: open)."""

    first: int | None = None
    last: int | None = None
    newest: int | None = None
    begin_ns: int | None = None
    end_ns: int | None = None


EVERYTHING = Selector()


def parse(text: str, width: int, now_ns: int) -> Selector:
    """The selector that a query's parameters say; `width` of the numbers in bits, `now_ns` since 1970, what `now()` is.

    Raises `Malformed` for what cannot be read.
    """
    if len(text) > TEXT_MAX:
        raise Malformed("parameters", text, f"at most {TEXT_MAX} characters")
    said: dict[str, str] = {}
    for part in text.split(";"):
        name, _, value = part.partition("=")
        if name in ("_sn", "_max", "_time"):
            if name in said:
                raise Malformed(name, value, "to be said once")
            said[name] = value
    first, last = _range(said["_sn"], width) if "_sn" in said else (None, None)
    begin, end = _times(said["_time"], now_ns) if "_time" in said else (None, None)
    newest = _number("_max", said["_max"], width) if "_max" in said else None
    return Selector(first, last, newest, begin, end)


def range_text(first: int, last: int | None = None) -> str:
    """The parameter for numbers of the wire from `first` to `last` (None: without end)."""
    return f"_sn={first}..{'' if last is None else last}"


def query_text(query: Query, width: int) -> str:
    """The parameters of a subscriber's query; on the wire a range of half of all numbers, or more, has no end."""
    if query.source == EVERY_SOURCE:
        return history_text(query.newest, query.age_ms)
    has_end = query.has_end and not (query.last - query.first) >> (width - 1)
    last = wrap_number(query.last, width) if has_end else None
    text = range_text(wrap_number(query.first, width), last)
    return f"{text};_max={query.newest}" if query.newest else text


def history_text(newest: int, age_ms: int) -> str:
    """The parameters for history: `newest` of each source (0: all), no older than `age_ms` (0: of any age)."""
    parts = [f"_max={newest}"] if newest else []
    parts += [f"_time=[now(-{age_ms}ms)..]"] if age_ms else []
    return ";".join(parts)


def _range(text: str, width: int) -> tuple[int | None, int | None]:
    begin, dots, end = text.partition("..")
    if not dots:
        number = _number("_sn", text, width)
        return number, number
    first = _number("_sn", begin, width, text) if begin else None
    last = _number("_sn", end, width, text) if end else None
    if first is not None and last is not None and not is_range(first, last, width):
        raise Malformed("_sn", text, "a range that does not end before it begins")
    return first, last


def _number(what: str, text: str, width: int, whole: str = "") -> int:
    if not _NUMBER.match(text) or int(text) >> width:
        raise Malformed(what, whole or text, f"numbers of {width} bits, as a..b, a.., ..b, .. or a")
    return int(text)


def _times(text: str, now_ns: int) -> tuple[int | None, int | None]:
    found = _TIME.match(text)
    if found is None:
        raise Malformed("_time", text, "[from..to], with ] or [ where an end is left out")
    begin, end = _instant(found["begin"], text, now_ns), _instant(found["end"], text, now_ns)
    if begin is not None and found["open"] == "]":
        begin += 1
    if end is not None and found["close"] == "[":
        end -= 1
    return begin, end


def _instant(text: str, whole: str, now_ns: int) -> int | None:
    if not text:
        return None
    if _NUMBER.match(text):
        return int(text)
    found = _INSTANT.match(text)
    if found is None:
        raise Malformed("_time", whole, "instants as now(), now(-2s) or nanoseconds since 1970")
    if found["count"] is None:
        return now_ns
    offset = int(found["count"]) * _UNITS[found["unit"]]
    return now_ns - offset if found["sign"] == "-" else now_ns + offset

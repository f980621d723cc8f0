"""Serial numbers: what a source counts, and what of it goes over the wire (source: "The `SourceInfo` metadata").

A source counts from 0 without end; the wire carries the lowest `width` bits.  Who reads one takes the number that is
nearest to what it knows of the source: half of all numbers are ahead, and half behind.  With 64 bits nothing comes
round in anybody's life, and a number is what the wire says.
"""

from __future__ import annotations

from statemachines.kernel import ConfigurationError

WIDTH_MAX = 64
"""Bits; numbers of this width do not come round."""


def check_width(width: int) -> None:
    """Raises `ConfigurationError` for a width that no wire has."""
    if not 2 <= width <= WIDTH_MAX:
        raise ConfigurationError("width", width, f"2 to {WIDTH_MAX} bits")


def wrap_number(number: int, width: int) -> int:
    """What the wire says of a number."""
    return number & ((1 << width) - 1)


def unwrap_number(sn: int, near: int, width: int) -> int:
    """The number nearest to `near` of which the wire says `sn`; one that is as far behind as ahead is behind."""
    if width == WIDTH_MAX:
        return sn
    half = 1 << (width - 1)
    ahead = wrap_number(sn - near, width)
    return near + (ahead if ahead < half else ahead - 2 * half)


def origin(width: int) -> int:
    """What a reader calls the wire's 0 where it meets a source: a turn above 0, so that what was before has numbers."""
    return 0 if width == WIDTH_MAX else 1 << width


def is_range(first: int, last: int, width: int) -> bool:
    """Whether `last` is `first` or comes after it."""
    return first <= last if width == WIDTH_MAX else wrap_number(last - first, width) < 1 << (width - 1)

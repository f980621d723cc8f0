"""TickClock: the time of a timed system: it passes in ticks, for all components that keep time.

    TickClock(4_000_000, drift={"server": Drift(4, 1)})     # a tick of 4 ms; in any 4 ticks 1 more or fewer

At a tick every component that keeps time is told, within one transition, how many ticks of its own clock have passed:
one, or, where its clock drifts, none or two.  One that has something to do first, such as a timer that is due, refuses,
and the tick does not happen.  So no timer is ever late, however long messages take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError, Event
from statemachines_spec.explorer.actor import EVERYBODY, Actor, Envelope, Passed, Reaction, Watch

WINDOW_MAX = 16


class Drift(msgspec.Struct, frozen=True):
    """In every `window` of ticks, and every part of one, a clock takes at most `most` ticks more or fewer than the
    common one.  `slow`, `fast`: which of the two it ever does."""

    window: int
    most: int
    slow: bool = True
    fast: bool = True

    def __str__(self) -> str:
        which = {(True, False): "fewer", (False, True): "more"}.get((self.slow, self.fast), "more or fewer")
        return f"in any {self.window} ticks at most {self.most} {which}"


def drift_of(clock_drift: float, *, slow: bool = True, fast: bool = True) -> Drift | None:
    """What a bound on the rate error of a clock, such as 0.25, allows; None where it is 0.

    Raises `ConfigurationError` for one that is no fraction with a denominator up to 16.
    """
    if not clock_drift:
        return None
    rate = Fraction(round(clock_drift * 1_000_000), 1_000_000)
    if rate.denominator > WINDOW_MAX:
        rule = f"must be a fraction with a denominator up to {WINDOW_MAX}, such as 0.25, to be explored"
        raise ConfigurationError("clock_drift", clock_drift, rule)
    return Drift(rate.denominator, rate.numerator, slow, fast)


class Tick(Event, frozen=True, gc=False):
    """Time passes, by one tick; the clocks in `slow` do not move, those in `fast` move twice."""

    slow: tuple[str, ...] = ()
    fast: tuple[str, ...] = ()


Sums = tuple[tuple[int, int], ...]
"""For each length up to `window - 1`: the largest and the least number of ticks that a clock has gained on the common
one over the last so many ticks, or fewer.  More of the past does not matter."""


class Hands(msgspec.Struct, frozen=True, gc=False):
    """What the clocks that drift have gained of late, in the order of their names."""

    gained: tuple[Sums, ...] = ()


class TickClock(Actor):
    """`tick_ns`: the length of a tick; `drift`: component -> how its clock drifts (all others do not)."""

    def __init__(self, tick_ns: int, *, drift: Mapping[str, Drift | None] | None = None, name: str = "clock") -> None:
        super().__init__(name)
        self.tick_ns = tick_ns
        self.drift = {node: one for node, one in sorted((drift or {}).items()) if one is not None}
        for node, one in self.drift.items():
            if not (1 <= one.most < one.window <= WINDOW_MAX and (one.slow or one.fast)):
                rule = f"needs 1 <= most < window <= {WINDOW_MAX}, and must be slow or fast"
                raise ConfigurationError(f"drift of {node}", str(one), rule)

    def initial(self) -> Hands:
        """No clock has gained anything."""
        return Hands(tuple(((0, 0),) * (one.window - 1) for one in self.drift.values()))

    def inputs(self, local: Hands) -> tuple[Any, ...]:
        each = [tuple(_allowed(one, sums)) for one, sums in zip(self.drift.values(), local.gained, strict=True)]
        return tuple(self._tick(gains) for gains in product(*each))

    def react(self, local: Hands, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        tick = envelope.event
        gains = [(node in tick.fast) - (node in tick.slow) for node in self.drift]
        gained = tuple(_later(sums, gain) for sums, gain in zip(local.gained, gains, strict=True))
        calls = [
            Envelope(self.name, node, Passed(1 + gain)) for node, gain in zip(self.drift, gains, strict=True) if gain
        ]
        return Reaction(Hands(gained), (), (*calls, Envelope(self.name, EVERYBODY, Passed(1))))

    def describe(self, local: Hands) -> str:
        each = zip(self.drift, local.gained, strict=True)
        words = [f"{node} {word}" for node, sums in each for word in _drifted(sums)]
        return "; ".join(words) or "no clock has drifted of late"

    def bounds(self) -> dict[str, str]:
        lines = {"tick": f"{self.tick_ns} ns"}
        lines.update({f"drift of {node}": str(one) for node, one in self.drift.items()})
        return lines

    def _tick(self, gains: tuple[int, ...]) -> Tick:
        slow, fast = (
            tuple(node for node, gain in zip(self.drift, gains, strict=True) if gain == one) for one in (-1, 1)
        )
        return Tick(slow, fast)


def _allowed(drift: Drift, sums: Sums) -> Iterator[int]:
    """By how much the clock may gain in the next tick: with it, every window still keeps the bound."""
    most, least = sums[-1]
    for gain in (0, -1, 1):
        if (gain < 0 and not drift.slow) or (gain > 0 and not drift.fast):
            continue
        if most + gain <= drift.most and least + gain >= -drift.most:
            yield gain


def _drifted(sums: Sums) -> Iterator[str]:
    """What a clock did of late, for people."""
    most, least = sums[-1]
    if most:
        yield f"has gained {most} of late"
    if least:
        yield f"has lost {-least} of late"


def _later(sums: Sums, gain: int) -> Sums:
    """The sums one tick later."""
    longer = ((max(0, most + gain), min(0, least + gain)) for most, least in ((0, 0), *sums[:-1]))
    return tuple(longer)

"""Times: moments for the steps of a run, so that every timer fires when it is due and no other is due before.

Difference constraints: "this moment lies at least so long after that one" (a negative time: at most so long before).
The earliest moments are the longest paths of the graph of constraints; a cycle that gains time cannot be satisfied, and
names the constraints that contradict each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec


class Bound(msgspec.Struct, frozen=True):
    """Moment `later` lies at least `least_ns` after moment `earlier`, because of `why`.  A `soft` one may be given up:
    what happens then does not matter to the run."""

    earlier: int
    later: int
    least_ns: int
    why: str
    soft: bool = False
    about: Hashable = None


class Moments(msgspec.Struct, frozen=True):
    """The earliest moments in nanoseconds, and the reasons of the soft bounds that were given up."""

    at_ns: tuple[int, ...]
    given_up: tuple[str, ...]


class Contradiction(Exception):
    """No moments keep all of `bounds`."""

    def __init__(self, bounds: Sequence[Bound]) -> None:
        self.bounds = tuple(bounds)
        super().__init__("; ".join(dict.fromkeys(bound.why for bound in bounds if bound.why)))


def moments(count: int, bounds: Sequence[Bound]) -> Moments:
    """Moments 0 to `count` - 1, none below 0.  Raises `Contradiction`."""
    kept = list(bounds)
    given_up: list[str] = []
    while True:
        found = _longest(count, kept)
        if isinstance(found, tuple):
            return Moments(found, tuple(dict.fromkeys(given_up)))
        soft = next((bound for bound in found if bound.soft), None)
        if soft is None:
            raise Contradiction(found)
        # One timer is one reason: whatever else it bounds goes with it.
        kept = [bound for bound in kept if not (bound.soft and bound.why == soft.why)]
        given_up.append(soft.why)


def _longest(count: int, bounds: Sequence[Bound]) -> tuple[int, ...] | list[Bound]:
    """The moments, or the bounds of a cycle that gains time."""
    at = [0] * count
    by: list[Bound | None] = [None] * count
    for _ in range(count + 1):
        moved = -1
        for bound in bounds:
            reached = at[bound.earlier] + bound.least_ns
            if reached > at[bound.later]:
                at[bound.later], by[bound.later], moved = reached, bound, bound.later
        if moved < 0:
            return tuple(at)
    return _cycle(by, moved)


def _cycle(by: Sequence[Bound | None], place: int) -> list[Bound]:
    """Back along what moved each moment last: after as many steps as there are moments one is on the cycle."""
    for _ in by:
        bound = by[place]
        assert bound is not None
        place = bound.earlier
    cycle: list[Bound] = []
    at = place
    while True:
        bound = by[at]
        assert bound is not None
        cycle.append(bound)
        at = bound.earlier
        if at == place:
            return cycle[::-1]

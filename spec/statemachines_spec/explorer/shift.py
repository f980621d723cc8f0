"""Shift: whether a component of a timed system tells the time only from what its `Timing` declares.

Its local states hold times relative to now, so it must come to the same whether all that is kept is a tick older, or
the clock a tick further.  Where it does not, a field holds a time and is no stamp, a constant is larger than said, or a
message carries a time; every state that is explored would then be a wrong one.  And nothing may come from a stamp that
is said to be dead.  Both are checked for every entry.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import GaplessError
from statemachines_spec.explorer.actor import Actor, Envelope, Passed, Reaction, Timing
from statemachines_spec.explorer.party import TimedParty, age_party


class TellsTime(GaplessError):
    """A step depends on what time it is, and not only on how much has passed: no verdict can be trusted."""


def check_shift(actor: Actor, before: Any, envelope: Envelope, reaction: Reaction | None) -> None:
    """Raises `TellsTime` where this entry of a timed component is not the same at another time."""
    if actor.timing is None or isinstance(envelope.event, Passed):
        return
    altered = actor.map_parties(before, _alter_dead)
    if altered != before:
        _compare(actor, envelope, before, reaction, _later(actor, actor.react(altered, envelope), 0), _DEAD)
    older = actor.map_parties(before, _grow_older)
    if older is before:
        return
    earlier = actor.react(older, envelope)
    at_tick = actor.at_time(actor.timing.now_ns + actor.timing.tick_ns)
    after = at_tick.react(actor.map_parties(before, _count_down), envelope)
    _compare(actor, envelope, before, earlier, _later(actor, after, 1), _LIVE)


_DEAD = "a stamp that is declared dead was read: name when it is live"
_LIVE = (
    "stepping a tick later is not the same as stepping with all that is kept a tick older: a field holds a time and is "
    "no stamp, or a larger constant is added to a stamp than it says, or a message carries a time"
)


def _alter_dead(timing: Timing, party: Any) -> Any:
    return replace(party, record=timing.alter_dead_times(party.record)) if isinstance(party, TimedParty) else party


def _grow_older(timing: Timing, party: Any) -> Any:
    return age_party(timing, party, 1, standing=True) if isinstance(party, TimedParty) else party


def _count_down(timing: Timing, party: Any) -> Any:
    """A tick later by its timers, and not by what its record holds."""
    return _grow_older(replace(timing, stamps=()), party)


def _later(actor: Actor, reaction: Reaction | None, ticks: int) -> Reaction | None:
    """What came of it, as seen so many ticks later."""
    if reaction is None:
        return None

    def move(timing: Timing, party: Any) -> Any:
        return replace(party, record=timing.move_stamps(party.record, ticks))

    return replace(reaction, local=actor.map_parties(reaction.local, move))


def _compare(
    actor: Actor, envelope: Envelope, before: Any, one: Reaction | None, other: Reaction | None, why: str
) -> None:  # fmt: skip
    if one == other:
        return
    at = f"{actor.name}: {envelope.event!r} in one local state ({actor.describe(before)})"
    raise TellsTime(f"{at}: {why}; {_difference(one, other)}")


def _difference(one: Any, other: Any, path: str = "") -> str:
    """The first thing in which the two differ."""
    if type(one) is type(other) and hasattr(one, "__struct_fields__"):
        for field in one.__struct_fields__:
            mine, theirs = getattr(one, field), getattr(other, field)
            if mine != theirs:
                return _difference(mine, theirs, f"{path}.{field}" if path else field)
    return f"{path or 'outcome'} is {one!r} and {other!r}"

"""Shift: whether a component of a timed system tells the time only from what its `Timing` declares.

Its local states hold times relative to now, so it must come to the same whether all that is kept is a tick older, or
the clock a tick further.  Where it does not, a field holds a time and is no stamp, a constant is larger than said, or a
message carries a time; every state that is explored would then be a wrong one.  And nothing may come from a stamp that
is said to be dead.  Both are checked for every entry.
"""

from __future__ import annotations

import copy
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import GaplessError
from statemachines_spec.explorer.actor import Actor, Envelope, Passed, Reaction
from statemachines_spec.explorer.party import TimedParty, age_party
from statemachines_spec.explorer.timing import Timing


class TellsTime(GaplessError):
    """A step depends on what time it is, and not only on how much has passed: no verdict can be trusted."""


def check_shift(actor: Actor, before: Any, envelope: Envelope, reaction: Reaction | None) -> None:
    """Raises `TellsTime` where this entry of a timed component is not the same at another time."""
    timing, party = actor.timing, getattr(before, "party", None)
    if timing is None or not isinstance(party, TimedParty) or isinstance(envelope.event, Passed):
        return
    altered = replace(before, party=replace(party, record=timing.alter_dead_times(party.record)))
    if altered != before:
        other = _older(timing, actor.react(altered, envelope), 0)
        _compare(actor, envelope, before, reaction, other, _DEAD)
    older = age_party(timing, party, 1, standing=True)
    assert isinstance(older, TimedParty)
    earlier = actor.react(replace(before, party=older), envelope)
    later = replace(timing, now_ns=timing.now_ns + timing.tick_ns)
    after = _at(actor, later).react(replace(before, party=replace(older, record=party.record)), envelope)
    _compare(actor, envelope, before, earlier, _older(timing, after, 1), _LIVE)


_DEAD = "a stamp that is declared dead was read: name when it is live"
_LIVE = (
    "stepping a tick later is not the same as stepping with all that is kept a tick older: a field holds a time and is "
    "no stamp, or a larger constant is added to a stamp than it says, or a message carries a time"
)


def _at(actor: Actor, timing: Timing) -> Actor:
    """The same actor, with another time on its clock."""
    other = copy.copy(actor)
    other.timing = timing
    return other


def _older(timing: Timing, reaction: Reaction | None, ticks: int) -> Reaction | None:
    """What came of it, as seen so many ticks later."""
    party = None if reaction is None else getattr(reaction.local, "party", None)
    if reaction is None or party is None:
        return reaction
    moved = replace(party, record=timing.move_stamps(party.record, ticks))
    return replace(reaction, local=replace(reaction.local, party=moved))


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

"""Rules about words of the memory at one instant: BOUND, SPACE, EXCL and LOST.

Positions are in any unit, the same for all arguments of a call: bytes, or cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from statemachines.kernel import BrokenProperty

BOUND: Final = "BOUND"
SPACE: Final = "SPACE"
EXCL: Final = "EXCL"
LOST: Final = "LOST"

Broken = tuple[BrokenProperty, ...]


def check_heads(read_head: int, write_head: int, capacity: int) -> Broken:
    """BOUND: the read head is behind the write head, by the capacity at most."""
    if read_head <= write_head <= read_head + capacity:
        return ()
    return (BrokenProperty(BOUND, f"the read head is {read_head}, the write head {write_head}"),)


def check_lap(end: int, needed: int, capacity: int) -> Broken:
    """SPACE: the block that somebody writes ends a lap ahead of `needed` at most: the read head, or a block that
    somebody reads."""
    if end <= needed + capacity:
        return ()
    return (BrokenProperty(SPACE, f"a block to {end} is written over what is needed from {needed} on"),)


def check_owner(cursor: str, owner: object, users: Sequence[object]) -> Broken:
    """EXCL: one process at a time uses the cursor, and its word names that process.

    Args:
        cursor: Its name.
        owner: Whom its word names; None: that is not looked at.
        users: The processes that use it.
    """
    if len(users) <= 1 and (owner is None or all(user == owner for user in users)):
        return ()
    used = ", ".join(map(str, users))
    return (BrokenProperty(EXCL, f"{cursor} is used by {used}" + (f", and is {owner}'s" if owner else "")),)


def check_lost(taken_along: int, counted: int, *, is_reclaimed: bool) -> Broken:
    """LOST: once every cursor of a dead reader `is_reclaimed`, all messages that dead readers took are counted."""
    if not is_reclaimed or counted >= taken_along:
        return ()
    return (BrokenProperty(LOST, f"readers took {taken_along} messages along, and {counted} are counted"),)

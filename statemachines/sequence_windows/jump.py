"""Jump: a number far ahead of the last one, and the two runs of numbers that there are from then on.

Who receives cannot tell whether a jump is its sender's: what comes next tells.  A message with a number from below the
jump shows that it was not, and is judged by the last number before it (SW-81).
"""

from __future__ import annotations

from statemachines.sequence_windows.sequence import frame_of

JUMP = 64
"""A number of its frame that is so much further on than the last one, or one of another frame, is a jump."""
Runs = tuple[int, int, int]
"""The last number that came; that of the other run (0: there is none); the number that jumped."""


def is_jump(last: int, number: int) -> bool:
    """The number is far ahead of `last`."""
    return frame_of(number) != frame_of(last) or number - last > JUMP


def last_before(last: int, other: int, jumped: int, first: int, end: int) -> int:
    """The last number of the run that messages `first`..`end` belong to: `last`, or the `other` one."""
    if not other:
        return last
    if other < last:
        return other if other < first and end < jumped else last
    return other if other < first and not is_jump(other, first) else last


def has_come_ahead(last: int, other: int, jumped: int, first: int, end: int) -> bool:
    """It came behind the jump, and the run before the jump goes on."""
    return last < jumped <= first and end <= other


def find_cut(other: int, jumped: int, first: int, end: int) -> int:
    """The first number of messages `first`..`end` that belongs to another run than those before it (0: none does)."""
    return min((one for one in (jumped, other + 1) if other and first < one <= end), default=0)


def runs_after(last: int, other: int, jumped: int, since: int, first: int, end: int) -> Runs:
    """The runs when messages `first`..`end` have come, behind `since`."""
    if not last:
        return end, 0, 0
    if since != last:
        return end, last, jumped
    if is_jump(last, first):
        return end, last, first
    return end, other, jumped

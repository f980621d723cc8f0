"""Gaps: which numbers of a publisher have not come, below the highest that has (SW-81).

Numbers that came are runs with a gap between each two of them.  A number is judged by the run below it, so one that
nobody sent, far ahead, changes nothing for those that its publisher sends.
"""

from __future__ import annotations

from itertools import pairwise

Gaps = tuple[tuple[int, int], ...]
"""The lowest first: the last number below the gap, and the first one above it."""
GAPS_MAX = 4
"""So many gaps are kept."""


def last_before(last: int, gaps: Gaps, number: int) -> int:
    """The last number of the run that lies at or below `number`; `last`: of the highest run."""
    for below, above in gaps:
        if number < above:
            return below
    return last


def find_cut(gaps: Gaps, first: int, end: int) -> int:
    """The first number of messages `first`..`end` that belongs to another run than those before it (0: none does)."""
    return next((above for _, above in gaps if first < above <= end), 0)


def take(last: int, gaps: Gaps, alone: int, first: int, end: int) -> tuple[int, Gaps, int]:
    """What is known when messages `first`..`end` have come, which are new and reach into no higher run.

    `alone`: the number that jumped last; it is `last` while nothing has followed it.  Numbers that stand alone are held
    in one run with it where there is no room for more gaps; that run shrinks to its last number as soon as a publisher
    goes on below it.
    """
    at = next((place for place, (_, above) in enumerate(gaps) if first < above), len(gaps))
    below = gaps[at][0] if at < len(gaps) else last
    is_next = first <= below + 1
    if not is_next and first < end:
        return take(*take(last, gaps, alone, first, first), first + 1, end)
    if at == len(gaps):
        if is_next:
            return end, gaps, alone
        is_held = alone == last and gaps != () and gaps[-1][1] < last
        more = (*gaps, (last, first))
        settled = count_settled(more, first)
        return end, gaps if is_held or len(more) - settled > GAPS_MAX else more[settled:], first
    if is_next and alone == last:
        gaps = (*gaps[:-1], (gaps[-1][0], last))
    above = gaps[at][1]
    parts = () if is_next else ((below, first),)
    if end + 1 < above:
        parts = (*parts, (end, above))
    elif above == alone:
        alone = 0
    gaps = (*gaps[:at], *parts, *gaps[at + 1 :])
    gaps = gaps[count_settled(gaps, first) :]
    if len(gaps) <= GAPS_MAX:
        return last, gaps, alone
    if last in (alone, gaps[-1][1]):
        return gaps[-1][0], gaps[:-1], gaps[-2][1]
    return last, gaps[1:], alone


def count_settled(gaps: Gaps, number: int) -> int:
    """How many gaps are given up, where there are too many: those below the lowest run, above another one and below
    `number`, in which two messages came in sequence (0: there is none)."""
    runs = enumerate(pairwise(gaps), 1) if len(gaps) > GAPS_MAX else ()
    return next((place for place, ((_, above), (end, _)) in runs if above < end < number), 0)

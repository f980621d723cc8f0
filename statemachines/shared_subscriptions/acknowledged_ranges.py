"""Acknowledged ranges: what of a stream is acknowledged behind its progress, where the group's order is relaxed.

Progress never passes a message that is not acknowledged.  The ranges stand beside it, so that the holes between them
are the messages that are still to come.  An acknowledgement stays true for ever: ranges may be joined in any order, and
what is left out is delivered again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from msgspec.structs import replace

from statemachines.shared_subscriptions.group_store import FailingMessage, StoredRecord
from statemachines.shared_subscriptions.message import END_OF_STREAM, HOLES_MAX, Ranges, Report

RANGES_PER_MESSAGE: Final = 4_096
"""All reports of one message have no more ranges than this."""

REASONS_PER_MESSAGE: Final = 16_384
"""All reasons in them have no more characters."""


def join_ranges(progress: int, *parts: Iterable[tuple[int, int]]) -> tuple[int, Ranges]:
    """The progress and the first ranges behind it, from whatever was said of them."""
    progress, ranges = join_all_ranges(progress, *parts)
    return progress, ranges[:HOLES_MAX]


def join_all_ranges(progress: int, *parts: Iterable[tuple[int, int]]) -> tuple[int, Ranges]:
    """The progress and all ranges behind it: a session forgets no acknowledgement of a message that is in hand."""
    kept: list[tuple[int, int]] = []
    for first, last in sorted(chain(*parts)):
        if not first <= last < END_OF_STREAM - 1:
            continue
        if first <= progress:
            progress = max(progress, last + 1)
        elif kept and first <= kept[-1][1] + 1:
            kept[-1] = (kept[-1][0], max(kept[-1][1], last))
        else:
            kept.append((first, last))
    return progress, tuple(kept)


def find_reach(progress: int, acked: Ranges) -> int:
    """The offset behind all that is said to be acknowledged."""
    return max([progress, *(last + 1 for _, last in acked)])


def is_acknowledged_in(stored: StoredRecord | None, offset: int) -> bool:
    """Whether this record of a stream says that `offset` is acknowledged."""
    if stored is not None and isinstance(stored.value, FailingMessage):
        return any(first <= offset <= last for first, last in stored.value.acked)
    return stored is not None and isinstance(stored.value, int) and stored.value > offset


def limit_reports(reports: tuple[Report, ...]) -> tuple[Report, ...]:
    """The reports, with as many ranges and reasons as a message has room for.  Messages in the other ranges come again;
    of other failures nobody learns the reason."""
    room, letters, kept = RANGES_PER_MESSAGE, REASONS_PER_MESSAGE, []
    for report in reports:
        if report.acked or report.reason:
            report = replace(report, acked=report.acked[:room], reason=report.reason[:letters])
            room, letters = room - len(report.acked), letters - len(report.reason)
        kept.append(report)
    return tuple(kept)

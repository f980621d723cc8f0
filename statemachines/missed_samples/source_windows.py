"""The windows of a source: which numbers it asks for, and what the end of a query says of them (MS-65 to MS-69).

A round has some windows of numbers open at a time.  One that ends after it brought something makes room for the next;
when one has brought nothing, no other is opened until all of them are over, and a pause has passed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from msgspec.structs import replace

from statemachines.kernel import Ask, Effects
from statemachines.missed_samples.message import QUERY, Query
from statemachines.missed_samples.ranges import overlap
from statemachines.missed_samples.recovery import MS
from statemachines.missed_samples.source_record import QueryWindow, SourceRecord, WindowStatus, with_asking

OPEN, WELL, FAILED = WindowStatus

NEWEST = 2
"""So many samples a query brings that looks for the newest: two in sequence, which are believed however far ahead."""


def missing_from(record: SourceRecord, place: int) -> int:
    """The lowest missing number from `place` on (from `top` on: there is none)."""
    at = bisect_left(record.held, place, key=lambda one: one[1])
    if at < len(record.held) and record.held[at][0] <= place:
        return record.held[at][1] + 1
    return place


def hole_end(record: SourceRecord, first: int) -> int:
    """The last number of the hole in which `first` is missing."""
    at = bisect_left(record.held, first, key=lambda one: one[1])
    return record.held[at][0] - 1 if at < len(record.held) else record.top - 1


def has_open(record: SourceRecord) -> bool:
    """Whether a query is waited for."""
    return any(one.status is OPEN for one in record.windows)


def open_windows(record: SourceRecord) -> tuple[SourceRecord, Effects]:
    """Ask for what is missing and in no window yet, from the lowest number on, in as many windows as may be open: in
    one where nobody has said a word of late, since their answers may all be on their way."""
    if any(one.status is FAILED for one in record.windows):
        return record, ()
    begins = not record.windows
    opened = tuple(_windows_to_open(record))
    windows = tuple(sorted((*record.windows, *opened), key=lambda one: (one.first, one.n)))
    asked_top = record.top if begins else record.asking.asked_top
    asking = replace(record.asking, windows=windows, asked_top=asked_top)
    record = replace(record, asking=asking, query_n=record.query_n + len(opened))
    return record, tuple(ask_for(record, one) for one in opened)


def _windows_to_open(record: SourceRecord) -> Iterator[QueryWindow]:
    windows, place, n = list(record.windows), record.expected, record.query_n
    count = 1 if record.asking.silent else record.recovery.windows
    while len(windows) < count:
        first = missing_from(record, place)
        if first >= record.top:
            return
        around = next((one for one in windows if one.first <= first <= one.last), None)
        if around is not None:
            place = around.last + 1
            continue
        last, newest = _reach(record, first)
        above = min((one.first for one in windows if one.first > first), default=last + 1)
        n += 1
        window = QueryWindow(n, first, min(last, above - 1), newest, record.top)
        windows.append(window)
        yield window
        place = window.last + 1


def _reach(record: SourceRecord, first: int) -> tuple[int, int]:
    """Up to which number a window goes, and how many of its newest it wants.  Where the lowest numbers of a long hole
    were asked for in vain, caches may have its end: it is asked for whole, from its end, and with the number behind it,
    so that the answer shows that a cache was there."""
    window, end = record.recovery.window, hole_end(record, first)
    fits = record.held_count + window <= record.recovery.pending
    if window > 1 and first == record.expected and first < record.asking.vain and end - first >= window and fits:
        return end + 1, window
    return first + window - 1, 0


def ask_for(record: SourceRecord, window: QueryWindow) -> Ask:
    """The query of a window."""
    return Ask(QUERY, Query(record.source, window.n, window.first, window.newest, 0, window.last))


def look_for_newest(record: SourceRecord) -> tuple[SourceRecord, Effects]:
    """Ask for the newest samples from the expected one on: whatever they show to be missing is asked for then."""
    record = replace(record, query_n=record.query_n + 1)
    window = QueryWindow(record.query_n, record.expected, record.expected - 1, NEWEST, record.top)
    record = with_asking(record, windows=(window,), asked_top=record.top)
    return record, (ask_for(record, window),)


# -- what comes -----------------------------------------------------------------------------------------------------


def fill(record: SourceRecord, first: int, last: int) -> SourceRecord:
    """Note in which windows `first`..`last`, which are about to be held, were missing; that is a reply, too."""
    last = min(last, record.top - 1)
    windows = tuple(
        replace(one, filled=one.filled + _missing_in(record, max(first, one.first), min(last, one.last)))
        if one.status is OPEN
        else one
        for one in record.windows
    )
    return record if windows == record.windows else with_asking(record, windows=windows)


def _missing_in(record: SourceRecord, first: int, last: int) -> int:
    first = max(first, record.expected)
    return last - first + 1 - overlap(record.held, first, last) if first <= last else 0


def hear_reply(record: SourceRecord, now_ns: int) -> SourceRecord:
    """A reply has ended a silence."""
    asking = record.asking
    silence_ns = max(now_ns - asking.spoke_ns, asking.silence_ns)
    return with_asking(record, spoke_ns=now_ns, silence_ns=silence_ns, silent=0)


def hear_end(record: SourceRecord, now_ns: int) -> SourceRecord:
    """So has the end of a query; how long silences last is forgotten slowly, from query to query."""
    silence_ns = record.asking.silence_ns
    return hear_reply(with_asking(record, silence_ns=silence_ns - silence_ns // 8), now_ns)


def timeout_ns(record: SourceRecord) -> int:
    """So long a silence is waited for: it doubles from round to round, and is twice the longest that a reply ended."""
    recovery, asking = record.recovery, record.asking
    doubled = recovery.timeout_ms << min(asking.silent, 20)
    longest = min(max(doubled * MS, 2 * asking.silence_ns), recovery.timeout_max_ms * MS)
    return max(recovery.timeout_ms * MS, longest)


# -- how a query ends -----------------------------------------------------------------------------------------------


def end_window(record: SourceRecord, n: int, brought: int) -> SourceRecord:
    """Query `n` has ended; `brought` as in `QueryEnded`."""
    windows = tuple(_end_window(record, one, brought) if one.n == n else one for one in record.windows)
    return with_asking(record, windows=tuple(one for one in windows if one is not None))


def _end_window(record: SourceRecord, one: QueryWindow, brought: int) -> QueryWindow | None:
    """None: there is nothing more to say of it."""
    whole = not one.newest or one.filled < one.newest - 1
    if brought and record.recovery.reliable and whole:
        return replace(one, status=WELL, below=min(one.first + brought, one.last + 1))
    return None if one.filled or one.last < one.first else replace(one, status=FAILED)


def ready_window(record: SourceRecord) -> QueryWindow | None:
    """One that ended well, when nothing before it is missing any more."""
    first = missing_from(record, record.expected)
    return next((one for one in record.windows if one.status is WELL and one.first <= first), None)


def is_silent(record: SourceRecord) -> bool:
    """Nothing has come of what is asked for."""
    return not any(one.filled for one in record.windows if one.status is OPEN)


def silence_windows(record: SourceRecord) -> SourceRecord:
    """None of the queries that are open is waited for any more."""
    record = with_asking(record, silent=record.asking.silent + 1)
    windows = tuple(_end_window(record, one, 0) if one.status is OPEN else one for one in record.windows)
    return with_asking(record, windows=tuple(one for one in windows if one is not None))


def find_failed_top(record: SourceRecord, silent: bool) -> int:
    """Below it everything that is missing was asked for in vain by this round; `silent`: nobody has said a word, so
    nobody would have said one to more queries."""
    top = record.expected
    for one in record.windows:
        if one.status is not FAILED or not one.first <= missing_from(record, top) <= one.last:
            break
        top = min(one.last + 1, one.top)
    return max(top, record.asking.asked_top) if silent and top > record.expected else top


def count_failure(record: SourceRecord, top: int) -> SourceRecord:
    """One query more has failed for everything that is missing below `top`."""
    tops = sorted(one for one in (*record.asking.asked, top) if one > record.expected)
    return with_asking(record, asked=tuple(tops[-record.recovery.retries - 1 :]))

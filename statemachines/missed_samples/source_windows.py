"""The windows of a source: which numbers it asks for, and what the end of a query says of them (MS-65 to MS-69).

What is missing is asked for as soon as it is known, in windows that do not meet.  A query that nobody answers in time
is sent again, and whichever of a window's queries is answered counts: to have heard nothing says nothing of caches.
When a query has ended and brought nothing, no window is opened until all of them are over, and a pause has passed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from statemachines.kernel import Ask, Effects
from statemachines.missed_samples.message import PARTLY, QUERY, Query, QueryEnded
from statemachines.missed_samples.ranges import overlap
from statemachines.missed_samples.recovery import MS, SENT_MAX
from statemachines.missed_samples.source_record import (
    MissingMark,
    OpenQueries,
    QueryWindow,
    SentQuery,
    SourceRecord,
    WindowStatus,
    with_asking,
)

OPEN, WELL, FAILED = WindowStatus

NEWEST: Final = 2
"""So many samples a query brings that looks for the newest: two in sequence, which are believed however far ahead."""

AT_A_TIME: Final = 4
"""The numbers of so many windows are asked for at a time."""

SPREAD_MIN_NS: Final = 10 * MS
"""By so much, at least, an answer may take longer than answers do."""

AT_ONCE: Final = 4
"""So often a window is asked for again without waiting for longer each time."""


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
    """Whether an answer is waited for."""
    return any(one.status is OPEN for one in record.windows)


def is_filled(record: SourceRecord, window: QueryWindow) -> bool:
    """Nothing of it is missing any more; also if it looks for the newest."""
    return missing_from(record, max(window.first, record.expected)) > min(window.last, record.top - 1)


# -- what is asked for ----------------------------------------------------------------------------------------------


def open_windows(record: SourceRecord, now_ns: int) -> tuple[SourceRecord, Effects]:
    """Ask for what is missing and in no window yet, from the lowest number on, in as many windows as may be open."""
    if any(one.status is FAILED for one in record.windows):
        return record, ()
    opened = tuple(_windows_to_open(record, now_ns))
    if not opened:
        return record, ()
    windows = tuple(sorted((*record.windows, *opened), key=lambda one: one.first))
    record = with_asking(replace(record, query_n=record.query_n + len(opened)), windows=windows)
    return record, tuple(ask_for(record, one) for one in opened)


def _windows_to_open(record: SourceRecord, now_ns: int) -> Iterator[QueryWindow]:
    windows, place, n, pacing = list(record.windows), record.expected, record.query_n, record.recovery.pacing
    room = AT_A_TIME * pacing.window - sum(one.newest or one.last - one.first + 1 for one in windows)
    while len(windows) < pacing.windows and room > 0:
        first = missing_from(record, place)
        if first >= record.top:
            return
        around = next((one for one in windows if one.first <= first <= one.last), None)
        if around is not None:
            place = around.last + 1
            continue
        last, newest = _reach(record, first, min(room, pacing.window))
        above = min((one.first for one in windows if one.first > first), default=last + 1)
        n += 1
        window = QueryWindow(first, min(last, above - 1), newest, record.top, (SentQuery(n, first, now_ns),), now_ns)
        windows.append(window)
        yield window
        room -= last - first + 1
        place = window.last + 1


def _reach(record: SourceRecord, first: int, most: int) -> tuple[int, int]:
    """Up to which number a window goes, and how many of its newest it wants.  Where the lowest numbers of a long hole
    were asked for in vain, caches may have its end: it is asked for whole, from its end, and with the number behind it,
    so that the answer shows that a cache was there."""
    window, end = record.recovery.pacing.window, hole_end(record, first)
    fits = record.held_count + window <= record.recovery.pending
    if window > 1 and first == record.expected and first < record.asking.vain and end - first >= window and fits:
        return end + 1, window
    return min(first + most - 1, end), 0


def ask_for(record: SourceRecord, window: QueryWindow) -> Ask:
    """The newest query of a window.  Where nothing above it is missing, it asks for what may be on its way,
    too: of that some is lost, and nobody knows yet."""
    sent, last, ahead = window.sent[-1], window.last, record.recovery.pacing.ahead
    if ahead and not window.newest and missing_from(record, last + 1) >= record.top:
        last = record.top - 1 + ahead
    return Ask(QUERY, Query(record.source, sent.n, sent.first, window.newest, 0, last))


def look_for_newest(record: SourceRecord, now_ns: int) -> tuple[SourceRecord, Effects]:
    """Ask for the newest samples from the expected one on: whatever they show to be missing is asked for then."""
    n, first = record.query_n + 1, record.expected
    window = QueryWindow(first, first - 1, NEWEST, record.top, (SentQuery(n, first, now_ns),), now_ns)
    record = with_asking(replace(record, query_n=n), windows=(window,))
    return record, (ask_for(record, window),)


def ask_again(record: SourceRecord, now_ns: int) -> tuple[SourceRecord, Effects]:
    """Ask again for what was waited for long enough: in two copies, since one of them may be lost as well."""
    limit_ns = max(now_ns, next_due_ns(record))
    effects: Effects = ()
    for one in record.windows:
        if one.status is OPEN and due_ns(record, one) <= limit_ns:
            record, more = send_again(record, one, now_ns, copies=2)
            effects = (*effects, *more)
    return record, effects


def send_again(record: SourceRecord, window: QueryWindow, now_ns: int, copies: int = 1) -> tuple[SourceRecord, Effects]:
    """Ask again for what is missing of a window, in so many `copies`."""
    first = window.first if window.newest else missing_from(record, max(window.first, record.expected))
    effects: Effects = ()
    after = replace(window, silent=window.silent + 1, spoke_ns=now_ns, heard=False)
    for _ in range(copies):
        record = replace(record, query_n=record.query_n + 1)
        after = replace(after, sent=(*after.sent, SentQuery(record.query_n, first, now_ns))[-SENT_MAX:])
        effects = (*effects, ask_for(record, after))
    return with_asking(record, windows=tuple(after if one is window else one for one in record.windows)), effects


# -- how long an answer is waited for -------------------------------------------------------------------------------


def answer_limit_ns(record: SourceRecord) -> int:
    """So long the first word of an answer is waited for."""
    pacing, asking = record.recovery.pacing, record.asking
    if not asking.answer_ns:
        return pacing.timeout_ms * MS
    limit_ns = asking.answer_ns + max(2 * asking.spread_ns, SPREAD_MIN_NS)
    return min(max(limit_ns, pacing.timeout_min_ms * MS), pacing.timeout_max_ms * MS)


def due_ns(record: SourceRecord, window: QueryWindow) -> int:
    """When a window is asked for again: after twice the longest silence inside an answer, if it was answered."""
    limit_ns = answer_limit_ns(record)
    if window.heard:
        limit_ns = max(limit_ns, 2 * record.asking.gap_ns)
    doubled_ns = limit_ns << min(max(window.silent - AT_ONCE, 0), 20)
    return window.spoke_ns + min(doubled_ns, record.recovery.pacing.timeout_max_ms * MS)


def next_due_ns(record: SourceRecord) -> int:
    """When the first window is asked for again."""
    return min(due_ns(record, one) for one in record.windows if one.status is OPEN)


def hear_answer(record: SourceRecord, n: int, now_ns: int) -> SourceRecord:
    """Query `n` was answered: its first word says how long answers take.  The answers of queries that were sent after
    it may wait behind it."""
    asking = record.asking
    sent = next((one for window in record.windows for one in window.sent if one.n == n), None)
    sent = sent or next((one for one in asking.over if one.n == n), None)
    if sent is None:
        return record
    if sent.sent_ns >= 0:
        asking = _learn(asking, max(now_ns - sent.sent_ns, 1))
    windows, gap_ns = [], asking.gap_ns
    for one in record.windows:
        if sent in one.sent:
            if one.heard:
                gap_ns = max(gap_ns, now_ns - one.spoke_ns)
            told = tuple(replace(other, sent_ns=-1) if other is sent else other for other in one.sent)
            one = replace(one, sent=told, spoke_ns=now_ns, heard=True)
        elif one.status is OPEN and not one.heard and one.sent[-1].n > n:
            one = replace(one, spoke_ns=now_ns)
        windows.append(one)
    over = tuple(one for one in asking.over if one is not sent)
    return replace(record, asking=replace(asking, windows=tuple(windows), over=over, gap_ns=gap_ns))


def _learn(asking: OpenQueries, took_ns: int) -> OpenQueries:
    """As TCP reckons its retransmission time-out (RFC 6298, 2)."""
    if not asking.answer_ns:
        return replace(asking, answer_ns=took_ns, spread_ns=took_ns // 4)
    spread_ns = asking.spread_ns + (abs(took_ns - asking.answer_ns) - asking.spread_ns) // 4
    return replace(asking, answer_ns=asking.answer_ns + (took_ns - asking.answer_ns) // 8, spread_ns=spread_ns)


# -- what comes -----------------------------------------------------------------------------------------------------


def fill(record: SourceRecord, first: int, last: int) -> SourceRecord:
    """Note in which windows `first`..`last`, which are about to be held, were missing."""
    last = min(last, record.top - 1)
    windows = []
    for one in record.windows:
        new = _missing_in(record, max(first, one.first), min(last, one.last)) if one.status is OPEN else 0
        windows.append(replace(one, filled=one.filled + new, silent=0) if new else one)
    return with_asking(record, windows=tuple(windows))


def _missing_in(record: SourceRecord, first: int, last: int) -> int:
    first = max(first, record.expected)
    return last - first + 1 - overlap(record.held, first, last) if first <= last else 0


def close_filled(record: SourceRecord) -> SourceRecord:
    """A window of which everything has come is over without its end, unless others have failed."""
    if any(one.status is FAILED for one in record.windows):
        return record
    return leave(record, tuple(one for one in record.windows if one.last < one.first or not is_filled(record, one)))


def leave_failed(record: SourceRecord) -> SourceRecord:
    """Only what an answer has said of numbers whose turn has not come is kept."""
    return leave(record, tuple(one for one in record.windows if one.status is WELL))


def leave(record: SourceRecord, windows: tuple[QueryWindow, ...]) -> SourceRecord:
    """These windows are left; of the queries of others somebody may still hear."""
    gone = tuple(sent for one in record.windows if one not in windows for sent in one.sent if sent.sent_ns >= 0)
    if len(windows) == len(record.windows):
        return record
    return with_asking(record, windows=windows, over=(*record.asking.over, *gone)[-SENT_MAX:])


# -- how a query ends -----------------------------------------------------------------------------------------------


def end_window(record: SourceRecord, event: QueryEnded, now_ns: int) -> tuple[SourceRecord, Effects]:
    """A query has ended.  What it did not bring whole is asked for again at once, as often as a silence is."""
    record = hear_answer(record, event.n, now_ns)
    record = with_asking(record, gap_ns=record.asking.gap_ns - record.asking.gap_ns // 8)
    window, sent = next((one, sent) for one in record.windows for sent in one.sent if sent.n == event.n)
    if event.brought == PARTLY:
        if window.silent < AT_ONCE and not is_filled(record, window):
            return send_again(record, window, now_ns)
        return record, ()
    ended = _end_window(record, window, sent, event.brought)
    record = leave(record, tuple(one for one in record.windows if one is not window))
    if ended is None:
        return record, ()
    return with_asking(record, windows=tuple(sorted((*record.windows, ended), key=lambda one: one.first))), ()


def _end_window(record: SourceRecord, one: QueryWindow, sent: SentQuery, brought: int) -> QueryWindow | None:
    """None: there is nothing more to say of it."""
    whole = not one.newest or one.filled < one.newest - 1
    if brought and record.recovery.reliable and whole:
        return replace(one, status=WELL, sent=(), below=min(sent.first + brought, one.last + 1))
    return None if one.filled or one.last < one.first else replace(one, status=FAILED, sent=())


def ready_window(record: SourceRecord) -> QueryWindow | None:
    """One that ended well, when nothing before it is missing any more."""
    first = missing_from(record, record.expected)
    return next((one for one in record.windows if one.status is WELL and one.first <= first), None)


def find_failed_top(record: SourceRecord) -> int:
    """Below it everything that is missing was asked for in vain."""
    top = record.expected
    for one in record.windows:
        first = missing_from(record, top)
        if first > one.last:
            continue
        if one.status is OPEN or not one.first <= first <= one.last or (one.status is WELL and one.below <= first):
            break
        top = one.below if one.status is WELL else min(one.last + 1, one.top)
    return top


def lower_top(record: SourceRecord, top: int) -> SourceRecord:
    """Numbers from `top` on do not exist, as far as is known: nothing that was said of them counts any more."""
    asking = record.asking
    windows = tuple(replace(one, top=min(one.top, top), below=min(one.below, top)) for one in asking.windows)
    marks = tuple(replace(one, top=min(one.top, top)) for one in asking.marks)
    asked = tuple(min(one, top) for one in asking.asked)
    asking = replace(asking, windows=windows, marks=marks, asked=asked, vain=min(asking.vain, top))
    return replace(record, top=top, asking=asking)


def count_failure(record: SourceRecord, top: int) -> SourceRecord:
    """One query more has failed for everything that is missing below `top`; what was counted before the first number
    that is missing was another does not count."""
    asking = record.asking
    asked = asking.asked if asking.front == record.expected else ()
    tops = sorted((*asked, top))[-record.recovery.retries - 1 :]
    return with_asking(record, asked=tuple(tops), front=record.expected, vain=top)


# -- how long numbers have been missing -----------------------------------------------------------------------------


def note_missing(record: SourceRecord, now_ns: int) -> SourceRecord:
    """Since when what is missing is; what became known within an eighth of the deadline counts as known together."""
    marks = record.asking.marks
    if not record.missing:
        return with_asking(record, marks=()) if marks else record
    kept = [one for one in marks if one.top > record.expected]
    top = record.held[-1][0] if record.held and record.held[-1][1] + 1 == record.top else record.top
    if not kept or kept[-1].top < top:
        if kept and now_ns - kept[-1].since_ns < record.recovery.deadline_ms * MS // 8:
            kept[-1] = replace(kept[-1], top=top)
        else:
            kept.append(MissingMark(top, now_ns, record.expected))
    return record if tuple(kept) == marks else with_asking(record, marks=tuple(kept))

"""What an event makes of a WriterFlow: the guards and actions of its table (`writer_flow`)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from statemachines.kernel import Ask, Effects, Event, Send, SetTimer, Tell
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Queued
from statemachines.persistent_sessions.request import DATABASE, EpochRows, Fence, FencedRows, Polled, ReadPending
from statemachines.persistent_sessions.times import MS
from statemachines.persistent_sessions.writer_flow_record import (
    CatchUp,
    Done,
    Handed,
    Room,
    Starve,
    Take,
    WriterFlowRecord,
)


def select_contiguous(rows: Iterable[Queued], taken: int) -> tuple[Queued, ...]:
    """Those that follow `taken` without a hole; `rows` are in the order of their numbers."""
    found: list[Queued] = []
    for row in rows:
        if row.number == taken + len(found) + 1:
            found.append(row)
    return tuple(found)


def rows_below(record: WriterFlowRecord, found: tuple[EpochRows, ...]) -> tuple[Queued, ...]:
    """What of a read comes next, below the marker: cut by number, since ids are older than the writer's order."""
    rows = (row for one in found if one.epoch == record.epoch for row in one.rows)
    return select_contiguous((row for row in rows if row.number < record.k), record.taken)


def with_rows(record: WriterFlowRecord, rows: tuple[Queued, ...]) -> WriterFlowRecord:
    """With these rows taken: the writer has stored nothing before the last of them that is not."""
    if not rows:
        return record
    return replace(record, taken=rows[-1].number, complete_ns=max(record.complete_ns, rows[-1].stored_ns))


def with_read(record: WriterFlowRecord, found: tuple[EpochRows, ...], complete_ns: int) -> WriterFlowRecord:
    """With what a read says of the time up to which all rows are taken: those of it that are not bound it."""
    here = (record.epoch, record.taken)
    for one in found:
        for row in one.rows:
            if (one.epoch, row.number) > here:
                complete_ns = min(complete_ns, row.stored_ns)
    return replace(record, complete_ns=max(record.complete_ns, complete_ns))


def shows_marker(record: WriterFlowRecord, event: Polled) -> bool:
    mine = (record.token, record.n)
    return any(mine in one.markers for one in event.found if one.epoch == record.epoch)


def next_live(record: WriterFlowRecord) -> int:
    """The number that the next live message has, from the marker on."""
    return record.k + len(record.buffer)


# -- guards ---------------------------------------------------------------------------------------------------------


def is_of_newer_epoch(record: WriterFlowRecord, event: Live | LiveMarker) -> bool:
    return event.epoch > record.epoch


def is_of_the_epoch(record: WriterFlowRecord, event: Live) -> bool:
    return event.epoch == record.epoch


def is_mine(record: WriterFlowRecord, event: LiveMarker) -> bool:
    """The marker that was asked for last, of the epoch that is followed."""
    return (event.token, event.n, event.epoch) == (record.token, record.n, record.epoch)


def is_mine_and_fresh(record: WriterFlowRecord, event: LiveMarker) -> bool:
    """Nothing behind it has come already, and was dropped or taken."""
    return is_mine(record, event) and event.k > max(record.heard, record.taken)


def is_full(record: WriterFlowRecord) -> bool:
    """No more live messages are kept."""
    return len(record.buffer) >= record.times.resume_buffer


def follows(record: WriterFlowRecord, event: Live) -> bool:
    """The next behind the marker, and there is room for it."""
    return event.epoch == record.epoch and event.number == next_live(record) and not is_full(record)


def leaves_a_gap(record: WriterFlowRecord, event: Live) -> bool:
    """Something before it did not come, or there is no room for it."""
    return event.epoch == record.epoch and event.number >= next_live(record)


def is_next(record: WriterFlowRecord, event: Live) -> bool:
    return event.epoch == record.epoch and event.number == record.taken + 1


def is_ahead(record: WriterFlowRecord, event: Live) -> bool:
    return event.epoch == record.epoch and event.number > record.taken + 1


def is_still_to_take(record: WriterFlowRecord, event: Starve) -> bool:
    """A cut lies behind what was taken."""
    return event.epoch == record.epoch and event.next > record.taken


def completes(record: WriterFlowRecord, event: Polled) -> bool:
    """The marker was seen in the database, and every number below it is taken with this."""
    is_seen = record.seen or shows_marker(record, event)
    return is_seen and record.taken + len(rows_below(record, event.found)) == record.k - 1


def brings(record: WriterFlowRecord, event: Polled) -> bool:
    """Something of it is next."""
    return bool(rows_below(record, event.found))


def shows_newer_epoch(record: WriterFlowRecord, event: CatchUp) -> bool:
    """The epoch that is followed has ended, and rows of the next one are stored."""
    return any(one.rows and one.epoch > record.epoch for one in event.found)


def is_of_this_fence(record: WriterFlowRecord, event: FencedRows) -> bool:
    return event.n == record.n


def has_more(record: WriterFlowRecord, event: FencedRows) -> bool:
    return is_of_this_fence(record, event) and event.more


def stays_gone(record: WriterFlowRecord, event: FencedRows) -> bool:
    """It was fenced for its silence, and nothing was heard of an epoch that this did not fence."""
    return is_of_this_fence(record, event) and record.gone and record.heard < event.below


# -- actions --------------------------------------------------------------------------------------------------------


def take(record: WriterFlowRecord, rows: tuple[Queued, ...], epoch: int) -> Effects:
    return (Tell(Take(record.writer, epoch, rows)),) if rows else ()


def ask(record: WriterFlowRecord) -> Send:
    return Send(record.writer, MarkerWanted(record.session, record.owner, record.token, record.n))


def repeat_timer(record: WriterFlowRecord, now_ns: int) -> SetTimer:
    return SetTimer("repeat", now_ns + record.times.repeat_ms * MS, record.writer)


def ask_marker(record: WriterFlowRecord, event: Event, now_ns: int) -> Done:
    """A fresh one: what was kept for the one before has no meaning any more."""
    record = replace(record, n=record.n + 1, k=0, seen=False, heard=0, buffer=())
    return record, (ask(record),)


def ask_fresh(record: WriterFlowRecord, event: Event, now_ns: int) -> Done:
    """The same, and the writer has all of its time again."""
    record, effects = ask_marker(record, event, now_ns)
    patience = SetTimer("marker", now_ns + record.times.marker_ms * MS, record.writer)
    return record, (patience, repeat_timer(record, now_ns), *effects)


def ask_again(record: WriterFlowRecord, event: Event, now_ns: int) -> Done:
    return record, (repeat_timer(record, now_ns), ask(record))


def drop_live(record: WriterFlowRecord, event: Live, now_ns: int) -> Done:
    """It comes from the database; that it was here is kept in mind."""
    return replace(record, heard=max(record.heard, event.number)), ()


def remember(record: WriterFlowRecord, event: Polled, now_ns: int) -> Done:
    return replace(record, seen=True), ()


def start_sync(record: WriterFlowRecord, event: LiveMarker, now_ns: int) -> Done:
    return poll(replace(record, k=event.k), event, now_ns)


def poll(record: WriterFlowRecord, event: Event, now_ns: int) -> Done:
    return record, read_pending(record, record.times.page)


def poll_as_many(record: WriterFlowRecord, event: Room, now_ns: int) -> Done:
    return record, read_pending(record, event.rows)


def read_pending(record: WriterFlowRecord, rows: int) -> Effects:
    place = (record.epoch, record.taken)
    return (Ask(DATABASE, ReadPending(record.session, record.writer, rows, place)),)


def keep_live(record: WriterFlowRecord, event: Live, now_ns: int) -> Done:
    return replace(record, buffer=(*record.buffer, event.queued)), ()


def take_below(record: WriterFlowRecord, event: Polled, now_ns: int) -> Done:
    rows = rows_below(record, event.found)
    seen = record.seen or shows_marker(record, event)
    effects = take(record, rows, record.epoch)
    record = with_read(with_rows(record, rows), event.found, event.complete_ns)
    return replace(record, seen=seen), effects


def take_and_poll(record: WriterFlowRecord, event: Polled, now_ns: int) -> Done:
    record, effects = take_below(record, event, now_ns)
    return record, (SetTimer("poll", now_ns + record.times.poll_ms * MS, record.writer), *effects)


def take_handed(record: WriterFlowRecord, event: Handed, now_ns: int) -> Done:
    """What follows, as if the database had been read; from the marker on it is in the buffer."""
    below = [one for one in event.found if one.epoch == record.epoch]
    rows = (row for one in below for row in one.rows if not record.k or row.number < record.k)
    found = select_contiguous(rows, record.taken)
    return with_rows(record, found), take(record, found, record.epoch)


def catch_up(record: WriterFlowRecord, event: CatchUp, now_ns: int) -> Done:
    """Whatever follows, before it comes live."""
    rows = select_contiguous(
        (row for one in event.found if one.epoch == record.epoch for row in one.rows), record.taken
    )
    effects = take(record, rows, record.epoch)
    return with_read(with_rows(record, rows), event.found, event.complete_ns), effects


def fence_newer(record: WriterFlowRecord, event: CatchUp, now_ns: int) -> Done:
    return fence(record, max(one.epoch for one in event.found if one.rows), False)


def fall_behind(record: WriterFlowRecord, event: Starve, now_ns: int) -> Done:
    """A cut without a marker: a writer stores a row before it sends it, so what is below is in the database, and when
    it has been read as far as that nothing is missing.  What was kept is there, too."""
    return replace(record, k=event.next, seen=True, buffer=()), ()


def take_buffer(record: WriterFlowRecord, event: Event, now_ns: int) -> Done:
    effects = take(record, record.buffer, record.epoch)
    return replace(with_rows(record, record.buffer), taken=next_live(record) - 1, buffer=()), effects


def take_live(record: WriterFlowRecord, event: Live, now_ns: int) -> Done:
    return with_rows(record, (event.queued,)), take(record, (event.queued,), record.epoch)


def read_fenced(record: WriterFlowRecord, below: int, rows: int) -> Effects:
    place = (record.epoch, record.taken)
    return (Ask(DATABASE, Fence(record.session, record.writer, place, below, record.token, record.n, rows)),)


def fence(record: WriterFlowRecord, below: int, gone: bool) -> Done:
    """What is buffered is dropped: the rows are all there once the epoch is raised."""
    record = replace(record, n=record.n + 1, gone=gone, k=0, seen=False, heard=0, buffer=())
    return record, read_fenced(record, below, record.times.page)


def fence_silent(record: WriterFlowRecord, event: Event, now_ns: int) -> Done:
    """Above whatever epoch it has: it may have begun anew, unheard."""
    return fence(record, 0, True)


def fence_older(record: WriterFlowRecord, event: Live | LiveMarker, now_ns: int) -> Done:
    return fence(record, event.epoch, False)


def note_heard(record: WriterFlowRecord, event: Live | LiveMarker, now_ns: int) -> Done:
    """It lives, if this is not of an epoch that is being fenced."""
    return replace(record, heard=max(record.heard, event.epoch)), ()


def ask_marker_later(record: WriterFlowRecord, event: Event, now_ns: int) -> Done:
    """It lives, or something of it was lost: its marker is needed once it is fenced."""
    return replace(record, gone=False), ()


def take_page(record: WriterFlowRecord, event: FencedRows, now_ns: int) -> Done:
    """Everything above the last number taken, epoch by epoch; what is fenced is kept in mind, to be read on."""
    effects: Effects = ()
    for one in sorted(event.found, key=lambda one: one.epoch):
        if one.epoch >= record.epoch:
            taken = record.taken if one.epoch == record.epoch else 0
            rows = select_contiguous(one.rows, taken)
            effects = (*effects, *take(record, rows, one.epoch))
            record = with_rows(replace(record, epoch=one.epoch, taken=taken), rows)
    record = with_read(record, event.found, event.complete_ns)
    return replace(record, below=event.below), effects


def read_on(record: WriterFlowRecord, event: Room, now_ns: int) -> Done:
    """What is fenced stays fenced: the same question, further on."""
    return record, read_fenced(record, record.below, event.rows)


def take_fenced(record: WriterFlowRecord, event: FencedRows, now_ns: int) -> Done:
    """The last of it; then the next epoch begins with 1."""
    record, effects = take_page(record, event, now_ns)
    return replace(record, epoch=event.below, taken=0, heard=0, below=0), effects


def take_fenced_and_ask(record: WriterFlowRecord, event: FencedRows, now_ns: int) -> Done:
    record, effects = take_fenced(record, event, now_ns)
    record, more = ask_marker(replace(record, gone=False), event, now_ns)
    return record, (*effects, *more)

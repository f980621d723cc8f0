"""RowMerge: rows of several writers go into the session state in the order in which they were committed.

A writer's own rows come in the order of their numbers, and each writer is read, and heard, for itself.  A row that is
taken while another writer may still have an older one is blocked: it waits until nothing older is missing.
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.persistent_sessions.blocked_queue import BlockedQueue, BlockedRow
from statemachines.persistent_sessions.message import Live, Queued
from statemachines.persistent_sessions.resume_record import ResumeRecord
from statemachines.persistent_sessions.writer_flow_record import DONE, WAITING, Take


def add_take(record: ResumeRecord, event: Take, cause: object) -> ResumeRecord:
    """With rows that a flow takes: a live one waits for what its publisher may have published elsewhere, any other for
    all that is older."""
    since_ns = cause.since_ns if isinstance(cause, Live) else None
    queue = record.blocked_rows.get(event.writer, BlockedQueue())
    queue = queue.add(BlockedRow(event.epoch, row, _bound(row, since_ns)) for row in event.rows)
    return replace(record, blocked_rows=record.blocked_rows.set(event.writer, queue))


def may_pass(record: ResumeRecord, event: Take, cause: object) -> bool:
    """No row is blocked, and nothing that is older than the last of these is missing."""
    return not record.blocked_rows and has_nothing_missing(record, event, cause)


def has_nothing_missing(record: ResumeRecord, event: Take, cause: object) -> bool:
    """All is taken that comes before the last of these rows."""
    bound_ns = _bound(event.rows[-1], cause.since_ns if isinstance(cause, Live) else None)
    return is_complete(record, event.writer, bound_ns)


def is_complete(record: ResumeRecord, writer: str, bound_ns: int) -> bool:
    """Of every other writer, known or not, all is taken that was stored before."""
    if record.known_ns < bound_ns:
        return False
    return all(flow.complete_ns >= bound_ns for name, flow in record.flows.items() if name != writer)


def release_rows(record: ResumeRecord) -> tuple[ResumeRecord, tuple[Take, ...]]:
    """Without the rows that nothing blocks any more, and those, in their order."""
    blocked = record.blocked_rows
    places = dict.fromkeys(blocked, 0)
    runs: list[tuple[str, int, list[Queued]]] = []
    while (writer := find_free(record, places)) is not None:
        row = blocked[writer].row_at(places[writer])
        if not runs or runs[-1][:2] != (writer, row.epoch):
            runs.append((writer, row.epoch, []))
        runs[-1][2].append(row.queued)
        places[writer] += 1
    for writer, count in places.items():
        if count == len(blocked[writer]):
            blocked = blocked.delete(writer)
        elif count:
            blocked = blocked.set(writer, blocked[writer].drop(count))
    takes = tuple(Take(writer, epoch, tuple(rows)) for writer, epoch, rows in runs)
    return replace(record, blocked_rows=blocked), takes


def find_free(record: ResumeRecord, places: dict[str, int]) -> str | None:
    """The writer whose next row goes first: of the rows that wait for nothing the oldest; `places`: how many of each
    writer have gone.  A writer is complete as far as its rows are taken, so an older row waits for no more than this
    one does."""
    queues = ((writer, record.blocked_rows[writer], place) for writer, place in places.items())
    heads = {writer: queue.row_at(place) for writer, queue, place in queues if place < len(queue)}
    for writer in sorted(heads, key=lambda one: (heads[one].queued.stored_ns, one)):
        if is_complete(record, writer, heads[writer].bound_ns):
            return writer
    return None


def needs_read(record: ResumeRecord) -> bool:
    """Of a writer that nobody reads otherwise, or knows of, something may be missing that blocks a row."""
    for writer, queue in record.blocked_rows.items():
        bound_ns = queue.first.bound_ns
        if record.known_ns < bound_ns:
            return True
        for name, flow in record.flows.items():
            if name != writer and flow.status in (WAITING, DONE) and flow.complete_ns < bound_ns:
                return True
    return False


def _bound(row: Queued, since_ns: int | None) -> int:
    """What was stored before this comes before the row."""
    return row.stored_ns if since_ns is None else min(since_ns, row.stored_ns)

"""WriterFlow: one writer of a resuming session (source: "Resuming a persistent session from DB", its picture
"init-fsm").

`new -> waiting -> syncing -> finalizing -> done`.  While the marker is awaited, what comes live is dropped: the
database has it.  Behind the marker it is kept, and the database is read until every number below the marker was
taken; then what was kept follows.  The cut is by the writer's numbers, never by ids or clocks.  A writer that is
dead, or silent for too long, is fenced: nothing can be stored under its epoch any more, so what is read then is all.

However much is stored, a page of it is read at a time, when there is room for it: between two of them a flow is
`behind`, or `draining` where the writer is fenced.  A flow whose client cannot keep up falls behind as well, whatever
it was about: what comes live is in the database before it comes.

WriterFlowRecord: what a resuming session keeps of one writer, and what may happen to it.

What an event makes of a WriterFlow: the guards and actions of its table (`writer_flow`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Ask,
    Call,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Refuse,
    Row,
    Send,
    SetTimer,
    Status,
    Tell,
    Timer,
    TimerFired,
    TraceColumns,
)
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Queued
from statemachines.persistent_sessions.request import DATABASE, EpochRows, Fence, FencedRows, Polled, ReadPending
from statemachines.persistent_sessions.times import MS, Times


class Begin(Call, frozen=True, gc=False):
    """Synchronise with the writer."""


class Handed(Call, frozen=True, gc=False):
    """An owner of before has handed over what it had of the writer, and the database has exactly that."""

    found: tuple[EpochRows, ...]


class Settled(Call, frozen=True, gc=False):
    """All that was taken is committed."""


class Room(Call, frozen=True, gc=False):
    """The client receives so many rows more, or a page."""

    rows: int


class Starve(Call, frozen=True, gc=False):
    """There is no room for what comes next: it is in the database, as is everything before number `next`."""

    columns: ClassVar = TraceColumns(term="epoch", first="next")

    epoch: int
    next: int


class CatchUp(Call, frozen=True, gc=False):
    """All writers were read, for the sake of rows of one that may be younger: of this one that is `found`, and no row
    that was stored before `complete_ns` is missing."""

    found: tuple[EpochRows, ...]
    complete_ns: int


class WriterUp(Call, frozen=True, gc=False):
    """The writer is reported to live (again), or for the first time."""

    columns: ClassVar = TraceColumns(key="writer")

    writer: str


class WriterDown(Call, frozen=True, gc=False):
    """The writer is reported dead."""

    columns: ClassVar = TraceColumns(key="writer")

    writer: str


class LinkLost(Call, frozen=True, gc=False):
    """The link to the writer's node broke: what was on its way is lost."""

    columns: ClassVar = TraceColumns(key="writer")

    writer: str


class AskAgain(TimerFired, frozen=True, gc=False):
    """The live marker has not come yet."""


class PollDue(TimerFired, frozen=True, gc=False):
    """Time to look into the database again."""


class MarkerTimeout(TimerFired, frozen=True, gc=False):
    """The writer has not shown its marker on both paths."""


class Take(Event, frozen=True, gc=False):
    """To the session state: these are next, of one epoch of a writer, and without a hole behind those before."""

    columns: ClassVar = TraceColumns(
        key="writer", term="epoch", grant="lost_rows", first="first_number", last="last_number"
    )

    writer: str
    epoch: int
    rows: tuple[Queued, ...]

    @property
    def first_number(self) -> int:
        """The number of the first."""
        return self.rows[0].number

    @property
    def last_number(self) -> int:
        """The number of the last."""
        return self.rows[-1].number

    @property
    def lost_rows(self) -> int:
        """Of how many of them retention has removed the message."""
        return sum(not row.message for row in self.rows)


class BlockRows(Take, frozen=True, gc=False):
    """To the session state: the same, and some of them wait for older rows of other writers.  They come when those
    have."""


class FlowStatus(Status):
    """The page's states, and `fencing`: the epoch is raised, and what it has is read.  `behind` (of `syncing`) and
    `draining` (of `fencing`): there is more to be read, and no room for it."""

    NEW = "new"
    WAITING = "waiting"
    BEHIND = "behind"
    SYNCING = "syncing"
    FINALIZING = "finalizing"
    FENCING = "fencing"
    DRAINING = "draining"
    DONE = "done"


NEW, WAITING, BEHIND, SYNCING, FINALIZING, FENCING, DRAINING, DONE = FlowStatus

STARVED = (BEHIND, DRAINING)
"""Nothing but room is waited for."""


class WriterFlowRecord(msgspec.Struct, frozen=True, gc=False):
    """One writer of a session, for the `owner` with this `token`.  `taken`: the last number of `epoch` that was
    taken; `n`: the last marker, or fence, that was asked for; `k` of the marker, once it has come live (0: not yet);
    `seen`: it was found in the database; `buffer`: what came live since, from `k` on.  `heard`: the highest number
    that came live while the marker was awaited; while a fence is, the highest epoch.  `gone`: it is fenced because it
    is dead, or silent; `below` of a fence of which there is more to be read.  `complete_ns`: all that the writer has
    stored before is taken."""

    session: str
    writer: str
    owner: str
    token: int
    times: Times
    status: FlowStatus = NEW
    epoch: int = 1
    taken: int = 0
    n: int = 0
    k: int = 0
    seen: bool = False
    heard: int = 0
    buffer: tuple[Queued, ...] = ()
    gone: bool = False
    below: int = 0
    complete_ns: int = 0


Done = tuple[WriterFlowRecord, Effects]


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


READING = (BEHIND, SYNCING)
KEEPING = (*READING, FINALIZING)
FOLLOWING = (WAITING, *KEEPING, DONE)
FENCED = (FENCING, DRAINING)
AT_MARKER = (WAITING, DONE)

# fmt: off
ROWS = (
    #   on             from                        to          do                   when                     clause
    Row(Begin,         NEW,                        WAITING,    ask_marker,          None,                    "PS-20"),
    Row(AskAgain,      WAITING,                    STAY,       ask_again,           None,                    "PS-20"),
    Row(LiveMarker,    FOLLOWING,                  FENCING,    fence_older,         is_of_newer_epoch,       "PS-31"),
    Row(LiveMarker,    WAITING,                    SYNCING,    start_sync,          is_mine_and_fresh,       "PS-22"),
    Row(LiveMarker,    WAITING,                    STAY,       ask_fresh,           is_mine,                 "PS-23"),
    Row(Live,          FOLLOWING,                  FENCING,    fence_older,         is_of_newer_epoch,       "PS-31"),
    Row(Live,          WAITING,                    STAY,       drop_live,           is_of_the_epoch,         "PS-21"),
    Row(Live,          KEEPING,                    STAY,       keep_live,           follows,                 "PS-24"),
    Row(Live,          KEEPING,                    WAITING,    ask_fresh,           leaves_a_gap,            "PS-28"),
    Row(Live,          DONE,                       STAY,       take_live,           is_next,                 "PS-27"),
    Row(Live,          DONE,                       WAITING,    ask_fresh,           is_ahead,                "PS-28"),
    Row(CatchUp,       AT_MARKER,                  FENCING,    fence_newer,         shows_newer_epoch,       "PS-483"),
    Row(CatchUp,       AT_MARKER,                  STAY,       catch_up,            None,                    "PS-482"),
    Row(Polled,        WAITING,                    STAY,       remember,            shows_marker,            "PS-22"),
    Row(Room,          BEHIND,                     SYNCING,    poll_as_many,        None,                    "PS-193"),
    Row(Polled,        SYNCING,                    FINALIZING, take_below,          completes,               "PS-25"),
    Row(Polled,        SYNCING,                    BEHIND,     take_below,          brings,                  "PS-193"),
    Row(Polled,        SYNCING,                    STAY,       take_and_poll,       None,                    "PS-25"),
    Row(Handed,        (WAITING, *READING),        STAY,       take_handed,         None,                    "PS-177"),
    Row(PollDue,       SYNCING,                    STAY,       poll,                None,                    "PS-25"),
    Row(Settled,       FINALIZING,                 DONE,       take_buffer,         None,                    "PS-26"),
    Row(Starve,        (*KEEPING, DONE),           BEHIND,     fall_behind,         is_still_to_take,        "PS-199"),
    Row(LinkLost,      WAITING,                    STAY,       ask_marker,          None,                    "PS-330"),
    Row(LinkLost,      (*KEEPING, DONE),           WAITING,    ask_fresh,           None,                    "PS-28"),
    Row(MarkerTimeout, (WAITING, SYNCING),         FENCING,    fence_silent,        None,                    "PS-30"),
    Row(WriterDown,    FOLLOWING,                  FENCING,    fence_silent,        None,                    "PS-30"),
    Row(FencedRows,    FENCING,                    DRAINING,   take_page,           has_more,                "PS-194"),
    Row(Room,          DRAINING,                   FENCING,    read_on,             None,                    "PS-194"),
    Row(FencedRows,    FENCING,                    DONE,       take_fenced,         stays_gone,              "PS-32"),
    Row(FencedRows,    FENCING,                    WAITING,    take_fenced_and_ask, is_of_this_fence,        "PS-32"),
    Row(WriterDown,    FENCED,                     FENCING,    fence_silent,        None,                    "PS-33"),
    Row(LinkLost,      FENCED,                     STAY,       ask_marker_later,    None,                    "PS-33"),
    Row(Live,          FENCED,                     STAY,       note_heard,          is_of_newer_epoch,       "PS-33"),
    Row(LiveMarker,    FENCED,                     STAY,       note_heard,          is_of_newer_epoch,       "PS-33"),
    Row(WriterUp,      FENCED,                     STAY,       ask_marker_later,    None,                    "PS-33"),
    Row(WriterUp,      DONE,                       WAITING,    ask_fresh,           None,                    "PS-28"),
    Ignore((Live, LiveMarker),      (*FOLLOWING, *FENCED),                                                   "PS-29"),
    Ignore((Polled,),               (WAITING, BEHIND, FINALIZING, *FENCED, DONE),                            "PS-34"),
    Ignore((FencedRows,),           (*FOLLOWING, *FENCED),                                                   "PS-34"),
    Ignore((Handed,),               (FINALIZING, *FENCED, DONE),                                             "PS-177"),
    Ignore((Settled,),              (WAITING, *READING, *FENCED, DONE),                                      "PS-26"),
    Ignore((Room,),                 (WAITING, SYNCING, FINALIZING, FENCING, DONE),                           "PS-193"),
    Ignore((AskAgain,),             (*KEEPING, *FENCED, DONE),                                               "PS-35"),
    Ignore((PollDue,),              (WAITING, BEHIND, FINALIZING, *FENCED, DONE),                            "PS-35"),
    Ignore((MarkerTimeout,),        (BEHIND, FINALIZING, *FENCED, DONE),                                     "PS-35"),
    Ignore((WriterUp,),             (WAITING, *KEEPING),                                                     "PS-28"),
    Refuse((Begin,),                (*FOLLOWING, *FENCED),                                                   "PS-20"),
    Refuse((Starve,),               (*FOLLOWING, *FENCED),                                                   "PS-199"),
    Ignore((CatchUp,),              (*KEEPING, *FENCED),                                                     "PS-482"),
    Refuse((Live, LiveMarker, Polled, FencedRows, Handed, Settled, Room, Starve, CatchUp, AskAgain, PollDue,
            MarkerTimeout, LinkLost, WriterDown, WriterUp), NEW,                                             "PS-20"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def keeps_only_behind_the_marker(record: WriterFlowRecord) -> bool:
    """P5: awaiting nothing is buffered; afterwards from the marker on and without a hole; and when done nothing."""
    if record.status not in KEEPING:
        return not record.buffer
    numbers = tuple(one.number for one in record.buffer)
    is_bounded = len(numbers) <= record.times.resume_buffer
    return is_bounded and record.k > 0 and numbers == tuple(range(record.k, next_live(record)))


def is_done_below_the_marker(record: WriterFlowRecord) -> bool:
    """P4: while the database is read nothing from the marker on is taken; before the buffer is, all below it."""
    if record.status in READING:
        return record.taken < record.k
    return record.status is not FINALIZING or (record.taken == record.k - 1 and record.seen)


WRITER_FLOW = Fsm(
    "writer_flow",
    protocol="persistent_sessions",
    record=WriterFlowRecord,
    states=FlowStatus,
    initial=NEW,
    rows=ROWS,
    timers=(
        Timer("repeat", AskAgain, (WAITING,), lambda record: record.times.repeat_ms * MS),
        Timer("marker", MarkerTimeout, (WAITING, SYNCING), lambda record: record.times.marker_ms * MS),
        Timer("poll", PollDue, (SYNCING,), lambda record: record.times.poll_ms * MS, on_entry=False),
    ),
    key=lambda record: record.writer,
    invariants=(
        Invariant("keeps-only-behind-the-marker", "PS-36", keeps_only_behind_the_marker),
        Invariant("is-done-below-the-marker", "PS-37", is_done_below_the_marker),
    ),
)

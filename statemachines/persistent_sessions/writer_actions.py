"""What an event makes of a Writer: the guards and actions of its table (`writer`)."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Ask, Effect, Effects, Event, Send, Tell
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Queued, Written
from statemachines.persistent_sessions.request import (
    DATABASE,
    BeginEpoch,
    EpochBegun,
    Mark,
    PutMarker,
    PutRows,
    ReadRow,
    RowFenced,
    RowRead,
    RowsDuplicate,
    RowStored,
)
from statemachines.persistent_sessions.writer_record import (
    Done,
    Hand,
    HandRange,
    LiveGone,
    LiveKnown,
    RangeWritten,
    Start,
    WriterJob,
    WriterRecord,
)


def mark_of(event: MarkerWanted) -> Mark:
    return event.token, event.n


def marker_waits(record: WriterRecord) -> Mark:
    """The marker that waits."""
    return (0, 0) if record.waiting is None else mark_of(record.waiting)


# -- guards ---------------------------------------------------------------------------------------------------------


def is_answered(record: WriterRecord, event: MarkerWanted) -> bool:
    """This very marker is stored: the request was repeated."""
    return mark_of(event) == record.mark and record.k > 0


def is_latest(record: WriterRecord, event: MarkerWanted) -> bool:
    """No later one was asked for; one whose epoch has ended since is wanted again."""
    return mark_of(event) >= record.mark


def is_later(record: WriterRecord, event: MarkerWanted) -> bool:
    """Later than the one under way, and than the one that waits."""
    return mark_of(event) > max(record.mark, marker_waits(record))


def row_is_next(record: WriterRecord, event: Event) -> bool:
    return bool(record.inbox) and not marker_is_next(record, event)


def marker_is_next(record: WriterRecord, event: Event) -> bool:
    return record.waiting is not None and record.place == record.head


def is_found_and_row_is_next(record: WriterRecord, event: RowRead) -> bool:
    return event.found and row_is_next(record, event)


def is_found_and_marker_is_next(record: WriterRecord, event: RowRead) -> bool:
    return event.found and marker_is_next(record, event)


def is_found(record: WriterRecord, event: RowRead) -> bool:
    return event.found


def leaves_rows(record: WriterRecord, event: RowsDuplicate) -> bool:
    """Some message of the range is still to be stored."""
    return any(row.number not in event.numbers for row in number_rows(record))


def is_known_later(record: WriterRecord, event: LiveKnown) -> bool:
    """Of no owner before the one that is known."""
    return event.token >= record.token


def is_of_the_owner(record: WriterRecord, event: LiveGone) -> bool:
    return event.token == record.token


# -- the serial order -----------------------------------------------------------------------------------------------


def number_rows(record: WriterRecord, stored_ns: int = 0) -> tuple[Queued, ...]:
    """The messages under way, with the next numbers."""
    assert record.job is not None
    return tuple(
        Queued(number, hand.message, hand.filter, hand.qos, hand.until_ns, stored_ns, hand.more)
        for number, hand in enumerate(record.job.hands, record.last + 1)
    )


def put(record: WriterRecord) -> Done:
    """Ask for what is under way, under the epoch and numbers of now."""
    assert record.job is not None
    marker = record.job.marker
    session, writer, epoch = record.session, record.writer, record.epoch
    if marker is None:
        return record, (Ask(DATABASE, PutRows(session, writer, epoch, number_rows(record))),)
    return record, (Ask(DATABASE, PutMarker(session, writer, epoch, record.last + 1, marker.token, marker.n)),)


def take_next(record: WriterRecord) -> Done:
    """The marker, if it is its turn: it is the latest from now on.  Else all that waits before it is one range."""
    if record.waiting is not None and record.place == record.head:
        job = WriterJob(marker=record.waiting)
        return put(replace(record, job=job, waiting=None, place=0, mark=mark_of(record.waiting), k=0))
    if not record.inbox:
        return replace(record, job=None), ()
    return put(take_range(record))


def take_range(record: WriterRecord) -> WriterRecord:
    """With the next range under way; where nothing waits any more places begin anew."""
    behind = record.end if record.waiting is None else record.place
    behind = min(behind, record.head + record.range_max)
    inbox = record.inbox.mutate()
    hands = tuple(inbox.pop(place) for place in range(record.head, behind))
    place = record.place
    if not inbox:
        place, behind = max(0, place - behind), 0
    return replace(record, job=WriterJob(hands), inbox=inbox.finish(), head=behind, place=place)


def send_stored(record: WriterRecord, stored_ns: int) -> tuple[WriterRecord, Effects]:
    """The rows are stored: each is sent live, where somebody is, and then their publishers are answered."""
    assert record.job is not None
    hands = record.job.hands
    effects: list[Effect] = []
    if record.to:
        for queued, hand in zip(number_rows(record, stored_ns), hands, strict=True):
            live = Live(record.session, record.writer, record.epoch, queued, hand.since_ns)
            effects.append(Send(record.to, live))
    return replace(record, last=record.last + len(hands)), (*effects, *answer_publishers(hands))


def answer_publishers(hands: tuple[Hand, ...]) -> Effects:
    """Those of these messages."""
    if len(hands) > 1:
        return (Tell(RangeWritten(hands)),)
    return tuple(Tell(Written(one.message, one.filter)) for one in hands)


def send_marker(record: WriterRecord, marker: MarkerWanted) -> Send:
    k = record.k
    return Send(marker.to, LiveMarker(record.session, record.writer, record.epoch, k, marker.token, marker.n))


# -- actions --------------------------------------------------------------------------------------------------------


def begin(record: WriterRecord, event: Start, now_ns: int) -> Done:
    return record, (Ask(DATABASE, BeginEpoch(record.session, record.writer)),)


def begin_epoch(record: WriterRecord, event: EpochBegun, now_ns: int) -> Done:
    return take_next(replace(record, epoch=event.epoch))


def store(record: WriterRecord, event: Hand, now_ns: int) -> Done:
    return put(replace(record, job=WriterJob((event,))))


def queue(record: WriterRecord, event: Hand, now_ns: int) -> Done:
    return replace(record, inbox=record.inbox.set(record.end, event)), ()


def store_range(record: WriterRecord, event: HandRange, now_ns: int) -> Done:
    """As many as a range may have; the others wait."""
    most = record.range_max
    return put(queue_hands(replace(record, job=WriterJob(event.hands[:most])), event.hands[most:]))


def queue_range(record: WriterRecord, event: HandRange, now_ns: int) -> Done:
    return queue_hands(record, event.hands), ()


def queue_hands(record: WriterRecord, hands: tuple[Hand, ...]) -> WriterRecord:
    """Behind the messages that wait."""
    inbox = record.inbox.mutate()
    for place, hand in enumerate(hands, record.end):
        inbox[place] = hand
    return replace(record, inbox=inbox.finish())


def mark(record: WriterRecord, event: MarkerWanted, now_ns: int) -> Done:
    return put(replace(record, job=WriterJob(marker=event), mark=mark_of(event), k=0))


def queue_marker(record: WriterRecord, event: MarkerWanted, now_ns: int) -> Done:
    """One before it that still waits is wanted by nobody any more."""
    return replace(record, waiting=event, place=record.end), ()


def show_again(record: WriterRecord, event: MarkerWanted, now_ns: int) -> Done:
    return record, (send_marker(record, event),)


def drop_rows(record: WriterRecord, event: RowsDuplicate) -> tuple[WriterRecord, Effects]:
    """Those are stored, by another: they go out of the range, and their publishers are answered."""
    assert record.job is not None
    numbered = tuple(enumerate(record.job.hands, record.last + 1))
    kept = tuple(hand for number, hand in numbered if number not in event.numbers)
    stored = tuple(hand for number, hand in numbered if number in event.numbers)
    return replace(record, job=WriterJob(kept)), answer_publishers(stored)


def drop_duplicates(record: WriterRecord, event: RowsDuplicate, now_ns: int) -> Done:
    record, stored = drop_rows(record, event)
    record, effects = put(record)
    return record, (*stored, *effects)


def drop_all(record: WriterRecord, event: RowsDuplicate, now_ns: int) -> Done:
    record, stored = drop_rows(record, event)
    record, effects = take_next(record)
    return record, (*stored, *effects)


def send_and_go_on(record: WriterRecord, event: RowStored | RowRead, now_ns: int) -> Done:
    record, effects = send_stored(record, event.stored_ns)
    record, more = take_next(record)
    return record, (*effects, *more)


def show_and_go_on(record: WriterRecord, event: Event, now_ns: int) -> Done:
    assert record.job is not None
    assert record.job.marker is not None
    marker = record.job.marker
    record = replace(record, k=record.last + 1)
    effect = send_marker(record, marker)
    record, more = take_next(record)
    return record, (effect, *more)


def put_again(record: WriterRecord, event: Event, now_ns: int) -> Done:
    return put(record)


def put_under_next_epoch(record: WriterRecord, event: RowFenced, now_ns: int) -> Done:
    return put(replace(record, epoch=event.epoch, last=0, k=0))


def read_back(record: WriterRecord, event: Event, now_ns: int) -> Done:
    """A range is stored as a whole, or not at all: its first row tells of all."""
    return record, (Ask(DATABASE, ReadRow(record.session, record.writer, record.epoch, record.last + 1)),)


def go_live(record: WriterRecord, event: LiveKnown, now_ns: int) -> Done:
    return replace(record, to=event.to, token=event.token), ()


def end_live(record: WriterRecord, event: LiveGone, now_ns: int) -> Done:
    return replace(record, to=""), ()

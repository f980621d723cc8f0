"""Failed deliveries: a message that was handed over and not acknowledged, again and again.

Of each stream only the next message is counted: it failed when its member gave it back, or when a grant ended without a
final word and without progress.  The count stands beside the progress in the group store, and goes with the next
progress.  A message that failed `max_deliver` times is set aside: its stream is parked, or the message is dropped.
"""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from msgspec.structs import replace

from statemachines.kernel import Ask, Effect, Effects, Event, Tell, TraceColumns, in_order
from statemachines.shared_subscriptions.acknowledged_ranges import join_ranges
from statemachines.shared_subscriptions.assignment import GRANTING
from statemachines.shared_subscriptions.claim import PAGE, stage
from statemachines.shared_subscriptions.group_store import SERVICE, FailingMessage, Scan, Scanned
from statemachines.shared_subscriptions.leader_record import LeaderRecord, UncoveredProgress
from statemachines.shared_subscriptions.message import END_OF_STREAM, Ranges, Report
from statemachines.shared_subscriptions.names import FAILING
from statemachines.shared_subscriptions.stream_store import StreamsListed

COUNT_MAX: Final = 2**30
"""Nothing is counted further."""


class ProgressDraft(Protocol):
    """The part of `plan.Draft` that failed deliveries read and change."""

    @property
    def record(self) -> LeaderRecord:
        """As far as the step has come."""

    @record.setter
    def record(self, record: LeaderRecord) -> None: ...

    @property
    def now_ns(self) -> int:
        """When the step is taken."""

    @property
    def effects(self) -> list[Effect]:
        """Of the step, in order."""

    def keep_progress(self, stream: str, progress: int) -> None:
        """Where the next owner of the stream begins."""

    def note_progress(self, stream: str, progress: int, acked: Ranges = ()) -> None:
        """Stage it."""


class StreamParked(Event, frozen=True, gc=False):
    """To the registry: the message at `progress` failed `count` times.  Its stream is granted to nobody until somebody
    says that it is to go on behind it."""

    columns: ClassVar = TraceColumns(key="stream", first="progress")

    leader: str
    stream: str
    progress: int
    count: int


class MessageDropped(Event, frozen=True, gc=False):
    """To the registry: the message at `progress` failed `count` times, and is acknowledged in the name of the group.
    `asked`: somebody said so; else the group was configured so.  `topic`: its dead letter stands there ("": it has
    none)."""

    columns: ClassVar = TraceColumns(key="stream", first="progress")

    leader: str
    stream: str
    progress: int
    count: int
    asked: bool
    topic: str = ""


# -- counting -------------------------------------------------------------------------------------------------------


def count_failures(record: LeaderRecord, stream: str) -> int:
    """How often the message at the durable progress of the stream failed."""
    failing = record.failing.get(stream)
    return failing.count if failing is not None and failing.progress == record.streams[stream].progress else 0


def note_failed(
    draft: ProgressDraft,
    stream: str,
    progress: int,
    count: int,
    *,
    is_sure: bool,
    is_lost: bool = False,
    reason: str = "",
) -> None:
    """Keep the count.  `is_sure`: no other message can be what failed, so that it may be set aside; `is_lost`: its
    member went without a word; `reason`: why it was given back."""
    record = draft.record
    most = record.configuration.max_deliver
    if not record.configuration.count_deliveries or stream not in record.streams:
        return
    is_parked = is_sure and most is not None and count >= most
    acked = record.find_acked(stream)
    lost = is_parked and is_lost
    failing = FailingMessage(progress, min(count, COUNT_MAX), is_parked, lost=lost, acked=acked, reason=reason)
    if failing == record.failing.get(stream):
        return
    record = replace(record, failing=record.failing.set(stream, failing))
    draft.record, effects = stage(record, stream, failing, draft.now_ns)
    draft.effects.extend(effects)


def note_loss(draft: ProgressDraft, stream: str) -> None:
    """The owner of the stream went without a final word.  The first time it may have had the next message in hand, and
    others as well.  A message that failed before counts again only where its owner said that it had it in hand: it
    waits for its turn, and its owner may have died of another.  Where deliveries are bounded it was in hand alone."""
    assignment, known = draft.record.assignments[stream], draft.record.streams.get(stream)
    if known is None or assignment.status is GRANTING:
        return
    is_suspect = assignment.progress == known.progress < known.count and assignment.failed == 0
    if is_suspect or assignment.in_hand:
        is_sure = assignment.in_hand
        note_failed(draft, stream, assignment.progress, assignment.failed + 1, is_sure=is_sure, is_lost=True)


def note_report(draft: ProgressDraft, report: Report) -> None:
    """A last word says that the next message was given back."""
    known = draft.record.streams.get(report.stream)
    if known is not None and report.failed > count_failures(draft.record, report.stream):
        note_failed(draft, report.stream, report.progress, report.failed, is_sure=True, reason=report.reason)


def stage_progress(draft: ProgressDraft, stream: str, progress: int, acked: Ranges = ()) -> None:
    """Progress ends the count of the message that it has passed; a parked stream goes on.  `acked`: what is
    acknowledged behind it."""
    record = draft.record
    failing = record.failing.get(stream)
    if acked:
        stage_ranges(draft, stream, progress, acked)
        return
    if failing is None:
        draft.record, effects = stage(record, stream, progress, draft.now_ns)
        draft.effects.extend(effects)
        return
    record = replace(record, failing=record.failing.delete(stream))
    draft.record, effects = stage(record, stream, FailingMessage(progress, 0), draft.now_ns)
    draft.effects.extend(effects)
    if failing.parked:
        unpark(draft, stream)


def stage_ranges(draft: ProgressDraft, stream: str, progress: int, acked: Ranges) -> None:
    """The same, with ranges; where the progress is what it was, so is the count."""
    record, before = draft.record, draft.record.failing.get(stream)
    is_same = before is not None and before.progress == progress
    failing = replace(before, acked=acked) if before and is_same else FailingMessage(progress, 0, acked=acked)
    record = replace(record, failing=record.failing.set(stream, failing))
    draft.record, effects = stage(record, stream, failing, draft.now_ns)
    draft.effects.extend(effects)
    if before is not None and before.parked and not failing.parked:
        unpark(draft, stream)


# -- setting aside --------------------------------------------------------------------------------------------------


def is_spent(record: LeaderRecord, stream: str) -> bool:
    """The next message of the stream failed too often."""
    failing = record.failing.get(stream)
    if failing is None or not failing.parked:
        return False
    assignment = record.assignments.get(stream)
    return failing.progress == (record.streams[stream] if assignment is None else assignment).progress


def is_set_aside(record: LeaderRecord, stream: str) -> bool:
    """The stream is parked, and nobody holds it."""
    held = record.held.get(stream)
    return held is not None and held.borrower == "" and stream not in record.assignments and is_spent(record, stream)


def set_aside(draft: ProgressDraft, stream: str) -> None:
    """Nobody holds the stream any more: it is parked, or goes on behind the message."""
    record = draft.record
    failing = record.failing[stream]
    draft.record = replace(record, held=record.held.set(stream, UncoveredProgress("", 0, failing.progress)))
    if record.configuration.spent == "drop":
        drop_message(draft, stream, asked=False)
    else:
        draft.effects.append(Tell(StreamParked(record.id, stream, failing.progress, failing.count)))


def drop_message(draft: ProgressDraft, stream: str, *, asked: bool, topic: str = "") -> None:
    """The group goes on behind the message; the stream is free.  `topic`: where its dead letter stands."""
    failing = draft.record.failing[stream]
    draft.effects.append(Tell(MessageDropped(draft.record.id, stream, failing.progress, failing.count, asked, topic)))
    progress, acked = join_ranges(failing.progress + 1, failing.acked)
    draft.keep_progress(stream, progress)
    draft.note_progress(stream, progress, acked)


def unpark(draft: ProgressDraft, stream: str) -> None:
    record = draft.record
    held = record.held.get(stream)
    if held is None or held.borrower or stream in record.assignments:
        return
    draft.record = record = replace(record, held=record.held.delete(stream))
    known = record.streams.get(stream)
    if known is not None and known.progress != END_OF_STREAM and record.ranks[known.rank].open:
        draft.record = replace(record, free=record.free.push(stream))


# -- what earlier leaders have left, and what somebody says since ------------------------------------------------------


def parked_streams(record: LeaderRecord, event: StreamsListed) -> tuple[Tell, ...]:
    """Those of a page that are new to this leader: each is named once."""
    told = []
    for info in event.streams:
        failing = record.failing.get(info.stream)
        if failing is not None and failing.parked and not failing.skip and info.stream not in record.streams:
            told.append(Tell(StreamParked(record.id, info.stream, failing.progress, failing.count)))
    return tuple(told) if record.configuration.spent == "park" else ()


def settle_parked(draft: ProgressDraft) -> None:
    """Streams that were parked go on where that was said, or where nothing is parked any more."""
    for stream, failing in in_order(draft.record.failing):
        if is_set_aside(draft.record, stream) and (failing.skip or draft.record.configuration.spent == "drop"):
            drop_message(draft, stream, asked=failing.skip)


def look_at_parked(record: LeaderRecord) -> tuple[LeaderRecord, Effects]:
    """Ask whether somebody says that a parked stream is to go on."""
    if not any(is_set_aside(record, stream) for stream in record.failing):
        return record, ()
    n = record.number + 1
    return replace(record, number=n, parked_n=n), (Ask(SERVICE, Scan(n, record.key(FAILING), "", PAGE)),)


def is_look_at_parked(record: LeaderRecord, event: Scanned) -> bool:
    return event.n == record.parked_n


def note_skips(draft: ProgressDraft, event: Scanned) -> None:
    """What stands in the store of the parked streams, by whoever wrote it."""
    prefix = len(draft.record.key(FAILING))
    for key, stored in event.records:
        stream, said = key[prefix:], stored.value
        if not isinstance(said, FailingMessage) or not said.skip or not is_set_aside(draft.record, stream):
            continue
        if said.progress == draft.record.failing[stream].progress:
            drop_message(draft, stream, asked=True)

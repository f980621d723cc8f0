"""Progress cover: progress that nothing that is known of the store covers is neither staged nor granted onward.

Whoever reports is a peer, and what it says of a stream may be anything.  Progress within what the leader knows to be
stored counts at once; anything else waits until the store has been asked, one request at a time for many streams.
"""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec.structs import replace

from statemachines.kernel import Ask, Event, TimerFired, TraceColumns, in_order
from statemachines.shared_subscriptions.acknowledged_ranges import find_reach, join_ranges
from statemachines.shared_subscriptions.leader_record import KnownStream, LeaderRecord, UncoveredProgress
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.plan import Draft
from statemachines.shared_subscriptions.stream_store import SERVICE, Measure

MEASURED_MAX: Final = 1_000
"""Streams in one request; the others follow with the next."""


class MeasureTimer(TimerFired, frozen=True, gc=False):
    """The store did not say how far the streams go: ask again."""


class ProgressRefused(Event, frozen=True, gc=False):
    """To the registry: `borrower` reported `progress` of `grant`, and the stream has only `count` messages, or goes on;
    nothing of it counts."""

    columns: ClassVar = TraceColumns(key="stream", grant="grant", first="progress")

    leader: str
    borrower: str
    stream: str
    grant: int
    progress: int
    count: int


class StreamBehind(Event, frozen=True, gc=False):
    """To the registry: the store has only `count` messages of `stream`, or it goes on, and `progress` was committed:
    one of the two was restored.  The stream is not granted."""

    columns: ClassVar = TraceColumns(key="stream", first="progress")

    leader: str
    stream: str
    progress: int
    count: int


def covers(known: KnownStream | None, progress: int) -> bool:
    """Whether what is known to be stored reaches so far; of a stream that vanished nothing is kept anyway."""
    if known is None:
        return True
    return known.ended if progress == END_OF_STREAM else progress <= known.count


def is_covered(record: LeaderRecord, stream: str, progress: int) -> bool:
    """Whether this progress of the stream can be believed at once."""
    return covers(record.streams.get(stream), progress)


def hold(draft: Draft, stream: str, said: UncoveredProgress) -> None:
    """Keep what was said until the store has answered, and ask it at once.  Of one grant the greatest counts."""
    record = draft.record
    before = record.held.get(stream)
    if before is not None and before.grant == said.grant:
        finished = before.finished or said.finished
        progress, acked = join_ranges(max(before.progress, said.progress), before.acked, said.acked)
        is_further = find_reach(said.progress, said.acked) > find_reach(before.progress, before.acked)
        n = 0 if is_further else before.n
        said = replace(said, progress=progress, finished=finished, n=n, free=before.free, acked=acked)
    draft.record = replace(record, held=record.held.set(stream, said))
    measure(draft)


def measure(draft: Draft) -> None:
    """Ask how far the streams go of which nobody has asked yet, unless a request is under way."""
    record = draft.record
    if record.measure_n:
        return
    streams = [stream for stream, held in in_order(record.held) if held.n == 0 and held.borrower]
    if not streams:
        return
    n = record.number + 1
    held = record.held.mutate()
    for stream in streams[:MEASURED_MAX]:
        held[stream] = replace(record.held[stream], n=n)
    draft.record = replace(record, number=n, measure_n=n, held=held.finish())
    draft.effects.append(Ask(SERVICE, Measure(n, tuple(streams[:MEASURED_MAX]))))

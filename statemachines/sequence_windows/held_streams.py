"""HeldStreams: a receiver's streams that miss something, as a declared process.

A message that shows how many are missing before it begins a stream, if there is a place.  Streams that are held take
their messages themselves.  All streams share the places for runs.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    ADDRESSEE,
    OUTSIDE,
    PROCESS,
    STAY,
    Arrived,
    Begin,
    Effects,
    Event,
    EventRoute,
    Feed,
    Forget,
    Fsm,
    PartyKind,
    Process,
    Row,
    Status,
    Tell,
    TraceColumns,
)
from statemachines.missed_samples.recovery import Recovery
from statemachines.sequence_windows.held_stream import HELD_STREAM
from statemachines.sequence_windows.held_stream_actions import begin_stream
from statemachines.sequence_windows.held_stream_record import (
    BeginRun,
    MessagePassed,
    NextRun,
    RecoveredMessage,
    RefuseRun,
    ReplyUnexpected,
    RunSettled,
    RunWanted,
    StreamMessage,
)
from statemachines.sequence_windows.message import Verdict
from statemachines.sequence_windows.sequence import frame_of

RUNS_MAX: Final = 1_000_000
"""No receiver has more runs, whatever its `Recovery.sources`."""

STREAMS = PartyKind("stream", HELD_STREAM, most=RUNS_MAX)


class StreamBegun(Event, frozen=True, gc=False):
    """To the host: the message that has just come began this stream."""

    columns: ClassVar = TraceColumns(key="stream")

    stream: str


class StreamEnded(Event, frozen=True, gc=False):
    """To the host: the stream misses nothing any more, or is dropped."""

    columns: ClassVar = TraceColumns(key="stream")

    stream: str


class PlaceRefused(Event, frozen=True, gc=False):
    """To the host: a stream is not held, for want of places."""


class HeldStreamsStatus(Status):
    """A receiver has one state: it is there."""

    OPEN = "open"


OPEN = HeldStreamsStatus.OPEN


class HeldStreamsRecord(msgspec.Struct, frozen=True, gc=False):
    """The process of one receiver."""

    id: str
    recovery: Recovery
    streams: int = 0
    """How many have begun."""
    runs: int = 0
    """How many there are, of all streams."""
    status: HeldStreamsStatus = OPEN


Done = tuple[HeldStreamsRecord, Effects]


# -- guards ---------------------------------------------------------------------------------------------------------


def is_hole(verdict: Verdict, unknown: bool) -> bool:
    """A message with this verdict shows how many are missing before it."""
    return verdict is Verdict.SKIP and not unknown


def shows_hole(record: HeldStreamsRecord, event: Arrived) -> bool:
    message = event.message
    return isinstance(message, StreamMessage) and is_hole(message.verdict, message.unknown)


def begins_stream(record: HeldStreamsRecord, event: Arrived) -> bool:
    """It shows a hole, and there are places: one run for the frame of the last number, one for another frame."""
    if not shows_hole(record, event):
        return False
    runs = 1 if frame_of(event.message.last) == frame_of(event.message.number) else 2
    return record.runs + runs <= record.recovery.sources


def has_come_by_itself(record: HeldStreamsRecord, event: Arrived) -> bool:
    return isinstance(event.message, StreamMessage)


def has_place(record: HeldStreamsRecord, event: RunWanted) -> bool:
    return record.runs < record.recovery.sources


def has_next(record: HeldStreamsRecord, event: RunSettled) -> bool:
    return event.left > 0


# -- actions --------------------------------------------------------------------------------------------------------


def begin(record: HeldStreamsRecord, event: Arrived, now_ns: int) -> Done:
    """From behind the last number that the window knew."""
    stream = STREAMS.id_of(record.id, record.streams + 1)
    held = begin_stream(stream, record.recovery, event.message.last + 1)
    effects = (Tell(StreamBegun(stream)), Begin(stream, STREAMS.name, held), Feed(stream, event.message))
    return replace(record, streams=record.streams + 1, runs=record.runs + 1), effects


def refuse_place(record: HeldStreamsRecord, event: Arrived, now_ns: int) -> Done:
    return record, (Tell(PlaceRefused()), Tell(MessagePassed(event.message.number)))


def pass_message(record: HeldStreamsRecord, event: Arrived, now_ns: int) -> Done:
    return record, (Tell(MessagePassed(event.message.number)),)


def count_unexpected(record: HeldStreamsRecord, event: Arrived, now_ns: int) -> Done:
    return record, (Tell(ReplyUnexpected()),)


def grant_run(record: HeldStreamsRecord, event: RunWanted, now_ns: int) -> Done:
    return replace(record, runs=record.runs + 1), (Feed(event.stream, BeginRun(event.number, event.before)),)


def refuse_run(record: HeldStreamsRecord, event: RunWanted, now_ns: int) -> Done:
    return record, (Feed(event.stream, RefuseRun(event.number)),)


def go_on(record: HeldStreamsRecord, event: RunSettled, now_ns: int) -> Done:
    return replace(record, runs=record.runs - event.over), (Feed(event.stream, NextRun()),)


def end(record: HeldStreamsRecord, event: RunSettled, now_ns: int) -> Done:
    return replace(record, runs=record.runs - event.over), (Forget(event.stream), Tell(StreamEnded(event.stream)))


# fmt: off
ROWS = (
    #   on          from  to    do                when                clause
    Row(Arrived,    OPEN, STAY, begin,            begins_stream,      "SW-70"),
    Row(Arrived,    OPEN, STAY, refuse_place,     shows_hole,         "SW-74"),
    Row(Arrived,    OPEN, STAY, pass_message,     has_come_by_itself, "SW-72"),
    Row(Arrived,    OPEN, STAY, count_unexpected, None,               "SW-77"),
    Row(RunWanted,  OPEN, STAY, grant_run,        has_place,          "SW-93"),
    Row(RunWanted,  OPEN, STAY, refuse_run,       None,               "SW-74"),
    Row(RunSettled, OPEN, STAY, go_on,            has_next,           "SW-95"),
    Row(RunSettled, OPEN, STAY, end,              None,               "SW-98"),
)
# fmt: on

HELD_STREAMS_MACHINE = Fsm(
    "held_streams",
    protocol="sequence_windows",
    record=HeldStreamsRecord,
    states=HeldStreamsStatus,
    initial=OPEN,
    rows=ROWS,
)

# fmt: off
HELD_STREAMS = Process(
    "held_streams",
    HELD_STREAMS_MACHINE,
    kinds=(STREAMS,),
    routes=(
        EventRoute((StreamMessage, RecoveredMessage), (OUTSIDE,), ADDRESSEE, "SW-70"),
        EventRoute((RunWanted, RunSettled), (STREAMS.name,), PROCESS, "SW-74"),
    ),
)
# fmt: on

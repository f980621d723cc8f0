"""Stream: one stream as its Borrower sees it (source: "Individual stream states").

`absent -> granted -> revoking -> absent`, one instance per (stream, grant); an absent record remembers the highest
grant number seen for the stream, held or not, so that a slow copy of an old grant never installs it again (the
source's own bug, see DECISIONS).  A higher grant on a held stream ends the old instance (`Replaced`) before the new
one begins, so no instance ever goes back.
"""

from __future__ import annotations

from operator import attrgetter
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Call,
    Effects,
    Event,
    Fsm,
    Ignore,
    Row,
    Send,
    Status,
    Tell,
    TraceColumns,
)
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Grant,
    Ranges,
    Report,
    Revoke,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)


class StreamLink(msgspec.Struct, frozen=True, gc=False):
    """What both sides echo once a borrower is connected: who, with whom, under which numbers."""

    borrower: str
    leader: str
    epoch: int
    registration: int


# -- to and from the session ----------------------------------------------------------------------------------------


class Install(Event, frozen=True, gc=False):
    """To the session: read `stream` from `progress`, under this grant; what follows as in a `Grant`."""

    columns: ClassVar = TraceColumns(key="stream", first="progress", last="reach")

    owner: str
    stream: str
    grant: int
    progress: int
    failed: int = 0
    most: int = 0
    relaxed: bool = False
    acked: Ranges = ()
    repeats: int = 0

    @property
    def reach(self) -> int | None:
        """For traces: where the group's order is relaxed, the offset behind all that is acknowledged."""
        return max([self.progress, *(last + 1 for _, last in self.acked)]) if self.relaxed else None


class Finish(Event, frozen=True, gc=False):
    """To the session: deliver nothing new of `stream`; report the final progress when all is acknowledged."""

    columns: ClassVar = TraceColumns(key="stream")

    owner: str
    stream: str
    grant: int


class Uninstall(Event, frozen=True, gc=False):
    """To the session: drop `stream` at once; acknowledgements under this grant count no more."""

    columns: ClassVar = TraceColumns(key="stream")

    owner: str
    stream: str
    grant: int


class StreamProgress(Call, frozen=True, gc=False):
    """From the session: all below `progress` is acknowledged; `finished`: and nothing more will come; what follows as
    in a `Report`."""

    columns: ClassVar = TraceColumns(key="stream", first="progress")

    stream: str
    grant: int
    progress: int
    finished: bool = False
    failed: int = 0
    in_hand: bool = False
    acked: Ranges = ()
    reason: str = ""


class Replaced(Call, frozen=True, gc=False):
    """From the Borrower: a higher grant of the same stream is about to take this one's place."""


class Finishing(Call, frozen=True, gc=False):
    """From the Borrower: the subscription ends; finish this stream."""


class Dropped(Call, frozen=True, gc=False):
    """From the Borrower: it is at its end and hands the stream back to the session."""


# -- record ---------------------------------------------------------------------------------------------------------


class StreamStatus(Status):
    """The source's stream states."""

    ABSENT = "absent"
    GRANTED = "granted"
    REVOKING = "revoking"


ABSENT, GRANTED, REVOKING = StreamStatus
HELD = (GRANTED, REVOKING)


class StreamRecord(msgspec.Struct, frozen=True, gc=False):
    """One stream.  `grant` is the number held or, absent, the highest seen; what follows `finished` as
    in a `Report`."""

    link: StreamLink
    stream: str
    status: StreamStatus = ABSENT
    grant: int = 0
    progress: int = 0
    finished: bool = False
    failed: int = 0
    in_hand: bool = False
    acked: Ranges = ()
    reason: str = ""

    @property
    def is_unfinished(self) -> bool:
        """Held, and the final progress is not known."""
        return self.status is not ABSENT and not self.finished

    def report(self) -> Report:
        """The stream as pings and disconnects report it."""
        said = (self.progress, self.finished, self.failed, self.in_hand, self.acked, self.reason)
        return Report(self.stream, self.grant, *said)


# -- guards ---------------------------------------------------------------------------------------------------------


def is_higher(record: StreamRecord, event: Grant | Revoke | Revoked) -> bool:
    return event.grant > record.grant


def is_equal(record: StreamRecord, event: Grant | Revoke | Revoked | StreamProgress) -> bool:
    return event.grant == record.grant


def is_lower(record: StreamRecord, event: Revoke | Revoked) -> bool:
    return event.grant < record.grant


def advances(record: StreamRecord, event: StreamProgress) -> bool:
    """Of this grant, and not behind what is known: progress never decreases."""
    return event.grant == record.grant and event.progress >= record.progress


# -- actions --------------------------------------------------------------------------------------------------------


def install(record: StreamRecord, event: Grant, now_ns: int) -> tuple[StreamRecord, Effects]:
    record = replace(
        record,
        grant=event.grant,
        progress=event.progress,
        finished=False,
        failed=event.failed,
        in_hand=False,
        acked=event.acked,
        reason="",
    )
    at = (record.stream, record.grant, record.progress)
    failures = (event.failed, event.most)
    tell = Tell(Install(record.link.borrower, *at, *failures, event.relaxed, event.acked, event.repeats))
    return record, (tell, answer(record))


def answer_progress(record: StreamRecord, event: Event, now_ns: int) -> tuple[StreamRecord, Effects]:
    return record, (answer(record),)


def finish(record: StreamRecord, event: Event, now_ns: int) -> tuple[StreamRecord, Effects]:
    return record, (Tell(Finish(record.link.borrower, record.stream, record.grant)),)


def finish_and_answer(record: StreamRecord, event: Revoke, now_ns: int) -> tuple[StreamRecord, Effects]:
    return record, (Tell(Finish(record.link.borrower, record.stream, record.grant)), answer(record))


def confirm_only(record: StreamRecord, event: Revoke | Revoked, now_ns: int) -> tuple[StreamRecord, Effects]:
    return record, (confirm(record.link, record.stream, event.grant),)


def remember_and_confirm(record: StreamRecord, event: Revoke | Revoked, now_ns: int) -> tuple[StreamRecord, Effects]:
    record = replace(record, grant=max(record.grant, event.grant))
    return record, (confirm(record.link, record.stream, event.grant),)


def uninstall_and_confirm(record: StreamRecord, event: Revoke | Revoked, now_ns: int) -> tuple[StreamRecord, Effects]:
    tell = Tell(Uninstall(record.link.borrower, record.stream, record.grant))
    record = replace(record, grant=event.grant)
    return record, (tell, confirm(record.link, record.stream, event.grant))


def uninstall(record: StreamRecord, event: Event, now_ns: int) -> tuple[StreamRecord, Effects]:
    return record, (Tell(Uninstall(record.link.borrower, record.stream, record.grant)),)


def keep_progress(record: StreamRecord, event: StreamProgress, now_ns: int) -> tuple[StreamRecord, Effects]:
    finished = record.finished or event.finished or event.progress == END_OF_STREAM
    record = replace(
        record,
        progress=event.progress,
        finished=finished,
        failed=event.failed,
        in_hand=event.in_hand,
        acked=event.acked,
        reason=event.reason,
    )
    return record, (answer(record),)


def answer(record: StreamRecord) -> Send:
    """The progress of the stream, to the leader."""
    link = record.link
    # written out, by position: packing what follows the pair into a tuple costs as much again
    update = UpdateProgress(
        link.borrower,
        link.epoch,
        link.registration,
        record.stream,
        record.grant,
        record.progress,
        record.finished,
        record.failed,
        record.in_hand,
        record.acked,
        record.reason,
    )
    return Send(link.leader, update)


def make_update(borrower: str, epoch: int, registration: int, report: Report) -> UpdateProgress:
    """A report as a message of its own."""
    return UpdateProgress(
        borrower,
        epoch,
        registration,
        report.stream,
        report.grant,
        report.progress,
        report.finished,
        report.failed,
        report.in_hand,
        report.acked,
        report.reason,
    )


def confirm(link: StreamLink, stream: str, grant: int) -> Send:
    """`revoke_finished` for one grant, to the leader."""
    return Send(link.leader, RevokeFinished(link.borrower, link.epoch, link.registration, stream, grant))


# fmt: off
ROWS = (
    #   on              from      to        do                     when       clause
    Row(Grant,          ABSENT,   GRANTED,  install,               is_higher, "SS-30"),
    Row(Grant,          GRANTED,  STAY,     answer_progress,       is_equal,  "SS-31"),
    Row(Grant,          REVOKING, STAY,     answer_progress,       is_equal,  "SS-31"),
    Row(Replaced,       GRANTED,  ABSENT,   uninstall,             None,      "SS-32"),
    Row(Replaced,       REVOKING, ABSENT,   uninstall,             None,      "SS-32"),
    Row(Revoke,         GRANTED,  REVOKING, finish_and_answer,     is_equal,  "SS-33"),
    Row(Revoke,         REVOKING, STAY,     answer_progress,       is_equal,  "SS-34"),
    Row(Revoke,         HELD,     STAY,     confirm_only,          is_lower,  "SS-35"),
    Row(Revoke,         HELD,     ABSENT,   uninstall_and_confirm, None,      "SS-36"),
    Row(Revoke,         ABSENT,   STAY,     remember_and_confirm,  None,      "SS-36"),
    Row(Revoked,        HELD,     ABSENT,   uninstall_and_confirm, is_equal,  "SS-37"),
    Row(Revoked,        HELD,     STAY,     confirm_only,          is_lower,  "SS-35"),
    Row(Revoked,        HELD,     ABSENT,   uninstall_and_confirm, None,      "SS-36"),
    Row(Revoked,        ABSENT,   STAY,     remember_and_confirm,  None,      "SS-36"),
    Row(StreamProgress, HELD,     STAY,     keep_progress,         advances,  "SS-38"),
    Row(Finishing,      GRANTED,  REVOKING, finish,                None,      "SS-39"),
    Row(Dropped,        HELD,     ABSENT,   uninstall,             None,      "SS-40"),
    Ignore((Grant,),                         (ABSENT, GRANTED, REVOKING), "SS-41"),
    Ignore((StreamProgress,),                (ABSENT, GRANTED, REVOKING), "SS-42"),
    Ignore((Finishing,),                     (ABSENT, REVOKING),          "SS-39"),
    Ignore((Replaced, Dropped),              ABSENT,                      "SS-40"),
)
# fmt: on

STREAM = Fsm(
    "stream",
    protocol="shared_subscriptions",
    record=StreamRecord,
    states=StreamStatus,
    initial=ABSENT,
    rows=ROWS,
    key=attrgetter("stream"),
)

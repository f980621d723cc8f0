"""Assignment: one stream given to one borrower, as the Leader sees it (source: "Leader's logic").

`granting -> granted -> revoking -> revoked -> none`; an instance is one (stream, grant), made by `Assign` and gone at
`none`.  `grant`, `revoke` and `revoked` are repeated every `resend_interval` until answered; a grant is waited for no
longer than a validity, whatever else its borrower says meanwhile.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Effects, Event, Fsm, Ignore, Row, Send, SetTimer, Status, Timer, TimerFired
from statemachines.shared_subscriptions.acknowledged_ranges import join_ranges
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
from statemachines.shared_subscriptions.stream import StreamLink


class Assign(Call, frozen=True, gc=False):
    """From the Leader: give the stream to the borrower of the record."""


class TakeBack(Call, frozen=True, gc=False):
    """From the Leader: the borrower has more streams than its share."""


class Release(Call, frozen=True, gc=False):
    """From the Leader: the borrower is gone (expiry, kick, disconnect)."""


class Vanish(Call, frozen=True, gc=False):
    """From the Leader: the store has dropped the stream's generation."""


class ResendTimer(TimerFired, frozen=True, gc=False):
    """What was sent has not been answered."""


class GrantTimeout(TimerFired, frozen=True, gc=False):
    """The borrower has not answered the grant."""


class RevokeTimeout(TimerFired, frozen=True, gc=False):
    """The borrower has not finished the revoke."""


class AssignmentStatus(Status):
    """The source's statuses of an assignment; `none` before and after."""

    NONE = "none"
    GRANTING = "granting"
    GRANTED = "granted"
    REVOKING = "revoking"
    REVOKED = "revoked"


NONE, GRANTING, GRANTED, REVOKING, REVOKED = AssignmentStatus
ASSIGNED = (GRANTING, GRANTED, REVOKING, REVOKED)


class AssignmentRecord(msgspec.Struct, frozen=True, gc=False):
    """One assignment.  `progress`: where the borrower starts, then what it reported; periods in nanoseconds; `failed`:
    how often the message there was handed over and not acknowledged, `in_hand` as in a `Report`, `most`, `relaxed` and
    `repeats` as in a `Grant`, `acked` as in both; `reason` as in a `Report`; `finished`: nothing
    behind the progress was handed over under the grant, and nothing will be."""

    link: StreamLink
    stream: str
    grant: int
    progress: int
    resend_ns: int
    grant_timeout_ns: int
    revoke_timeout_ns: int
    status: AssignmentStatus = NONE
    failed: int = 0
    most: int = 0
    in_hand: bool = False
    relaxed: bool = False
    acked: Ranges = ()
    reason: str = ""
    repeats: int = 0
    finished: bool = False


def has_ended(record: AssignmentRecord, event: UpdateProgress) -> bool:
    return event.progress == END_OF_STREAM


def is_final(record: AssignmentRecord, event: UpdateProgress) -> bool:
    return event.finished or event.progress == END_OF_STREAM


def keep(record: AssignmentRecord, event: UpdateProgress, now_ns: int) -> tuple[AssignmentRecord, Effects]:
    return note(record, event), ()


def note(record: AssignmentRecord, event: UpdateProgress) -> AssignmentRecord:
    """With what was reported: failures are those of the message at the progress."""
    if is_last(event):
        record = replace(record, finished=True)
    progress, acked = join_report(record, event)
    if progress > record.progress:
        is_next = progress == event.progress
        failed, in_hand, reason = (event.failed, is_trial(event), event.reason) if is_next else (0, False, "")
        return replace(record, progress=progress, failed=failed, in_hand=in_hand, acked=acked, reason=reason)
    if event.progress < record.progress or event.failed < record.failed:
        return replace(record, acked=acked)
    in_hand = is_trial(event) or (record.in_hand and event.failed == record.failed)
    reason = event.reason or (record.reason if event.failed == record.failed else "")
    return replace(record, failed=event.failed, in_hand=in_hand, acked=acked, reason=reason)


def is_last(said: UpdateProgress | Report) -> bool:
    """Nothing behind the progress was handed over, but for a message there that was given back."""
    return said.finished and not said.in_hand


def is_trial(said: UpdateProgress) -> bool:
    """The message at the progress failed, and is handed over again now."""
    return said.in_hand and not said.finished


def join_report(record: AssignmentRecord, event: UpdateProgress | Report) -> tuple[int, Ranges]:
    """The progress and what is acknowledged behind it, with what was reported."""
    if not record.relaxed:
        return event.progress, ()
    return join_ranges(max(event.progress, record.progress), record.acked, event.acked)


def keep_and_send_revoked(
    record: AssignmentRecord, event: UpdateProgress, now_ns: int
) -> tuple[AssignmentRecord, Effects]:
    record = note(record, event)
    return record, (make_revoked(record),)


def send_grant(record: AssignmentRecord, event: Event, now_ns: int) -> tuple[AssignmentRecord, Effects]:
    return record, (grant(record),)


def send_revoke(record: AssignmentRecord, event: Event, now_ns: int) -> tuple[AssignmentRecord, Effects]:
    return record, (revoke(record),)


def send_revoked(record: AssignmentRecord, event: Event, now_ns: int) -> tuple[AssignmentRecord, Effects]:
    return record, (make_revoked(record),)


def resend_grant(record: AssignmentRecord, event: ResendTimer, now_ns: int) -> tuple[AssignmentRecord, Effects]:
    return record, (make_again_timer(record, now_ns), grant(record))


def resend_revoke(record: AssignmentRecord, event: ResendTimer, now_ns: int) -> tuple[AssignmentRecord, Effects]:
    return record, (make_again_timer(record, now_ns), revoke(record))


def resend_revoked(record: AssignmentRecord, event: ResendTimer, now_ns: int) -> tuple[AssignmentRecord, Effects]:
    return record, (make_again_timer(record, now_ns), make_revoked(record))


def make_again_timer(record: AssignmentRecord, now_ns: int) -> SetTimer:
    return SetTimer("resend", now_ns + record.resend_ns, record.stream)


def grant(record: AssignmentRecord) -> Send:
    """The stream and where to read from, to its borrower."""
    to, at = record.link, (record.stream, record.grant, record.progress, record.failed, record.most)
    more = (record.relaxed, record.acked, record.repeats)
    return Send(to.borrower, Grant(to.borrower, to.epoch, to.registration, *at, *more))


def revoke(record: AssignmentRecord) -> Send:
    """Finish the stream."""
    to = record.link
    return Send(to.borrower, Revoke(to.borrower, to.epoch, to.registration, record.stream, record.grant))


def make_revoked(record: AssignmentRecord) -> Send:
    """The final progress has arrived."""
    to = record.link
    return Send(to.borrower, Revoked(to.borrower, to.epoch, to.registration, record.stream, record.grant))


# fmt: off
ROWS = (
    #   on              from      to        do                     when       clause
    Row(Assign,         NONE,     GRANTING, send_grant,            None,      "SS-80"),
    Row(ResendTimer,    GRANTING, STAY,     resend_grant,          None,      "SS-81"),
    Row(ResendTimer,    REVOKING, STAY,     resend_revoke,         None,      "SS-81"),
    Row(ResendTimer,    REVOKED,  STAY,     resend_revoked,        None,      "SS-81"),
    Row(UpdateProgress, GRANTING, REVOKED,  keep_and_send_revoked, has_ended, "SS-84"),
    Row(UpdateProgress, GRANTING, GRANTED,  keep,                  None,      "SS-82"),
    Row(UpdateProgress, GRANTED,  REVOKED,  keep_and_send_revoked, has_ended, "SS-84"),
    Row(UpdateProgress, GRANTED,  STAY,     keep,                  None,      "SS-82"),
    Row(TakeBack,       GRANTED,  REVOKING, send_revoke,           None,      "SS-83"),
    Row(UpdateProgress, REVOKING, REVOKED,  keep_and_send_revoked, is_final,  "SS-84"),
    Row(UpdateProgress, REVOKING, STAY,     keep,                  None,      "SS-85"),
    Row(UpdateProgress, REVOKED,  STAY,     keep,                  None,      "SS-85"),
    Row(Vanish,         (GRANTING, GRANTED, REVOKING), REVOKED, send_revoked, None, "SS-90"),
    Row(RevokeFinished, ASSIGNED, NONE,     None,                  None,      "SS-86"),
    Row(RevokeTimeout,  (REVOKING, REVOKED), NONE, None,           None,      "SS-87"),
    Row(GrantTimeout,   GRANTING, NONE,     None,                  None,      "SS-91"),
    Row(Release,        ASSIGNED, NONE,     None,                  None,      "SS-88"),
    Ignore((ResendTimer,),                 (NONE, GRANTED),              "SS-89"),
    Ignore((RevokeTimeout,),               (NONE, GRANTING, GRANTED),    "SS-89"),
    Ignore((GrantTimeout,),                (NONE, GRANTED, REVOKING, REVOKED), "SS-89"),
    Ignore((TakeBack,),                    (NONE, GRANTING, REVOKING, REVOKED), "SS-83"),
    Ignore((Vanish,),                      (NONE, REVOKED),              "SS-90"),
    Ignore((Assign,),                      ASSIGNED,                     "SS-80"),
    Ignore((UpdateProgress, RevokeFinished, Release), NONE,              "SS-89"),
)
# fmt: on

ASSIGNMENT = Fsm(
    "assignment",
    protocol="shared_subscriptions",
    record=AssignmentRecord,
    states=AssignmentStatus,
    initial=NONE,
    rows=ROWS,
    timers=(
        Timer("resend", ResendTimer, (GRANTING, REVOKING, REVOKED), lambda record: record.resend_ns),
        Timer("grant_timeout", GrantTimeout, (GRANTING,), lambda record: record.grant_timeout_ns),
        Timer("revoke_timeout", RevokeTimeout, (REVOKING, REVOKED), lambda record: record.revoke_timeout_ns),
    ),
    key=lambda record: record.stream,
)

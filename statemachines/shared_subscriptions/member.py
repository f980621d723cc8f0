"""Member: one registered borrower, as the Leader sees it (source: "Tracks the connected Borrowers").

`registered -> lapsed -> gone`.  Each member has its own expiry, moved by its own messages only.  A member that went
without a final word (expiry, kick) is lapsed until its lease has surely ended: its streams may be granted again
only then.  One that never had a ping answered has no lease and is gone at once, and so is everyone where hand-over is
not exclusive.  A member that holds many streams is lapsed in each of these cases, and its streams become free a part at
a time: no turn of the leader's loop frees them all.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Call,
    Effects,
    Event,
    Fsm,
    Ignore,
    Map,
    Row,
    Send,
    SetTimer,
    Status,
    Timer,
    TimerFired,
)
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
)
from statemachines.shared_subscriptions.stream import StreamLink

FREED_MAX: Final = 200
"""Streams of one member that one step frees; the others follow."""

FREED_EVERY_NS: Final = MS
"""The pause before the next ones: messages that arrived meanwhile are handled in it."""


class Heard(Call, frozen=True, gc=False):
    """From the Leader: a message of this registration arrived."""


class Kick(Call, frozen=True, gc=False):
    """From the Leader: the borrower broke a rule or a timeout."""


class ExpiryTimer(TimerFired, frozen=True, gc=False):
    """Nothing was heard of the borrower for its validity."""


class HandOverTimer(TimerFired, frozen=True, gc=False):
    """The lease of the lapsed borrower has surely ended."""


class MemberStatus(Status):
    """What the leader knows of a borrower."""

    REGISTERED = "registered"
    LAPSED = "lapsed"
    GONE = "gone"


REGISTERED, LAPSED, GONE = MemberStatus


class MemberRecord(msgspec.Struct, frozen=True):
    """One registration.  `answered_at_ns`: receipt of its last answered ping, `answered`: there was one.
    `count`: its assignments that are granting or granted, `granting`: those that are granting, `revoking`: those that
    are revoking or revoked; `share`: how many it is to have; `grants`: all that it holds or, lapsed, may still hold,
    grant -> stream.  `latest`: streams that it was granted last, the last at the end; of a member with many streams, so
    that they are not sorted for each one that is taken back; `left`: it said that it leaves."""

    link: StreamLink
    configuration: Configuration
    status: MemberStatus = REGISTERED
    answered: bool = False
    answered_at_ns: int = 0
    count: int = 0
    granting: int = 0
    revoking: int = 0
    share: int = 0
    grants: Map[int, str] = Map()
    latest: tuple[str, ...] = ()
    left: bool = False


def has_no_lease(record: MemberRecord, event: Event) -> bool:
    """Nothing can still be delivered under it, or nobody minds."""
    return not record.answered or not record.grants or not record.configuration.exclusive


def holds_many(record: MemberRecord, event: Event) -> bool:
    """More streams than one step frees."""
    return len(record.grants) > FREED_MAX


def has_no_lease_and_few(record: MemberRecord, event: Event) -> bool:
    return has_no_lease(record, event) and not holds_many(record, event)


def connect(record: MemberRecord, event: LeaderWanted, now_ns: int) -> tuple[MemberRecord, Effects]:
    link = record.link
    response = LeaderConnectResponse(link.borrower, link.leader, link.epoch, link.registration)
    return record, (set_silence_timer(record, now_ns), Send(link.borrower, response))


def refresh(record: MemberRecord, event: Heard, now_ns: int) -> tuple[MemberRecord, Effects]:
    return record, (set_silence_timer(record, now_ns),)


def answer_ping(record: MemberRecord, event: Ping, now_ns: int) -> tuple[MemberRecord, Effects]:
    link = record.link
    response = PingResponse(link.borrower, link.epoch, link.registration, event.n)
    record = replace(record, answered=True, answered_at_ns=now_ns)
    return record, (set_silence_timer(record, now_ns), Send(link.borrower, response))


def invalidate(record: MemberRecord, event: Event, now_ns: int) -> tuple[MemberRecord, Effects]:
    return record, (make_invalidation(record.link),)


def set_silence_timer(record: MemberRecord, now_ns: int) -> SetTimer:
    return SetTimer("expiry", now_ns + record.configuration.validity_ms * MS, record.link.borrower)


def wait_for_lease_end(record: MemberRecord, event: Event, now_ns: int) -> tuple[MemberRecord, Effects]:
    end = record.answered_at_ns + record.configuration.lease_by_other_clock_ns()
    if has_no_lease(record, event):
        return record, (free_soon(record, now_ns), make_invalidation(record.link))
    return record, (SetTimer("hand_over", end, record.link.borrower), make_invalidation(record.link))


def leave_in_parts(record: MemberRecord, event: Disconnect, now_ns: int) -> tuple[MemberRecord, Effects]:
    return free_later(replace(record, left=True), event, now_ns)


def free_later(record: MemberRecord, event: Event, now_ns: int) -> tuple[MemberRecord, Effects]:
    return record, (free_soon(record, now_ns),)


def free_soon(record: MemberRecord, now_ns: int) -> SetTimer:
    """The next streams are freed after what has arrived meanwhile."""
    return SetTimer("hand_over", now_ns + FREED_EVERY_NS, record.link.borrower)


def make_invalidation(link: StreamLink) -> Send:
    """`invalidate` under the numbers of this registration."""
    return Send(link.borrower, Invalidate(link.borrower, link.epoch, link.registration))


# fmt: off
ROWS = (
    #   on             from        to      do                  when          clause
    Row(LeaderWanted,  REGISTERED, STAY,   connect,            None,         "SS-60"),
    Row(Ping,          REGISTERED, STAY,   answer_ping,        None,         "SS-61"),
    Row(Heard,         REGISTERED, STAY,   refresh,            None,         "SS-62"),
    Row(ExpiryTimer,   REGISTERED, GONE,   invalidate,         has_no_lease_and_few, "SS-63"),
    Row(ExpiryTimer,   REGISTERED, LAPSED, wait_for_lease_end, None,         "SS-64"),
    Row(Kick,          REGISTERED, GONE,   invalidate,         has_no_lease_and_few, "SS-63"),
    Row(Kick,          REGISTERED, LAPSED, wait_for_lease_end, None,         "SS-64"),
    Row(Disconnect,    REGISTERED, LAPSED, leave_in_parts,     holds_many,   "SS-267"),
    Row(Disconnect,    LAPSED,     STAY,   free_later,         holds_many,   "SS-267"),
    Row(Disconnect,    (REGISTERED, LAPSED), GONE, None,       None,         "SS-65"),
    Row(Ping,          LAPSED,     STAY,   invalidate,         None,         "SS-66"),
    Row(HandOverTimer, LAPSED,     STAY,   free_later,         holds_many,   "SS-267"),
    Row(HandOverTimer, LAPSED,     GONE,   None,               None,         "SS-67"),
    Ignore((LeaderWanted, Heard, Kick, ExpiryTimer), LAPSED,     "SS-68"),
    Ignore((HandOverTimer,),                         REGISTERED, "SS-68"),
)
# fmt: on

MEMBER = Fsm(
    "member",
    protocol="shared_subscriptions",
    record=MemberRecord,
    states=MemberStatus,
    initial=REGISTERED,
    final=(GONE,),
    rows=ROWS,
    timers=(
        Timer("expiry", ExpiryTimer, (REGISTERED,), lambda record: record.configuration.validity_ms * MS),
        Timer("hand_over", HandOverTimer, (LAPSED,)),
    ),
    key=lambda record: record.link.borrower,
)

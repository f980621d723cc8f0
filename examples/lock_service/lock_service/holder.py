"""Holder: wants the lock, keeps it while it is renewed in time, and writes to the vault under its token."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from lock_service.message import Acquire, Denied, Granted, Release, Renew
from lock_service.store import VAULT, Fenced, VaultFailed, Write, Wrote
from lock_service.times import Times
from statemachines.kernel import (
    STAY,
    Ask,
    Call,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Row,
    Send,
    SetTimer,
    Status,
    Tell,
    Timer,
    TimerFired,
    TraceColumns,
)


class HolderStatus(Status):
    """How a holder is."""

    IDLE = "idle"
    ASKING = "asking"
    HOLDING = "holding"


IDLE, ASKING, HOLDING = HolderStatus


class Want(Call, frozen=True, gc=False):
    """The application wants the lock."""


class Put(Call, frozen=True, gc=False):
    """The application writes `value`."""

    value: str


class Drop(Call, frozen=True, gc=False):
    """The application does not need the lock any more."""


class RetryTimer(TimerFired, frozen=True, gc=False):
    """Nobody has answered."""


class RenewTimer(TimerFired, frozen=True, gc=False):
    """It is time to renew the lease."""


class LeaseEnd(TimerFired, frozen=True, gc=False):
    """The lease has ended."""


class Locked(Event, frozen=True, gc=False):
    """To the application: the lock is yours."""

    columns: ClassVar[TraceColumns] = TraceColumns(term="token")

    token: int


class Lost(Event, frozen=True, gc=False):
    """To the application: it is not any more."""

    token: int


class Written(Event, frozen=True, gc=False):
    """To the application: write `n` is in the vault."""

    n: int


class HolderRecord(msgspec.Struct, frozen=True, gc=False):
    """`n` numbers the attempts, the last of which was sent at `sent_ns`; the lease counts from attempt `lease_n`;
    `writes` numbers those to the vault."""

    id: str
    server: str
    times: Times = Times()
    status: HolderStatus = IDLE
    n: int = 0
    sent_ns: int = 0
    lease_n: int = 0
    token: int = 0
    writes: int = 0


# fmt: off
def rows() -> tuple[Row | Ignore, ...]:
    """The table."""
    return (
        #   on          from      to       do        when          clause
        Row(Want,       IDLE,     ASKING,  acquire,  None,         "LK-20"),
        Row(RetryTimer, ASKING,   STAY,    acquire,  None,         "LK-20"),
        Row(LeaseEnd,   ASKING,   STAY,    acquire,  None,         "LK-20"),
        Row(Granted,    ASKING,   HOLDING, lock,     is_answer,    "LK-21"),
        Row(Drop,       ASKING,   IDLE,    None,     None,         "LK-24"),
        Row(RenewTimer, HOLDING,  STAY,    renew,    None,         "LK-22"),
        Row(Granted,    HOLDING,  STAY,    extend,   is_answer,    "LK-22"),
        Row(Denied,     HOLDING,  IDLE,    lose,     is_answer,    "LK-23"),
        Row(LeaseEnd,   HOLDING,  IDLE,    lose,     None,         "LK-23"),
        Row(Drop,       HOLDING,  IDLE,    release,  None,         "LK-24"),
        Row(Put,        HOLDING,  STAY,    write,    None,         "LK-25"),
        Row(Wrote,      HOLDING,  STAY,    tell,     None,         "LK-26"),
        Row(Fenced,     HOLDING,  IDLE,    lose,     is_mine,      "LK-27"),

        Ignore((Want,),                       (ASKING, HOLDING),     "LK-20"),
        Ignore((Drop,),                       IDLE,                  "LK-24"),
        Ignore((Granted,),                    tuple(HolderStatus),   "LK-28"),
        Ignore((Denied,),                     tuple(HolderStatus),   "LK-28"),
        Ignore((Wrote, VaultFailed, Fenced),  tuple(HolderStatus),   "LK-28"),
        Ignore((RetryTimer,),                 (IDLE, HOLDING),       "LK-29"),
        Ignore((RenewTimer,),                 (IDLE, ASKING),        "LK-29"),
        Ignore((LeaseEnd,),                   IDLE,                  "LK-29"),
        Ignore((Put,),                        (IDLE, ASKING),        "LK-25"),
    )


TIMERS = (
    Timer("retry", RetryTimer, (ASKING,),  lambda record: record.times.retry_ms * 1_000_000),
    Timer("renew", RenewTimer, (HOLDING,), lambda record: record.times.renew_ms * 1_000_000),
    Timer("lease", LeaseEnd,   (ASKING, HOLDING), lambda record: 0, on_entry=False, authority=True),
)
# fmt: on


# -- guards ---------------------------------------------------------------------------------------------------------


def is_answer(record: HolderRecord, event: Granted | Denied) -> bool:
    return event.n == record.n


def is_mine(record: HolderRecord, event: Fenced) -> bool:
    return event.token > record.token


# -- actions --------------------------------------------------------------------------------------------------------


def acquire(record: HolderRecord, event: Want | RetryTimer | LeaseEnd, now_ns: int) -> tuple[HolderRecord, Effects]:
    record = replace(record, n=record.n + 1, lease_n=record.n + 1, sent_ns=now_ns)
    again = SetTimer("retry", now_ns + record.times.retry_ms * 1_000_000)
    return record, (again, _lease(record), Send(record.server, Acquire(record.id, record.n)))


def lock(record: HolderRecord, event: Granted, now_ns: int) -> tuple[HolderRecord, Effects]:
    return replace(record, token=event.token), (Tell(Locked(event.token)),)


def renew(record: HolderRecord, event: RenewTimer, now_ns: int) -> tuple[HolderRecord, Effects]:
    record = replace(record, n=record.n + 1, sent_ns=now_ns)
    again = SetTimer("renew", now_ns + record.times.renew_ms * 1_000_000)
    return record, (again, Send(record.server, Renew(record.id, record.n, record.token)))


def extend(record: HolderRecord, event: Granted, now_ns: int) -> tuple[HolderRecord, Effects]:
    return replace(record, lease_n=record.n), (_lease(record),)


def lose(record: HolderRecord, event: Event, now_ns: int) -> tuple[HolderRecord, Effects]:
    return replace(record, token=0), (Tell(Lost(record.token)),)


def release(record: HolderRecord, event: Drop, now_ns: int) -> tuple[HolderRecord, Effects]:
    let_go = Send(record.server, Release(record.id, record.n, record.token))
    return replace(record, token=0), (let_go, Tell(Lost(record.token)))


def write(record: HolderRecord, event: Put, now_ns: int) -> tuple[HolderRecord, Effects]:
    record = replace(record, writes=record.writes + 1)
    return record, (Ask(VAULT, Write(record.writes, record.token, event.value)),)


def tell(record: HolderRecord, event: Wrote, now_ns: int) -> tuple[HolderRecord, Effects]:
    return record, (Tell(Written(event.n)),)


def _lease(record: HolderRecord) -> SetTimer:
    """It counts from when the attempt was sent, and is armed at once: an answer that comes after its end is no answer;
    the server counts from later (LK-21)."""
    return SetTimer("lease", record.sent_ns + record.times.lease_ns)


HOLDER = Fsm(
    "holder",
    protocol="lock_service",
    record=HolderRecord,
    states=HolderStatus,
    initial=IDLE,
    rows=rows(),
    timers=TIMERS,
    invariants=(
        Invariant("holding-under-a-token", "LK-21", lambda record: (record.status is HOLDING) == (record.token > 0)),
    ),
)

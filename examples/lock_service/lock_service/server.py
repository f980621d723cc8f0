"""Server: grants the lock to one holder at a time, under a token that is durable before anybody hears of it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from lock_service.message import Acquire, Denied, Granted, Release, Renew
from lock_service.store import JOURNAL, JournalFailed, Load, Loaded, Save, Saved
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
    Refuse,
    Row,
    Send,
    SetTimer,
    Status,
    Timer,
    TimerFired,
)


class ServerStatus(Status):
    """How the server is."""

    STARTING = "starting"
    WAITING = "waiting"
    FREE = "free"
    SAVING = "saving"
    HELD = "held"


STARTING, WAITING, FREE, SAVING, HELD = ServerStatus


class Begin(Call, frozen=True, gc=False):
    """The process runs."""


class AgainTimer(TimerFired, frozen=True, gc=False):
    """The journal did not carry it out: ask once more."""


class OverTimer(TimerFired, frozen=True, gc=False):
    """Every lease that may be out has ended."""


class ServerRecord(msgspec.Struct, frozen=True, gc=False):
    """`token` is the highest one given out or being kept; `holder` has the lock, or is to have it, and attempt `n` is
    its last that is known; `asked` numbers the requests to the journal."""

    id: str
    times: Times = Times()
    status: ServerStatus = STARTING
    token: int = 0
    holder: str = ""
    n: int = 0
    asked: int = 0


# fmt: off
def rows() -> tuple[Row | Ignore, ...]:
    """The table."""
    return (
        #   on             from      to        do         when          clause
        Row(Begin,         STARTING, STAY,     load,      None,         "LK-01"),
        Row(AgainTimer,    STARTING, STAY,     load,      None,         "LK-01"),
        Row(Loaded,        STARTING, FREE,     know,      is_untouched, "LK-02"),
        Row(Loaded,        STARTING, WAITING,  know,      is_awaited,   "LK-02"),
        Row(OverTimer,     WAITING,  FREE,     None,      None,         "LK-02"),
        Row(Acquire,       FREE,     SAVING,   keep_next, None,         "LK-03"),
        Row(AgainTimer,    SAVING,   STAY,     keep,      None,         "LK-03"),
        Row(Saved,         SAVING,   HELD,     grant,     is_awaited,   "LK-03"),
        Row(Acquire,       HELD,     STAY,     grant_more, is_holders,  "LK-05"),
        Row(Acquire,       HELD,     STAY,     deny,      None,         "LK-06"),
        Row(Renew,         HELD,     STAY,     grant_more, is_current,  "LK-05"),
        Row(Renew,         HELD,     STAY,     deny,      None,         "LK-06"),
        Row(Renew,         FREE,     STAY,     deny,      None,         "LK-06"),
        Row(Release,       HELD,     FREE,     let_go,    is_last_word, "LK-07"),
        Row(OverTimer,     HELD,     FREE,     let_go,    None,         "LK-04"),

        Ignore((Acquire, Renew, Release), (STARTING, WAITING, SAVING),  "LK-08"),
        Ignore((Release,),                (FREE, HELD),                 "LK-08"),
        Ignore((Loaded, Saved, JournalFailed), tuple(ServerStatus),     "LK-09"),
        Ignore((AgainTimer,),             (WAITING, FREE, HELD),        "LK-09"),
        Ignore((OverTimer,),              (STARTING, FREE, SAVING),     "LK-09"),
        Refuse((Begin,),                  (WAITING, FREE, SAVING, HELD), "LK-01"),
    )


TIMERS = (
    Timer("again", AgainTimer, (STARTING, SAVING), lambda record: record.times.retry_ms * 1_000_000),
    Timer("over",  OverTimer,  (WAITING, HELD),    lambda record: record.times.surely_over_ns),
)
# fmt: on


# -- guards ---------------------------------------------------------------------------------------------------------


def is_awaited(record: ServerRecord, event: Loaded | Saved) -> bool:
    return event.n == record.asked


def is_untouched(record: ServerRecord, event: Loaded) -> bool:
    return event.n == record.asked and event.token == 0


def is_holders(record: ServerRecord, event: Acquire) -> bool:
    return event.holder == record.holder


def is_current(record: ServerRecord, event: Renew | Release) -> bool:
    return (event.holder, event.token) == (record.holder, record.token)


def is_last_word(record: ServerRecord, event: Release) -> bool:
    """A copy of an earlier release, come late, must not free a lock that was taken again under the same token."""
    return is_current(record, event) and event.n >= record.n


# -- actions --------------------------------------------------------------------------------------------------------


def load(record: ServerRecord, event: Begin | AgainTimer, now_ns: int) -> tuple[ServerRecord, Effects]:
    record = replace(record, asked=record.asked + 1)
    return record, (_again(record, now_ns), Ask(JOURNAL, Load(record.asked)))


def know(record: ServerRecord, event: Loaded, now_ns: int) -> tuple[ServerRecord, Effects]:
    return replace(record, token=event.token), ()


def keep_next(record: ServerRecord, event: Acquire, now_ns: int) -> tuple[ServerRecord, Effects]:
    record = replace(record, token=record.token + 1, holder=event.holder, n=event.n, asked=record.asked + 1)
    return record, (Ask(JOURNAL, Save(record.asked, record.token)),)


def keep(record: ServerRecord, event: AgainTimer, now_ns: int) -> tuple[ServerRecord, Effects]:
    record = replace(record, asked=record.asked + 1)
    return record, (_again(record, now_ns), Ask(JOURNAL, Save(record.asked, record.token)))


def grant(record: ServerRecord, event: Saved, now_ns: int) -> tuple[ServerRecord, Effects]:
    return record, (Send(record.holder, Granted(record.n, record.token)),)


def grant_more(record: ServerRecord, event: Acquire | Renew, now_ns: int) -> tuple[ServerRecord, Effects]:
    over = SetTimer("over", now_ns + record.times.surely_over_ns)
    return replace(record, n=max(record.n, event.n)), (over, Send(record.holder, Granted(event.n, record.token)))


def deny(record: ServerRecord, event: Acquire | Renew, now_ns: int) -> tuple[ServerRecord, Effects]:
    return record, (Send(event.holder, Denied(event.n)),)


def let_go(record: ServerRecord, event: Event, now_ns: int) -> tuple[ServerRecord, Effects]:
    return replace(record, holder="", n=0), ()


def _again(record: ServerRecord, now_ns: int) -> SetTimer:
    return SetTimer("again", now_ns + record.times.retry_ms * 1_000_000)


SERVER = Fsm(
    "server",
    protocol="lock_service",
    record=ServerRecord,
    states=ServerStatus,
    initial=STARTING,
    rows=rows(),
    timers=TIMERS,
    invariants=(Invariant("a-holder-has-a-token", "LK-03", lambda record: not record.holder or record.token > 0),),
)

"""Standby: what is in the place of a borrower while its session cannot read the stream store, or keeps a message for
too long.

    waiting -> over

The subscription goes on, and asks no leader for streams: one that were granted to it would stand still.  When a read of
the session succeeds the next borrower begins.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from statemachines.kernel import (
    STAY,
    Call,
    Effects,
    Event,
    Fsm,
    Row,
    Status,
    Stop,
    Tell,
    TraceColumns,
)
from statemachines.shared_subscriptions.borrower import Destroyed, OnDisconnect, OnUnsubscribe, Start


class Resume(Call, frozen=True, gc=False):
    """From the Handler: the session can read again."""


class Suspended(Event, frozen=True, gc=False):
    """To the application: the streams of `subscription` were given back, since `stream`, and others with it, could not
    be read, or (`is_late`) since a message of `stream` was not acknowledged in time."""

    columns: ClassVar = TraceColumns(key="stream")

    subscription: str
    stream: str
    is_late: bool = False


class Resumed(Event, frozen=True, gc=False):
    """To the application: `subscription` takes part again, since `stream` was read, or since the application asks for
    messages."""

    columns: ClassVar = TraceColumns(key="stream")

    subscription: str
    stream: str
    is_late: bool = False


class DeliveriesRevoked(Event, frozen=True, gc=False):
    """To the application: what was delivered for `owner` is not its any more, since a message was not acknowledged in
    time."""

    owner: str


class StandbyStatus(Status):
    """Whether the session cannot read yet."""

    WAITING = "waiting"
    OVER = "over"


WAITING, OVER = StandbyStatus


class StandbyRecord(msgspec.Struct, frozen=True, gc=False):
    """One subscription.  `stream`: one that could not be read; `epoch`: the highest that the borrower has seen."""

    id: str
    subscription: str
    stream: str
    epoch: int = 0
    status: StandbyStatus = WAITING
    is_late: bool = False


def tell_suspended(record: StandbyRecord, event: Start, now_ns: int) -> tuple[StandbyRecord, Effects]:
    return record, (Tell(Suspended(record.subscription, record.stream, record.is_late)),)


def resume(record: StandbyRecord, event: Resume, now_ns: int) -> tuple[StandbyRecord, Effects]:
    told = Resumed(record.subscription, record.stream, record.is_late)
    return record, (Tell(told), Tell(Destroyed(record.id, True, record.epoch)), Stop())


def go(record: StandbyRecord, event: Event, now_ns: int) -> tuple[StandbyRecord, Effects]:
    return record, (Tell(Destroyed(record.id, False, record.epoch)), Stop())


# fmt: off
ROWS = (
    #   on             from     to    do              when  clause
    Row(Start,         WAITING, STAY, tell_suspended, None, "SS-293"),
    Row(Resume,        WAITING, OVER, resume,         None, "SS-294"),
    Row(OnUnsubscribe, WAITING, OVER, go,             None, "SS-295"),
    Row(OnDisconnect,  WAITING, OVER, go,             None, "SS-295"),
)
# fmt: on

STANDBY = Fsm(
    "standby",
    protocol="shared_subscriptions",
    record=StandbyRecord,
    states=StandbyStatus,
    initial=WAITING,
    final=(OVER,),
    rows=ROWS,
)

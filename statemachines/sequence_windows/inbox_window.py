"""InboxWindow: the numbers of what one peer sends to us alone (source: "Show loss")."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Effects, Event, Fsm, Message, Row, Status, Tell, TraceColumns
from statemachines.sequence_windows.message import LOSS_MAX

INBOX_MAX = 2**63 - 1
"""The greatest number."""


class Inboxed(Message, frozen=True, gc=False):
    """A message to us alone has this number; raises ValueError below 1, and above what can be."""

    columns: ClassVar = TraceColumns(first="number", last="number")

    number: int

    def __post_init__(self) -> None:
        if not 0 < self.number <= INBOX_MAX:
            raise ValueError(f"inbox number {self.number}: expected 1 to {INBOX_MAX}")


class InboxJudged(Event, frozen=True, gc=False):
    """To the host: whether the message is new, and how many are missing before it; `unknown`: more than `LOSS_MAX`."""

    new: bool
    lost: int = 0
    unknown: bool = False


class InboxStatus(Status):
    """Whether anything has come of the peer."""

    FRESH = "fresh"
    KNOWN = "known"


FRESH, KNOWN = InboxStatus


class InboxWindowRecord(msgspec.Struct, frozen=True, gc=False):
    """One peer; `last`: the highest number that came."""

    peer: str
    status: InboxStatus = FRESH
    last: int = 0


Done = tuple[InboxWindowRecord, Effects]


def is_old(record: InboxWindowRecord, event: Inboxed) -> bool:
    return event.number <= record.last


def accept(record: InboxWindowRecord, event: Inboxed, now_ns: int) -> Done:
    return replace(record, last=event.number), (Tell(InboxJudged(True)),)


def drop(record: InboxWindowRecord, event: Inboxed, now_ns: int) -> Done:
    return record, (Tell(InboxJudged(False)),)


def count_jump(record: InboxWindowRecord, event: Inboxed, now_ns: int) -> Done:
    lost = event.number - record.last - 1
    return replace(record, last=event.number), (Tell(InboxJudged(True, min(lost, LOSS_MAX), lost > LOSS_MAX)),)


# fmt: off
ROWS = (
    #   on       from   to     do          when    clause
    Row(Inboxed, FRESH, KNOWN, accept,     None,   "SW-50"),
    Row(Inboxed, KNOWN, STAY,  drop,       is_old, "SW-52"),
    Row(Inboxed, KNOWN, STAY,  count_jump, None,   "SW-51"),
)
# fmt: on

INBOX_WINDOW = Fsm(
    "inbox_window",
    protocol="sequence_windows",
    record=InboxWindowRecord,
    states=InboxStatus,
    initial=FRESH,
    rows=ROWS,
    key=lambda record: record.peer,
)

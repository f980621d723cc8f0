"""LossNotifier: one client is advised of losses, at once and then at most once a second (source: "Notification").

`idle -> waiting -> idle`: the first loss is told at once; what is lost in the second after an advisory is told when it
is over; a second in which nothing was lost leads back to idle.
"""

from __future__ import annotations

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
    Invariant,
    Map,
    Row,
    SetTimer,
    Status,
    Tell,
    Timer,
    TimerFired,
    TraceColumns,
)

PERIOD_NS = 1_000_000_000
ADVISED = "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST"
"""The subject of an advisory."""
HEAD = {
    "ADV_CLASS": "ERROR",
    "ADV_SOURCE": "SYSTEM",
    "ADV_NAME": "DATALOSS.INBOUND.BCAST",
    "ADV_DESC": "lost msgs",
}
LOST_MAX = 2**31 - 1
"""An advisory says no more than so many."""
LISTED = 9
"""How many subjects an advisory names."""
SUBJECTS_MAX = 10_000
"""So many subjects are told apart within a second; losses of others count, and their names do not."""


class Lost(Call, frozen=True, gc=False):
    """From the host: messages of these subjects were lost: (subject, how many; 0: unknown); ValueError where there is
    no subject."""

    losses: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        if not self.losses or any(count < 0 for _, count in self.losses):
            raise ValueError(f"losses {self.losses!r}: expected at least one subject, and nothing below 0 subject")


class SecondOver(TimerFired, frozen=True, gc=False):
    """A second has passed since the last advisory."""


class Advisory(Event, frozen=True, gc=False):
    """To the host, for its client: `lost` in all, of `subjects` subjects; the first of them with their losses (0: of
    unknown size)."""

    columns: ClassVar = TraceColumns(grant="lost")

    lost: int
    subjects: int
    listed: tuple[tuple[str, int], ...]


class NotifierStatus(Status):
    """Whether a second is running."""

    IDLE = "idle"
    WAITING = "waiting"


IDLE, WAITING = NotifierStatus


class LossNotifierRecord(msgspec.Struct, frozen=True, gc=False):
    """One client.  Since the last advisory `lost` in all; `by_subject`: of each; `listed`: the first subjects."""

    client: str
    status: NotifierStatus = IDLE
    lost: int = 0
    by_subject: Map[str, int] = Map()
    listed: tuple[str, ...] = ()


Done = tuple[LossNotifierRecord, Effects]


def with_losses(record: LossNotifierRecord, losses: tuple[tuple[str, int], ...]) -> LossNotifierRecord:
    """What was lost besides."""
    lost, by_subject, listed = record.lost, record.by_subject, record.listed
    for subject, count in losses:
        lost += count
        if subject in by_subject or len(by_subject) < SUBJECTS_MAX:
            if subject not in by_subject and len(listed) < LISTED:
                listed = (*listed, subject)
            by_subject = by_subject.set(subject, by_subject.get(subject, 0) + count)
    return replace(record, lost=lost, by_subject=by_subject, listed=listed)


def has_losses(record: LossNotifierRecord, event: Event) -> bool:
    return record.lost > 0 or len(record.by_subject) > 0


def advise(record: LossNotifierRecord, event: Event, now_ns: int) -> Done:
    """All that was lost since the last time."""
    listed = tuple((subject, min(record.by_subject[subject], LOST_MAX)) for subject in record.listed)
    told = Advisory(min(record.lost, LOST_MAX), len(record.by_subject), listed)
    left = record.lost - told.lost
    return replace(record, lost=left, by_subject=Map(), listed=()), (Tell(told),)


def advise_at_once(record: LossNotifierRecord, event: Lost, now_ns: int) -> Done:
    return advise(with_losses(record, event.losses), event, now_ns)


def advise_and_wait(record: LossNotifierRecord, event: SecondOver, now_ns: int) -> Done:
    record, effects = advise(record, event, now_ns)
    return record, (*effects, SetTimer("second", now_ns + PERIOD_NS))


def keep(record: LossNotifierRecord, event: Lost, now_ns: int) -> Done:
    return with_losses(record, event.losses), ()


# fmt: off
ROWS = (
    #   on          from     to       do               when        clause
    Row(Lost,       IDLE,    WAITING, advise_at_once,  None,       "SW-40"),
    Row(Lost,       WAITING, STAY,    keep,            None,       "SW-41"),
    Row(SecondOver, WAITING, STAY,    advise_and_wait, has_losses, "SW-42"),
    Row(SecondOver, WAITING, IDLE,    None,            None,       "SW-43"),
    Ignore((SecondOver,), IDLE,                                    "SW-43"),
)
# fmt: on


def has_told_all_when_idle(record: LossNotifierRecord) -> bool:
    """Nothing waits to be told while no second is running."""
    return record.status is WAITING or not (record.lost or record.by_subject)


LOSS_NOTIFIER = Fsm(
    "loss_notifier",
    protocol="sequence_windows",
    record=LossNotifierRecord,
    states=NotifierStatus,
    initial=IDLE,
    rows=ROWS,
    timers=(Timer("second", SecondOver, (WAITING,), lambda record: PERIOD_NS),),
    key=lambda record: record.client,
    invariants=(Invariant("has-told-all-when-idle", "SW-44", has_told_all_when_idle),),
)


def fields_of(advisory: Advisory, scid: int) -> dict[str, str | int]:
    """The fields of an advisory, in the order of the source's example; `scid`: the number of the client."""
    head: dict[str, str | int] = {**HEAD, "lost": advisory.lost, "sub_cnt": advisory.subjects}
    for number, (subject, lost) in enumerate(advisory.listed, 1):
        head |= {f"sub{number}": subject, f"lost{number}": lost}
    return head | {"scid": scid}


def message_of(fields: dict[str, str | int]) -> dict[str, object]:
    """The message that is published on `ADVISED`, as the source's example has it ("RV protocol")."""
    return {"mtype": "A", "sub": ADVISED, "data": fields}

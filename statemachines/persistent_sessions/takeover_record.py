"""TakeoverRecord: what a new owner keeps of the owner that it takes the session over from."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from statemachines.kernel import Call, Effects, Event, Status, TimerFired, TraceColumns
from statemachines.persistent_sessions.request import EpochRows
from statemachines.persistent_sessions.times import Times


class StartTakeover(Call, frozen=True, gc=False):
    """The state is loaded under our token: whatever the owner of before still asks is refused."""


class FinishTakeover(Call, frozen=True, gc=False):
    """We are subscribed, and that is known everywhere."""


class SayAgain(TimerFired, frozen=True, gc=False):
    """The owner of before has not answered yet."""


class BeginTimeout(TimerFired, frozen=True, gc=False):
    """It has not answered in time that it yields."""


class EndTimeout(TimerFired, frozen=True, gc=False):
    """What it hands over has not come, or was not confirmed, in time."""


class HandedOver(Event, frozen=True, gc=False):
    """To the resume: what was handed over, and the database has exactly so."""

    found: tuple[EpochRows, ...]


class TakenOver(Event, frozen=True, gc=False):
    """To the host: the takeover from the owner `old` is over.  `why`: handed; refused (there is none, or it does not
    yield), silent: what it would have handed over comes from the database; one that is silent should be stopped."""

    columns: ClassVar = TraceColumns(key="why")

    session: str
    old: str
    why: str


class TakeoverStatus(Status):
    """`beginning` and `ending` wait for the owner of before, `begun` for our subscription, `confirming` for the
    database."""

    NEW = "new"
    BEGINNING = "beginning"
    BEGUN = "begun"
    ENDING = "ending"
    CONFIRMING = "confirming"
    OVER = "over"


NEW, BEGINNING, BEGUN, ENDING, CONFIRMING, OVER = TakeoverStatus


class TakeoverRecord(msgspec.Struct, frozen=True, gc=False):
    """The `session` of `client` goes from the owner `old` to `owner`, which has this `token`; `left`: the client has
    left the old owner."""

    session: str
    client: str
    owner: str
    token: int
    old: str
    times: Times
    status: TakeoverStatus = NEW
    left: bool = False


Done = tuple[TakeoverRecord, Effects]

"""LateJoin: what the first message of a stream says about those before it (source: "Multicast sequence numbers", 3).

It rests on the source's assumption that a network which has converged loses nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Effects, Event, Fsm, Ignore, Row, Status, Tell, TraceColumns
from statemachines.sequence_windows.sequence import frame_at


class Converged(Call, frozen=True, gc=False):
    """From the host: the network converged at `t_ns` of the wall's clock."""

    t_ns: int


class Joined(Call, frozen=True, gc=False):
    """From the host: a first message has come, of `frame`; it is `t_ns` by our own clock."""

    frame: int
    t_ns: int


class Join(Enum):
    """VERIFIED: nothing of the stream was lost on its way here since it began.  UNVERIFIED: something may have been.
    UNKNOWN: nobody said when the network converged, or the frame is one that has not begun."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    UNKNOWN = "unknown"


class Joining(Event, frozen=True, gc=False):
    """To the host: what the first message is; in a trace it stands in `key`."""

    columns: ClassVar = TraceColumns(key="word")

    join: Join

    @property
    def word(self) -> str:
        """The word."""
        return self.join.value


class LateJoinStatus(Status):
    """Whether the network has converged, as far as we were told."""

    UNTOLD = "untold"
    TOLD = "told"


UNTOLD, TOLD = LateJoinStatus


class LateJoinRecord(msgspec.Struct, frozen=True, gc=False):
    """`converged_ns`: the latest time that anybody said (0: nobody did)."""

    status: LateJoinStatus = UNTOLD
    converged_ns: int = 0


Done = tuple[LateJoinRecord, Effects]


def is_later(record: LateJoinRecord, event: Converged) -> bool:
    return event.t_ns > record.converged_ns


def is_ahead(record: LateJoinRecord, event: Joined) -> bool:
    """By our clock the frame has not begun, nor the one before it: the clocks disagree by more than a frame."""
    return event.frame > frame_at(event.t_ns) + 1


def began_after(record: LateJoinRecord, event: Joined) -> bool:
    """The stream began after the network had converged."""
    return event.frame > frame_at(record.converged_ns)


def keep(record: LateJoinRecord, event: Converged, now_ns: int) -> Done:
    return replace(record, converged_ns=event.t_ns), ()


def tell_unknown(record: LateJoinRecord, event: Joined, now_ns: int) -> Done:
    return record, (Tell(Joining(Join.UNKNOWN)),)


def tell_verified(record: LateJoinRecord, event: Joined, now_ns: int) -> Done:
    return record, (Tell(Joining(Join.VERIFIED)),)


def tell_unverified(record: LateJoinRecord, event: Joined, now_ns: int) -> Done:
    return record, (Tell(Joining(Join.UNVERIFIED)),)


# fmt: off
ROWS = (
    #   on         from    to    do               when         clause
    Row(Converged, UNTOLD, TOLD, keep,            None,        "SW-06"),
    Row(Converged, TOLD,   STAY, keep,            is_later,    "SW-06"),
    Row(Joined,    UNTOLD, STAY, tell_unknown,    None,        "SW-33"),
    Row(Joined,    TOLD,   STAY, tell_unknown,    is_ahead,    "SW-34"),
    Row(Joined,    TOLD,   STAY, tell_verified,   began_after, "SW-31"),
    Row(Joined,    TOLD,   STAY, tell_unverified, None,        "SW-32"),
    Ignore((Converged,), TOLD,                                 "SW-06"),
)
# fmt: on

LATE_JOIN = Fsm(
    "late_join",
    protocol="sequence_windows",
    record=LateJoinRecord,
    states=LateJoinStatus,
    initial=UNTOLD,
    rows=ROWS,
)

"""SharedGroup: what is decided about groups whose streams are in the database of sessions (PS-470 to PS-472)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from statemachines.persistent_sessions.in_flight_record import DONE, InFlightStatus
from statemachines.persistent_sessions.times import MS

GROUPS_MAX: Final = 1_000
"""Groups of a store that subscriptions declared."""

SESSION_GROUPS_MAX: Final = 100
"""Filters of groups that one session subscribes."""

IS_ENDING: Final = -1
"""Since when a group is idle that is being destroyed."""

WAIT_FOR_END: Final = "the group is ending"
"""Why a group may not be declared just now."""

AT_BOUND: Final = "may not have more"
"""In every refusal for a bound."""


class PublishWay(Enum):
    """What becomes of a publish that groups may want."""

    STREAM = "it is appended to the stream of its topic"
    MEMBER = "it goes to one session of each group that is connected"
    NONE = "no group wants it"


def choose_way(qos: int, has_groups: bool, is_letter: bool) -> PublishWay:
    """A message of QoS 0 is not stored for a group; a dead letter is stored whether or not a group is there for it."""
    if has_groups and qos == 0:
        return PublishWay.MEMBER
    return PublishWay.STREAM if has_groups or is_letter else PublishWay.NONE


def ends_at(now_ns: int, expiry_ms: int | None) -> int:
    """From when on a message that is published now is over (0: never)."""
    return 0 if expiry_ms is None else now_ns + expiry_ms * MS


def is_first_time(progress: int | None, offset: int) -> bool:
    """Whether no session has had the message: its stream was stored up to `progress` (None: nothing of it)."""
    return progress is None or progress <= offset


def is_stored_now(place: tuple[int, int] | None, epoch: int, first_number: int) -> bool:
    """Whether a range of rows is about to be stored, or its session is gone (None), and neither refused nor there: the
    writer has stored up to `place`, under an epoch and a number."""
    return place is None or (place[0] == epoch and place[1] < first_number)


def goes_back(status: InFlightStatus, qos: int) -> bool:
    """Whether a message in flight goes to another member when its session ends: of QoS 2 the client may have it."""
    return status is not DONE and qos != 2


def refuse_declaration(idle_ns: int | None, is_known: bool, session_groups: int, groups: int) -> str:
    """Why a subscription may not declare a group; "": it may.

    Args:
        idle_ns: of a group that subscriptions declared; None: they did not.
        is_known: the group is declared, by whomever.
        session_groups: filters of other groups that the session subscribes.
        groups: groups of the store that subscriptions declared.
    """
    if session_groups >= SESSION_GROUPS_MAX:
        return f"the session has {SESSION_GROUPS_MAX} filters of groups, and {AT_BOUND}; unsubscribe one"
    if idle_ns == IS_ENDING:
        return WAIT_FOR_END
    if idle_ns is None and not is_known and groups >= GROUPS_MAX:
        return f"the store has {GROUPS_MAX} groups that subscriptions declared, and {AT_BOUND}"
    return ""


def is_kept(idle_ns: int | None, is_known: bool) -> bool:
    """Whether subscriptions have declared the group, and not somebody else."""
    return idle_ns is not None or not is_known


def age_group(idle_ns: int, is_subscribed: bool, now_ns: int, expiry_ms: int) -> int:
    """Since when a group is idle; 0: it is not."""
    if idle_ns == IS_ENDING:
        return IS_ENDING
    if is_subscribed:
        return 0
    is_over = idle_ns > 0 and now_ns - idle_ns >= expiry_ms * MS
    return IS_ENDING if is_over else idle_ns or now_ns

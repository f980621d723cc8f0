"""Bugs of a group inside a session: mistakes that can be planted in its member, and in what decides of its rows."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Ask
from statemachines.persistent_sessions import group_member_actions, session_host_peers
from statemachines.persistent_sessions.group_member import GROUP_MEMBER
from statemachines.persistent_sessions.group_member_record import (
    GONE,
    GROUPS,
    STORING,
    AcknowledgePiece,
    EndMember,
    PieceRefused,
)
from statemachines.persistent_sessions.in_flight_record import DONE
from statemachines_spec.bug import Bug, change_rows, replace_call
from statemachines_spec.persistent_sessions.clients import on

A, M = group_member_actions, GROUP_MEMBER


def acknowledge_at_once(record: Any, event: Any) -> Any:
    """What the event has brought, in place of what it has stored."""
    given = A.note(record, event).given
    return (Ask(GROUPS, AcknowledgePiece(record.id, given)),) if given else ()


def acknowledge_given(record: Any, event: Any, now_ns: int) -> Any:
    """Also what is not stored."""
    return record, (Ask(GROUPS, AcknowledgePiece(record.id, record.given)), *A.leave(record))


def without_since(hands_of: Any) -> Any:
    return lambda alike: {
        session: tuple(replace(one, since_ns=0) for one in hands) for session, hands in hands_of(alike).items()
    }


BUGS = (
    Bug("group-hears-first", "a message is acknowledged to the group before it is stored for the session", "PS-261",
        "the answer of the database", replace_call(A, "acknowledge", acknowledge_at_once)),
    Bug("refused-counts-as-stored", "what a newer owner's database refuses to store is acknowledged to the group",
        "PS-642", "the refusal", on(M, PieceRefused, STORING, do=acknowledge_given)),
    Bug("all-counts-as-stored", "a member that ends acknowledges what it was given, and not what was stored", "PS-641",
        "the number of messages", change_rows(M, "acknowledge_last", do=acknowledge_given)),
    Bug("ends-without-answer", "a member that ends while it stores acknowledges at once, and leaves", "PS-641",
        "the wait for the answer", on(M, EndMember, STORING, to=GONE, do=acknowledge_given)),
    Bug("in-flight-comes-back", "of a session that ends QoS 2 in flight goes back to the group", "PS-471",
        "the look at the QoS", replace_call(group_member_actions, "goes_back", lambda status, qos: status is not DONE)),
    Bug("nothing-comes-back", "of a session that ends nothing that was in flight goes back to the group", "PS-471",
        "the messages of QoS 1", replace_call(group_member_actions, "goes_back", lambda status, qos: False)),
    Bug("stored-again", "what another session has of the group is stored once more", "PS-470", "the note of the group",
        replace_call(group_member_actions, "is_first_time", lambda progress, offset: True)),
    Bug("since-forgotten", "a node stores a message of a group as if nothing was stored elsewhere before it", "PS-287",
        "the store time of the member", replace_call(session_host_peers, "hands_of",
                                                     without_since(session_host_peers.hands_of))),
)  # fmt: skip
"""Each with a sentence of its own."""

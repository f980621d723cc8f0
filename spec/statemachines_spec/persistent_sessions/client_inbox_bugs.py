"""Bugs of a client: mistakes that can be planted in its inbox."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Map, Send
from statemachines.persistent_sessions import client_inbox
from statemachines.persistent_sessions.client_inbox import CLIENT_INBOX, NODE
from statemachines.persistent_sessions.message import Pubrec
from statemachines_spec.bug import Bug, change_rows


def is_under_its_packet(record: Any, event: Any) -> bool:
    return event.qos == 2 and event.packet in record.unreleased


def is_marked_again(record: Any, event: Any) -> bool:
    return is_under_its_packet(record, event) and event.dup


def is_under_any_number(record: Any, event: Any) -> bool:
    return event.packet in record.in_hand


def receive_at_once(record: Any, event: Any, now_ns: int) -> Any:
    return record, (Send(NODE, Pubrec(event.packet)),)


def withdraw_all(record: Any, event: Any, now_ns: int) -> Any:
    return replace(record, in_hand=Map()), ()


def keep_unreleased(record: Any, event: Any, now_ns: int) -> Any:
    return record, client_inbox.release(record, event, now_ns)[1]


def release_in_silence(record: Any, event: Any, now_ns: int) -> Any:
    return client_inbox.release(record, event, now_ns)[0], ()


I = CLIENT_INBOX  # noqa: E741

BUGS = (
    Bug("marked-comes-twice", "of QoS 2 a message that comes again is handed out again", "PS-156", "the look at dup",
        change_rows(I, "receive_again", when=lambda record, event: False)),
    Bug("packet-says-all", "what comes marked under a packet that is not released is a repetition", "PS-700",
        "the look at the message", change_rows(I, "receive_again", when=is_marked_again)),
    Bug("unmarked-is-repeated", "what comes under a packet that is not released is a repetition", "PS-700",
        "the look at dup", change_rows(I, "receive_again", when=is_under_its_packet)),
    Bug("received-before-acknowledged", "what comes again is acknowledged, whether the application is done or not",
        "PS-156", "the look at what is in hand", change_rows(I, "receive_again", do=receive_at_once)),
    Bug("older-acknowledges-newer", "an acknowledgement counts for whatever has the packet by now", "PS-313",
        "the number of the message", change_rows(I, "acknowledge", when=is_under_any_number)),
    Bug("away-takes-it-back", "a message of QoS 2 cannot be acknowledged after its connection", "PS-156",
        "the messages of QoS 2", change_rows(I, "withdraw", do=withdraw_all)),
    Bug("release-is-not-kept", "a released packet stays the old message's", "PS-770", "the release",
        change_rows(I, "release", do=keep_unreleased)),
    Bug("release-without-answer", "a release is not answered", "PS-770", "the answer",
        change_rows(I, "release", do=release_in_silence)),
)  # fmt: skip
"""Each with a sentence of its own."""

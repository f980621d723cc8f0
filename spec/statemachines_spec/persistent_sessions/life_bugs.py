"""Bugs of a connection: mistakes that can be planted in it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import STAY
from statemachines.persistent_sessions import life_actions
from statemachines.persistent_sessions.life_record import LEAVING, LOCKING, OPENING, SETTLING, LockDue
from statemachines.persistent_sessions.life_request import LifeFailed, StoreFull
from statemachines.persistent_sessions.session_life import SESSION_LIFE
from statemachines_spec.bug import Bug, change_rows, replace_call
from statemachines_spec.persistent_sessions.clients import on


def stay(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def replace_found(**facts: Any) -> Any:
    """What is found in the database is taken for this."""
    return lambda open_it: lambda record, event, now_ns: open_it(record, replace(event, **facts), now_ns)


open_fresh, look_up, tell_opened = life_actions.open_fresh, life_actions.look_up, life_actions.tell_opened
ask_for_lock = life_actions.ask_for_lock


def look_up_as_the_last(record: Any, event: Any, now_ns: int) -> Any:
    """Under a token that nobody gave."""
    return look_up(record, replace(event, token=99), now_ns)


def tell_absent(record: Any, event: Any, now_ns: int) -> Any:
    return record, tell_opened(replace(record, present=False), event, now_ns)[1]


def keep_expiry(record: Any, event: Any) -> int:
    return int(record.expiry_ms)


def as_said(record: Any, event: Any) -> int:
    return int(record.expiry_ms if event.expiry_ms < 0 else event.expiry_ms)


def ask_as_anybody(record: Any, aged: int) -> Any:
    return ask_for_lock(replace(record, instance=""), aged)


A, L = life_actions, SESSION_LIFE

BUGS = (
    Bug("session-id-of-the-client", "the session id of a clean start is made of the client id alone", "PS-103",
        "the id of the connection", replace_call(A, "fresh_session", lambda record: f"{record.client}@")),
    Bug("clean-start-resumes", "a clean start goes on with the session that is there", "PS-103", "the clean start",
        change_rows(L, "open_fresh", when=lambda record, event: not event.session or event.expired)),
    Bug("expired-goes-on", "a session that has expired is resumed", "PS-103", "the look at the expiry",
        change_rows(L, "open_fresh", when=lambda record, event: record.clean or not event.session)),
    Bug("always-fresh", "a client never finds its session again", "PS-104", "the session that is there",
        change_rows(L, "open_fresh", when=lambda record, event: True)),
    Bug("old-session-left", "a session that is replaced is not abandoned", "PS-103", "what says so",
        change_rows(L, "open_fresh", do=replace_found(session="")(open_fresh))),
    Bug("present-not-told", "a client is not told that its session was there", "PS-105", "session present",
        change_rows(L, "tell_opened", do=tell_absent)),
    Bug("token-made-up", "a connection asks under another token than that of its lock", "PS-102", "the token",
        change_rows(L, "look_up", do=look_up_as_the_last)),
    Bug("expiry-raised", "an expiry of 0 is raised when the client leaves", "PS-108",
        "the look at what was said first",
        replace_call(A, "expiry_of", as_said)),
    Bug("expiry-not-heard", "a client that ends its session when it leaves is not heard", "PS-108",
        "what was said last",
        replace_call(A, "expiry_of", keep_expiry)),
    Bug("gone-while-opened", "a client that has gone while its session was opened counts as there", "PS-109",
        "the look at whether it has gone", change_rows(L, "leave_at_once", when=lambda record, event: False)),
    Bug("lock-asked-once", "a client id that another has locked is not asked for again", "PS-101", "the next time",
        on(L, LockDue, LOCKING, to=STAY, do=stay)),
    Bug("attempts-not-told", "connections of a client are not told apart", "PS-280", "which of them it is",
        replace_call(A, "ask_for_lock", ask_as_anybody)),
    Bug("full-counts-as-open", "a connection that is refused goes on as if its session were open", "PS-212", "the end",
        on(L, StoreFull, OPENING, to=SETTLING, do=tell_opened)),
    Bug("full-waited-out", "a connection that is refused waits for its answer", "PS-212", "the end",
        on(L, StoreFull, OPENING, to=STAY, do=stay)),
    Bug("failure-waited-out", "a connection whose request has failed waits for its answer", "PS-112", "the end",
        on(L, LifeFailed, LEAVING, to=STAY, do=stay)),
)  # fmt: skip
"""Each with a sentence of its own."""

"""Bugs of a publisher: mistakes that can be planted in its window.

Bugs of a connection: mistakes that can be planted in it.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import STAY, Map, Send
from statemachines.persistent_sessions import publication, session_life
from statemachines.persistent_sessions.life_record import LEAVING, LOCKING, OPENING, SETTLING, LockDue
from statemachines.persistent_sessions.life_request import LifeFailed, StoreFull
from statemachines.persistent_sessions.publication import NODE, PUBLICATION, HandMessage
from statemachines.persistent_sessions.session_life import SESSION_LIFE
from statemachines_spec.bug import Bug, change_rows, replace_call, wrap_call
from statemachines_spec.persistent_sessions.clients import on

fill_window, end_message = publication.fill_window, publication.end_message


def hand_over_nothing(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def hand_over_backwards(record: Any, event: Any, now_ns: int) -> Any:
    after, sent = publication.hand_over_all(record, event, now_ns)
    return after, tuple(reversed(sent))


def hand_over_whatever_waits(record: Any, event: Any, now_ns: int) -> Any:
    return record, tuple(Send(NODE, HandMessage(n)) for n in sorted(record.sizes))


def fill_without_bytes(fill: Any) -> Any:
    def unbounded(record: Any) -> Any:
        after, sent = fill(replace(record, bytes_max=1 << 40))
        return replace(after, bytes_max=record.bytes_max), sent

    return unbounded


def fill_past_the_first(fill: Any) -> Any:
    """A message that does not fit is passed by the one behind it, and goes last."""

    def passing(record: Any) -> Any:
        after, sent = fill(record)
        first, behind = after.next, after.next + 1
        if behind not in after.sizes or first not in after.sizes or sent:
            return after, sent
        turned = {first: after.sizes[behind], behind: after.sizes[first]}
        return fill(replace(after, sizes=Map({**after.sizes, **turned})))

    return passing


def cancel_nothing(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def cancel_and_stop(record: Any, event: Any, now_ns: int) -> Any:
    """A message that waited is cancelled, and those behind it go on waiting."""
    if event.n < record.next:
        return end_message(record, event.n)
    return replace(record, sizes=record.sizes.delete(event.n)), ()


def tell_and_stop(record: Any, n: int, *told: Any) -> Any:
    """Those that wait do not get its room."""
    after = replace(record, next=record.count + 1)
    ended = end_message(after, n, *told)[0]
    return replace(ended, next=record.next), told


P = publication

BUGS = (
    Bug("window-is-left-behind", "what is not answered is not handed to the next node", "PS-157", "the window",
        change_rows(PUBLICATION, "hand_over_all", do=hand_over_nothing)),
    Bug("window-goes-backwards", "what is not answered goes to the next node with the last one first", "PS-157",
        "the order", change_rows(PUBLICATION, "hand_over_all", do=hand_over_backwards)),
    Bug("waiting-goes-with-the-window", "the next node is handed also what the window has no room for", "PS-761",
        "the first that waits", change_rows(PUBLICATION, "hand_over_all", do=hand_over_whatever_waits)),
    Bug("window-without-bytes", "a window is bounded in messages alone", "PS-761", "the bound of bytes",
        wrap_call(P, "fill_window", fill_without_bytes)),
    Bug("small-message-overtakes", "a message that fits passes one that does not", "PS-761", "the order",
        wrap_call(P, "fill_window", fill_past_the_first)),
    Bug("room-is-not-given", "what waits does not go when a message is over", "PS-761", "the next that waits",
        replace_call(P, "end_message", tell_and_stop)),
    Bug("cancelled-goes-again", "a cancelled message stays in the window", "PS-764", "its room",
        change_rows(PUBLICATION, "cancel", do=cancel_nothing)),
    Bug("cancelled-blocks", "those behind a cancelled message wait until another is over", "PS-764",
        "the next that waits", change_rows(PUBLICATION, "cancel", do=cancel_and_stop)),
    Bug("answer-out-of-nothing", "an answer about a message that was not handed over ends it", "PS-765",
        "the look at the window",
        change_rows(PUBLICATION, "tell_stored", when=lambda record, event: event.n in record.sizes)),
)  # fmt: skip
"""Each with a sentence of its own."""


def stay(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def replace_found(**facts: Any) -> Any:
    """What is found in the database is taken for this."""
    return lambda open_it: lambda record, event, now_ns: open_it(record, replace(event, **facts), now_ns)


open_fresh, look_up, tell_opened = session_life.open_fresh, session_life.look_up, session_life.tell_opened
ask_for_lock = session_life.ask_for_lock


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


A, L = session_life, SESSION_LIFE

LIFE_BUGS = (
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

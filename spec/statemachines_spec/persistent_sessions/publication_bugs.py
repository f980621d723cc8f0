"""Bugs of a publisher: mistakes that can be planted in its window."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Map, Send
from statemachines.persistent_sessions import publication
from statemachines.persistent_sessions.publication import NODE, PUBLICATION
from statemachines.persistent_sessions.publication_record import HandMessage
from statemachines_spec.bug import Bug, change_rows, replace_call, wrap_call

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

"""How the clauses of sequence windows that are no rows are broken (tools/clauses.py)."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any

from mutants import Break, swap, without_choice

from statemachines.drivers.sequence_windows import datagram
from statemachines.drivers.sequence_windows.reorder import ReorderBuffer
from statemachines.kernel import Message
from statemachines.sequence_windows import (
    loss_notifier,
    losses,
    message,
    publisher_table,
    publisher_window,
    rotation,
    sequence,
    subscriber_table,
    subscriber_window,
    windows,
)
from statemachines.sequence_windows.generations import Generations
from statemachines.sequence_windows.subscriber_table import PublisherEntry

CLAUSES = "test_windows_clauses"


class Numbered(Message, frozen=True, gc=False):
    """A message that may be malformed; the check of the shipped one is part of its type, and cannot be taken out."""

    frame: int
    first: int
    last: int
    time_ns: int = 0
    chain: int = 0


def all_of(*breaks: Break) -> Break:
    def apply(stack: ExitStack) -> None:
        for one in breaks:
            one(stack)

    return apply


def believed(name: str) -> Break:
    """A time or chain is taken as it comes."""
    return swap(message.Numbered, name, property(lambda one: {"begin_ns": one.time_ns, "before": one.chain}[name]))


def frames_of_ten_seconds(t_ns: int) -> int:
    return max(1, t_ns // 10_000_000_000)


def in_test(name: str, value: Any) -> Break:
    return lambda stack: swap(sys.modules[CLAUSES], name, value)(stack)


def never(record: Any, event: Any) -> bool:
    return False


def no_more(of: Any) -> Any:
    return lambda self, *given: None


BREAKS = {
    **{f"SW-{n}": without_choice("sequence_windows", f"SW-{n}") for n in (83, 84)},
    "SW-01": all_of(swap(publisher_window, "frame_at", frames_of_ten_seconds), swap(sequence, "FRAME_SHIFT", 32)),
    "SW-07": lambda stack: floor_stays(stack),
    "SW-08": all_of(believed("begin_ns"), believed("before")),
    "SW-13": swap(Generations, "cost", lambda self, subject: self.overhead),
    "SW-15": swap(Generations, "free", lambda self, at_most=0: bool(self._dropped.clear())),
    "SW-16": in_test("Numbered", Numbered),
    "SW-17": swap(subscriber_table.SubscriberTable, "_check", no_more(None)),
    "SW-29": all_of(swap(subscriber_window, "LOSS_MAX", 10**9), swap(message, "LOSS_MAX", 10**9)),
    "SW-30": swap(losses.LossPeer, "count", no_more(None)),
    "SW-45": swap(loss_notifier, "LISTED", 12),
    "SW-46": swap(loss_notifier, "HEAD", {}),
    "SW-60": swap(windows, "_window", lambda side, given: rotation.Window()),
    "SW-61": swap(losses, "sort_by_id", tuple),
    "SW-79": swap(
        subscriber_table, "PublisherEntry", lambda publisher, life, after: PublisherEntry(publisher, 0, after)
    ),
    "SW-81": swap(subscriber_window, "last_before", lambda last, gaps, number: last),
    "SW-102": swap(ReorderBuffer, "hold", lambda self, line, one, now_ns: False),
    "SW-80": swap(datagram, "_ARRAYS", ()),
}


def floor_stays(stack: ExitStack) -> None:
    """What is dropped raises no frame."""
    swap(publisher_table, "Tick", lambda now_ns, kept, old_frame=0: rotation.Tick(now_ns, kept))(stack)

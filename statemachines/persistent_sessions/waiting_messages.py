"""WaitingMessages: runs of messages that waited in the last walk of a collector, and need not be read again.

Each message of a run had an undelivered row that is never over.  Rows of one writer, epoch and session go from the
front.  So while the first of these rows is there, all messages that were found by them wait still (PS-710).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

Place = tuple[int, bytes]
"""The time and the id of a message: messages are read in this order."""

RowsOf = tuple[bytes, bytes, int]
"""Session, writer and epoch."""

Firsts = dict[RowsOf, int]
"""Of rows by which messages were found: the number of the first."""

RUN_MAX: Final = 10_000
"""Messages of a run: where one of its first rows has gone, they are read again."""

SHARE: Final = 4
"""A run is remembered that has so many times as many messages as first rows: asking for these is cheaper then."""

ASKED_MAX: Final = 1_000
"""First rows that are asked for in one transaction, and those of one run more."""

FIRSTS_MAX: Final = 100_000
"""First rows that are remembered, of all runs together."""


class MessageRun(NamedTuple):
    """The messages behind `begin`, up to `end`; the oldest is of `oldest_ns`."""

    begin: Place
    end: Place
    messages: int
    oldest_ns: int
    firsts: Firsts


class WaitingMessages:
    """`begin` a walk, `note` runs in their order, and `finish`; `retention_ns`: a run whose oldest message has this age
    is read.  `pass_over` says where reading goes on behind runs that are known."""

    def __init__(self, retention_ns: int) -> None:
        self._retention_ns = retention_ns
        self._known: dict[Place, MessageRun] = {}
        """By their begin: runs of the last walk that came to its end."""
        self._walked: dict[Place, MessageRun] = {}
        self._open: MessageRun | None = None
        """What is noted next may belong to it."""
        self._firsts = 0

    def begin(self) -> None:
        """A walk begins: what was noted of one that did not come to its end counts for nothing."""
        self._walked = {}
        self._open = None
        self._firsts = 0

    def note(self, run: MessageRun) -> None:
        """These messages wait."""
        before = self._open
        if before is None or before.end != run.begin or before.messages + run.messages > RUN_MAX:
            self._close()
            self._open = run._replace(firsts=dict(run.firsts))
            return
        add_firsts(before.firsts, run.firsts.items())
        oldest_ns = min(before.oldest_ns, run.oldest_ns)
        self._open = before._replace(end=run.end, messages=before.messages + run.messages, oldest_ns=oldest_ns)

    def finish(self) -> None:
        """There are no more messages."""
        self._close()
        self._known = self._walked

    def is_known(self, place: Place) -> bool:
        """Whether a run begins behind this message."""
        return place in self._known

    def pass_over(self, place: Place, aged_ns: int, are_there: Callable[[Firsts], bool]) -> Place:
        """Behind the runs that begin here, one behind the other, and wait still; `aged_ns`: up to when ages count;
        `are_there`: whether the database has these rows."""
        asked = 0
        while asked < ASKED_MAX:
            run = self._known.get(place)
            if run is None or run.oldest_ns + self._retention_ns <= aged_ns or not are_there(run.firsts):
                break
            asked += len(run.firsts)
            self.note(run)
            place = run.end
        return place

    def _close(self) -> None:
        run, self._open = self._open, None
        if run is None or SHARE * len(run.firsts) > run.messages or self._firsts + len(run.firsts) > FIRSTS_MAX:
            return
        self._firsts += len(run.firsts)
        self._walked[run.begin] = run


def add_firsts(firsts: Firsts, others: Iterable[tuple[RowsOf, int]]) -> None:
    """The first of both."""
    for rows, number in others:
        firsts[rows] = min(number, firsts.get(rows, number))

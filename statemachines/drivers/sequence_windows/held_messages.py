"""Held messages: what a receiver keeps of a stream that misses something: its messages, in runs of numbers."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from statemachines.kernel import Node
from statemachines.missed_samples.message import Deliver, Missed
from statemachines.missed_samples.ranges import overlap
from statemachines.missed_samples.source_record import LIVE, SourceRecord
from statemachines.sequence_windows.message import LOSS_MAX, Judged, Verdict

OVERHEAD = 512
"""Bytes that a held message takes beside its payload, roughly."""

Place = tuple[str, str, int]
"""(publisher, subject, life of the publisher)"""


class HeldMessage(msgspec.Struct):
    """A message that has come: `told` is what it is by itself; `last`: the number before it of its stream, as far as
    the window knew it (0: none); `before`: the last number of the stream before, if it says so (0: it does not).  Once
    it is handed over, `given` is what the application got."""

    publisher: str
    subject: str
    number: int
    payload: bytes
    told: Judged
    t_ns: int
    last: int = 0
    before: int = 0
    recovered: bool = False
    given: Any = None
    life: int = 0

    @property
    def place(self) -> Place:
        return self.publisher, self.subject, self.life

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        return OVERHEAD + len(self.payload)

    def judge_after_loss(self, lost: int) -> Judged:
        """What it is where `lost` numbers before it will not come, and all others have."""
        told = self.told
        lost = min(lost + told.lost, LOSS_MAX)
        filled = told.verdict in (Verdict.SKIP, Verdict.REPEAT)
        verdict = Verdict.SKIP if lost else Verdict.NEXT if filled else told.verdict
        return Judged(verdict, told.frame, told.first, told.last, lost, told.unknown)

    def judge_repeat(self) -> Judged:
        """What it is where it is here already, whatever the window thinks of it."""
        return Judged(Verdict.REPEAT, self.told.frame, self.told.first, self.told.last)


class HeldRun:
    """Numbers of one frame, one behind the other: a Source (`node`), the messages that it holds, and what it has said
    of them that is not carried `out` yet, because an older run comes first.  `given_up`: it waits for nothing more."""

    __slots__ = ("first", "given_up", "messages", "node", "out", "place")

    def __init__(self, place: Place, first: int, node: Node[SourceRecord]) -> None:
        self.place = place
        self.first = first
        self.node = node
        self.messages: dict[int, HeldMessage] = {}
        self.out: deque[Deliver | Missed] = deque()
        self.given_up = False

    @property
    def high(self) -> int:
        """The highest number that is known to exist."""
        return self.node.record.top - 1

    @property
    def missing_until(self) -> int:
        """The highest number that has not come, where some have not."""
        record = self.node.record
        return record.held[-1][0] - 1 if record.held and record.held[-1][1] == self.high else self.high

    @property
    def is_settled(self) -> bool:
        """Nothing is missing, or waited for."""
        return self.given_up or self.node.record.status is LIVE

    def misses(self, number: int) -> bool:
        """It is known to exist, and has not come."""
        record = self.node.record
        return record.expected <= number < record.top and not overlap(record.held, number, number)


class HeldStream:
    """The runs of one publisher and subject, the oldest first; `lost`: so many numbers were given up, and no message
    that came behind them has been handed over yet."""

    __slots__ = ("lost", "place", "runs")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.runs: deque[HeldRun] = deque()
        self.lost = 0

    @property
    def high(self) -> int:
        """The highest number that is known to exist."""
        return self.runs[-1].high

    def run_of(self, number: int) -> HeldRun | None:
        """The run that has it."""
        return next((run for run in self.runs if run.first <= number <= run.high), None)

"""Held messages: what a receiver keeps of a stream that misses something: its messages."""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.sequence_windows.held_stream_actions import judge_released
from statemachines.sequence_windows.message import Judged, Verdict

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

    def judge_released(self, lost: int, own: bool) -> Judged:
        """What it is where `lost` numbers before it will not come; `own`: what its window says to be lost counts."""
        return judge_released(self.told, self.recovered, lost, own)

    def judge_repeat(self) -> Judged:
        """What it is where it is here already, whatever the window thinks of it."""
        return Judged(Verdict.REPEAT, self.told.frame, self.told.first, self.told.last)


class HeldPayloads:
    """What is held of one publisher and subject, by number; `stream`: the id of the party that decides about it."""

    __slots__ = ("messages", "place", "stream")

    def __init__(self, stream: str, place: Place) -> None:
        self.stream = stream
        self.place = place
        self.messages: dict[int, HeldMessage] = {}

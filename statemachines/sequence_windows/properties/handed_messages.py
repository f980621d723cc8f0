"""HandedMessages: what a receiver that recovers hands over of one publisher and subject (ORDER, REPORT, NOGAP), what it
asks for (QUIET), and what it still waits for (SETTLED)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from statemachines.kernel import BrokenProperty
from statemachines.sequence_windows.message import LOSS_MAX, Verdict
from statemachines.sequence_windows.properties.names import LATE, NOGAP, ORDER, QUIET, REPORT, SETTLED, TWICE

Broken = tuple[BrokenProperty, ...]


class HandedMessages(msgspec.Struct, frozen=True, gc=False):
    """By ordinals from 0 on."""

    last: int = -1
    """What was handed over last (-1: nothing)."""
    said: int = 0
    """The loss that was told, and whose message was not handed over yet."""
    remembers: bool = False
    """Whether `given` and `lost` are kept: then ORDER is told apart from TWICE, and REPORT from LATE."""
    given: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()

    def list_missing(self, ordinal: int) -> range:
        """What lies between the last that was handed over and this one."""
        return range(self.last + 1, ordinal) if self.last >= 0 else range(0)

    def list_open(self, came: Iterable[int]) -> list[int]:
        """What waits of those that came: SETTLED, where nothing does in the end."""
        return sorted(one for one in came if one > self.last)

    def observe(
        self, ordinal: int, verdict: Verdict, lost: int, unknown: bool, here: Collection[int] = ()
    ) -> tuple[HandedMessages, Broken]:
        """A message is handed over, and this is said of it.  `here`: messages that wait, or that answers brought in
        time."""
        missing = self.list_missing(ordinal)
        count = min(len(missing), LOSS_MAX)
        names = []
        if ordinal in self.given:
            names.append(TWICE)
        elif ordinal <= self.last:
            names.append(ORDER)
        if ordinal in self.lost:
            names.append(LATE)
        if self.last >= 0 and verdict in (Verdict.NEXT, Verdict.SKIP):
            exact = lost > 0 and count > 0 if unknown else lost == count
            if not exact or (verdict is Verdict.SKIP) is not (count > 0):
                names.append(REPORT)
            if any(one in missing for one in here):
                names.append(NOGAP)
        where = f"message {ordinal} behind {self.last}, {verdict.value}, {lost} lost"
        after = replace(self, last=ordinal)
        if self.remembers:
            given, gone = tuple(sorted({*self.given, ordinal})), tuple(sorted({*self.lost, *missing}))
            after = replace(after, given=given, lost=gone)
        return after, tuple(BrokenProperty(name, where) for name in names)

    def tell_loss(self, lost: int) -> tuple[HandedMessages, Broken]:
        """So many are told as lost; the message before which they are comes next (REPORT)."""
        broken = (BrokenProperty(REPORT, f"tells {lost} as lost beside {self.said}"),) if self.said else ()
        return replace(self, said=lost), broken

    def attach_loss(self, lost: int) -> tuple[HandedMessages, Broken]:
        """The next message is handed over with this loss (REPORT)."""
        broken = () if lost == self.said else (BrokenProperty(REPORT, f"{lost} lost, and {self.said} were told"),)
        return replace(self, said=0), broken


def judge_source(came: bool, recovered: bool, was_lost: bool) -> Broken:
    """ORDER: what is handed over came, and is called recovered if and only if the network had lost it."""
    return () if came and recovered is was_lost else (BrokenProperty(ORDER, "nobody brought it so"),)


def judge_sum(told: int, counted: int) -> Broken:
    """REPORT: what is told as lost is what is counted."""
    return () if told == counted else (BrokenProperty(REPORT, f"{counted} are counted as lost, and {told} were told"),)


def judge_answer(brought: list[int], owed: list[int]) -> Broken:
    """NOGAP: a publisher answers with all that it must still have."""
    return () if brought == owed else (BrokenProperty(NOGAP, f"brings {brought}, and has {owed}"),)


def judge_query(ends: Collection[int], lost: Collection[int], follows: bool) -> Broken:
    """QUIET: a query begins and ends with a message that was lost; `follows`: it is behind one of its stream that
    came."""
    if follows and all(one in lost for one in ends):
        return ()
    return (BrokenProperty(QUIET, f"asks for messages {sorted(ends)}, {'lost' if follows else 'behind nothing'}"),)


def judge_settled(waited: int, longest: int) -> Broken:
    """SETTLED: nothing is waited for longer."""
    return () if waited <= longest else (BrokenProperty(SETTLED, f"has waited for {waited}, {longest} at most"),)

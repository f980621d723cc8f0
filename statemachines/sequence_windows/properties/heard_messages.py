"""HeardMessages: what a receiver has heard of one publisher and subject, and what it says of each message.

ONCE, EXACT, NOFALSE, DETECT and CROWD are judged by the ordinals of messages; JOIN by what is missing of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from statemachines.kernel import BrokenProperty, Map
from statemachines.sequence_windows.late_join import Join
from statemachines.sequence_windows.message import Judged, Numbered, Verdict
from statemachines.sequence_windows.properties.names import CROWD, DETECT, EXACT, JOIN, NOFALSE, ONCE

Broken = tuple[BrokenProperty, ...]


class ArrivedMessage(msgspec.Struct, frozen=True, gc=False):
    """Messages `first` to `last` of a publisher and subject reach a receiver."""

    first: int
    last: int
    missed: int = 0
    """So many were sent behind the last that was delivered, and did not come."""
    cut: int = -1
    """The first message behind which its publisher says nothing of those before it (-1: there is none)."""
    begins: bool = False
    """It begins a stream that goes on from none."""
    wanted: bool = True
    """The receiver has subscribed the subject."""
    crowded: bool = False
    """A publisher of the subject was forgotten for others."""
    awaited: bool = False
    """Its stream, or the one before that, began while the receiver listened."""


class HeardMessages(msgspec.Struct, frozen=True, gc=False):
    """By ordinals from 0 on; -1: none."""

    arrived: int = -1
    """The last that reached the receiver."""
    delivered: int = -1
    """The last that its application got since the receiver knows the publisher."""
    known: bool = False
    """The receiver must remember the publisher."""
    displaced: bool = False
    """It did, and forgot it for others."""
    ordered: bool = True
    """Messages do not overtake each other, so nothing below `delivered` is delivered."""
    handed: Map[int, bool] = Map()
    """All that were delivered, where messages overtake each other."""

    def observe(self, message: ArrivedMessage, told: Judged) -> tuple[HeardMessages, Broken]:
        """The receiver says this of the messages."""
        broken = tuple(BrokenProperty(name, self._describe(message, told)) for name in self._judge(message, told))
        delivered, handed = self.delivered, self.handed
        if told.is_delivered:
            delivered = max(delivered, message.last)
            handed = handed if self.ordered else handed.set(message.first, True)
        arrived = max(self.arrived, message.last)
        return HeardMessages(arrived, delivered, message.wanted, False, self.ordered, handed), broken

    def forget(self) -> HeardMessages:
        """The receiver need not remember the publisher any more."""
        return HeardMessages(self.arrived, ordered=self.ordered)

    def displace(self) -> HeardMessages:
        """The receiver forgets the publisher for others."""
        return replace(self.forget(), displaced=True)

    def count_since(self, ordinal: int) -> int:
        """How many messages lie between the last that was delivered and this one."""
        return max(0, ordinal - self.delivered - 1)

    def is_hidden(self, message: ArrivedMessage) -> bool:
        """The publisher has forgotten the subject in between, so that nobody can know of a loss."""
        return self.delivered < message.cut <= message.first

    def _judge(self, message: ArrivedMessage, told: Judged) -> Iterator[str]:
        verdict, missed = told.verdict, message.missed
        if not message.wanted or verdict is Verdict.NOT_SUBSCRIBED:
            if (verdict is Verdict.NOT_SUBSCRIBED) is message.wanted:
                yield ONCE
        elif not self.known:
            yield from self._judge_first(message, told)
        elif verdict is Verdict.REPEAT:
            if message.last > self.delivered:
                yield ONCE
        elif message.first <= self.delivered:
            if self.ordered or message.first in self.handed:
                yield ONCE
        elif verdict is Verdict.SKIP:
            if not missed:
                yield NOFALSE
            elif told.lost > missed or (told.lost < missed and not told.unknown):
                yield EXACT
        else:
            hidden = verdict is Verdict.CYCLE and self.is_hidden(message)
            if verdict is Verdict.FIRST or (missed and not hidden):
                yield DETECT
            if told.lost or told.unknown:
                yield NOFALSE

    def _judge_first(self, message: ArrivedMessage, told: Judged) -> Iterator[str]:
        if told.verdict is not Verdict.FIRST:
            yield ONCE
        if not message.begins and not told.unknown:
            yield from (CROWD,) * self.displaced + (DETECT,) * message.awaited
        if told.unknown and (message.begins or not (message.crowded or message.awaited)):
            yield NOFALSE

    def _describe(self, message: ArrivedMessage, told: Judged) -> str:
        which = f"messages {message.first} to {message.last} behind {self.delivered}, {message.missed} missed"
        return f"{which}: {told.verdict_text}, {told.lost} lost"


def judge_ranges(event: Numbered, told: tuple[Judged, ...]) -> Broken:
    """ONCE: each message of a range is judged once, in their order."""
    bases = [base for one in told if one.frame == event.frame for base in range(one.first, one.last + 1)]
    return () if bases == list(range(event.first, event.last + 1)) else (BrokenProperty(ONCE, f"{event}: {told}"),)


def judge_answered(answered: bool, ordinal: int) -> Broken:
    """DETECT: the receiver has said something of a message that it has handled."""
    return () if answered else (BrokenProperty(DETECT, f"says nothing of message {ordinal}"),)


def judge_limit(limit: str, shown: str, count: int) -> Broken:
    """DETECT: where the limit `shown` is to be shown it hides some losses, and no other `limit` does."""
    if not shown or (limit == shown) is (count > 0):
        return ()
    return (BrokenProperty(DETECT, f"{count} losses are hidden by {limit}, and {shown} is to be shown"),)


def judge_join(join: Join, missing: int) -> Broken:
    """JOIN: so many messages of a stream are missing whose first message the receiver calls so."""
    if join is not Join.VERIFIED or not missing:
        return ()
    return (BrokenProperty(JOIN, f"{missing} messages of a stream are missing that is {join.value}"),)


def remember_publisher(spoke: tuple[str, ...], publisher: str, places: int) -> tuple[tuple[str, ...], str]:
    """The publishers of a subject behind a message of this one, the last that spoke last, and the one that is forgotten
    for it ("": none is).  A receiver has so many `places` (0: for all)."""
    if not places:
        return spoke, ""
    spoke = (*(one for one in spoke if one != publisher), publisher)
    return (spoke[1:], spoke[0]) if len(spoke) > places else (spoke, "")

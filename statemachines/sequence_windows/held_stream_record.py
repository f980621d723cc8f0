"""HeldStreamRecord: one stream that misses something, its runs, and what may happen to it.

Payloads stay with the driver: it keeps a message from `MessageHeld` until `MessagesReleased` has passed its number.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from statemachines.kernel import Call, Event, Message, Status, TraceColumns
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.source_record import SourceRecord
from statemachines.sequence_windows.message import Verdict
from statemachines.sequence_windows.sequence import frame_of

OF_STREAM = TraceColumns(key="stream")
OF_RUN = TraceColumns(key="run")
OF_NUMBER = TraceColumns(first="number")


# -- what comes -----------------------------------------------------------------------------------------------------


class StreamMessage(Message, frozen=True, gc=False):
    """A message of the stream has come by itself."""

    columns: ClassVar = OF_NUMBER

    number: int
    verdict: Verdict
    """As the window has it."""
    unknown: bool = False
    """It is unknown how many are missing before it."""
    last: int = 0
    """The last number of the stream that the window knew (0: none)."""
    before: int = 0
    """The CHAIN of the message (0: it has none)."""


class RecoveredMessage(Message, frozen=True, gc=False):
    """A message of the stream has come because it was asked for."""

    columns: ClassVar = OF_NUMBER

    number: int


class PutQuery(Call, frozen=True, gc=False):
    """From the host: the query of this run, which was due, can be sent now."""

    columns: ClassVar = OF_RUN

    run: str


class NoRoom(Call, frozen=True, gc=False):
    """From the host: more bytes wait than may."""


class DropStream(Call, frozen=True, gc=False):
    """From the host: nothing of the stream is wanted any more."""


class BeginRun(Call, frozen=True, gc=False):
    """From the process: there is a place for a run that begins with this message."""

    columns: ClassVar = OF_NUMBER

    number: int
    before: int


class RefuseRun(Call, frozen=True, gc=False):
    """From the process: there is no place for a run that begins with this message."""

    columns: ClassVar = OF_NUMBER

    number: int


class NextRun(Call, frozen=True, gc=False):
    """From the process: the oldest run is over, and another one follows it."""


# -- what is told ---------------------------------------------------------------------------------------------------


class RunWanted(Event, frozen=True, gc=False):
    """To the process: a message begins another run."""

    columns: ClassVar = TraceColumns(key="stream", first="number")

    stream: str
    number: int
    before: int


class RunSettled(Event, frozen=True, gc=False):
    """To the process: the oldest runs, `over` of them, miss nothing any more, and `left` are behind them."""

    columns: ClassVar = TraceColumns(key="stream", grant="over")

    stream: str
    over: int
    left: int


class QueryDue(Event, frozen=True, gc=False):
    """To the host: the run has a query, which is to be put when everything else is done."""

    columns: ClassVar = OF_RUN

    run: str


class MessageHeld(Event, frozen=True, gc=False):
    """To the host: the message that has just come is held.  `filled`: it was missing."""

    columns: ClassVar = OF_NUMBER

    number: int
    filled: bool


class MessageRepeated(Event, frozen=True, gc=False):
    """To the host: the message that has just come is here already."""

    columns: ClassVar = OF_NUMBER

    number: int


class MessagePassed(Event, frozen=True, gc=False):
    """To the host: the message that has just come is not held.  It is what the window says."""

    columns: ClassVar = OF_NUMBER

    number: int


class MessagesReleased(Event, frozen=True, gc=False):
    """To the host: held messages `first`..`last` are handed over, in order."""

    columns: ClassVar = TraceColumns(grant="lost")

    first: int
    last: int
    lost: int
    """So many before the first of them will not come, and count as lost now."""
    own: bool
    """What the window said to be lost before the first of them counts, too."""


class ReplyRepeated(Event, frozen=True, gc=False):
    """To the host: a reply that has come already."""


class ReplyUnexpected(Event, frozen=True, gc=False):
    """To the host: a reply that nobody waits for."""


class StreamGivenUp(Event, frozen=True, gc=False):
    """To the host: what the stream misses counts as lost, and everything that is held is handed over."""


# -- the record -----------------------------------------------------------------------------------------------------


class HeldStreamStatus(Status):
    """A held stream has one state: it misses something."""

    HOLDING = "holding"


HOLDING = HeldStreamStatus.HOLDING


class ReleasedRange(msgspec.Struct, frozen=True, gc=False):
    """Messages `first`..`last` of a run that is not the oldest: they can be handed over when its turn has come."""

    first: int
    last: int
    lost: int
    """So many before them will not come."""


class HeldRun(msgspec.Struct, frozen=True, gc=False):
    """Numbers of one frame, one behind the other."""

    first: int
    source: SourceRecord
    """What has come, what is missing, and how it is asked for."""
    own: bool = False
    """What the window said to be lost before its first message counts."""
    released: tuple[ReleasedRange, ...] = ()
    lost: int = 0
    """So many behind the last that was released will not come."""
    due: int = 0
    """The number of the query that is to be put (0: none)."""

    @property
    def name(self) -> str:
        """No two runs of a process have the same."""
        return self.source.source

    @property
    def high(self) -> int:
        """The highest number that is known to exist."""
        return self.source.top - 1

    @property
    def missing_until(self) -> int:
        """The highest number that has not come, where some have not."""
        held = self.source.held
        return held[-1][0] - 1 if held and held[-1][1] == self.high else self.high


class HeldStreamRecord(msgspec.Struct, frozen=True, gc=False):
    """One held stream."""

    stream: str
    """The id of the party."""
    recovery: Recovery
    runs: tuple[HeldRun, ...] = ()
    """The oldest first."""
    begun: int = 0
    """How many runs have begun."""
    status: HeldStreamStatus = HOLDING

    @property
    def frame(self) -> int:
        """Of the newest run."""
        return frame_of(self.runs[-1].high)

    def place_of_number(self, number: int) -> int:
        """Which of the runs has this number (-1: none has)."""
        for place, run in enumerate(self.runs):
            if run.first <= number <= run.high:
                return place
        return -1

    def place_of_name(self, name: str) -> int:
        """Which of the runs is called so (-1: none is)."""
        return next((place for place, run in enumerate(self.runs) if run.name == name), -1)


def stream_of(run: str) -> str:
    """The id of the stream that a run of this name is of."""
    return run.rpartition(".")[0]

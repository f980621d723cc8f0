"""WriterFlowRecord: what a resuming session keeps of one writer, and what may happen to it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from statemachines.kernel import Call, Effects, Event, Status, TimerFired, TraceColumns
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import EpochRows
from statemachines.persistent_sessions.times import Times


class Begin(Call, frozen=True, gc=False):
    """Synchronise with the writer."""


class Handed(Call, frozen=True, gc=False):
    """An owner of before has handed over what it had of the writer, and the database has exactly that."""

    found: tuple[EpochRows, ...]


class Settled(Call, frozen=True, gc=False):
    """All that was taken is committed."""


class Room(Call, frozen=True, gc=False):
    """The client receives so many rows more, or a page."""

    rows: int


class Starve(Call, frozen=True, gc=False):
    """There is no room for what comes next: it is in the database, as is everything before number `next`."""

    columns: ClassVar = TraceColumns(term="epoch", first="next")

    epoch: int
    next: int


class CatchUp(Call, frozen=True, gc=False):
    """All writers were read, for the sake of rows of one that may be younger: of this one that is `found`, and no row
    that was stored before `complete_ns` is missing."""

    found: tuple[EpochRows, ...]
    complete_ns: int


class WriterUp(Call, frozen=True, gc=False):
    """The writer is reported to live (again), or for the first time."""

    columns: ClassVar = TraceColumns(key="writer")

    writer: str


class WriterDown(Call, frozen=True, gc=False):
    """The writer is reported dead."""

    columns: ClassVar = TraceColumns(key="writer")

    writer: str


class LinkLost(Call, frozen=True, gc=False):
    """The link to the writer's node broke: what was on its way is lost."""

    columns: ClassVar = TraceColumns(key="writer")

    writer: str


class AskAgain(TimerFired, frozen=True, gc=False):
    """The live marker has not come yet."""


class PollDue(TimerFired, frozen=True, gc=False):
    """Time to look into the database again."""


class MarkerTimeout(TimerFired, frozen=True, gc=False):
    """The writer has not shown its marker on both paths."""


class Take(Event, frozen=True, gc=False):
    """To the session state: these are next, of one epoch of a writer, and without a hole behind those before."""

    columns: ClassVar = TraceColumns(
        key="writer", term="epoch", grant="lost_rows", first="first_number", last="last_number"
    )

    writer: str
    epoch: int
    rows: tuple[Queued, ...]

    @property
    def first_number(self) -> int:
        """The number of the first."""
        return self.rows[0].number

    @property
    def last_number(self) -> int:
        """The number of the last."""
        return self.rows[-1].number

    @property
    def lost_rows(self) -> int:
        """Of how many of them retention has removed the message."""
        return sum(not row.message for row in self.rows)


class BlockRows(Take, frozen=True, gc=False):
    """To the session state: the same, and some of them wait for older rows of other writers.  They come when those
    have."""


class FlowStatus(Status):
    """The page's states, and `fencing`: the epoch is raised, and what it has is read.  `behind` (of `syncing`) and
    `draining` (of `fencing`): there is more to be read, and no room for it."""

    NEW = "new"
    WAITING = "waiting"
    BEHIND = "behind"
    SYNCING = "syncing"
    FINALIZING = "finalizing"
    FENCING = "fencing"
    DRAINING = "draining"
    DONE = "done"


NEW, WAITING, BEHIND, SYNCING, FINALIZING, FENCING, DRAINING, DONE = FlowStatus

STARVED = (BEHIND, DRAINING)
"""Nothing but room is waited for."""


class WriterFlowRecord(msgspec.Struct, frozen=True, gc=False):
    """One writer of a session, for the `owner` with this `token`.  `taken`: the last number of `epoch` that was
    taken; `n`: the last marker, or fence, that was asked for; `k` of the marker, once it has come live (0: not yet);
    `seen`: it was found in the database; `buffer`: what came live since, from `k` on.  `heard`: the highest number
    that came live while the marker was awaited; while a fence is, the highest epoch.  `gone`: it is fenced because it
    is dead, or silent; `below` of a fence of which there is more to be read.  `complete_ns`: all that the writer has
    stored before is taken."""

    session: str
    writer: str
    owner: str
    token: int
    times: Times
    status: FlowStatus = NEW
    epoch: int = 1
    taken: int = 0
    n: int = 0
    k: int = 0
    seen: bool = False
    heard: int = 0
    buffer: tuple[Queued, ...] = ()
    gone: bool = False
    below: int = 0
    complete_ns: int = 0


Done = tuple[WriterFlowRecord, Effects]

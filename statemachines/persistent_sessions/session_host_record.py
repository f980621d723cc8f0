"""SessionHostRecord: what a node knows of its clients, its writers, and the claims of other nodes; and what may happen
to it.

Store time: what ages are counted by, and how fast it may run (page: "Settled after the second trial from outside").

The clock of a database may be set ahead by a day.  Whoever uses the store compares it with a steady clock: where it
runs ahead of that by more than a slack, store time goes on as the steady clock does, and ages stand still until an
operator has looked, or the clock has come back.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from statemachines.kernel import Call, Fifo, LookAt, Map, Status, node_of
from statemachines.persistent_sessions.collector import Graces
from statemachines.persistent_sessions.life_record import KEEP, Connect, LifeRecord
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import MarkerWanted, Puback, Pubcomp, Pubrec
from statemachines.persistent_sessions.resume_record import ResumeRecord
from statemachines.persistent_sessions.takeover_record import (
    BeginTakeover,
    Claims,
    EndTakeover,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
)
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_record import WriterRecord

WRITERS_MAX: Final = 100_000
"""Sessions that a node has a writer for; beyond it one that is idle goes, and begins a new epoch if it is needed."""


UNSEEN: Final[Any] = None
"""In place of what an event gets before it is taken; every event to the process itself is given all of it."""


class MatchedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message is for this session, by this subscription; from `until_ns` on, by the clock of the database, it is over
    (0: it does not expire)."""

    session: str
    filter: str
    qos: int
    until_ns: int = 0


# -- calls ----------------------------------------------------------------------------------------------------------


class ConnectClient(Call, frozen=True, gc=False):
    """A client connects, and receives at most `receive_maximum` messages at a time."""

    client: str
    receive_maximum: int
    connect: Connect


class LeaveClient(Call, frozen=True, gc=False):
    """The client of this owner says good-bye; its session outlives that by `expiry_ms`, if it may."""

    owner: str
    expiry_ms: int = KEEP


class LoseClient(Call, frozen=True, gc=False):
    """The client of this owner is gone without a word, or has to go."""

    owner: str


class TakeAcknowledgements(Call, frozen=True, gc=False):
    """The client of this owner has messages, or has done with them."""

    owner: str
    messages: tuple[Puback | Pubrec | Pubcomp, ...]


class CommitAcknowledged(Call, frozen=True, gc=False):
    """What was acknowledged since this was called last is committed: nobody knows when the next commit comes."""


class RoutedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that is stored, and the sessions that it is for: at least one; `since_ns` as of `Live`."""

    id: str
    handed: tuple[MatchedMessage, ...]
    since_ns: int = 0


class HandMessages(Call, frozen=True, gc=False):
    """Messages that are stored go, in their order, to the writer of each session that they are for."""

    messages: tuple[RoutedMessage, ...]


class LookAtResume(LookAt, frozen=True, gc=False):
    """The base of events that name an owner."""

    seen: ResumeRecord = UNSEEN


class MeetWriter(LookAtResume, frozen=True, gc=False):
    """The node `writer` has begun to write for the session of the owner `party`."""

    writer: str = ""


class Undelivered(Call, frozen=True, gc=False):
    """What the party `sender` has said does not go: its node has no link to the party `to`."""

    sender: str
    to: str
    message: Any


Position = tuple[int, int]
"""(epoch, number) of a row of one writer."""


class RowsSeen(LookAtResume, frozen=True, gc=False):
    """What the database has of the session of the owner `party`.  `superseded`: a higher token was there, or the
    session is gone; `writers` of other nodes that have begun; `rows`: writer -> its last row behind those that are
    taken."""

    superseded: bool = False
    writers: tuple[str, ...] = ()
    rows: Map[str, Position] = Map()


# -- what its parties tell it ---------------------------------------------------------------------------------------


class OwnerOpened(Call, frozen=True, gc=False):
    """The session of this owner is open under `token`; `live`: the owner that has it now ("": none), which its client
    has `left`; `replaced`: the owner that had a session of the client in place of which this one is ("": none)."""

    owner: str
    session: str
    token: int
    live: str
    left: bool = False
    replaced: str = ""


class OwnerClosed(Call, frozen=True, gc=False):
    """The session life of this owner has ended."""

    owner: str
    why: str


class OwnerEnded(Call, frozen=True, gc=False):
    """The resume of this owner has ended."""

    owner: str
    why: str


# -- what it tells itself -------------------------------------------------------------------------------------------


class Overtake(LookAt, frozen=True, gc=False):
    """`party`, the session life of an earlier connection of the same client, may still wait for its lock; then `owner`
    connects."""

    seen: LifeRecord = UNSEEN
    owner: str = ""
    connect: Connect = UNSEEN


class CommitOf(LookAtResume, frozen=True, gc=False):
    """The owner `party` commits what its client has acknowledged."""


class FollowerOf(LookAtResume, frozen=True, gc=False):
    """The owner `party` may follow this `writer`, whose link is lost, or which is dead."""

    writer: str = ""
    is_dead: bool = False


class TakeoverAsked(LookAtResume, frozen=True, gc=False):
    """`sender` asks the owner `party` to begin or to end a takeover."""

    sender: str = ""
    message: BeginTakeover | EndTakeover = UNSEEN


class TakeoverAnswered(LookAtResume, frozen=True, gc=False):
    """`sender` answers the owner `party`, which takes over."""

    sender: str = ""
    message: TakeoverBegun | TakeoverEnded | TakeoverRefused = UNSEEN


class MarkerAsked(LookAt, frozen=True, gc=False):
    """The writer `party` may know that its session is live at the owner that wants a marker."""

    seen: WriterRecord = UNSEEN
    to: str = ""
    message: MarkerWanted = UNSEEN


class EndResume(LookAtResume, frozen=True, gc=False):
    """The session life of the owner `party` has ended, and its resume ends or yields."""

    why: str = ""


class ForgetResume(LookAtResume, frozen=True, gc=False):
    """Nothing is left of the owner `party`, unless it yields."""


class ForgetIdle(LookAt, frozen=True, gc=False):
    """There is one writer too many; `party`, that of `session`, goes if it is idle.  Else the next is looked at, `left`
    of them at most."""

    seen: WriterRecord = UNSEEN
    session: str = ""
    left: int = 0


class LookForOwner(Call, frozen=True, gc=False):
    """The writer of this session has begun."""

    session: str


# -- the record -----------------------------------------------------------------------------------------------------


class SessionHostStatus(Status):
    """A node is there, or not."""

    UP = "up"


UP = SessionHostStatus.UP


class ConnectedOwner(msgspec.Struct, frozen=True, gc=False):
    """A client that is connected here, and how long its parties wait."""

    client: str
    times: Times


class OwnedSession(msgspec.Struct, frozen=True, gc=False):
    """What an owner has in its hands."""

    session: str
    token: int


class SessionHostRecord(msgspec.Struct, frozen=True, gc=False):
    """A node of sessions.

    `id`: its life; `sessions_max`: beyond so many sessions in the store it opens none for a client without one (0: any
    number); `number`: of the last party; `owners`: those whose clients are connected; `resumes`: owners -> what they
    have, also those that yield; `newest`: client -> its newest owner; `acknowledged`: owners whose clients have
    acknowledged something since the last commit of it; `writers`: session -> its writer, `turns`: the same sessions,
    the first one is looked at when one has to go; `unwritten`: message -> how many of its rows are not stored, without
    the last; `claims` of other nodes; `behind`: owner -> `rows` that the last look has found.
    """

    id: str
    times: Times
    life_times: LifeTimes
    graces: Graces | None = None
    writers_max: int = WRITERS_MAX
    sessions_max: int = 0
    status: SessionHostStatus = UP
    number: int = 0
    owners: Map[str, ConnectedOwner] = Map()
    resumes: Map[str, OwnedSession] = Map()
    newest: Map[str, str] = Map()
    acknowledged: Map[str, bool] = Map()
    writers: Map[str, str] = Map()
    turns: Fifo = Fifo()
    unwritten: Map[str, int] = Map()
    claims: Claims = Claims()
    behind: Map[str, Map[str, Position]] = Map()

    @property
    def node(self) -> str:
        """Whose life it is."""
        return node_of(self.id)


SLACK_NS: Final = 10_000_000_000
"""So far a clock may be set ahead, in all, and store time goes with it."""

LEAD_STEP_NS: Final = 1_000_000_000
"""The lead of store time before the steady clock is noted anew where it has changed by so much."""

APART_NS: Final = 3_600_000_000_000
"""So far the clocks of a database and of a process that begins may be apart."""

RATE: Final = 1_000
"""Beside that, clocks may differ by one part in so many."""


class StoreTime(msgspec.Struct, frozen=True, gc=False):
    """What a store keeps of its time, in nanoseconds."""

    time_ns: int
    """Of the last commit."""
    ahead_ns: int = 0
    """So far the clock has leapt ahead: store time is what it shows, less this."""
    stopped_ns: int = 0
    """Ages count up to this store time, and no further (0: they count up to now)."""

    def age_limit_ns(self, now_ns: int) -> int:
        """Up to when ages count, at store time `now_ns`."""
        return min(now_ns, self.stopped_ns) if self.stopped_ns else now_ns


class ClockState(msgspec.Struct, frozen=True):
    """What the clock of a database shows; store time now; up to which store time ages count (0: up to now)."""

    clock_ns: int
    time_ns: int
    stopped_ns: int

    @property
    def is_stopped(self) -> bool:
        """Ages stand still."""
        return self.stopped_ns > 0

    @property
    def ahead_s(self) -> float:
        """How far the clock is ahead of store time; negative: behind, and store time stands still."""
        return (self.clock_ns - self.time_ns) / 1e9

    @property
    def stopped_s(self) -> float:
        """For how long ages have stood still."""
        return (self.time_ns - self.stopped_ns) / 1e9 if self.stopped_ns else 0.0


class Steady(msgspec.Struct, frozen=True, gc=False):
    """What a process knows of store time by its steady clock."""

    lead_ns: int
    """So far store time has been ahead of it, at most."""
    steady_ns: int
    """When it looked last."""

    def expected_time_ns(self, steady_ns: int) -> int:
        """Store time now, if nobody has set the clock."""
        return steady_ns + self.lead_ns

    def look(self, time_ns: int, steady_ns: int) -> Steady:
        """It has seen this store time: two clocks that differ by a little drift apart."""
        most_ns = self.lead_ns + max(0, steady_ns - self.steady_ns) // RATE
        return Steady(max(self.lead_ns, min(time_ns - steady_ns, most_ns)), steady_ns)


def find_new_lead(known: Steady | None, noted_ns: int | None) -> tuple[int, ...]:
    """The lead that is to be noted for later processes; none where nothing is known, or where it is noted."""
    if known is None or (noted_ns is not None and abs(known.lead_ns - noted_ns) < LEAD_STEP_NS):
        return ()
    return (known.lead_ns,)


def expect_first_time(known: StoreTime, clock_ns: int, wall_ns: int) -> int | None:
    """Store time for a process that has not looked yet, whose own clock shows `wall_ns`; None: as the database says.

    A clock that is far ahead of both that and the last commit may have been set ahead while others ran.
    """
    most_ns = max(known.time_ns, wall_ns)
    is_far = known.time_ns > 0 and clock_ns - known.ahead_ns > most_ns + APART_NS
    return most_ns if is_far else None


def next_time(known: StoreTime, clock_ns: int, expected_ns: int | None) -> StoreTime:
    """The time of a commit, behind that of every other: by the clock, as far as it goes with the steady one
    (`expected_ns`; None: nobody can say yet)."""
    shown_ns = clock_ns - known.ahead_ns
    if expected_ns is not None and has_leapt(shown_ns, expected_ns):
        time_ns = max(expected_ns, known.time_ns + 1)
        return StoreTime(time_ns, clock_ns - expected_ns, known.stopped_ns or expected_ns)
    if known.ahead_ns and has_come_back(known, clock_ns, expected_ns):
        return StoreTime(max(clock_ns, known.time_ns + 1))
    return StoreTime(max(shown_ns, known.time_ns + 1), known.ahead_ns, known.stopped_ns)


def time_of_read(known: StoreTime, clock_ns: int, expected_ns: int | None) -> int:
    """Store time for whoever commits nothing: never before the last commit."""
    shown_ns = clock_ns - known.ahead_ns
    if expected_ns is not None and has_leapt(shown_ns, expected_ns):
        shown_ns = expected_ns
    return max(shown_ns, known.time_ns)


def has_come_back(known: StoreTime, clock_ns: int, expected_ns: int | None) -> bool:
    """Whether a clock that had leapt shows again what it should; nobody having watched it meanwhile, whether it is
    nearer to the last commit than to where it had leapt."""
    if expected_ns is None:
        return clock_ns - known.time_ns < known.ahead_ns // 2
    return not has_leapt(clock_ns, expected_ns)


def has_leapt(shown_ns: int, expected_ns: int) -> bool:
    """Whether a clock that shows this has been set ahead by more than the slack."""
    return shown_ns > expected_ns + SLACK_NS

"""SessionHostRecord: what a node knows of its clients, its writers, and the claims of other nodes; and what may happen
to it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from statemachines.kernel import Call, Fifo, LookAt, Map, Status, node_of
from statemachines.persistent_sessions.claims import Claims
from statemachines.persistent_sessions.graces import Graces
from statemachines.persistent_sessions.life_record import KEEP, Connect, LifeRecord
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import MarkerWanted, Puback, Pubcomp, Pubrec
from statemachines.persistent_sessions.resume_record import ResumeRecord
from statemachines.persistent_sessions.takeover_message import (
    BeginTakeover,
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

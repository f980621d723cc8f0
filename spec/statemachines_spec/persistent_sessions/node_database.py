"""NodeDatabase: the tables of one session with those of its client: who may open it, and who has it.

A lock of the client id may end at any moment, so it is had by the connection that asks.  The session is there from the
beginning, and does not expire.  What one life of a node asks is carried out and answered in turn, as its desk does.

Cluster: what carries live messages from writers to owners, and knows which writers live.

A path keeps the order of a writer's messages, unless the system says otherwise; it may break, and then everything on
it is lost and the owner is told.  A writer that has died, or come back, is reported some time later; where it has done
both, the broken path is.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Event, Request, keys_in_order, life_of, name_of, node_of
from statemachines.persistent_sessions.life_request import (
    ClientFound,
    ClientLocked,
    KeepAlive,
    LeaveSession,
    LockClient,
    LookUp,
    OpenSession,
    SessionLeft,
    SessionOpen,
    UnlockClient,
)
from statemachines.persistent_sessions.message import Live
from statemachines.persistent_sessions.request import BeginEpoch, EpochBegun, NotOwner, PutRows, RowStored
from statemachines.persistent_sessions.resume import LIVE
from statemachines.persistent_sessions.session_host_parties import RESUMES
from statemachines.persistent_sessions.session_host_record import MeetWriter
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines.persistent_sessions.takeover_record import FindOwner, OwnerFound
from statemachines.persistent_sessions.writer_flow import LinkLost, WriterDown, WriterUp
from statemachines_spec.explorer.actor import Crash, Envelope, Observer, Reaction, Restart, Watch
from statemachines_spec.explorer.property import View
from statemachines_spec.persistent_sessions.clients import Carried
from statemachines_spec.persistent_sessions.database import CarryOut, DatabaseLocal, DatabaseService, OpenRequest, Reply

BESIDE = "s2"
"""Another session, which is live nowhere."""
OF_CLIENT = (LookUp, OpenSession, KeepAlive, LeaveSession)


class LifeEnded(Event, frozen=True, gc=False):
    """This life of a node is over."""

    life: str


class LookOut(Event, frozen=True, gc=False):
    """The node of the owner looks at the database, and finds rows of a writer that the owner has not met."""

    writer: str


class Follows(Event, frozen=True, gc=False):
    """Each owner at this `node` that is subscribed, with the writers that it has met."""

    node: str
    owners: tuple[tuple[str, tuple[str, ...]], ...]


class NodeTables(DatabaseLocal, frozen=True, gc=False):
    """`locked`: the token of the last connection that had the client id, and the `attempt` of it that its client
    counts; `over`: lives of nodes that have ended; `follows`: owners that are subscribed, each with the writers that it
    has met; messages that are stored for another session, `beside` this one."""

    locked: int = 0
    attempt: int = 0
    over: tuple[str, ...] = ()
    follows: tuple[tuple[str, tuple[str, ...]], ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def unmet(self) -> tuple[str, ...]:
        """Writers with rows that the owner has not met, though it is subscribed."""
        met = dict(self.follows).get(self.owner)
        stored = (one.writer for one in self.shelves if any(entry.queued is not None for entry in one.entries))
        return () if met is None else tuple(writer for writer in stored if writer not in met)


class NodeDatabase(DatabaseService):
    """Its owners are nodes; each is a writer as well."""

    def initial(self) -> NodeTables:
        return NodeTables(self.service.initial().shelves)

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if isinstance(event, Crash):
            return LifeEnded(before.parts.own.record.id)
        if actor in self.owners and owners_at(before) != owners_at(after):
            return Follows(actor, owners_at(after))
        return super().sees(actor, before, event, after)

    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Request) and (isinstance(event, self.slow) or self._has_asked(local, envelope.sender)):
            return Reaction(in_turn(local, (OpenRequest(envelope.sender, name_of(type(event)), request=event),)))
        match event:
            case LookOut(writer):
                return Reaction(
                    local, (), (Envelope("", node_of(local.owner), MeetWriter(local.owner, writer=writer)),)
                )
            case Follows(node, owners):
                others = tuple(one for one in local.follows if node_of(one[0]) != node)
                return Reaction(replace(local, follows=tuple(sorted((*others, *owners)))))
        if not isinstance(event, LifeEnded):
            return super().react(local, envelope, watch)
        shelves = tuple(replace(one, up=one.up and one.writer != node_of(event.life)) for one in local.shelves)
        owed = tuple(one for one in local.owed if life_of(one.party) != event.life)
        follows = tuple(one for one in local.follows if life_of(one[0]) != event.life)
        over = (*local.over, event.life)
        return Reaction(replace(local, shelves=shelves, owed=owed, over=over, follows=follows))

    def rests(self) -> View:
        """Nobody waits for it, and no look at it would find anything."""
        waits = super().rests()
        return View(self.name, 2, lambda local: int(bool(waits.of(local)) and not local.unmet))

    def finds(self) -> View:
        """A look at it would find rows of a writer that the owner has not met."""
        return View(self.name, 2, lambda local: int(bool(local.unmet)))

    def inputs(self, local: Any) -> tuple[Any, ...]:
        first: dict[str, str] = {}
        for one in local.owed:
            first.setdefault(life_of(one.party), one.party)
        found = super().inputs(local)
        found = tuple(one for one in found if not isinstance(one, CarryOut | Reply) or one.party in first.values())
        return (*found, *map(LookOut, local.unmet))

    def _go_on(self, local: Any, party: str, event: Event) -> Reaction:
        reaction = super()._go_on(local, party, event)
        first = next(one for one in local.owed if one.party == party)
        left = tuple(one for one in local.owed if one is not first)
        answers = list(reaction.local.owed)
        for one in left:
            answers.remove(one)
        return replace(reaction, local=in_turn(replace(reaction.local, owed=tuple(answers)), left))

    @staticmethod
    def _has_asked(local: Any, party: str) -> bool:
        """Something of that life waits already."""
        return any(life_of(one.party) == life_of(party) for one in local.owed)

    def apply(
        self, local: Any, request: Request
    ) -> tuple[DatabaseLocal, tuple[Answer, ...], tuple[Envelope, ...]]:  # fmt: skip
        """Nodes learn of an owner from markers, and when their writers begin; the database tells nobody."""
        if getattr(request, "session", SESSION) == BESIDE:
            return self._store_beside(local, request)
        match request:
            case LockClient(attempt=attempt) if attempt < local.attempt:
                return local, (NotOwner(),), ()
            case LockClient(attempt=attempt):
                locked = max(local.locked, local.token) + 1
                return replace(local, locked=locked, attempt=attempt), (ClientLocked(locked),), ()
            case UnlockClient():
                return local, (), ()
            case FindOwner(session, look):
                return local, (OwnerFound(local.owner, local.token, session, look),), ()
        if isinstance(request, OF_CLIENT):
            return local, self._answers(local, request), ()
        local, answers, _ = super().apply(local, request)
        return local, answers, ()

    @staticmethod
    def _store_beside(local: Any, request: Request) -> tuple[NodeTables, tuple[Answer, ...], tuple[Envelope, ...]]:
        """Another session, which is live nowhere: what is stored for it is counted."""
        match request:
            case BeginEpoch():
                return local, (EpochBegun(1),), ()
            case FindOwner(session, look):
                return local, (OwnerFound("", 0, session, look),), ()
            case PutRows(rows=rows):
                beside = tuple(sorted({*local.beside, *(row.message for row in rows)}))
                return replace(local, beside=beside), (RowStored(0),), ()
        raise TypeError(f"of another session the database does not take {request!r}")

    def _answers(self, local: NodeTables, request: Any) -> tuple[Answer, ...]:
        if request.token < max(local.locked, local.token):
            return (NotOwner(),)
        match request:
            case LookUp():
                is_live = local.owner and life_of(local.owner) not in local.over
                return (ClientFound(SESSION, False, local.owner if is_live else ""),)
            case OpenSession():
                return (SessionOpen(),)
            case LeaveSession():
                return (SessionLeft(),)
        return ()


def owners_at(local: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Owners of a node that are subscribed, with the writers that they have met."""
    parts = () if local is None or local.parts is None else local.parts.parties
    resumes = (one for one in parts if one.kind == RESUMES.name and one.party.record.status in LIVE)
    return tuple((one.id, tuple(keys_in_order(one.party.record.flows))) for one in resumes)


def in_turn(local: Any, owed: tuple[OpenRequest, ...]) -> Any:
    """With these behind what is owed to the same life."""
    return replace(local, owed=tuple(sorted((*local.owed, *owed), key=lambda one: life_of(one.party))))


CLUSTER = "cluster"


class HandOver(Event, frozen=True, gc=False):
    """A message of this writer arrives; `place` on its path."""

    writer: str
    place: int


class Break(Event, frozen=True, gc=False):
    """The path from this writer breaks."""

    writer: str


class Lose(Event, frozen=True, gc=False):
    """The last that this writer has stored is not sent after all, and nobody is told."""

    writer: str


class Died(Event, frozen=True, gc=False):
    """A writer has died (nobody has noticed yet)."""

    writer: str


class Came(Event, frozen=True, gc=False):
    """A writer that had died is there again."""

    writer: str


class Report(Event, frozen=True, gc=False):
    """It is noticed whether this writer lives."""

    writer: str


class WriterPath(msgspec.Struct, frozen=True, gc=False):
    """From one writer: `posts` on their way; `news`: what nobody has noticed yet ("", down, up; link: it was
    down, is up again, and its connection broke)."""

    writer: str
    posts: tuple[Carried, ...] = ()
    news: str = ""


class ClusterLocal(msgspec.Struct, frozen=True, gc=False):
    """`paths` of all writers."""

    paths: tuple[WriterPath, ...]


class Cluster(Observer):
    """`places` of a path; `ordered`: whether it keeps the order; `owners` that are told what happens to writers."""

    def __init__(self, writers: tuple[str, ...], owners: tuple[str, ...], *, places: int, ordered: bool = True) -> None:
        super().__init__(CLUSTER)
        self.writers = writers
        self.owners = owners
        self.places = places
        self.ordered = ordered

    def initial(self) -> ClusterLocal:
        return ClusterLocal(tuple(WriterPath(writer) for writer in self.writers))

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor not in self.writers:
            return None
        if isinstance(event, Crash):
            return Died(actor)
        return Came(actor) if isinstance(event, Restart) and after.life > 1 else None

    def inputs(self, local: ClusterLocal) -> tuple[Any, ...]:
        found: list[Any] = []
        for path in local.paths:
            ready = path.posts[:1] if self.ordered else path.posts
            found += [HandOver(path.writer, place) for place in range(len(ready))]
            found += [Break(path.writer)] if path.posts else []
            found += [Lose(path.writer)] if path.posts and isinstance(path.posts[-1].message, Live) else []
            found += [Report(path.writer)] if path.news else []
        return tuple(found)

    def react(self, local: ClusterLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        writer = envelope.sender.partition("~")[0] if isinstance(event, Carried) else event.writer
        path = next(one for one in local.paths if one.writer == writer)
        match event:
            case Carried():
                return Reaction(_with(local, replace(path, posts=(*path.posts, event))))
            case HandOver(_, place):
                post = path.posts[place]
                rest = (*path.posts[:place], *path.posts[place + 1 :])
                return Reaction(
                    _with(local, replace(path, posts=rest)), (), (self._call(writer, post.to, post.message),)
                )
            case Lose():
                return Reaction(_with(local, replace(path, posts=path.posts[:-1])))
            case Break():
                return self._tell_owners(_with(local, replace(path, posts=())), LinkLost(writer))
            case Died():
                return Reaction(_with(local, replace(path, news="down")))
            case Came():
                return Reaction(_with(local, replace(path, news="link" if path.news == "down" else "up")))
            case Report() if path.news == "link":
                return self._tell_owners(_with(local, replace(path, posts=(), news="")), LinkLost(writer))
            case Report():
                news = WriterDown(writer) if path.news == "down" else WriterUp(writer)
                posts = () if path.news == "down" else path.posts
                return self._tell_owners(_with(local, replace(path, posts=posts, news="")), news)
        raise TypeError(f"the cluster does not take {event!r}")

    def within(self, local: ClusterLocal) -> bool:
        return all(len(path.posts) <= self.places for path in local.paths)

    def describe(self, local: ClusterLocal) -> str:
        words = [
            f"{path.writer}: {len(path.posts)} on the way{', ' + path.news if path.news else ''}"
            for path in local.paths
        ]
        return "; ".join(words)

    def bounds(self) -> dict[str, str]:
        order = "in order" if self.ordered else "in any order"
        return {"live messages": f"at most {self.places} of each writer on their way, {order}"}

    def rests(self) -> View:
        """Nothing is on its way, and nothing has to be noticed."""
        return View(self.name, 2, lambda local: int(all(not path.posts and not path.news for path in local.paths)))

    def _tell_owners(self, local: ClusterLocal, news: Event) -> Reaction:
        return Reaction(local, (), tuple(Envelope(self.name, owner, news) for owner in self.owners))

    def _call(self, writer: str, to: str, message: Any) -> Envelope:
        return Envelope(writer, to, message)


def _with(local: ClusterLocal, path: WriterPath) -> ClusterLocal:
    return ClusterLocal(tuple(path if one.writer == path.writer else one for one in local.paths))

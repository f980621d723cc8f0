"""NodeDatabase: the tables of one session with those of its client: who may open it, and who has it.

A lock of the client id may end at any moment, so it is had by the connection that asks.  The session is there from the
beginning, and does not expire.  What one life of a node asks is carried out and answered in turn, as its desk does.
"""

from __future__ import annotations

from typing import Any

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
from statemachines.persistent_sessions.owner_request import FindOwner, OwnerFound
from statemachines.persistent_sessions.request import BeginEpoch, EpochBegun, NotOwner, PutRows, RowStored
from statemachines.persistent_sessions.resume import LIVE
from statemachines.persistent_sessions.session_host_parties import RESUMES
from statemachines.persistent_sessions.session_host_record import MeetWriter
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines_spec.explorer.actor import Crash, Envelope, Reaction, Watch
from statemachines_spec.explorer.property import View
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

"""Clients: the tables of one client id: its lock, its session, the routes of that; and who judges what becomes of them.

What is asked is carried out some time later, and answered then; it may fail, and be done or not.  A publish looks up
the routes of the client's session, and stores its row some time later, under the session that it found.  The lease of
the lock may end at any moment; a session may expire when its client has left, or its owner is gone.

Attached: a machine whose messages of some kinds go to what stands beside it within the same transition.

Rows of a machine that are changed for a bug.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, BrokenProperty, Event, Fsm, Request, Row, name_of
from statemachines.kernel.row import AnyRow
from statemachines.persistent_sessions.collector import (
    ClientForgotten,
    ClientsRead,
    CollectFailed,
    ForgetClient,
    MessagesRead,
    ReadClients,
    ReadMessages,
    ReadRows,
    RowsRead,
    StoredClient,
)
from statemachines.persistent_sessions.life_record import SessionOpened
from statemachines.persistent_sessions.life_request import (
    ClientFound,
    ClientLocked,
    KeepAlive,
    LeaveSession,
    LifeFailed,
    LockClient,
    LookUp,
    OpenSession,
    SessionLeft,
    SessionOpen,
    UnlockClient,
)
from statemachines.persistent_sessions.properties.opened_sessions import (
    OpenedSessions,
    SessionProperty,
    judge_return,
    judge_route,
    judge_touch,
    judge_welcome,
)
from statemachines.persistent_sessions.request import DATABASE, NotOwner
from statemachines.persistent_sessions.session_tables import (
    LastLock,
    is_left,
    is_superseded,
    refuse_lock,
    refuse_session,
)
from statemachines_spec.bug import Apply, redeclare
from statemachines_spec.explorer.actor import Crash, Envelope, Observer, Reaction, Watch
from statemachines_spec.explorer.fsm_actor import ENDED, FsmActor, FsmLocal
from statemachines_spec.explorer.property import View

CLIENT = "client"

Route = tuple[str, int]
"""(session, era) that a publish has found: eras count the sessions that were opened afresh."""


class Done(Event, frozen=True, gc=False):
    """What this party has asked is done, and answered."""

    party: str


class DoneUnknown(Event, frozen=True, gc=False):
    """What this party has asked is done, and it does not learn so."""

    party: str


class NotDone(Event, frozen=True, gc=False):
    """What this party has asked is not done, and it does not learn so."""

    party: str


class FindRoute(Event, frozen=True, gc=False):
    """A publish finds the client's session."""


class StoreRow(Event, frozen=True, gc=False):
    """The first publish that is under way stores its row."""


class LeaseEnds(Event, frozen=True, gc=False):
    """The lease of the lock is over."""


class Expire(Event, frozen=True, gc=False):
    """The expiry of the session has passed."""


class StoreFills(Event, frozen=True, gc=False):
    """Others have opened as many sessions as may be kept; or some of those are gone."""


class Ended(Event, frozen=True, gc=False):
    """The process of this connection is gone, or the connection is over."""

    who: str


class ClientSession(msgspec.Struct, frozen=True, gc=False):
    """A session of the client: whose it is, in which era it began; `left`: nobody has it live."""

    session: str
    owner: str
    token: int
    era: int
    expiry_ms: int
    left: bool = False
    expired: bool = False


class ClientsLocal(msgspec.Struct, frozen=True, gc=False):
    """`token`: the highest; who has the lock ("": nobody).  `now`: the client's session; all that were `opened`;
    `kept`: of each connection, whether its session was there before; `over`: connections that looked up one
    that had expired.  `asked`: who waits, and for what; `found` routes
    and `rows` stored; `gone` connections.  `known`: something is stored of the client;
    `aged`: a lock was had that nobody had given up.  `full`: as many sessions are kept as may be, which has changed so
    often (`fills`); `refused`: somebody was for that.  `last`: who has locked the client id last, in which attempt."""

    token: int = 0
    known: bool = False
    lock: str = ""
    now: ClientSession | None = None
    opened: OpenedSessions = OpenedSessions()
    kept: tuple[tuple[str, bool], ...] = ()
    over: tuple[str, ...] = ()
    asked: tuple[tuple[str, str, Request], ...] = ()
    published: int = 0
    found: tuple[Route, ...] = ()
    rows: tuple[Route, ...] = ()
    gone: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    aged: bool = False
    full: bool = False
    fills: int = 0
    refused: bool = False
    last: tuple[str, int] = ("", 0)


class Clients(Observer):
    """`clean`: which connections start clean; so many `messages`.  `asks_again`: whether a client is over is asked
    again when it is forgotten; `supersedes`: whoever has a token of a client that was forgotten is superseded;
    `leases_end`: its time goes on; `fills`: how often the store is full, or is not any more."""

    def __init__(
        self,
        clean: dict[str, bool],
        *,
        messages: int,
        asks_again: bool = True,
        supersedes: bool = True,
        leases_end: bool = True,
        fills: int = 0,
    ) -> None:
        super().__init__(DATABASE)
        self.clean = clean
        self.messages = messages
        self.asks_again = asks_again
        self.supersedes = supersedes
        self.leases_end = leases_end
        self.fills = fills

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> ClientsLocal:
        return ClientsLocal()

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        is_over = isinstance(event, Crash) or (isinstance(after, FsmLocal) and after.mode is ENDED)
        was_over = isinstance(before, FsmLocal) and before.mode is ENDED
        return Ended(actor) if actor in self.clean and is_over and not was_over else None

    def inputs(self, local: ClientsLocal) -> tuple[Any, ...]:
        found: list[Any] = []
        for party in dict.fromkeys(party for party, _, _ in local.asked):
            found += [Done(party), DoneUnknown(party), NotDone(party)]
        if local.now is not None and local.published < self.messages:
            found.append(FindRoute())
        if local.found:
            found.append(StoreRow())
        if local.fills < self.fills:
            found.append(StoreFills())
        if local.lock and self.leases_end:
            found.append(LeaseEnds())
        if local.now is not None and not local.now.expired and local.now.expiry_ms and self._is_left(local):
            found.append(Expire())
        return tuple(found)

    def react(self, local: ClientsLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case Done(party) | DoneUnknown(party) | NotDone(party):
                return self._go_on(local, party, event)
            case FindRoute():
                assert local.now is not None
                route = (local.now.session, local.now.era)
                return Reaction(replace(local, published=local.published + 1, found=(*local.found, route)))
            case StoreRow():
                rows = tuple(sorted((*local.rows, local.found[0])))
                return Reaction(self._judged(replace(local, rows=rows, found=local.found[1:])))
            case StoreFills():
                return Reaction(replace(local, full=not local.full, fills=local.fills + 1))
            case LeaseEnds():
                return Reaction(replace(local, lock=""))
            case Expire():
                assert local.now is not None
                return Reaction(replace(local, now=replace(local.now, expired=True)))
            case Ended(who):
                asked = tuple(one for one in local.asked if _name(one[0]) != who)
                return Reaction(replace(local, gone=tuple(sorted((*local.gone, who))), asked=asked))
            case SessionOpened():
                return Reaction(self._welcomed(local, _name(envelope.sender), event))
            case UnlockClient() | KeepAlive() | ReadClients() | ReadRows() | ReadMessages():
                local, answers = self.apply(local, envelope.sender, event)
                return Reaction(local, (), tuple(Envelope(self.name, envelope.sender, one) for one in answers))
        asked = tuple(sorted((*local.asked, (envelope.sender, name_of(type(event)), event)), key=lambda one: one[:2]))
        return Reaction(replace(local, asked=asked))

    def describe(self, local: ClientsLocal) -> str:
        words = [f"token {local.token}", f"locked by {local.lock or 'nobody'}"]
        words += [f"session {local.now.session} of {local.now.owner}"] if local.now else ["no session"]
        return "; ".join((*words, *(f"{party} waits for {name}" for party, name, _ in local.asked), *local.wrong))

    def bounds(self) -> dict[str, str]:
        return {"publishes": str(self.messages)}

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_wrong(self, how: SessionProperty) -> View:
        """Whether this is."""
        return View(self.name, 2, lambda local: int(how.name in local.wrong))

    def has_aged(self) -> View:
        """Somebody has had the client id though nobody had given it up, and no lease ends."""
        return View(self.name, 2, lambda local: int(local.aged))

    def has_ended(self) -> View:
        """Something is stored of a client whose session has expired, or is gone."""
        return View(self.name, 2, lambda local: int(local.known and self._is_over(local)))

    def has_forgotten(self) -> View:
        """Nothing is stored of the client any more."""
        return View(self.name, 2, lambda local: int(local.token > 0 and not local.known))

    def has_refused(self) -> View:
        """A connection was refused, since as many sessions are kept as may be."""
        return View(self.name, 2, lambda local: int(local.refused))

    def has_had(self, sessions: int) -> View:
        """The client has had so many sessions, or more."""
        return View(self.name, 2, lambda local: int(len(local.opened.places) >= sessions))

    # -- what it does -------------------------------------------------------------------------------------------

    def _go_on(self, local: ClientsLocal, party: str, event: Event) -> Reaction:
        one = next(asked for asked in local.asked if asked[0] == party)
        local = replace(local, asked=tuple(asked for asked in local.asked if asked is not one))
        answers: tuple[Answer, ...] = (CollectFailed() if isinstance(one[2], ForgetClient) else LifeFailed(),)
        if not isinstance(event, NotDone):
            local, done = self.apply(local, party, one[2])
            answers = answers if isinstance(event, DoneUnknown) else done
        return Reaction(local, (), tuple(Envelope(self.name, party, answer) for answer in answers))

    def apply(self, local: ClientsLocal, party: str, request: Any) -> tuple[ClientsLocal, tuple[Answer, ...]]:
        """One transaction."""
        if isinstance(request, LockClient):
            last = LastLock(local.token, *local.last)
            refused = refuse_lock(last, request, lambda: local.lock not in ("", request.owner))
            if refused is not None:
                return local, (refused,)
            token, aged = local.token + 1, local.aged or bool(request.aged)
            which = (request.instance, request.attempt)
            local = replace(local, token=token, known=True, lock=request.owner, aged=aged, last=which)
            return local, (ClientLocked(token, last.count_ahead(request) > 0),)
        if isinstance(request, UnlockClient):
            return replace(local, lock="") if local.lock == request.owner else local, ()
        match request:
            case ReadClients(after):
                found = (StoredClient(CLIENT, self._is_over(local)),) if local.known and after < CLIENT else ()
                return local, (ClientsRead(found),)
            case ReadRows():
                return local, (RowsRead(()),)
            case ReadMessages():
                return local, (MessagesRead(()),)
            case ForgetClient():
                return self._forgotten(local)
        if is_superseded(local.token, request.token):
            return local, (NotOwner(),)
        now = local.now
        match request:
            case LookUp():
                if now is None:
                    return local, (ClientFound("", False, ""),)
                live = "" if self._is_left(local) else now.owner
                is_over = self._has_expired(local, now)
                if is_over:
                    local = replace(local, over=tuple(sorted({*local.over, _name(party)})))
                return local, (ClientFound(now.session, is_over, live),)
            case OpenSession(most=most):
                full = refuse_session("" if now is None else now.session, request, lambda: most if local.full else 0)
                if full is not None:
                    local = replace(local, known=False, lock="", token=local.token + 1, refused=True, last=("", 0))
                    return local, (full,)
                return self._opened(local, party, request), (SessionOpen(),)
            case KeepAlive():
                return local, ()
        assert isinstance(request, LeaveSession)
        has_session = now is not None and is_left(now.session, request)
        local = _note(local, judge_touch(f"{party} leaves {request.session}", has_session=has_session))
        if now is None or not has_session:
            return local, (SessionLeft(),)
        if not request.expiry_ms:
            return replace(local, now=None, opened=local.opened.observe_ended(CLIENT)), (SessionLeft(),)
        if not now.expiry_ms:
            local = _note(local, SessionProperty.RAISED.breaks())
        return replace(local, now=replace(now, left=True, expiry_ms=request.expiry_ms)), (SessionLeft(),)

    def _opened(self, local: ClientsLocal, party: str, request: OpenSession) -> ClientsLocal:
        now, name = local.now, _name(party)
        is_kept = now is not None and now.session == request.session
        before, has_expired = "" if now is None else now.session, name in local.over
        broken = judge_return(
            before, request.session, may_end=has_expired or self.clean[name], has_expired=has_expired
        ) + judge_welcome(request.session, is_present=is_kept, was_there=is_kept, is_clean=self.clean[name])
        opened, reused = local.opened.observe_opened(CLIENT, request.session)
        local = _note(replace(local, opened=opened), broken + reused)
        if now is not None and not is_kept and request.replaces != now.session:
            local = _note(local, SessionProperty.LITTER.breaks())
        era = now.era if now is not None and is_kept else len(opened.places)
        now = ClientSession(request.session, party, request.token, era, request.expiry_ms)
        kept = tuple(sorted({**dict(local.kept), name: is_kept}.items()))
        return self._judged(replace(local, now=now, kept=kept))

    @staticmethod
    def _welcomed(local: ClientsLocal, name: str, event: SessionOpened) -> ClientsLocal:
        is_kept = dict(local.kept).get(name, not event.present)
        return _note(local, judge_welcome(event.session, is_present=event.present, was_there=is_kept, is_clean=False))

    def _has_expired(self, local: ClientsLocal, now: ClientSession) -> bool:
        return now.expired or (self._is_left(local) and not now.expiry_ms)

    def _is_over(self, local: ClientsLocal) -> bool:
        """There is no session, or one that has expired, and nobody connects."""
        return not local.lock and (local.now is None or self._has_expired(local, local.now))

    def _forgotten(self, local: ClientsLocal) -> tuple[ClientsLocal, tuple[Answer, ...]]:
        if not local.known or (self.asks_again and not self._is_over(local)):
            return local, (ClientForgotten(False),)
        if local.now is not None:
            local = _note(local, judge_return(local.now.session, "", may_end=self._has_expired(local, local.now)))
        token = local.token + self.supersedes
        local = replace(local, token=token, known=False, now=None, lock="", last=("", 0))
        return replace(local, opened=local.opened.observe_ended(CLIENT)), (ClientForgotten(True),)

    def _is_left(self, local: ClientsLocal) -> bool:
        """Its client has left, or its owner is gone."""
        return local.now is not None and (local.now.left or _name(local.now.owner) in local.gone)

    def _judged(self, local: ClientsLocal) -> ClientsLocal:
        """Rows that stand under the session, and were looked up for another."""
        now = local.now
        if now is None:
            return local
        others = [f"era {era}" for session, era in local.rows if session == now.session and era != now.era]
        return _note(local, judge_route(now.session, others))


def _name(party: str) -> str:
    return party.partition("~")[0]


def _note(local: ClientsLocal, broken: tuple[BrokenProperty, ...]) -> ClientsLocal:
    if not broken:
        return local
    return replace(local, wrong=tuple(sorted({*local.wrong, *(one.name for one in broken)})))


class Carried(Event, frozen=True, gc=False):
    """`message` is on its way to `to`."""

    to: str
    message: Any


class AttachedActor(FsmActor):
    """`beside`: message -> the component that takes it at once; all others travel.  A component that is not the
    receiver carries it (`Carried`)."""

    def __init__(self, *given: Any, beside: Mapping[type[Any], str], **named: Any) -> None:
        super().__init__(*given, **named)
        self.beside = dict(beside)

    def react(self, local: FsmLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        reaction = super().react(local, envelope, watch)
        if reaction is None or not reaction.sends:
            return reaction
        near = tuple(self.near(one) for one in reaction.sends if type(one.event) in self.beside)
        far = tuple(one for one in reaction.sends if type(one.event) not in self.beside)
        return replace(reaction, sends=far, calls=(*reaction.calls, *near))

    def near(self, one: Envelope) -> Envelope:
        """The message as what stands beside takes it."""
        place = self.beside[type(one.event)]
        event = one.event if place == one.to else Carried(one.to, one.event)
        return Envelope(one.sender, place, event)


def on(fsm: Fsm[Any], event: type[Event], source: Any, **what: Any) -> Apply:
    """The rows of this event in `source` have another action `do`, guard `when` or destination `to`."""

    def changed(one: AnyRow) -> list[AnyRow]:
        if not isinstance(one, Row) or one.on is not event or source not in fsm._sources(one.source):
            return [one]
        do, when, to = what.get("do", one.do), what.get("when", one.when), what.get("to", one.to)
        return [Row(one.on, one.source, to, do, when, one.clause)]

    return lambda stack: redeclare(stack, fsm, changed)

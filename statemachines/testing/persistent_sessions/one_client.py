"""OneClient: the tables of one client, for a connection that is tested alone; another has been there before."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Request
from statemachines.persistent_sessions import life_request
from statemachines.persistent_sessions.request import DATABASE, NotOwner

OTHER: Final = "owner-9~1/1"


class ClientTables(msgspec.Struct, frozen=True):
    """Who has the lock, and the highest `token`; the client's `session` ("": none), whether it has expired, and where
    it is live; sessions that are `abandoned`; how often a locked client id was `asked` for, and how
    many `requests` there were."""

    token: int = 0
    lock: str = OTHER
    session: str = "s0"
    expired: bool = False
    live: str = OTHER
    abandoned: tuple[str, ...] = ()
    asked: int = 0
    requests: int = 0


BEGUN: Final = ClientTables()


class OneClient:
    """The service "database" of a connection: who has the lock at first gives it back when it is asked for again.
    `fails`: so many requests and then one that is not carried out (0: all are)."""

    name = DATABASE

    def __init__(self, begun: ClientTables = BEGUN, fails: int = 0) -> None:
        self._begun = begun
        self._fails = fails

    def initial(self) -> ClientTables:
        """What is stored when a run begins."""
        return self._begun

    def apply(self, state: ClientTables, request: Request, now_ns: int) -> tuple[ClientTables, tuple[Answer, ...]]:
        """One transaction."""
        if self._fails and not isinstance(request, life_request.UnlockClient | life_request.KeepAlive):
            state = replace(state, requests=(state.requests + 1) % (self._fails + 1))
            if not state.requests:
                return state, (life_request.LifeFailed(),)
        if isinstance(request, life_request.LockClient):
            if state.lock not in ("", request.owner):
                asked = state.asked + 1
                return replace(state, asked=asked, lock="" if asked > 1 else state.lock), (
                    life_request.ClientBusy(state.token),
                )
            return replace(state, lock=request.owner, token=state.token + 1), (
                life_request.ClientLocked(state.token + 1),
            )
        if isinstance(request, life_request.UnlockClient):
            return replace(state, lock="" if state.lock == request.owner else state.lock), ()
        assert isinstance(
            request, life_request.LookUp | life_request.OpenSession | life_request.LeaveSession | life_request.KeepAlive
        )
        if request.token != state.token:
            return state, (NotOwner(),)
        match request:
            case life_request.LookUp():
                return state, (life_request.ClientFound(state.session, state.expired, state.live),)
            case life_request.OpenSession(replaces=replaces):
                abandoned = (*state.abandoned, replaces) if replaces else state.abandoned
                opened = replace(state, session=request.session, expired=False, live=request.owner)
                return replace(opened, abandoned=abandoned), (life_request.SessionOpen(),)
            case life_request.LeaveSession():
                ended = () if request.expiry_ms else (state.session,)
                session = state.session if request.expiry_ms else ""
                left = replace(state, session=session, live="", abandoned=(*state.abandoned, *ended))
                return left, (life_request.SessionLeft(),)
        return state, ()

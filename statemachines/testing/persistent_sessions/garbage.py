"""Garbage: the tables that a collector walks through, for one that is tested alone: every kind of row, of every age.

OneClient: the tables of one client, for a connection that is tested alone; another has been there before.

OneGroup: a group and the rows of a session, for a member that is tested alone.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Map, Request, in_order
from statemachines.persistent_sessions import group_member_record as m
from statemachines.persistent_sessions import life_request
from statemachines.persistent_sessions.collector import (
    ClientForgotten,
    ClientsRead,
    CollectFailed,
    DeletePage,
    ForgetClient,
    MessageDeletion,
    MessagesRead,
    Only,
    PageDeleted,
    ReadClients,
    ReadMessages,
    ReadRows,
    RowDeletion,
    RowKey,
    RowsRead,
    StoredClient,
    StoredMessage,
    StoredRow,
    Tag,
)
from statemachines.persistent_sessions.group_member_actions import WAIT_FOR_END
from statemachines.persistent_sessions.request import DATABASE, NotOwner, Position

RANKS: Final = {tag: rank for rank, tag in enumerate(Tag)}


class AgedRow(msgspec.Struct, frozen=True):
    """A row, the message to which it refers ("": to none), and its age."""

    key: RowKey
    message: str = ""
    age_ms: int = 0


class StoreTables(msgspec.Struct, frozen=True):
    """All rows; messages with their ages; of each (session, writer) what its state has taken; messages that states
    hold; of each client its session ("": it has none), and the clients that are `over`; messages whose rows say that
    they have `expired`; how often something was `asked`."""

    rows: tuple[AgedRow, ...] = ()
    messages: Map[str, int] = Map()
    taken: Map[tuple[str, str], Position] = Map()
    held: tuple[str, ...] = ()
    clients: Map[str, str] = Map()
    over: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    asked: int = 0

    def has(self, key: RowKey) -> bool:
        """Whether the row is there."""
        return any(row.key == key for row in self.rows)

    def is_abandoned(self, session: str) -> bool:
        """Whether a row says so."""
        return self.has(RowKey(session, tag=Tag.ABANDONED))

    def is_taken(self, key: RowKey) -> bool:
        """Whether the state of the session has the message of the row."""
        return (key.epoch, key.number) <= self.taken.get((key.session, key.writer), (0, 0))

    def is_referenced(self, message: str) -> bool:
        """Whether a row refers to it that is not delivered."""
        return any(row.message == message and row.key.tag is Tag.UNDELIVERED for row in self.rows)

    def is_over(self, message: str) -> bool:
        """Whether a row that refers to it says so."""
        return message in self.expired and self.is_referenced(message)

    def is_paired(self, key: RowKey) -> bool:
        """Whether the other row of its place is there."""
        other = {Tag.UNDELIVERED: Tag.DELIVERED, Tag.DELIVERED: Tag.UNDELIVERED}.get(key.tag)
        return other is not None and self.has(replace(key, tag=other))

    def is_alone(self, key: RowKey) -> bool:
        """Whether it says that its session is abandoned, which has no other row."""
        return key.tag is Tag.ABANDONED and sum(row.key.session == key.session for row in self.rows) == 1


def rank(key: RowKey) -> tuple[Any, ...]:
    """In the order of these a table is read."""
    return (key.session, key.writer, key.epoch, key.number, RANKS[key.tag], key.token, key.n)


class Garbage:
    """The service "database" of a collector.  `fails`: so many requests and then one that is not carried out (0: all
    are)."""

    name = DATABASE

    def __init__(self, begun: StoreTables, fails: int = 0) -> None:
        self._begun = begun
        self._fails = fails

    def initial(self) -> StoreTables:
        """What is stored when a run begins."""
        return self._begun

    def apply(self, state: StoreTables, request: Request, now_ns: int) -> tuple[StoreTables, tuple[Answer, ...]]:
        """One transaction."""
        state = replace(state, asked=(state.asked + 1) % (self._fails + 1))
        if self._fails and not state.asked:
            return state, (CollectFailed(),)
        match request:
            case ReadClients(after, limit):
                known = [StoredClient(one, one in state.over) for one, _ in in_order(state.clients) if one > after]
                return state, (ClientsRead(tuple(known[:limit])),)
            case ForgetClient(client):
                return _forgotten(state, client)
            case ReadRows(after, limit, waiting):
                rows = sorted(state.rows, key=lambda row: rank(row.key))
                behind = (_make_row(state, row) for row in rows if after is None or rank(row.key) > rank(after))
                return state, (RowsRead(tuple(row for row in behind if waiting or not row.waits)[:limit]),)
            case ReadMessages():
                return state, (_read_messages(state, request),)
        assert isinstance(request, DeletePage)
        before = len(state.rows)
        for one in request.rows:
            state = _without_row(state, one)
        deleted, gone = before - len(state.rows), []
        for each in request.messages:
            state, lost = _without_message(state, each)
            gone += [] if lost is None else [(each.message, lost)]
        return state, (PageDeleted(deleted, tuple(gone)),)


def _read_messages(state: StoreTables, asked: ReadMessages) -> MessagesRead:
    """The oldest come first; a place is made of age and id."""

    def place(age_ms: int, message: str) -> str:
        return f"{OLD_MS - age_ms:09} {message}"

    found = sorted((place(age, one), one, age) for one, age in in_order(state.messages) if age >= asked.age_ms)
    page = [one for one in found if one[0] > asked.after][: asked.limit]
    messages = tuple(
        StoredMessage(one, age, state.is_referenced(one), one in state.held, state.is_over(one)) for _, one, age in page
    )
    return MessagesRead(messages, page[-1][0] if page else "")


def _make_row(state: StoreTables, row: AgedRow) -> StoredRow:
    key = row.key
    return StoredRow(
        key,
        row.age_ms,
        state.is_abandoned(key.session),
        state.is_paired(key),
        key.tag in (Tag.UNDELIVERED, Tag.DELIVERED) and state.is_taken(key),
        state.is_alone(key),
    )


def _forgotten(state: StoreTables, client: str) -> tuple[StoreTables, tuple[Answer, ...]]:
    session = state.clients.get(client)
    if session is None or client not in state.over:
        return state, (ClientForgotten(False),)
    gone = (AgedRow(RowKey(session, tag=Tag.ABANDONED)),) if session else ()
    taken = {at: last for at, last in in_order(state.taken) if at[0] != session}
    clients = state.clients.delete(client)
    return replace(state, clients=clients, taken=Map(taken), rows=(*state.rows, *gone)), (ClientForgotten(True),)


def _without_row(state: StoreTables, asked: RowDeletion) -> StoreTables:
    key, only = asked.row, asked.only
    is_kept = (only is Only.UNPAIRED and state.is_paired(key)) or (only is Only.ALONE and not state.is_alone(key))
    return state if is_kept else replace(state, rows=tuple(row for row in state.rows if row.key != key))


def _without_message(state: StoreTables, request: MessageDeletion) -> tuple[StoreTables, int | None]:
    """And how many rows were still to be taken; None: it is not deleted."""
    message, only = request.message, request.only
    is_kept = message in state.held or (only is Only.UNREFERENCED and state.is_referenced(message))
    if is_kept or (only is Only.OVER and not state.is_over(message)) or message not in state.messages:
        return state, None
    wanted = [row for row in state.rows if row.message == message and row.key.tag is Tag.UNDELIVERED]
    wanted = [] if message in state.expired else wanted
    lost = sum(not (state.is_taken(one.key) or state.is_abandoned(one.key.session)) for one in wanted)
    return replace(state, messages=state.messages.delete(message)), lost


OLD_MS = 10_000_000
"""Older than everything."""


def of_every_kind() -> StoreTables:
    """A row of each kind, young and old, some needed and some not."""
    rows = (
        AgedRow(RowKey("s0", tag=Tag.ABANDONED), age_ms=OLD_MS),
        AgedRow(RowKey("s0", "w1", 1, 1, Tag.UNDELIVERED), "m0"),
        AgedRow(RowKey("s1", "w1", 1, 0, Tag.MARKER, 1, 1), age_ms=OLD_MS),
        AgedRow(RowKey("s1", "w1", 1, 1, Tag.DELIVERED), "m1", OLD_MS),
        AgedRow(RowKey("s1", "w1", 1, 2, Tag.UNDELIVERED), "m2"),
        AgedRow(RowKey("s1", "w1", 1, 2, Tag.DELIVERED), "m2"),
        AgedRow(RowKey("s1", "w1", 1, 3, Tag.UNDELIVERED), "m3"),
        AgedRow(RowKey("s1", "w1", 1, 4, Tag.UNDELIVERED), "m4", OLD_MS),
        AgedRow(RowKey("s1", "w1", 1, 5, Tag.UNDELIVERED), "m8"),
        AgedRow(RowKey("s1", "w1", 1, 6, Tag.UNDELIVERED), "m1"),
        AgedRow(RowKey("s1", "w2", 1, 0, Tag.MARKER, 1, 2)),
    )
    ages = {
        "m0": OLD_MS,
        "m1": OLD_MS,
        "m2": 100_000,
        "m3": 0,
        "m4": OLD_MS,
        "m5": 100_000,
        "m6": 0,
        "m7": OLD_MS,
        "m8": 100_000,
    }
    clients = Map({"c1": "s1", "c2": "s2", "c3": ""})
    return StoreTables(rows, Map(ages), Map({("s1", "w1"): (1, 3)}), ("m1",), clients, ("c2", "c3"), ("m1", "m3", "m8"))


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


class OneGroup:
    """The service "groups" of a member: it is ending when it is declared for the first time, and every third piece that
    is stored, and every third look, is answered in another way than those before."""

    name = m.GROUPS

    def initial(self) -> tuple[int, int, int]:
        """So often it was declared, looked at, and stored."""
        return (0, 0, 0)

    def apply(
        self, state: tuple[int, int, int], request: Request, now_ns: int
    ) -> tuple[tuple[int, int, int], tuple[Answer, ...]]:
        """What is asked is done at once."""
        declared, looked, stored = state
        match request:
            case m.DeclareMemberGroup():
                return (declared + 1, looked, stored), (m.MemberDeclared("" if declared else WAIT_FOR_END),)
            case m.JoinGroup():
                return state, (m.GroupJoined(),)
            case m.CountStored():
                return state, (m.StoredCounted(0),)
            case m.ReadTime():
                return state, (m.TimeRead(7),)
            case m.FindWaiter():
                return (declared, (looked + 1) % 3, stored), (m.WaiterFound(looked == 2),)
            case m.StorePiece():
                answer = m.PieceRefused() if stored == 2 else m.PieceStored(1, 1)
                return (declared, looked, (stored + 1) % 3), (answer,)
        return state, ()

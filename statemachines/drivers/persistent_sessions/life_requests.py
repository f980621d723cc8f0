"""Life requests: who has a session, from when to when; with the wills of its connections, and its end.

Everything in `persistent_sessions.life_request` is carried out here in a transaction.  Tokens are of the whole store,
and are never given twice, whatever becomes of a client.  Time is that of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from statemachines.drivers.identity import Identity
from statemachines.drivers.persistent_sessions.group_rows import return_messages
from statemachines.drivers.persistent_sessions.machine_requests import PUT_ROW
from statemachines.drivers.persistent_sessions.node_messages import SessionWill
from statemachines.drivers.persistent_sessions.route_rows import list_filters, remove_route
from statemachines.drivers.persistent_sessions.session_row import (
    SessionRow,
    is_there,
    session_of,
)
from statemachines.drivers.persistent_sessions.sql import ABANDONED, Sql, StoreRequest, read_number, read_one
from statemachines.kernel import Answer, Request, life_number, life_of, node_of
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
from statemachines.persistent_sessions.message import StoredWill, due_after, due_at_end
from statemachines.persistent_sessions.request import NotOwner
from statemachines.persistent_sessions.session_tables import (
    LastLock,
    find_abandoned,
    is_left,
    is_superseded,
    refuse_lock,
    refuse_session,
)
from statemachines.persistent_sessions.times import MS


class OpenWithWill(StoreRequest[tuple[Answer, ...]], frozen=True):
    """Open the session, and keep the will of its connection, in one transaction.  Answered as `OpenSession` is."""

    opened: OpenSession
    will: SessionWill

    def answer(self, sql: Sql, routes: Any) -> tuple[Answer, ...]:
        answer, opened, will = open_session(sql, self.opened), self.opened, self.will
        if isinstance(answer, SessionOpen):
            sql.run(
                "INSERT INTO @wills VALUES (:connection, :session, :client, :identity, :topic, :payload, :qos, :retain,"
                " :expiry_ms, :head, :delay_ms, 0, :node, :life)",
                connection=opened.owner, session=opened.session, client=opened.client,
                identity=msgspec.json.encode(will.identity), topic=will.topic, payload=will.payload, qos=will.qos,
                retain=int(will.retain), expiry_ms=will.expiry_ms, head=will.head or None, delay_ms=will.delay_ms,
                node=node_of(opened.owner), life=life_number(life_of(opened.owner)),
            )  # fmt: skip
        return () if answer is None else (answer,)


class DropWill(StoreRequest[None], frozen=True):
    """The will of the connection is not sent."""

    connection: str

    def answer(self, sql: Sql, routes: Any) -> None:
        sql.run(DELETE, connection=self.connection)


class DueWill(NamedTuple):
    """A will that is to be sent, of a connection of this client."""

    connection: str
    client: str
    will: SessionWill


class DueWills(NamedTuple):
    """Some of the wills that are due; `has_ended`: nodes have ended that had wills (`EndWills`)."""

    wills: tuple[DueWill, ...]
    has_ended: bool


class FindDueWills(StoreRequest[DueWills], frozen=True):
    """Answered with `DueWills`."""

    def answer(self, sql: Sql, routes: Any) -> DueWills:
        found = sql.all(
            "SELECT connection, client, identity, topic, payload, qos, retain, expiry_ms, head FROM @wills"
            f" WHERE due_ns > 0 AND due_ns <= :now_ns ORDER BY due_ns LIMIT {DUE_MAX}",
            now_ns=sql.now_ns,
        )
        return DueWills(tuple(map(_due_will, found)), bool(find_ended(sql)))


class EndWills(StoreRequest[None], frozen=True):
    """Say of wills whose nodes have ended when they are due."""

    def answer(self, sql: Sql, routes: Any) -> None:
        for connection, due_ns in find_ended(sql):
            sql.run(SET_DUE, connection=connection, due_ns=due_ns)


DUE_MAX: Final = 100
"""Wills that are read at once to be sent."""

SET_DUE: Final = "UPDATE @wills SET due_ns = :due_ns WHERE connection = :connection"
DELETE: Final = "DELETE FROM @wills WHERE connection = :connection"


def settle_wills(sql: Sql, session: bytes) -> None:
    """A connection takes the session, and the one before has ended: a will that is not due is not sent."""
    sql.run("DELETE FROM @wills WHERE session = :session AND due_ns > :now_ns", session=session, now_ns=sql.now_ns)


def end_wills(sql: Sql, session: bytes, expiry_ms: int, ended_ns: int) -> None:
    """The connection of the session ended then, and the session outlives it by so long (0: not at all)."""
    for row in sql.all("SELECT connection, delay_ms, due_ns FROM @wills WHERE session = :session", session=session):
        will = StoredWill(*row)
        sql.run(SET_DUE, connection=will.connection, due_ns=due_at_end(will, expiry_ms, ended_ns))


def take_will(sql: Sql, connection: str) -> bool:
    """It is sent in this transaction; False: it was, or is not due."""
    return bool(sql.count(f"{DELETE} AND due_ns > 0", connection=connection))


def find_ended(sql: Sql) -> list[tuple[bytes, int]]:
    """(connection, when its will is due) of some of those at nodes that have ended, or begun anew."""
    return [
        (connection, due_after(delay_ms, expiry_ms, seen_ns))
        for name, life, until_ns in sql.all("SELECT name, life, until_ns FROM @nodes")
        for connection, delay_ms, expiry_ms, seen_ns in sql.all(
            "SELECT wills.connection, wills.delay_ms, sessions.expiry_ms, sessions.seen_ns FROM @wills AS wills"
            " JOIN @sessions AS sessions ON sessions.session = wills.session"
            f" WHERE wills.due_ns = 0 AND wills.node = :node AND wills.life < :life LIMIT {DUE_MAX}",
            node=name,
            life=life + (until_ns <= sql.now_ns),
        )
    ]


def _due_will(row: tuple[Any, ...]) -> DueWill:
    connection, client, identity, topic, payload, qos, retain, expiry_ms, head = row
    known = msgspec.json.decode(bytes(identity), type=Identity)
    will = SessionWill(topic.decode(), bytes(payload), qos, bool(retain), expiry_ms, bytes(head or b""), 0, known)
    return DueWill(connection.decode(), client.decode(), will)


def abandon(sql: Sql, session: bytes) -> None:
    """Nothing is routed to it any more, and nobody owns it; its row says to a collector that all of it may go.  One
    that was abandoned already is left alone.  Its client has no session."""
    if not is_there(sql, session):
        return
    return_messages(sql, session)
    end_wills(sql, session, 0, sql.now_ns)
    for topic_filter in list_filters(sql, session):
        remove_route(sql, session, topic_filter)
    sql.run(
        "UPDATE @clients SET session = NULL WHERE client = (SELECT client FROM @sessions WHERE session = :session)"
        " AND session = :session",
        session=session,
    )
    for table in ("taken", "packets", "queued", "epochs", "sessions", "received", "fan_out"):
        sql.run(f"DELETE FROM @{table} WHERE session = :session", session=session)
    sql.run("UPDATE @store SET sessions = sessions - 1")
    sql.run(
        PUT_ROW,
        session=session, writer=b"", epoch=0, number=0, tag=ABANDONED, message=b"", filter=b"", qos=0, token=0, n=0,
        k=0, time_ns=sql.now_ns, until_ns=0, more=b"",
    )  # fmt: skip


T = TypeVar("T", LookUp, OpenSession, KeepAlive, LeaveSession)

LAST: Final = "SELECT token, holder, until_ns, instance, attempt FROM @clients WHERE client = :client"
NO_LOCK: Final = (None, b"", 0, b"", 0)


def lock(sql: Sql, asked: LockClient) -> Answer:
    """Whoever had the lock before is superseded, even where it is not used afterwards; unless it is the same client,
    which has given this connection up since.  A client does not wait for a lock of an earlier attempt of its own, nor
    for one of a node that has ended."""
    token, had, had_until_ns, instance, attempt = read_one(sql, LAST, client=asked.client) or NO_LOCK
    last = None if token is None else LastLock(int(token), instance.decode(), int(attempt))

    def is_held() -> bool:
        """Somebody else has the lock, whose lease has not ended, and its node neither."""
        return had not in (b"", asked.owner.encode()) and had_until_ns > sql.now_ns and not has_ended(sql, had)

    refused = refuse_lock(last, asked, is_held)
    if refused is not None:
        return refused
    end_superseded(sql, asked.client)
    token = next_token(sql)
    sql.run(
        "INSERT INTO @clients (client, token, holder, until_ns, instance, attempt)"
        " VALUES (:client, :token, :holder, :until_ns, :instance, :attempt) ON CONFLICT (client) DO UPDATE SET"
        " token = excluded.token, holder = excluded.holder, until_ns = excluded.until_ns,"
        " instance = excluded.instance, attempt = excluded.attempt",
        client=asked.client, token=token, holder=asked.owner, until_ns=sql.now_ns + asked.lease_ms * MS,
        instance=asked.instance, attempt=asked.attempt,
    )  # fmt: skip
    return ClientLocked(token, last is not None and last.count_ahead(asked) > 0)


def end_superseded(sql: Sql, client: str) -> None:
    """The connection of the client ends here, also if nobody opens its session: its will is due after its delay."""
    before = session_of(sql, client)
    if before is not None:
        end_wills(sql, before.session, before.expiry_ms, sql.now_ns if is_connected(sql, before) else before.seen_ns)


def is_connected(sql: Sql, found: SessionRow) -> bool:
    """Whether its connection has not ended, as far as the store knows."""
    return bool(found.connection) and not has_ended(sql, found.connection)


def has_ended(sql: Sql, owner: bytes) -> bool:
    """The node of this owner has begun another life, or its lease in the store is over."""
    party = owner.decode()
    found = read_one(sql, "SELECT life, until_ns FROM @nodes WHERE name = :name", name=node_of(party))
    return found is not None and (found[0] != life_number(life_of(party)) or found[1] <= sql.now_ns)


def unlock(sql: Sql, asked: UnlockClient) -> None:
    sql.run(
        "UPDATE @clients SET holder = :nobody WHERE client = :client AND holder = :holder",
        nobody=b"", client=asked.client, holder=asked.owner,
    )  # fmt: skip


def under_token(answer: Callable[[Sql, T], Answer | None]) -> Callable[[Sql, T], Answer | None]:
    """What is asked under a token that another has exceeded is refused, and not done."""

    @wraps(answer)
    def judge(sql: Sql, asked: T) -> Answer | None:
        is_refused = _is_superseded(sql, asked.client, asked.token)
        return NotOwner() if is_refused else answer(sql, asked)

    return judge


@under_token
def look_up(sql: Sql, asked: LookUp) -> Answer:
    found = session_of(sql, asked.client)
    if found is None:
        return ClientFound("", False, "")
    is_live = found.is_live(sql.now_ns, asked.dead_ms) and not has_ended(sql, found.connection)
    live = found.connection.decode() if is_live else ""
    return ClientFound(found.session.decode(), found.is_over(sql, asked.dead_ms) or found.ends_for_front, live)


@under_token
def open_session(sql: Sql, asked: OpenSession) -> Answer:
    """From the commit on whatever is asked under a lower token is refused; the session of before is gone."""
    client = asked.client.encode()
    its = read_one(sql, "SELECT client FROM @sessions WHERE session = :session", session=asked.session)
    if its is not None and its[0] != client:
        return NotOwner()
    before = session_of(sql, asked.client)
    name = "" if before is None else before.session.decode()
    refused = refuse_session(name, asked, lambda: sessions_kept(sql))
    if refused is not None:
        sql.run("DELETE FROM @clients WHERE client = :client", client=asked.client)
        return refused
    abandoned = find_abandoned(name, asked).encode()
    if abandoned or not name:
        sql.run("UPDATE @store SET sessions = sessions + 1")
    if before is not None and not (abandoned and is_connected(sql, before)):
        settle_wills(sql, before.session)
    if abandoned:
        abandon(sql, abandoned)
    sql.run(
        "INSERT INTO @sessions VALUES (:session, :client, :token, :nobody, :connection, :expiry_ms, :seen_ns, 0, 0)"
        " ON CONFLICT (session) DO UPDATE SET token = excluded.token, connection = excluded.connection,"
        " expiry_ms = excluded.expiry_ms, seen_ns = excluded.seen_ns",
        session=asked.session, client=asked.client, token=asked.token, connection=asked.owner, nobody=b"",
        expiry_ms=asked.expiry_ms, seen_ns=sql.now_ns,
    )  # fmt: skip
    statement = "UPDATE @clients SET session = :session WHERE client = :client"
    sql.run(statement, session=asked.session, client=asked.client)
    return SessionOpen()


def sessions_kept(sql: Sql) -> int:
    """How many sessions there are, whoever has them; those that have expired among them, until they are collected."""
    return read_number(sql, "SELECT sessions FROM @store")


@under_token
def keep_alive(sql: Sql, asked: KeepAlive) -> None:
    sql.run(
        "UPDATE @sessions SET seen_ns = :now_ns WHERE session = :session AND token = :token AND connection <> :nobody",
        session=asked.session, token=asked.token, now_ns=sql.now_ns, nobody=b"",
    )  # fmt: skip


@under_token
def leave(sql: Sql, asked: LeaveSession) -> Answer:
    """One that was left already, or is gone, is left alone."""
    found = session_of(sql, asked.client)
    if found is not None and is_left(found.session.decode(), asked):
        end_session(sql, found, asked.expiry_ms)
    return SessionLeft()


def end_session(sql: Sql, found: SessionRow, expiry_ms: int) -> None:
    """Nobody has it in hand from now on; it outlives that by `expiry_ms`, or (0) is abandoned."""
    if expiry_ms == 0:
        abandon(sql, found.session)
        return
    end_wills(sql, found.session, expiry_ms, sql.now_ns)
    sql.run(
        "UPDATE @sessions SET connection = :nobody, owner = :nobody, expiry_ms = :expiry_ms, seen_ns = :now_ns"
        " WHERE session = :session",
        session=found.session, nobody=b"", expiry_ms=expiry_ms, now_ns=sql.now_ns,
    )  # fmt: skip


def _is_superseded(sql: Sql, client: str, token: int) -> bool:
    found = read_one(sql, "SELECT token FROM @clients WHERE client = :client", client=client)
    return is_superseded(None if found is None else int(found[0]), token)


def next_token(sql: Sql) -> int:
    """Greater than every one before, of whatever client."""
    sql.run("UPDATE @store SET tokens = tokens + 1")
    return read_number(sql, "SELECT tokens FROM @store")


ANSWERS: Final[Mapping[type[Request], Callable[[Sql, Any], Answer | None]]] = {
    LockClient: lock,
    UnlockClient: unlock,
    LookUp: look_up,
    OpenSession: open_session,
    KeepAlive: keep_alive,
    LeaveSession: leave,
}

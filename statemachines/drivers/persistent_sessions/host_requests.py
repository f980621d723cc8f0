"""Host requests: everything in `host_request`, carried out in a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from statemachines.drivers.persistent_sessions.host_request import (
    NEVER,
    Beat,
    Connect,
    Connected,
    Disconnect,
    HostRequest,
    Locked,
    Look,
    PutMessage,
    ReadMessages,
    ReadNodes,
    Routes,
    Seen,
    ShowMarker,
    Shown,
    Subscribe,
    Unlock,
    Unsubscribe,
    Watched,
)
from statemachines.drivers.persistent_sessions.machine_requests import (
    PUT_ROW,
    epoch_of,
    is_owned,
    is_there,
    put_marker,
    to_queued,
)
from statemachines.drivers.persistent_sessions.route_trie import RouteTrie
from statemachines.drivers.persistent_sessions.sql import Sql, all_of, one
from statemachines.drivers.persistent_sessions.state_rows import delete_state
from statemachines.drivers.persistent_sessions.tables import ABANDONED, UNDELIVERED

MS: Final = 1_000_000
FOR_EVER: Final = 2**62
"""When a session ends that does not."""

FORGET: Final = 10_000
"""So many changes a route that was removed is kept at least; a node that is farther behind reads all routes anew."""

LOOK: Final = 1_000
"""Rows of one writer that are followed at once."""

READS: Final = (ReadMessages, ReadNodes, Look)
"""What changes nothing."""

PUT_SESSION: Final = (
    "INSERT INTO @sessions VALUES (:session, :client, :token, :owner, :node, :life, :expiry_ms, NULL, 0, 0)"
)
PUT_CLIENT: Final = (
    "INSERT INTO @clients VALUES (:client, :session, :token, :holder, :until_ns) ON CONFLICT (client) DO UPDATE SET"
    " session = excluded.session, token = excluded.token, holder = excluded.holder, until_ns = excluded.until_ns"
)
PUT_ROUTE: Final = (
    "INSERT INTO @routes VALUES (:session, :filter, :qos, :version, 0) ON CONFLICT (session, filter) DO UPDATE SET"
    " qos = excluded.qos, version = excluded.version, gone = 0"
)
FOLLOW: Final = (
    "SELECT epoch, number, message, filter, qos FROM @session_rows WHERE session = :session AND writer = :writer"
    f" AND tag = {UNDELIVERED} AND (epoch, number) > (:epoch, :number) ORDER BY epoch, number LIMIT {LOOK}"
)


class HostRequests:
    """It knows the routes as of the last transaction that asked for them."""

    def __init__(self) -> None:
        self.trie = RouteTrie()
        self._caught_up = False
        """In the transaction that is open."""
        self._kinds: dict[type[HostRequest], Callable[[Sql, Any], Any]] = {
            Connect: self._connect,
            Unlock: self._unlock,
            Disconnect: self._disconnect,
            Subscribe: self._subscribe,
            Unsubscribe: self._unsubscribe,
            PutMessage: self._put_message,
            ReadMessages: self._read_messages,
            Beat: self._beat,
            ReadNodes: self._read_nodes,
            ShowMarker: self._show_marker,
            Look: self._look,
        }

    def answer(self, sql: Sql, request: HostRequest) -> Any:
        """What it is answered with."""
        return self._kinds[type(request)](sql, request)

    def settle(self) -> None:
        """The transaction is committed."""
        self._caught_up = False

    def forget(self) -> None:
        """It is not, or nobody knows: what was read within it may never have been."""
        if self._caught_up:
            self.trie = RouteTrie()
        self._caught_up = False

    # -- client ids -----------------------------------------------------------------------------------------------

    def _connect(self, sql: Sql, asked: Connect) -> Connected | Locked:
        client = asked.client.encode()
        found = one(
            sql, "SELECT session, token, holder, until_ns FROM @clients WHERE client = :client", client=client
        ) or (None, 0, b"", 0)
        session, token, holder, until_ns = found
        if holder and holder != asked.holder.encode() and until_ns > sql.now_ns:
            return Locked(holder.decode(), (until_ns - sql.now_ns) // MS + 1)
        present = session is not None and not asked.clean and not self._has_ended(sql, session)
        if session is not None and not present:
            abandon(sql, session)
        if not present:
            session = asked.session.encode()
        self._take(sql, asked, session, token + 1, present)
        sql.run(
            PUT_CLIENT,
            client=client, session=session, token=token + 1, holder=asked.holder.encode(),
            until_ns=sql.now_ns + asked.lock_ms * MS,
        )  # fmt: skip
        return Connected(token + 1, session.decode(), present)

    def _take(self, sql: Sql, asked: Connect, session: bytes, token: int, present: bool) -> None:
        """It is connected from now on, and whoever had it before is fenced."""
        values: dict[str, Any] = {"session": session, "token": token, "expiry_ms": asked.expiry_ms, "life": asked.life}
        values |= {"node": asked.node.encode()}
        if present:
            sql.run(
                "UPDATE @sessions SET token = :token, node = :node, life = :life, expiry_ms = :expiry_ms,"
                " ends_ns = NULL WHERE session = :session",
                **values,
            )
        else:
            sql.run(PUT_SESSION, client=asked.client.encode(), owner=b"", **values)

    def _has_ended(self, sql: Sql, session: bytes) -> bool:
        """Its expiry has passed since it was disconnected, or since its node was heard of last."""
        found = one(
            sql,
            "SELECT sessions.ends_ns, sessions.expiry_ms, nodes.until_ns, nodes.seen_ns FROM @sessions AS sessions"
            " LEFT JOIN @nodes AS nodes ON nodes.name = sessions.node AND nodes.life = sessions.life"
            " WHERE sessions.session = :session",
            session=session,
        )
        if found is None:
            return True
        ends_ns, expiry_ms, until_ns, seen_ns = found
        if ends_ns is None:
            if until_ns is None or until_ns > sql.now_ns:  # a node that began anew has said when they end
                return False
            ends_ns = end_of(seen_ns, expiry_ms)
        return bool(ends_ns <= sql.now_ns)

    def _unlock(self, sql: Sql, asked: Unlock) -> None:
        sql.run(
            "UPDATE @clients SET holder = :nobody WHERE client = :client AND token = :token",
            nobody=b"", client=asked.client.encode(), token=asked.token,
        )  # fmt: skip

    def _disconnect(self, sql: Sql, asked: Disconnect) -> None:
        session = asked.session.encode()
        if not is_owned(sql, session, asked.token):
            return
        found = one(sql, "SELECT expiry_ms FROM @sessions WHERE session = :session", session=session)
        assert found is not None
        expiry_ms = found[0] if asked.expiry_ms is None else asked.expiry_ms
        if expiry_ms == 0:
            abandon(sql, session)
            return
        sql.run(
            "UPDATE @sessions SET ends_ns = :ends_ns, expiry_ms = :expiry_ms, owner = :nobody WHERE session = :session",
            session=session, ends_ns=end_of(sql.now_ns, expiry_ms), expiry_ms=expiry_ms, nobody=b"",
        )  # fmt: skip

    # -- routes ---------------------------------------------------------------------------------------------------

    def _subscribe(self, sql: Sql, asked: Subscribe) -> bool:
        session = asked.session.encode()
        if not is_owned(sql, session, asked.token):
            return False
        sql.run(
            PUT_ROUTE, session=session, filter=asked.filter.encode(), qos=asked.qos, version=next_version(sql)
        )  # fmt: skip
        return True

    def _unsubscribe(self, sql: Sql, asked: Unsubscribe) -> bool:
        session = asked.session.encode()
        if not is_owned(sql, session, asked.token):
            return False
        remove_route(sql, session, asked.filter.encode())
        return True

    def catch_up(self, sql: Sql) -> None:
        """The routes as this transaction finds them."""
        found = one(sql, "SELECT routes, forgotten FROM @store")
        assert found is not None
        version, forgotten = found
        if self.trie.version > version or self.trie.version < forgotten:
            self.trie = RouteTrie()  # of another store, or too far behind
        if self.trie.version == version:
            return
        self._caught_up = True
        changed = sql.all(
            "SELECT session, filter, qos, gone FROM @routes WHERE version > :known ORDER BY version",
            known=self.trie.version,
        )
        for session, topic_filter, qos, gone in changed:
            if gone:
                self.trie.remove(session.decode(), topic_filter.decode())
            else:
                self.trie.put(session.decode(), topic_filter.decode(), qos)
        self.trie.version = version

    # -- messages -------------------------------------------------------------------------------------------------

    def _put_message(self, sql: Sql, asked: PutMessage) -> Routes:
        self.catch_up(sql)
        routes = tuple(self.trie.match(asked.topic))
        if routes:
            sql.run(
                "INSERT INTO @messages VALUES (:id, :topic, :payload, :qos, :time_ns)",
                id=asked.id.encode(), topic=asked.topic.encode(), payload=asked.payload, qos=asked.qos,
                time_ns=sql.now_ns,
            )  # fmt: skip
        return routes

    def _read_messages(self, sql: Sql, asked: ReadMessages) -> dict[str, tuple[str, bytes]]:
        found = all_of(
            sql, "SELECT id, topic, payload FROM @messages WHERE id IN ({keys})", [one.encode() for one in asked.ids]
        )
        return {message.decode(): (topic.decode(), bytes(payload)) for message, topic, payload in found}

    # -- nodes ----------------------------------------------------------------------------------------------------

    def _beat(self, sql: Sql, asked: Beat) -> None:
        sql.run(
            "UPDATE @nodes SET until_ns = :until_ns, seen_ns = :seen_ns WHERE name = :name",
            name=asked.node.encode(), until_ns=sql.now_ns + asked.lease_ms * MS, seen_ns=sql.now_ns,
        )  # fmt: skip

    def _read_nodes(self, sql: Sql, asked: ReadNodes) -> tuple[str, ...]:
        found = sql.all("SELECT name FROM @nodes WHERE until_ns > :now_ns ORDER BY name", now_ns=sql.now_ns)
        return tuple(name.decode() for (name,) in found)

    def _show_marker(self, sql: Sql, asked: ShowMarker) -> Shown | None:
        """All of it is one transaction, so it is a step of the writer's order as if the writer had taken it."""
        session, writer = asked.session.encode(), asked.writer.encode()
        epoch, last = epoch_of(sql, session, writer)
        if not epoch or not is_there(sql, session):
            return None
        put_marker(sql, session, writer, epoch, last + 1, (asked.token, asked.n))
        found = one(
            sql,
            "SELECT number FROM @session_rows WHERE session = :session AND writer = :writer AND epoch = :epoch"
            " AND tag = 2 AND token = :token AND n = :n",
            session=session, writer=writer, epoch=epoch, token=asked.token, n=asked.n,
        )  # fmt: skip
        return None if found is None else Shown(epoch, found[0])

    def _look(self, sql: Sql, asked: Look) -> tuple[Seen, ...]:
        return tuple(self._look_at(sql, asked.node.encode(), each) for each in asked.watched)

    def _look_at(self, sql: Sql, node: bytes, watched: Watched) -> Seen:
        session = watched.session.encode()
        if not is_owned(sql, session, watched.token):
            return Seen(watched.session, True)
        writers = sql.all(
            "SELECT DISTINCT writer FROM @epochs WHERE session = :session AND writer <> :node ORDER BY 1",
            session=session, node=node,
        )  # fmt: skip
        rows = tuple(
            (writer, row[0], to_queued(row))
            for writer, epoch, number in watched.followed
            for row in sql.all(FOLLOW, session=session, writer=writer.encode(), epoch=epoch, number=number)
        )
        return Seen(watched.session, False, tuple(writer.decode() for (writer,) in writers), rows)


def next_version(sql: Sql) -> int:
    """Of the routes."""
    sql.run("UPDATE @store SET routes = routes + 1")
    found = one(sql, "SELECT routes FROM @store")
    assert found is not None
    return int(found[0])


def remove_route(sql: Sql, session: bytes, topic_filter: bytes) -> None:
    """It is kept as gone for nodes that know it; for so long that no node that works is behind."""
    values = {"session": session, "filter": topic_filter}
    there = one(sql, "SELECT 1 FROM @routes WHERE session = :session AND filter = :filter AND gone = 0", **values)
    if there is None:
        return
    version = next_version(sql)
    sql.run(
        "UPDATE @routes SET gone = 1, version = :version WHERE session = :session AND filter = :filter",
        version=version, **values,
    )  # fmt: skip
    found = one(sql, "SELECT forgotten FROM @store")
    assert found is not None
    if version - found[0] >= 2 * FORGET:
        sql.run("DELETE FROM @routes WHERE gone = 1 AND version <= :version", version=version - FORGET)
        sql.run("UPDATE @store SET forgotten = :version", version=version - FORGET)


def abandon(sql: Sql, session: bytes) -> None:
    """Nothing is routed to it any more, and nobody owns it; its row says to a collector that all of it may go.  One
    that was abandoned already is left alone."""
    if not is_there(sql, session):
        return
    for (topic_filter,) in sql.all(
        "SELECT filter FROM @routes WHERE session = :session AND gone = 0", session=session
    ):  # fmt: skip
        remove_route(sql, session, topic_filter)
    delete_state(sql, session)
    sql.run("DELETE FROM @sessions WHERE session = :session", session=session)
    sql.run(
        PUT_ROW,
        session=session, writer=b"", epoch=0, number=0, tag=ABANDONED, message=b"", filter=b"", qos=0, token=0, n=0,
        time_ns=sql.now_ns,
    )  # fmt: skip


def end_of(from_ns: int, expiry_ms: int) -> int:
    """When a session ends that was live last at `from_ns`."""
    return FOR_EVER if expiry_ms == NEVER else from_ns + expiry_ms * MS


def begin_life(sql: Sql, node: str, lease_ms: int) -> int:
    """The next life of a node; the sessions that were live on the one before end from when it was heard of last."""
    name = node.encode()
    found = one(sql, "SELECT life, seen_ns FROM @nodes WHERE name = :name", name=name)
    life = 1 if found is None else found[0] + 1
    if found is not None:
        for session, expiry_ms in sql.all(
            "SELECT session, expiry_ms FROM @sessions WHERE node = :name AND ends_ns IS NULL", name=name
        ):
            ends_ns = end_of(found[1], expiry_ms)
            sql.run(
                "UPDATE @sessions SET ends_ns = :ends_ns, owner = :nobody WHERE session = :session",
                session=session, ends_ns=ends_ns, nobody=b"",
            )  # fmt: skip
    sql.run(
        "INSERT INTO @nodes VALUES (:name, :life, :until_ns, :seen_ns, 0) ON CONFLICT (name) DO UPDATE SET"
        " life = excluded.life, until_ns = excluded.until_ns, seen_ns = excluded.seen_ns, batch = 0",
        name=name, life=life, until_ns=sql.now_ns + lease_ms * MS, seen_ns=sql.now_ns,
    )  # fmt: skip
    return life

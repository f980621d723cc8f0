"""Operator requests: what an operator asks of a store of sessions, and what is answered.

Running nodes need not know of it: whatever an owner of before asks is refused by its token, or because its client is
not known any more, and what a writer stores for a session that is gone is dropped.

Row spans say which rows wait for a session.  They are found by their keys: however many rows wait, they are not counted
one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from statemachines.drivers.persistent_sessions.group_rows import WRITERS
from statemachines.drivers.persistent_sessions.life_requests import abandon, end_session, has_ended, next_token
from statemachines.drivers.persistent_sessions.session_row import SessionRow
from statemachines.drivers.persistent_sessions.sql import UNDELIVERED, Sql, StoreRequest, has_row, read_number, read_one
from statemachines.kernel import node_of
from statemachines.persistent_sessions.life_request import NEVER

FILTERS_MAX: Final = 100
"""Filters in one answer."""

WAITING_MAX: Final = 10_000
"""Rows that are looked at to count messages."""

DEAD_MS: Final = 5_000
"""A session of which no node has said for so long that it lives is nowhere."""


class SessionSummary(msgspec.Struct, frozen=True):
    """`session` ("": the client has none); `state`: connected, connecting, away, or lost (its node has ended, or is
    silent); `node`: where it is, or was when it got lost; `seen_s`: seconds since its owner said that it lives, or its
    client left; `expiry_s`: how long it outlives that (None: for ever); `waiting_max`: messages that are stored for it
    and that no owner has taken, at most so many (those that have expired, or were too old, may be among them)."""

    client: str
    session: str
    state: str
    node: str
    seen_s: float
    expiry_s: float | None
    waiting_max: int


class SubscribedFilter(msgspec.Struct, frozen=True):
    """A subscription of a session."""

    filter: str
    qos: int


class SessionDetail(msgspec.Struct, frozen=True):
    """`token`: whatever is asked under a lower one is refused; `waiting`: messages that are there and that no
    owner has taken, `waiting_more`: there may be more, since not all rows were looked at; `filters`: the first of them,
    `filters_more`: there are more."""

    summary: SessionSummary
    token: int
    in_flight: int
    queued: int
    waiting: int
    waiting_more: bool
    filters: tuple[SubscribedFilter, ...]
    filters_more: bool


_OF_EPOCH: Final = (
    f"FROM @session_rows WHERE session = :session AND writer = :writer AND epoch = :epoch AND tag = {UNDELIVERED}"
)
_IS_STORED: Final = has_row("SELECT 1 FROM @messages AS messages WHERE messages.id = ahead.message")


class RowSpan(NamedTuple):
    """Rows `first` to `last` of a writer and an epoch, which the session has not taken."""

    writer: bytes
    epoch: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """How many rows, at most: one that was delivered ahead of its turn is in it."""
        return self.last - self.first + 1


def list_spans(sql: Sql, session: bytes) -> Iterator[RowSpan]:
    """The spans of the session, without what was dropped (PS-461): those are the oldest rows of an epoch."""
    for writer, epoch, number in sql.all(WRITERS, session=session):
        while found := read_one(
            sql,
            "SELECT epoch, number, length(message) FROM @session_rows WHERE session = :session AND writer = :writer"
            f" AND (epoch, number) > (:epoch, :number) AND tag = {UNDELIVERED} ORDER BY epoch, number LIMIT 1",
            session=session,
            writer=writer,
            epoch=epoch,
            number=number,
        ):
            epoch, first, size = found
            where = {"session": session, "writer": writer, "epoch": epoch}
            (number,) = read_one(
                sql,
                f"SELECT number {_OF_EPOCH} AND number >= :number ORDER BY number DESC LIMIT 1",
                **where,
                number=first,
            ) or (first,)
            if not size:
                first += _count_dropped(sql, range(first, number + 1), where)
            if first <= number:
                yield RowSpan(bytes(writer), epoch, first, number)


def _count_dropped(sql: Sql, numbers: range, where: dict[str, Any]) -> int:
    """How many rows from the first on have no message: a look at a row for each halving."""

    def has_message(number: int) -> bool:
        found = read_one(
            sql,
            f"SELECT length(message) {_OF_EPOCH} AND number >= :number ORDER BY number LIMIT 1",
            number=number,
            **where,
        )
        return found is None or found[0] > 0

    return bisect_left(numbers, True, key=has_message)


_HAS_ROWS: Final = has_row(
    "SELECT 1 FROM @session_rows AS found WHERE found.session = sessions.session AND found.writer > :none"
)
CLIENTS: Final = (
    f"SELECT clients.client, clients.token, clients.holder, clients.until_ns, {_HAS_ROWS}, sessions.session,"
    " sessions.connection, sessions.expiry_ms, sessions.seen_ns FROM @clients AS clients"
    " LEFT JOIN @sessions AS sessions ON sessions.session = clients.session"
)
# What says that a session is abandoned has no writer, and all its other rows have one.
DELETE_PAGE: Final = (
    "DELETE FROM @session_rows WHERE (session, writer, epoch, number, tag) IN"
    " (SELECT session, writer, epoch, number, tag FROM @session_rows WHERE session = :session AND writer > :none"
    " ORDER BY writer, epoch, number, tag LIMIT :limit)"
)


class ClientRow:
    """A client, and its session (None: it has none), as the tables have them."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.client, self.token, self.holder, self.until_ns, self.has_rows, *session = row
        self.session = None if session[0] is None else SessionRow(*session)

    def summarize(self, sql: Sql) -> SessionSummary:
        """What an operator is shown."""
        found = self.session
        if self.holder and self.until_ns > sql.now_ns and not has_ended(sql, self.holder):
            state, owner = "connecting", self.holder
        elif found is None or not found.connection:
            state, owner = "away", b""
        else:
            is_live = found.is_live(sql.now_ns, DEAD_MS) and not has_ended(sql, found.connection)
            state, owner = "connected" if is_live else "lost", found.connection
        return SessionSummary(
            self.client.decode(),
            "" if found is None else found.session.decode(),
            state,
            node_of(owner.decode()),
            0.0 if found is None else max(0, sql.now_ns - found.seen_ns) // 10**6 / 1_000,
            None if found is None or found.expiry_ms == NEVER else found.expiry_ms / 1_000,
            sum(one.size for one in list_spans(sql, found.session)) if found is not None and self.has_rows else 0,
        )


def client_row(sql: Sql, client: str) -> ClientRow | None:
    """The client, if the store knows it."""
    found = read_one(sql, f"{CLIENTS} WHERE clients.client = :client", client=client.encode(), none=b"")
    return None if found is None else ClientRow(found)


class ListSessions(StoreRequest[tuple[SessionSummary, ...]], frozen=True):
    """The sessions of at most `limit` clients, in the order of their ids, behind the client `after`; answered with a
    tuple of `SessionSummary`."""

    after: str
    limit: int

    def answer(self, sql: Sql, routes: Any) -> tuple[SessionSummary, ...]:
        found = sql.all(
            f"{CLIENTS} WHERE clients.client > :after ORDER BY clients.client LIMIT :limit",
            after=self.after.encode(), limit=self.limit, none=b"",
        )  # fmt: skip
        return tuple(ClientRow(row).summarize(sql) for row in found)


class DescribeSession(StoreRequest["SessionDetail | None"], frozen=True):
    """Answered with a `SessionDetail`, or None: the store does not know the client."""

    client: str

    def answer(self, sql: Sql, routes: Any) -> SessionDetail | None:
        row = client_row(sql, self.client)
        if row is None:
            return None
        session = b"" if row.session is None else row.session.session
        filters = sql.all(
            "SELECT filter, qos FROM @routes WHERE session = :session AND gone = 0 ORDER BY filter LIMIT :limit",
            session=session,
            limit=FILTERS_MAX + 1,
        )
        summary = row.summarize(sql)
        waiting, left = 0, WAITING_MAX
        for span in list_spans(sql, session):
            waiting += read_number(
                sql,
                f"SELECT count(*) FROM (SELECT message {_OF_EPOCH} AND number >= :number ORDER BY number LIMIT :looked)"
                f" AS ahead WHERE {_IS_STORED}",
                session=session, writer=span.writer, epoch=span.epoch, number=span.first, looked=left,
            )  # fmt: skip
            left = max(0, left - span.size)
        return SessionDetail(
            summary,
            row.token,
            read_number(sql, "SELECT count(*) FROM @packets WHERE session = :session", session=session),
            read_number(sql, "SELECT count(*) FROM @queued WHERE session = :session", session=session),
            waiting,
            summary.waiting_max > WAITING_MAX,
            tuple(SubscribedFilter(one.decode(), qos) for one, qos in filters[:FILTERS_MAX]),
            len(filters) > FILTERS_MAX,
        )


class KickClient(StoreRequest["SessionSummary | None"], frozen=True):
    """The connection of the client ends; its session stays, and is as if the client were lost now.  Answered with a
    `SessionSummary` of before, or None: the store does not know the client."""

    client: str

    def answer(self, sql: Sql, routes: Any) -> SessionSummary | None:
        """From the commit on whatever the owner asks is refused.  A client that nobody has in hand is left alone."""
        row = client_row(sql, self.client)
        if row is None:
            return None
        summary = row.summarize(sql)
        if summary.state != "away":
            token = next_token(sql)
            sql.run(
                "UPDATE @clients SET token = :token, holder = :nobody WHERE client = :client",
                token=token,
                nobody=b"",
                client=row.client,
            )
            if row.session is not None:
                sql.run(
                    "UPDATE @sessions SET token = :token WHERE session = :session",
                    token=token,
                    session=row.session.session,
                )
                if row.session.connection:
                    end_session(sql, row.session, row.session.expiry_ms)
        return summary


class PurgeClient(StoreRequest["SessionSummary | None"], frozen=True):
    """The session of the client is abandoned, and the client forgotten; answered as `KickClient`."""

    client: str

    def answer(self, sql: Sql, routes: Any) -> SessionSummary | None:
        """Tokens are of the store: whoever still has one of this client finds nothing."""
        row = client_row(sql, self.client)
        if row is None:
            return None
        summary = row.summarize(sql)
        if row.session is not None:
            abandon(sql, row.session.session)
        sql.run("DELETE FROM @clients WHERE client = :client", client=row.client)
        return summary


class DeleteRows(StoreRequest[int], frozen=True):
    """At most `limit` rows of a session that is abandoned go; answered with how many."""

    session: str
    limit: int

    def answer(self, sql: Sql, routes: Any) -> int:
        """The row that says that the session is abandoned stays: a collector needs it, and deletes it later."""
        return sql.count(DELETE_PAGE, session=self.session.encode(), none=b"", limit=self.limit)

"""The group store on PostgreSQL: what `statemachines.shared_subscriptions.group_store` means, in transactions."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from statemachines.drivers.clock import Clock
from statemachines.drivers.shared_subscriptions.postgres.tables import LAYOUT
from statemachines.drivers.shared_subscriptions.record_codec import RecordCodec
from statemachines.drivers.shared_subscriptions.sql_stores import SqlGroupStore
from statemachines.drivers.sql.failure import BUSY_S, find_upper_bound
from statemachines.drivers.sql.postgres import CLOCK, PostgresDatabase
from statemachines.shared_subscriptions.group_store import Commit, Committed, Read, ReadDone, Refused, StoredRecord

# One statement sees one state: the records and the time belong together.
READ: Final = text(
    f"SELECT greatest(store.time_ns, {CLOCK}), records.key, records.value, records.time_ns FROM gapless.store"
    " LEFT JOIN gapless.group_records AS records ON records.key = ANY(CAST(:keys AS bytea[]))"
)
FIND: Final = text("SELECT key, value, time_ns FROM gapless.group_records WHERE key = ANY(CAST(:keys AS bytea[]))")
SCAN: Final = text(
    "SELECT key, value, time_ns FROM gapless.group_records"
    " WHERE key >= :low AND key < :beyond AND key <> :after ORDER BY key LIMIT :limit"
)
PUT: Final = text(
    "INSERT INTO gapless.group_records (key, value, time_ns) SELECT key, value, :time_ns"
    " FROM unnest(CAST(:keys AS bytea[]), CAST(:values AS bytea[])) AS put (key, value)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value, time_ns = excluded.time_ns"
)
DELETE: Final = text("DELETE FROM gapless.group_records WHERE key = ANY(CAST(:keys AS bytea[]))")


class PostgresGroupStore(SqlGroupStore[PostgresDatabase]):
    """Records in the database at `url`; a transaction waits at most `busy_s` seconds for other processes.

    `clock`: for tests, instead of the server's.  Raises `ConfigurationError` where the database cannot be used.
    """

    def __init__(self, url: str, busy_s: float = BUSY_S, *, clock: Clock | None = None) -> None:
        self.identity = ""
        self._database = PostgresDatabase(url, "group store", LAYOUT, busy_s, clock, self._identify)
        self._codec = RecordCodec(self._database.url)

    def _identify(self, connection: Connection) -> None:
        self.identity = connection.execute(text("SELECT identity FROM gapless.store")).scalar_one()

    def _read(self, read: Read) -> ReadDone:
        keys = [key.encode() for key in read.keys]
        with self._database.single() as connection:
            rows = connection.execute(READ, {"keys": keys, **self._database.clock}).all()
        found = {key: self._stored(key, value, time_ns) for _, key, value, time_ns in rows if key is not None}
        return ReadDone(read.n, tuple(found.get(key) for key in keys), rows[0][0])

    def _find(self, connection: Connection, prefix: str, after: str, limit: int) -> list[tuple[str, bytes, int]]:
        values = {
            "low": max(prefix, after).encode(),
            "beyond": find_upper_bound(prefix),
            "after": after.encode(),
            "limit": limit,
        }
        return [(key.decode(), value, time_ns) for key, value, time_ns in connection.execute(SCAN, values)]

    def _commit(self, commit: Commit) -> Committed | Refused:
        try:
            with self._database.transaction() as connection:
                # First: whoever holds the stamp is alone, so nothing changes between the look and the write.
                time_ns = self._database.stamp(connection)
                self._expect(connection, commit)
                last = {key.encode(): value for key, value in commit.put}
                put = {key: self._codec.encode(value) for key, value in last.items() if value is not None}
                if put:
                    connection.execute(PUT, {"keys": list(put), "values": list(put.values()), "time_ns": time_ns})
                if len(put) < len(last):
                    connection.execute(DELETE, {"keys": [key for key, value in last.items() if value is None]})
        except NotExpected as error:
            return Refused(commit.n, error.key)
        return Committed(commit.n, time_ns)

    def _expect(self, connection: Connection, commit: Commit) -> None:
        if commit.expect:
            rows = connection.execute(FIND, {"keys": [key.encode() for key, _ in commit.expect]})
            found = {key: self._stored(key, value, time_ns) for key, value, time_ns in rows}
            for key, stored in commit.expect:
                if found.get(key.encode()) != stored:
                    raise NotExpected(key)

    def _stored(self, key: bytes, value: bytes, time_ns: int) -> StoredRecord:
        return self._codec.read(key.decode(), value, time_ns)


class NotExpected(Exception):
    """A precondition does not hold: the transaction is undone."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

"""Database: the tables in a PostgreSQL database, transactions, the store's own time, and one worker thread.

A transaction that writes ends by taking the row of `gapless.store`, which it holds until it is committed: commits of
all processes have one order, and the store's time grows with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from statemachines.drivers.clock import Clock
from statemachines.drivers.sql.failure import BUSY_S, OutcomeOpen, StoreAway, StoreDamaged, StoreUnavailable
from statemachines.drivers.sql.postgres_address import IDLE_S, SAID, connect, hide_password, is_pooled, parse_url
from statemachines.drivers.sql.silent_server import AnsweredWorker, ServerConnections
from statemachines.drivers.sql.store_version import NO_UPGRADES, StoreVersion, Upgrades, say_users
from statemachines.kernel import ConfigurationError, GaplessError, LocalProtocolError

logger = logging.getLogger("gapless")

T = TypeVar("T")

CLOCK: Final = (
    "coalesce(CAST(:clock AS bigint), CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) * 1000)"
)
"""The wall clock: the server's, unless a test gives another."""

PASSING: Final = ("25", "40", "53", "55", "57", "58", "42501", "42P01", "3F000")
"""How the codes of failures begin that pass, or that an administrator mends, with nothing written: read-only server,
serialization, resources, locks, intervention, system, privileges, tables out of the way."""

LOST: Final = ("08", "57P01", "57P02", "57P03")
"""How the codes begin that say the connection is lost: it broke, or the server stops."""

OPENS_LATER: Final = ("25006", "40", "53", "55", "57", "58")
"""How the codes begin that say it cannot be opened now: read-only, many clients, a full disk, a lock, a server that
starts or stops."""

OPENINGS: Final = 5
"""So often in all a database is opened whose connection is cut off meanwhile: the server ends a transaction between two
statements of which this process or its machine stood still (D-1240)."""

LOCKED: Final = "55P03"
"""The code that says it waited for a lock for too long."""

END_SILENT: Final = text(
    "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND pg_has_role(usesysid, 'USAGE') AND application_name = current_setting('application_name')"
    " AND pid <> pg_backend_pid() AND state = 'active' AND wait_event_type = 'Client' AND xact_start IS NOT NULL"
    f" AND state_change < clock_timestamp() - interval '{IDLE_S} s'"
)
"""End sessions of ours that are amid a pipeline, and whose process has said nothing for so long."""

BROKEN: Final = "XX"
"""How the codes of damage begin."""

MISSING: Final = text(
    "SELECT asked.place, asked.privilege FROM"
    " unnest(CAST(:tables AS text[]), CAST(:privileges AS text[])) WITH ORDINALITY AS asked (place, privilege, number)"
    " WHERE NOT has_table_privilege(asked.place, asked.privilege) ORDER BY asked.number"
)
"""What of these we are not allowed, asked at once."""


class PostgresLayout(NamedTuple):
    """What a database holds: tables in a `schema` of ours, their `version`, the `statements` that make schema and
    tables (under the advisory lock `lock`), the tables it is `known_by`, and what whoever opens a store must be allowed
    there: kind of store -> table -> privileges (`needed`); `upgrades` to this version; `users`: a query of the names of
    nodes that may run; `fence`: what ends one that stood still meanwhile.

    One of the tables is `store`, of one row: its columns `version` and `oldest_reader` (`StoreVersion`), and `time_ns`,
    the time of the last commit.
    """

    schema: str
    version: int
    lock: int
    statements: tuple[str, ...]
    known_by: tuple[str, ...]
    needed: dict[str, dict[str, tuple[str, ...]]]
    upgrades: Upgrades = NO_UPGRADES
    users: str = ""
    fence: str = ""

    def tables(self, connection: Connection) -> set[str]:
        """The names of the tables that are there."""
        found = connection.execute(
            text(
                "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(:schema) AND relkind IN ('r', 'v')"
            ),
            {"schema": self.schema},
        )
        return {name for (name,) in found}

    def take_turn(self, connection: Connection) -> None:
        """Alone until the transaction ends, of those that open it.  Before any table is looked at: who waits here with
        a table read keeps the one whose turn it is from changing that table."""
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": self.lock})

    def make_tables(self, connection: Connection) -> None:
        """Make them."""
        for statement in self.statements:
            connection.execute(text(statement))

    def version_of(self, connection: Connection) -> StoreVersion:
        """The version of the tables that are there."""
        found = connection.execute(text(f"SELECT version, oldest_reader FROM {self.schema}.store"))
        return StoreVersion(*found.one())

    def upgrade(self, connection: Connection, found: StoreVersion) -> None:
        """Step by step to our version."""
        if found.needs_stop(self.version, self.upgrades) and self.fence:
            connection.execute(text(self.fence))
        for version in found.list_steps(self.version):
            for statement in self.upgrades[version].statements:
                connection.execute(text(statement))
        changed = found.upgrade(self.version, self.upgrades)
        if changed != found:
            put = f"UPDATE {self.schema}.store SET version = :version, oldest_reader = :oldest_reader"
            connection.execute(text(put), changed._asdict())

    def list_users(self, connection: Connection, found: StoreVersion, clock: dict[str, Any]) -> list[str]:
        """Nodes that may run, if none may while it is upgraded."""
        if not (self.users and found.needs_stop(self.version, self.upgrades)):
            return []
        return [bytes(name).decode() for (name,) in connection.execute(text(self.users), clock)]

    def missing_privileges(self, connection: Connection, kind: str) -> list[str]:
        """What we are not allowed and need: `SELECT on gapless.records`, ..."""
        pairs = [(f"{self.schema}.{table}", one) for table, needed in self.needed[kind].items() for one in needed]
        values = {"tables": [table for table, _ in pairs], "privileges": [one for _, one in pairs]}
        return [f"{privilege} on {table}" for table, privilege in connection.execute(MISSING, values)]

    def stamp(self) -> TextClause:
        """What makes the next time of the store."""
        return text(f"UPDATE {self.schema}.store SET time_ns = greatest(time_ns + 1, {CLOCK}) RETURNING time_ns")


class PostgresDatabase:
    """One connection to the database at `url`, used by one worker thread, and one more where it is asked for.

    `kind`: which store, of those that the `layout` knows; `clock`: nanoseconds since the epoch, instead of the
    server's; `agree`: in the transaction that opens it, what else it must hold or be refused for.

    Raises `ConfigurationError` where the database cannot be used, or its tables are of another version (`StoreAway`,
    one of these, where nobody answers), `StoreUnavailable` where it starts, stops, is too busy or
    read-only.
    """

    def __init__(
        self,
        url: str,
        kind: str,
        layout: PostgresLayout,
        busy_s: float = BUSY_S,
        clock: Clock | None = None,
        agree: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        address = parse_url(url)
        self.url = hide_password(address)
        self._kind = kind
        self._layout = layout
        self._stamp = layout.stamp()
        self._clock = clock
        self._agree = agree
        self._closed = False
        self._held: Connection | None = None
        self.connections = ServerConnections()
        self._engine = connect(address, busy_s, self.connections.note)
        self._single = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        self._frozen = self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._worker = AnsweredWorker(self.connections)
        try:
            self._worker.open(self._open)
        except BaseException:
            self._worker.open(self._dispose)
            self._worker.shut_down(wait=True)
            raise

    async def run(self, work: Callable[[], T]) -> T:
        """`work()` in the worker thread; raises `StoreUnavailable`, `OutcomeOpen` or `StoreDamaged`."""
        if self._closed:
            raise LocalProtocolError("store", "closed", "request", "", f"{self.url} was closed; open another store")
        try:
            return await self._worker.run(work)
        except DBAPIError as error:
            await self.raise_failure(error)

    async def raise_failure(self, error: DBAPIError) -> NoReturn:
        """Raise what an error of the server means; who waited for a lock ends those that hold it and stand still."""
        if code_of(error) == LOCKED and not self._closed:
            await self._worker.run(self._end_silent)
        failure = self.failure(error)
        if failure is None:
            raise error  # a wrong statement: ours to mend
        raise failure from error

    async def close(self) -> None:
        """Close the connection and end the thread; a second time does nothing."""
        if not self._closed:
            self._closed = True
            closing = self._worker.run(self._dispose)
            self._worker.shut_down(wait=False)  # whether or not somebody waits for it to be done
            await closing
            self._worker.shut_down(wait=True)  # nothing is left to do but the thread's last instructions

    # -- in the worker ------------------------------------------------------------------------------------------

    def _dispose(self) -> None:
        self._let_go()
        self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """All or nothing; each statement sees what was committed before it.  An exception undoes it."""
        self._let_go()
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Several reads of one state."""
        self._let_go()
        with self._frozen.begin() as connection:
            yield connection

    @contextmanager
    def single(self) -> Iterator[Connection]:
        """Statements that need no transaction: each sees one state, and is one round trip.  (Behind a pooler only a
        transaction has its limits.)"""
        if self.connections.is_pooled:
            with self._engine.begin() as connection:
                yield connection
            return
        if self._held is None:
            self._held = self._single.connect()
        try:
            yield self._held
        except BaseException:
            self._let_go()
            raise

    def connect_anew(self) -> Connection:
        """A connection beside that of the worker, whose statements are transactions."""
        return self._single.connect()

    @property
    def is_pooled(self) -> bool:
        """A pooler is between: only a transaction has its limits, and no statement is prepared."""
        return self.connections.is_pooled

    def _end_silent(self) -> None:
        """The server ends a transaction whose process stands still (`idle_in_transaction_session_timeout`), but not one
        whose process stands still amid a pipeline: it takes the pipeline for a statement that goes on."""
        try:
            with self.single() as connection:
                ended = [pid for pid, is_ended in connection.execute(END_SILENT) if is_ended]
        except DBAPIError as error:
            logger.warning("%s: whoever holds a lock was not looked at: %s", self.url, describe_reason(error))
            return
        if ended:
            what = "%s: its sessions %s said nothing for %d s amid a transaction, and were ended"
            logger.warning(what, self.url, ", ".join(map(str, ended)), IDLE_S)

    def _let_go(self) -> None:
        """The connection that `single` keeps: taking it anew costs more than a short statement."""
        held, self._held = self._held, None
        if held is not None:
            held.close()

    @property
    def clock(self) -> dict[str, Any]:
        """The parameter of `CLOCK`."""
        return {"clock": None if self._clock is None else self._clock()}

    def stamp(self, connection: Connection) -> int:
        """The store's time, for what this transaction commits: after every other commit, whatever the clock does.
        No other stamped transaction is committed before this one has ended."""
        return int(connection.execute(self._stamp, self.clock).scalar_one())

    def failure(self, error: DBAPIError) -> GaplessError | None:
        """What an error of the server means; None: that we sent something wrong."""
        code, why = code_of(error), describe_reason(error)
        if error.connection_invalidated or code.startswith(LOST):
            return OutcomeOpen(f"{self.url}: {why}; the next request connects anew, the outcome of this one is open")
        if code.startswith(BROKEN):
            return StoreDamaged(f"{self.url}: {why}; restore the database from a copy, or begin with a new one")
        never_sent = not code and isinstance(error, OperationalError | InterfaceError)
        if never_sent or code.startswith(PASSING):
            return self.is_not_written(error)
        return None

    def is_not_written(self, error: DBAPIError) -> StoreUnavailable:
        """Nothing came of it."""
        return StoreUnavailable(f"{self.url}: {describe_reason(error)}; nothing was written, try again")

    # -- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """What a transaction did whose commit was cut off, the next one finds done."""
        for left in reversed(range(OPENINGS)):
            try:
                with self._engine.begin() as connection:
                    self.connections.is_pooled = is_pooled(connection)
                    self._make_ours(connection)
                return
            except DBAPIError as error:
                if not (left and error.connection_invalidated):
                    self._raise_unopened(error)

    def _raise_unopened(self, error: DBAPIError) -> NoReturn:
        if code_of(error) == LOCKED:
            self._end_silent()
        if opens_later(error):
            raise self.is_not_written(error) from error
        found, mend = explain_error(error)
        if is_away(error):
            raise StoreAway("store", self.url, f"{found}; {mend}") from error
        raise self._refuse(found, mend) from error

    def _make_ours(self, connection: Connection) -> None:
        layout = self._layout
        layout.take_turn(connection)
        found = layout.tables(connection)
        needed = layout.needed[self._kind]
        if not found:
            layout.make_tables(connection)
        elif not set(layout.known_by) <= found:
            raise self._refuse(f"holds another program's schema {layout.schema!r}", "give a database of its own")
        version = layout.version_of(connection)
        fault = version.find_fault(layout.version, layout.upgrades)
        users = [] if fault else layout.list_users(connection, version, self.clock)
        if fault or users:
            raise ConfigurationError("store", self.url, fault or say_users(users, version, layout.version))
        layout.upgrade(connection, version)
        missing = layout.missing_privileges(connection, self._kind)
        if missing:
            raise self._refuse(f"does not allow {', '.join(missing)}", "GRANT it to the user of this URL")
        if any("UPDATE" in privileges for privileges in needed.values()) and is_read_only(connection):
            mend = "it is used when it can be written: make it the primary server, or give the URL of that"
            raise StoreUnavailable(f"{self.url} is read-only (a standby?); {mend}")
        self._agree(connection)

    def _refuse(self, found: str, mend: str) -> ConfigurationError:
        return ConfigurationError("store", self.url, f"{found}; {mend}")


def is_read_only(connection: Connection) -> bool:
    """Whether nothing can be written there."""
    return bool(connection.execute(text("SHOW transaction_read_only")).scalar_one() == "on")


def code_of(error: DBAPIError) -> str:
    """The five characters that SQL has for it; "": it is not from the server."""
    return str(getattr(error.orig, "sqlstate", None) or "")


def describe_reason(error: DBAPIError) -> str:
    """What the server or the connection said, in one line."""
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    return lines[0] if lines else type(error.orig).__name__


def opens_later(error: DBAPIError) -> bool:
    """Whether the server is there, and cannot let us in now; it has no code for it before a connection is made."""
    why = describe_reason(error)
    return code_of(error).startswith(OPENS_LATER) or any(words in why for words in LATER)


def is_away(error: DBAPIError) -> bool:
    """Whether nobody answers where the server should be: it may be there later."""
    why = describe_reason(error)
    if error.connection_invalidated:
        return True
    return SAID not in why and not explains_itself(why) and any(words in why for words in AWAY)


LATER: Final = (
    "starting up", "shutting down", "not yet accepting connections", "too many clients", "recovery mode",
    "connection slots are reserved", "too many connections", "No space left", "could not ", "terminating connection",
    # and of a pooler: it has no room, or has lost its server
    "no more connections allowed", "server login", "query_wait_timeout", "connect failed", "server conn crashed",
)  # fmt: skip
AWAY: Final = (
    "connection to server", "resolve host", "timeout expired",
    # and where it is cut while the tables are looked at
    "closed the connection", "connection has been closed", "connection is lost", "consuming input failed",
    "receive data from server", "send data to server",
)  # fmt: skip


def explains_itself(why: str) -> bool:
    """It is of who we say we are, or of the database: waiting mends neither."""
    theirs = "database" in why and "does not exist" in why
    return theirs or "password" in why or "authentication" in why or "pg_hba.conf" in why or "role" in why


def explain_error(error: DBAPIError) -> tuple[str, str]:
    """Why a database could not be opened, and what to do."""
    why = describe_reason(error)
    if "password" in why or "authentication" in why or "pg_hba.conf" in why or "role" in why:
        return f"does not let us in ({why})", "check user and password (~/.pgpass or PGPASSWORD), and pg_hba.conf"
    if "database" in why and "does not exist" in why:
        return f"is not there ({why})", "make it with createdb, or give another"
    if code_of(error) in ("42501", "25006"):
        mend = (
            "let its user CREATE in the database for the first start, or open it once as its owner and GRANT the rest"
        )
        return f"does not allow what is needed ({why})", mend
    if SAID in why:
        return f"lets nobody in ({why})", "mend that at the server, or at the pooler before it"
    if not code_of(error) or error.connection_invalidated:
        return f"cannot be reached ({why})", "start PostgreSQL, or check host and port"
    return f"cannot be used ({why})", "give a database that gapless may have for itself"

"""Database: opening a file that is ours, transactions, the store's own time, and one worker thread.

Lock holder: which process has a SQLite database locked for writing, as Linux tells it.

The table of locks is read, never the files: to close one of them would give up every lock that this process has on it.

QuickWork: short pieces of work on a SQLite file that are done in the loop's own thread, while its worker is idle.

To hand a piece to the worker and back takes longer than a short transaction.  Nothing is waited for here: where another
process has the file locked, the piece goes to the worker.  So do checkpoints, which wait for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from statemachines.drivers.clock import Clock
from statemachines.drivers.sql.durability import Durability
from statemachines.drivers.sql.failure import BUSY_S, StoreDamaged, StoreUnavailable
from statemachines.drivers.sql.shown_url import without_secrets
from statemachines.drivers.sql.store_version import NO_UPGRADES, StoreVersion, Upgrades, say_users
from statemachines.kernel import ConfigurationError, GaplessError, LocalProtocolError
from statemachines.plain_text import plain_line

LOCKS: Final = Path("/proc/locks")
WRITE_LOCK: Final = 120
"""The byte of the shared-memory file that whoever writes in write-ahead mode has locked."""
COMMAND_MAX: Final = 100
"""Characters of a command line that are told."""


def lock_holder(path: Path) -> str:
    """`process 4711 (python -m app), which is stopped`, or "" where nobody has it, or the system does not say."""
    try:
        file = os.stat(f"{path}-shm")
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return ""
    wanted = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    for line in lines:
        # 2: POSIX  ADVISORY  WRITE 4711 fe:00:2149059 120 120
        words = line.split()
        if words[1:2] == ["POSIX"] and words[5:8] == [wanted, *[str(WRITE_LOCK)] * 2]:
            return _describe_process(words[4])
    return ""


def _describe_process(number: str) -> str:
    """A process by its number and what it was started as, but for passwords."""
    try:
        command = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        command = ""
    shown = f" ({plain_line(without_secrets(command)[:COMMAND_MAX])})" if command else ""
    return f"process {number}{shown}{', which is stopped' if _is_stopped(number) else ''}"


def _is_stopped(number: str) -> bool:
    """Whether it stands still by a signal: it gives up no lock then."""
    try:
        status = Path(f"/proc/{number}/stat").read_text(errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] == ["T"]


T = TypeVar("T")

IN_A_ROW: Final = 64
"""So many pieces one behind the other; the next is the worker's, with a checkpoint where one is due."""


class QuickWork:
    """`connection`, which the worker has too, and how long that waits for locks."""

    def __init__(self, connection: sqlite3.Connection, busy_s: float) -> None:
        self._connection = connection
        self._usual = (
            f"PRAGMA busy_timeout = {round(busy_s * 1000)}",
            f"PRAGMA wal_autocheckpoint = {connection.execute('PRAGMA wal_autocheckpoint').fetchone()[0]}",
        )
        self._is_set = False
        """The connection waits for nothing."""
        self._given = 0
        self._ended = 0
        self._in_a_row = 0

    def note(self, work: Callable[[], T]) -> Callable[[], T]:
        """What the worker is given."""
        self._given += 1
        self._in_a_row = 0

        def noted() -> T:
            try:
                if self._is_set:
                    self._is_set = False
                    self._set(*self._usual)
                return work()
            finally:
                self._ended += 1

        return noted

    def can_run(self) -> bool:
        """Whether the worker is idle, and has had its turn."""
        return self._given == self._ended and self._in_a_row < IN_A_ROW

    def run(self, work: Callable[[], T]) -> T:
        """`work()`; raises `sqlite3.OperationalError` at once where the file is locked."""
        self._in_a_row += 1
        if not self._is_set:
            self._is_set = True
            self._set("PRAGMA busy_timeout = 0", "PRAGMA wal_autocheckpoint = 0")
        return work()

    def _set(self, *pragmas: Any) -> None:
        for pragma in pragmas:
            self._connection.execute(pragma).close()


OURS: Final = 0x67
"""The first byte of the application_id of every database of this package."""

HALF: Final = 16
"""SQLite keeps one number for the version of a file (`user_version`): the oldest reader stands so many bits higher."""

OPEN_S: Final = 10.0
"""How long opening waits at least: several processes may make the file at once, and one of them is first."""

logger = logging.getLogger("gapless")


class SqliteLayout(NamedTuple):
    """What a file holds: `title`, in words; `application`, SQLite's application_id of such files, whose first byte is
    `OURS`; `version` of the tables; `statements` that make them; `upgrades` to this version; `users`: a query of
    the names of nodes that may run, by a clock; `fence`: what ends one that stood still meanwhile.  One of the tables
    is `store`, of one row, whose column `time_ns` is the time of the last commit."""

    title: str
    application: int
    version: int
    statements: tuple[str, ...]
    upgrades: Upgrades = NO_UPGRADES
    users: str = ""
    fence: str = ""
    prefix: str = ""
    """How the names of its tables begin, where a statement says `@`."""
    has_prefixes: bool = False
    """Whether statements say `@` at all."""
    is_guest: bool = False
    """Its tables are in a file that another layout has made, whose `application` and `version` these are."""


@cache
def name_tables(statement: str, prefix: str) -> str:
    """The statement with the names of tables: `prefix` where it says `@`."""
    return statement.replace("@", prefix)


class PrefixedConnection(sqlite3.Connection):
    """A connection whose statements say `@table`."""

    prefix = ""

    def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
        """As of every connection."""
        return super().execute(name_tables(statement, self.prefix), values)

    def executemany(self, statement: str, rows: Any, /) -> sqlite3.Cursor:
        """As of every connection."""
        return super().executemany(name_tables(statement, self.prefix), rows)


FILE_ENDS: Final = ("", "-wal", "-shm")
"""How the names of the files end that SQLite has open: the database, its write-ahead log, and the index of that."""

CHECKPOINT_PAGES: Final = 4_000
"""So many pages of the log make a commit write them to the file, which flushes both: 16 MB, and one hash table of
SQLite's index of the log."""


class SqliteDatabase:
    """One connection to the file at `path`, used by one worker thread.

    `layout`: what it holds; `clock`: nanoseconds since the epoch; `agree(connection)`: in the transaction that opens
    the file, what else it must hold or be refused for; `durability`: what a commit survives.

    Raises `ConfigurationError` where the file cannot be opened, is not ours, or is of another version,
    `StoreUnavailable` where another process keeps it locked or its disk is full, `StoreDamaged` where its content is
    broken.
    """

    def __init__(
        self,
        path: Path,
        layout: SqliteLayout,
        busy_s: float = BUSY_S,
        clock: Clock = time.time_ns,
        agree: Callable[[sqlite3.Connection], None] = lambda connection: None,
        durability: Durability = Durability.PROCESS,
    ) -> None:
        self.path = path
        self._place = path.absolute()  # wherever the process goes
        log = os.path.realpath(self._place)  # SQLite keeps it beside the file that a link leads to
        self._files = [str(self._place), *(f"{log}{end}" for end in FILE_ENDS[1:])]
        self._layout = layout
        self._stamp = f"UPDATE {layout.prefix}store SET time_ns = ?"
        self._last = f"SELECT time_ns FROM {layout.prefix}store"
        self._busy_s = busy_s
        self._clock = clock
        self._agree = agree
        self._is_power = durability is Durability.POWER
        self._is_flushed = False
        self._closed = False
        self._locked_since = time.monotonic()
        """When the first of the calls began that found it locked, one after the other."""
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        try:
            self.connection = self._worker.submit(self._open).result()
        except BaseException:
            self._worker.shutdown()
            raise
        self._quick = QuickWork(self.connection, busy_s)

    async def run(self, work: Callable[[], T], *, is_short: bool = False, is_read: bool = False) -> T:
        """`work()` in the worker thread, or at once if it `is_short`, and flushes nothing; raises `StoreUnavailable` or
        `StoreDamaged`."""
        if self._closed:
            raise LocalProtocolError("store", "closed", "request", "", f"{self.path} was closed; open another store")
        began = time.monotonic()
        try:
            if is_short and (is_read or not self._is_power) and self._quick.can_run():
                try:
                    return self._quick.run(partial(self._in_place, work))
                except sqlite3.OperationalError:
                    pass  # the worker meets it again, and waits
            given = self._quick.note(partial(self._in_place, work))
            return await asyncio.get_running_loop().run_in_executor(self._worker, given)
        except sqlite3.OperationalError as error:
            if _is_cut_short(error):
                raise self._truncated("-wal") from error
            holder = ""
            if _is_busy(error):
                self._locked_since = min(self._locked_since, began)
                holder = self._holder()
            raise StoreUnavailable(f"{self.path}: {error}{holder}; nothing was written, try again") from error
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:
                raise  # a wrong statement: ours to mend
            raise self._damaged(error) from error

    async def close(self) -> None:
        """Close the connection and end the thread; a second time does nothing."""
        if not self._closed:
            self._closed = True
            closing = asyncio.get_running_loop().run_in_executor(self._worker, self.connection.close)
            self._worker.shutdown(wait=False)  # whether or not somebody waits for it to be done
            await closing
            self._worker.shutdown()  # nothing is left to do: at most the thread's last instructions are waited for

    def _in_place(self, work: Callable[[], T]) -> T:
        """`work()`, if the files are still those that were opened: what is written to one that was removed is lost with
        the last process that has it open, while others begin a new one."""
        for place, end in enumerate(FILE_ENDS):
            found, known = find_file(self._files[place]), self._opened[place]
            if found is None or known is None or found[:2] != known[:2]:
                mend = "and start them again" if end else "and put the file back"
                what = "was removed, or another file was put in its place, while it was open"
                raise StoreDamaged(f"{self.path}{end}: {what}; stop every node that has it open, {mend}")
            if found != known:
                if found[2] < known[2]:
                    self._check_shorter(end)
                self._opened[place] = found
        return work()

    def _check_shorter(self, end: str) -> None:
        """A file is shorter than it was.  A connection that has read nothing yet tells what SQLite has made shorter
        from what it misses: each commit has written the row of `store`."""
        try:
            with contextlib.closing(self._connect()) as fresh:
                fresh.execute(self._last).fetchone()
        except sqlite3.DatabaseError as error:
            if _is_busy(error):
                raise
            raise self._truncated(end) from error

    def _truncated(self, end: str) -> StoreDamaged:
        what = f"{self.path}{end}: is shorter than what was committed: it was removed or truncated while it was open"
        return StoreDamaged(f"{what}; stop every node that has it open, and start them again, or restore a copy")

    # -- transactions, in the worker ----------------------------------------------------------------------------

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """All or nothing, and no other process's transaction in between."""
        return Transaction(self.connection, "BEGIN IMMEDIATE", self._note_unlocked)

    def _note_unlocked(self) -> None:
        self._locked_since = math.inf

    def set_flush(self, is_flushed: bool) -> None:
        """Between transactions: the next ones wait for fsync at their end, if commits are to survive a power failure;
        with them all that was committed before is flushed."""
        is_flushed = is_flushed and self._is_power
        if is_flushed is not self._is_flushed:
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if is_flushed else 'NORMAL'}")
            self._is_flushed = is_flushed

    def snapshot(self) -> AbstractContextManager[sqlite3.Connection]:
        """Several reads of one state."""
        return Transaction(self.connection, "BEGIN")  # reads wait for nobody

    def clock_ns(self) -> int:
        """What the clock shows."""
        return self._clock()

    def now_ns(self) -> int:
        """The store's time, for a read: never before the last commit."""
        return max(self._clock(), self._last_ns())

    def stamp(self) -> int:
        """The store's time, for what this transaction commits: after every other commit, whatever the clock does."""
        now_ns = max(self._clock(), self._last_ns() + 1)
        self.connection.execute(self._stamp, (now_ns,))
        return now_ns

    def _last_ns(self) -> int:
        (last,) = self.connection.execute(self._last).fetchone()
        return int(last)

    # -- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if "\0" in str(self.path):
            raise self._refuse("has a null character in its name; give another path")
        if self.path.is_dir():
            raise self._refuse("is a directory; give the path of a file in it, which is made if it is not there")
        if not self.path.parent.is_dir():
            raise self._refuse(f"there is no directory {str(self.path.parent)!r}; make it, or give another path")
        self._make_private()
        try:
            # Absolute: SQLite has other meanings for ":memory:" and the like.
            connection = self._connect()
        except sqlite3.Error as error:
            raise self._explain(error) from error
        try:
            self._make_ours(connection)
        except sqlite3.Error as error:
            connection.close()
            raise self._explain(error) from error
        except BaseException:
            connection.close()
            raise
        self._opened = [find_file(file) for file in self._files]
        return connection

    def _connect(self) -> sqlite3.Connection:
        if not self._layout.has_prefixes:
            return sqlite3.connect(self._place, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
        connection = sqlite3.connect(
            self._place,
            timeout=self._busy_s,
            isolation_level=None,
            factory=PrefixedConnection,
            check_same_thread=False,
        )
        connection.prefix = self._layout.prefix
        return connection

    def _make_private(self) -> None:
        """A file that we make is its owner's alone, and so are those that SQLite makes beside it."""
        with contextlib.suppress(OSError):  # it is there, or SQLite says why it cannot be
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def _make_ours(self, connection: sqlite3.Connection) -> None:
        """Check whose it is; one that is empty becomes ours, whoever comes first."""
        deadline = time.monotonic() + max(self._busy_s, OPEN_S)
        while True:
            try:
                with Transaction(connection, "BEGIN"):
                    self._check(connection)  # before anything is done to a file that may not be ours
                self._prepare(connection)
                return
            except sqlite3.OperationalError as error:
                # SQLite does not wait for others when it enters write-ahead mode, so we do.
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise self._refuse(f"has no write-ahead log there ({mode}); give a path on a local disk")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        # To write also where nothing is to be made: it fails where we may not.
        with Transaction(connection, "BEGIN IMMEDIATE"):
            found = self._check(connection)
            if found is None or (self._layout.is_guest and not has_table(connection, f"{self._layout.prefix}store")):
                for statement in self._layout.statements:
                    connection.execute(statement)
            if not self._layout.is_guest:
                connection.execute(f"PRAGMA application_id = {self._layout.application}")
                version = self._upgrade(connection, found) if found else StoreVersion(self._layout.version, 1)
                connection.execute(f"PRAGMA user_version = {version.oldest_reader << HALF | version.version}")
            self._agree(connection)

    def _upgrade(self, connection: sqlite3.Connection, found: StoreVersion) -> StoreVersion:
        """Step by step to our version, within the transaction that opens the file."""
        layout = self._layout
        if found.needs_stop(layout.version, layout.upgrades) and layout.users:
            users = [bytes(name).decode() for (name,) in connection.execute(layout.users, (self._clock(),))]
            if users:
                raise self._refuse(say_users(users, found, layout.version))
            connection.execute(layout.fence)
        for version in found.list_steps(layout.version):
            for statement in layout.upgrades[version].statements:
                connection.execute(statement)
        return found.upgrade(layout.version, layout.upgrades)

    def _check(self, connection: sqlite3.Connection) -> StoreVersion | None:
        """The version of the file; None: it is empty."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0) and not self._layout.is_guest:
            return None
        if application >> 24 == OURS and application != self._layout.application:
            what = "is a store of another protocol"
            raise self._refuse(f"{what}, and this needs one of {self._layout.title}; give it a database of its own")
        if application != self._layout.application:
            raise self._refuse("is a database of another program; give a path of its own, which is made anew")
        found = StoreVersion(version & (1 << HALF) - 1, version >> HALF)
        fault = "" if self._layout.is_guest else found.find_fault(self._layout.version, self._layout.upgrades)
        if fault:
            raise self._refuse(fault)
        return found

    def _holder(self) -> str:
        """Who has it locked, and since when we have found it so; "" where that cannot be told."""
        holder = lock_holder(self._place)
        return f" by {holder}, for {time.monotonic() - self._locked_since:.1f} s or more" if holder else ""

    def _refuse(self, rule: str) -> ConfigurationError:
        return ConfigurationError("store", str(self.path), rule)

    def _damaged(self, error: sqlite3.Error) -> StoreDamaged:
        return StoreDamaged(f"{self.path}: {error}; restore the file from a copy, or begin with a new one")

    def _explain(self, error: sqlite3.Error) -> GaplessError:
        """Why it could not be opened."""
        if _is_busy(error):
            holder = self._holder() or ": another process holds it"
            return StoreUnavailable(f"{self.path}: {error}{holder}; try again when it is done")
        if _is_cut_short(error):
            return self._truncated("-wal")
        if _primary(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return StoreUnavailable(f"{self.path}: {error}; make room on its disk, and see that it can be read")
        if _primary(error) == sqlite3.SQLITE_NOTADB:
            return self._refuse("is not a database; give a path where there is none yet, or one that gapless made")
        if _primary(error) == sqlite3.SQLITE_CORRUPT:
            return self._damaged(error)
        rule = f"cannot be opened for writing ({error}); the file, if it is there, and its directory must be writable"
        return self._refuse(rule)


def has_table(connection: sqlite3.Connection, table: str) -> bool:
    """Whether the file has it."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
    return found.fetchone() is not None


class Transaction:
    """A transaction on a connection, from `begin` to its commit, or its end by an error; `begun` hears that it has
    begun."""

    __slots__ = ("_begin", "_begun", "_connection")

    def __init__(self, connection: sqlite3.Connection, begin: str, begun: Callable[[], None] | None = None) -> None:
        self._connection = connection
        self._begin = begin
        self._begun = begun

    def __enter__(self) -> sqlite3.Connection:
        self._connection.execute(self._begin)
        if self._begun is not None:
            self._begun()
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:  # a full disk has rolled it back already
                self._connection.execute("ROLLBACK")


def find_file(path: str) -> tuple[int, int, int] | None:
    """Which file a path names, and its size; None: none.  Raises `StoreUnavailable` where nobody can say."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}; nothing was written, try again") from error
    return found.st_dev, found.st_ino, found.st_size


def _primary(error: sqlite3.Error) -> int:
    """SQLite's result code without its details; -1: it is not from SQLite."""
    return int(getattr(error, "sqlite_errorcode", -1)) & 0xFF


def _is_busy(error: sqlite3.Error) -> bool:
    return _primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _is_cut_short(error: sqlite3.Error) -> bool:
    """The log ends before what its index says: for a database that ends too early SQLite has no error of its own."""
    return getattr(error, "sqlite_errorcode", -1) == sqlite3.SQLITE_IOERR_SHORT_READ

"""Checkpointer: copies the write-ahead log of a SQLite file into the file, beside the connection that commits.

A checkpoint waits for the disk.  A commit that makes one keeps its caller waiting for as long, so this has a thread and
a connection of its own.  It keeps no commit waiting, and so it may never reach the end of a log that grows meanwhile.
A log of `LOG_BYTES_MAX` is emptied between two transactions, which wait for it; while somebody reads an older state it
grows on.

SQLite before 3.51.3 may damage a file where a checkpoint begins that has nothing to copy, and at the same moment a
commit begins the log anew (sqlite.org, "The WAL-Reset Bug").  So a checkpoint beside the commits begins only where
something was committed since the end of the one before it: a log that is not wholly copied is not begun anew.
"""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

ROWS: Final = 500
"""Rows that are changed between two checkpoints."""

LOG_BYTES_MAX: Final = 32 * 2**20
"""Of the log, from which on it is emptied between transactions."""


class Checkpointer:
    """`writing`: the connection that commits to the file at `path`; `own`: another one to it."""

    def __init__(self, path: Path, writing: sqlite3.Connection, own: sqlite3.Connection) -> None:
        self.is_log_full = False
        self._log = f"{path}-wal"
        self._writing = writing
        self._own = own
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._running: Future[None] | None = None
        self._noted = 0
        own.execute("SELECT count(*) FROM sqlite_master").fetchall()  # opens the log, whatever the path names later
        own.execute("PRAGMA busy_timeout = 0")
        writing.execute("PRAGMA wal_autocheckpoint = 0")
        self.forget_changes()

    def forget_changes(self) -> None:
        """Count changes from now on: those of before are copied, or were undone."""
        self._noted = self._writing.total_changes

    def note_changes(self) -> None:
        """Between transactions: begin a checkpoint if enough rows were changed since the end of the one before it."""
        with suppress(FileNotFoundError):
            self.is_log_full = os.stat(self._log).st_size >= LOG_BYTES_MAX
        if self._running is not None and self._running.done():
            self._end_checkpoint()
        elif self._running is None and not self.is_log_full and self._writing.total_changes - self._noted >= ROWS:
            self._running = self._thread.submit(self._copy_log, "PASSIVE")

    def empty_log(self) -> None:
        """Between transactions: copy all of a log that is full.  While somebody reads an older state it stays full."""
        if self._running is not None:
            self._running.result()
            self._end_checkpoint()
        elif self._writing.total_changes > self._noted:
            self._copy_log("TRUNCATE")
            self.forget_changes()

    def _end_checkpoint(self) -> None:
        self._running = None
        self.forget_changes()

    def _copy_log(self, how: str) -> None:
        with suppress(sqlite3.Error):  # of a full disk, say: a commit meets it, too
            self._own.execute(f"PRAGMA wal_checkpoint({how})").fetchall()

    def close(self) -> None:
        """Wait for the checkpoint that is under way."""
        self._thread.shutdown()
        self._own.close()

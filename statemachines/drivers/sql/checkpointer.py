"""Checkpointer: copies the write-ahead log of a SQLite file into the file, beside the connection that commits.

A checkpoint waits for the disk.  A commit that makes one keeps its caller waiting for as long, so this has a thread and
a connection of its own.  It keeps no commit waiting, and so it may never reach the end of a log that grows meanwhile.
From `LOG_PAGES_MAX` pages on a commit makes a checkpoint itself: little is left to copy then, and the next commit
begins the log anew, unless somebody reads an older state.
"""

from __future__ import annotations

import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

ROWS: Final = 500
"""Rows that are changed between two checkpoints."""

LOG_PAGES_MAX: Final = 8_000
"""Pages of the log from which on a commit makes a checkpoint."""


class Checkpointer:
    """`writing`: the connection that commits; `own`: another one to the same file."""

    def __init__(self, writing: sqlite3.Connection, own: sqlite3.Connection) -> None:
        self._writing = writing
        self._own = own
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._noted = writing.total_changes
        self._running: Future[None] | None = None
        own.execute("SELECT count(*) FROM sqlite_master").fetchall()  # opens the log, whatever the path names later
        writing.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES_MAX}")

    def note_changes(self) -> None:
        """Between transactions: begin a checkpoint if enough rows were changed, and none is under way."""
        changes = self._writing.total_changes
        if changes - self._noted >= ROWS and (self._running is None or self._running.done()):
            self._noted = changes
            self._running = self._thread.submit(self._copy_log)

    def _copy_log(self) -> None:
        with suppress(sqlite3.Error):  # of a full disk, say: a commit meets it, too
            self._own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Wait for the checkpoint that is under way."""
        self._thread.shutdown()
        self._own.close()

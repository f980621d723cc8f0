"""QuickWork: short pieces of work on a SQLite file that are done in the loop's own thread, while its worker is idle.

To hand a piece to the worker and back takes longer than a short transaction.  Nothing is waited for here: where another
process has the file locked, the piece goes to the worker.  So do checkpoints, which wait for the disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeVar

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

"""Writing: a party that writes for a session: what it is about to store, and what waits behind it."""

from __future__ import annotations

from collections import deque
from typing import Final

from statemachines_reports.persistent_sessions.session import Session
from statemachines_reports.persistent_sessions.written_rows import Position, Put, Written

RESUMING: Final = "resumes"
CALM: Final = "calm"


class Writing:
    """`known`: the highest epoch that anybody knew of when it asked for its own; `put`: the row under way (None: none);
    `before`: what it has stored last; `handed`: the rows in which messages were handed to it that are not stored yet,
    and what its session did then."""

    def __init__(self, session: Session, written: Written) -> None:
        self.session = session
        self.written = written
        self.known = written.epoch
        self.put: Put | None = None
        self.before: Position = (0, 0)
        self.handed: deque[tuple[int, str]] = deque()

    def hand(self, row: int) -> None:
        """A message is handed over."""
        self.handed.append((row, RESUMING if self.session.resuming else CALM))

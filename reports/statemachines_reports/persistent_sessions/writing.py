"""Writing: a party that writes for a session: what it is about to store, and what waits behind it."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from statemachines_reports.persistent_sessions.session import SessionHistory
from statemachines_reports.persistent_sessions.written_rows import Position, PutRequest, WrittenRows

RESUMING: Final = "resumes"
CALM: Final = "calm"


class HandedMessage(NamedTuple):
    """A message that a writer is handed, in this row; its publisher is at this node since `since_ns`; it comes in
    so many `copies`."""

    row: int
    message: str
    qos: int
    until_ns: int
    since_ns: int = 0
    copies: int = 1


class HandedRow(NamedTuple):
    """The same, and what the session did then."""

    of: HandedMessage
    cause: str


class WriterHistory:
    """`known`: the highest epoch that anybody knew of when it asked for its own; `puts`: the range of rows under way;
    `before`: what it has stored last; `handed`: messages that are not stored yet."""

    def __init__(self, session: SessionHistory, written: WrittenRows) -> None:
        self.session = session
        self.written = written
        self.known = written.epoch
        self.puts: tuple[PutRequest, ...] = ()
        self.before: Position = (0, 0)
        self.handed: deque[HandedRow] = deque()

    def hand(self, message: HandedMessage) -> None:
        """A message is handed over."""
        self.handed.append(HandedRow(message, RESUMING if self.session.resuming else CALM))

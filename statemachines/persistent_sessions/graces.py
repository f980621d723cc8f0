"""Graces: how long the collector leaves alone what nobody seems to need (page: "Garbage collection")."""

from __future__ import annotations

from typing import Final

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.times import Times

KEYS = ("marker_ms", "message_ms", "abandon_ms", "retention_ms", "dead_ms", "round_ms", "page")


NEVER_MS: Final = 2**40 - 1
"""A retention that no message reaches: nothing is deleted while a session that lives wants it, unless that has too much
of it."""


class Graces(msgspec.Struct, frozen=True):
    """Milliseconds since the commit of a row, by the clock of the database.  `marker_ms`: of a marker; `message_ms`:
    of a message to which nothing refers, and of a lone mark; `abandon_ms`: of what says that a session is abandoned:
    a writer stores nothing for it later than that; `retention_ms`: of any message.  `dead_ms`: an owner that has not
    said for so long that its session lives is none any more (as in `LifeTimes`).  `round_ms` from the end of a round to
    the next; `page`: so many clients, rows or messages are read at once.  `times`: those of the owners.

    `ConfigurationError` names the value that cannot be.
    """

    marker_ms: int = 60_000
    message_ms: int = 60_000
    abandon_ms: int = 300_000
    retention_ms: int = NEVER_MS
    dead_ms: int = 5_000
    round_ms: int = 10_000
    page: int = 100
    times: Times = Times()

    def __post_init__(self) -> None:
        for key in KEYS:
            if getattr(self, key) < 1:
                raise ConfigurationError(key, getattr(self, key), "at least 1")
        if self.marker_ms <= self.times.resume_ms:
            rule = f"more than resume_ms, which is {self.times.resume_ms}: a resume may wait for the marker so long"
            raise ConfigurationError("marker_ms", self.marker_ms, rule)
        if self.message_ms >= self.retention_ms:
            rule = f"less than retention_ms, which is {self.retention_ms}"
            raise ConfigurationError("message_ms", self.message_ms, rule)


GRACES: Final = Graces()
"""Those of a node that is told nothing else."""

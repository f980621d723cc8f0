"""Owed: what a client must be advised of: since when, how much, of which subjects; its machine is not looked at."""

from __future__ import annotations

SECOND_NS = 1_000_000_000
LISTED = 9


class Owed:
    """One client.  `since`: when the first loss came that it was not advised of, in true time (-1: none waits);
    `advised_ns`: the last advisory by its own clock (-1: none)."""

    def __init__(self) -> None:
        self.since = -1
        self.advised_ns = -1
        self.losses: dict[str, int] = {}

    def lose(self, subject: str, count: int, now_ns: int) -> None:
        """So many of a subject are missing."""
        if self.since < 0:
            self.since = now_ns
        self.losses[subject] = self.losses.get(subject, 0) + count

    def settle(self, local_ns: int) -> None:
        """It was advised of all that."""
        self.since = -1
        self.advised_ns = local_ns
        self.losses = {}

    @property
    def lost(self) -> int:
        """In all."""
        return sum(self.losses.values())

    @property
    def listed(self) -> tuple[tuple[str, int], ...]:
        """The subjects that lost first."""
        return tuple(self.losses.items())[:LISTED]

"""Owed advisories: what a client must be advised of: since when, how much, of which subjects; its machine is not
looked at."""

from __future__ import annotations

SECOND_NS = 1_000_000_000
LISTED = 9


class Owed:
    """One client.  `since`: when the first loss came that it was not advised of, in true time (-1: none waits);
    `advised_ns`: the last advisory by its own clock (-1: none); `newest`: the loss of the message that is being
    handled, of which a client hears when its due timer has fired (None: none is)."""

    def __init__(self) -> None:
        self.since = -1
        self.advised_ns = -1
        self.losses: dict[str, int] = {}
        self.newest: tuple[str, int] | None = None

    def lose(self, subject: str, count: int, now_ns: int) -> None:
        """So many of a subject are missing, as the message says that is being handled."""
        self.newest = (subject, count)
        if self.since < 0:
            self.since = now_ns
        self.losses[subject] = self.losses.get(subject, 0) + count

    def without_newest(self) -> dict[str, int]:
        """What was owed before that message."""
        if self.newest is None:
            return self.losses
        subject, count = self.newest
        before = self.losses | {subject: self.losses[subject] - count}
        return {name: left for name, left in before.items() if left}

    def settle(self, local_ns: int, now_ns: int, newest_too: bool) -> None:
        """It was advised of all that, or of all but the newest."""
        left = None if newest_too else self.newest
        self.since, self.losses, self.newest = -1, {}, None
        self.advised_ns = local_ns
        if left is not None:
            self.lose(*left, now_ns)


def as_advised(losses: dict[str, int]) -> tuple[int, int, tuple[tuple[str, int], ...]]:
    """How an advisory says it: how many in all, of how many subjects, and those that lost first."""
    return sum(losses.values()), len(losses), tuple(losses.items())[:LISTED]

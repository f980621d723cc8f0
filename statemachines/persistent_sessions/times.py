"""Times: how long a session's parties wait, and what may pile up (source: none; page: "Garbage collection",
defaults)."""

from __future__ import annotations

import msgspec

from statemachines.kernel import ConfigurationError

MS = 1_000_000


class Times(msgspec.Struct, frozen=True):
    """Milliseconds.  `marker_ms`: a writer shows its marker on both paths within it, or is fenced; `repeat_ms`: how
    often a marker, and an owner of before, is asked; `poll_ms`: how often the database is; `resume_ms`: a resume ends
    within it; `lock_ms`: the lease of a client id; `begin_ms`, `end_ms`: an owner that is taken over answers within
    them, or is given up; `orphan_ms`: an owner that has yielded ends by itself.  `resume_buffer`: so many live messages
    of one writer are kept while the database is read; `handover`: so many rows an owner that yields keeps, and hands
    over; `queue`: so many messages wait for the client beside those in flight, and others in the database;
    `receive_maximum`: so many messages are in flight to the client, and `page`: half of them, so many rows of a
    writer are read at once.

    `ConfigurationError` names the value that cannot be.
    """

    lock_ms: int = 15_000
    resume_ms: int = 10_000
    marker_ms: int = 3_000
    repeat_ms: int = 500
    poll_ms: int = 10
    begin_ms: int = 4_000
    end_ms: int = 4_000
    orphan_ms: int = 15_000
    handover: int = 1_000
    resume_buffer: int = 10_000
    queue: int = 1_000
    receive_maximum: int = 65_535

    def __post_init__(self) -> None:
        for key in self.__struct_fields__:
            if getattr(self, key) < 1:
                raise ConfigurationError(key, getattr(self, key), "at least 1")
        if self.receive_maximum > 65_535:
            raise ConfigurationError("receive_maximum", self.receive_maximum, "at most 65535: packet ids have 16 bits")
        for shorter, longer in (("poll_ms", "marker_ms"), ("repeat_ms", "marker_ms"), ("marker_ms", "resume_ms"),
                                ("resume_ms", "lock_ms"), ("repeat_ms", "begin_ms"), ("repeat_ms", "end_ms"),
                                ("begin_ms", "resume_ms")):  # fmt: skip
            if getattr(self, shorter) >= getattr(self, longer):
                rule = f"less than {longer}, which is {getattr(self, longer)}"
                raise ConfigurationError(shorter, getattr(self, shorter), rule)
        self._check_takeover()

    @property
    def page(self) -> int:
        """Rows of a writer that are read at once: while the client has half of what it receives, the next is read."""
        return max(1, self.receive_maximum // 2)

    @property
    def lull_ms(self) -> int:
        """So long there may be room for less than a page before that is read, too."""
        return self.repeat_ms

    def _check_takeover(self) -> None:
        """A takeover is over while the lock lasts, and whoever has yielded stays as long."""
        if self.begin_ms + self.end_ms >= self.lock_ms:
            rule = f"together less than lock_ms, which is {self.lock_ms}"
            raise ConfigurationError("begin_ms + end_ms", self.begin_ms + self.end_ms, rule)
        if self.orphan_ms < self.lock_ms:
            raise ConfigurationError("orphan_ms", self.orphan_ms, f"at least lock_ms, which is {self.lock_ms}")

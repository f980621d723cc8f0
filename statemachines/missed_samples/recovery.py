"""Recovery: how a Subscriber recovers what it has missed (source: "The `ReliableSubscriber`" to "Historical data")."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from statemachines.kernel import ConfigurationError

MS = 1_000_000

SENT_MAX: Final = 8
"""Of the queries for a window so many, the newest, may still answer it."""


class Pacing(msgspec.Struct, frozen=True):
    """How fast to ask; times in milliseconds.  A query asks for `window` numbers, `windows` of them are open at a time
    of one source, for four windows' numbers at most, and the last of them asks for `ahead` numbers more, which may be
    on their way.  An answer is waited for `timeout_ms` before any has come, then as long as answers take, from
    `timeout_min_ms` to `timeout_max_ms`.  After a query that nobody could answer there is a pause of `backoff_ms`,
    which doubles up to `backoff_max_ms`.  Each word of the
    first query is waited for `history_ms`.  `ConfigurationError` names the value that cannot be."""

    window: int = 64
    windows: int = 16
    ahead: int = 32
    timeout_ms: int = 300
    timeout_min_ms: int = 50
    timeout_max_ms: int = 10_000
    backoff_ms: int = 100
    backoff_max_ms: int = 1_000
    history_ms: int = 2_000

    def __post_init__(self) -> None:
        least = {
            "window": 1,
            "windows": 1,
            "ahead": 0,
            "timeout_ms": 1,
            "timeout_min_ms": 1,
            "timeout_max_ms": self.timeout_min_ms,
            "backoff_ms": 1,
            "backoff_max_ms": self.backoff_ms,
            "history_ms": 1,
        }
        for key, value in least.items():
            if getattr(self, key) < value:
                raise ConfigurationError(key, getattr(self, key), f"at least {value}")


class Recovery(msgspec.Struct, frozen=True):
    """How to recover; times in milliseconds.  A number is reported as missed when 1 + `retries` queries for it have
    ended in vain, or when nothing that was missing has come for `deadline_ms`.  `past`: what was sent before the first
    contact counts as missing; `reliable`: a query that ended well brought everything there was; `period_ms`: how often
    to ask unprompted (0: never).

    Bounds of memory: at most `pending` samples are held, and `history_limit` while the first query is open; so many
    `sources` are kept, and one that is silent for `retention_ms`.  A number more than `jump` ahead is believed when a
    second one follows it.  `pacing` is for models and tests.  `ConfigurationError` names the value that cannot be."""

    past: bool = False
    reliable: bool = True
    retries: int = 5
    deadline_ms: int = 30_000
    pending: int = 10_000
    history_limit: int = 10_000
    sources: int = 10_000
    jump: int = 1_000
    period_ms: int = 0
    retention_ms: int = 3_600_000
    pacing: Pacing = Pacing()

    def __post_init__(self) -> None:
        least = {
            "retries": 0,
            "deadline_ms": 1,
            "pending": 0,
            "history_limit": 0,
            "sources": 1,
            "jump": 1,
            "period_ms": 0,
            "retention_ms": 1,
        }
        for key, value in least.items():
            if getattr(self, key) < value:
                raise ConfigurationError(key, getattr(self, key), f"at least {value}")


def make_recovery(**given: Any) -> Recovery:
    """A `Recovery` with the values of its `Pacing` among its own."""
    pacing = {key: given.pop(key) for key in Pacing.__struct_fields__ if key in given}
    return Recovery(**given, pacing=Pacing(**pacing))


def backoff_ms(pacing: Pacing, attempts: int) -> int:
    """The pause after so many attempts in milliseconds: it doubles, up to the greatest."""
    return min(pacing.backoff_ms << min(max(attempts - 1, 0), 20), pacing.backoff_max_ms)

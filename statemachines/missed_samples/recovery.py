"""Recovery: how a Subscriber recovers what it has missed (source: "The `ReliableSubscriber`" to "Historical data")."""

from __future__ import annotations

import msgspec

from statemachines.kernel import ConfigurationError

MS = 1_000_000


class Recovery(msgspec.Struct, frozen=True):
    """How to recover; times in milliseconds.  `past`: what was sent before the first contact counts as missing;
    `reliable`: a query that ended well brought everything there was; `pending`: at most so many samples are held, and
    `history_limit` while the first query is open; at most so many `sources` are kept; `period_ms`: how often to ask
    unprompted (0: never).  A query asks for `window` numbers, and `windows` of them are open at a time of one source.
    A source is silent after `timeout_ms`, or after twice the longest silence that a reply has ended, if that is longer,
    up to `timeout_max_ms`.  A number more than `jump` ahead is believed when a second one follows it.
    `ConfigurationError` names the value that cannot be."""

    past: bool = False
    reliable: bool = True
    retries: int = 5
    window: int = 256
    windows: int = 4
    timeout_ms: int = 2_000
    timeout_max_ms: int = 10_000
    backoff_ms: int = 100
    backoff_max_ms: int = 1_000
    pending: int = 10_000
    history_limit: int = 10_000
    sources: int = 10_000
    jump: int = 10_000
    period_ms: int = 0
    retention_ms: int = 3_600_000

    def __post_init__(self) -> None:
        least = {"timeout_ms": 1, "backoff_ms": 1, "backoff_max_ms": self.backoff_ms, "retention_ms": 1,
                 "sources": 1, "window": 1, "windows": 1, "jump": 1}  # fmt: skip
        for key in ("retries", "window", "windows", "timeout_ms", "timeout_max_ms", "backoff_ms", "backoff_max_ms",
                    "pending", "history_limit", "sources", "jump", "period_ms", "retention_ms"):  # fmt: skip
            if getattr(self, key) < least.get(key, 0):
                raise ConfigurationError(key, getattr(self, key), f"at least {least.get(key, 0)}")


def backoff_ms(recovery: Recovery, attempts: int) -> int:
    """The pause after so many attempts in milliseconds: it doubles, up to the greatest."""
    return min(recovery.backoff_ms << min(max(attempts - 1, 0), 20), recovery.backoff_max_ms)

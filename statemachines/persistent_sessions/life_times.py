"""LifeTimes: how long a connecting client's parties wait (page: "Connect, clean start, expiry")."""

from __future__ import annotations

import msgspec

from statemachines.kernel import ConfigurationError

KEYS = ("lock_ms", "retry_ms", "alive_ms", "dead_ms")


class LifeTimes(msgspec.Struct, frozen=True):
    """Milliseconds.  `lock_ms`: the lease of a client id, and the time in which a connect ends; `retry_ms`: how often a
    client id is asked for that another has locked; `alive_ms`: how often an owner says that its session lives;
    `dead_ms`: a session of which nobody has said so for this long has no owner any more.

    `ConfigurationError` names the value that cannot be.
    """

    lock_ms: int = 15_000
    retry_ms: int = 100
    alive_ms: int = 1_000
    dead_ms: int = 5_000

    def __post_init__(self) -> None:
        for key in KEYS:
            if getattr(self, key) < 1:
                raise ConfigurationError(key, getattr(self, key), "at least 1")
        for shorter, longer in (("retry_ms", "lock_ms"), ("alive_ms", "dead_ms")):
            if getattr(self, shorter) >= getattr(self, longer):
                rule = f"less than {longer}, which is {getattr(self, longer)}"
                raise ConfigurationError(shorter, getattr(self, shorter), rule)

"""Times of a lock, and the relations that they must keep."""

from __future__ import annotations

import msgspec

from statemachines.kernel import ConfigurationError

MS = 1_000_000
"""Nanoseconds in a millisecond."""


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In milliseconds; `drift` bounds the rate error of a clock."""

    lease_ms: int = 2_000
    renew_ms: int = 600
    retry_ms: int = 300
    drift: float = 0.01

    @property
    def lease_ns(self) -> int:
        """How long a holder has the lock, from when it asked for it."""
        return self.lease_ms * MS

    @property
    def surely_over_ns(self) -> int:
        """When a lease has ended by any clock, from when the server answered (LK-04)."""
        return round(self.lease_ns * (1 + self.drift) / (1 - self.drift)) + 1

    def check(self) -> Times:
        """Itself; raises `ConfigurationError` where a relation is broken."""
        for name in ("lease_ms", "renew_ms", "retry_ms"):
            if not 0 < getattr(self, name) < 2**31:
                raise ConfigurationError(name, getattr(self, name), "must lie between 1 and 2^31 milliseconds")
        if not 0 <= self.drift < 0.5:
            raise ConfigurationError("drift", self.drift, "must lie in [0, 0.5)")
        if self.renew_ms * 2 > self.lease_ms:
            raise ConfigurationError("renew_ms", self.renew_ms, f"must be at most half of lease_ms ({self.lease_ms})")
        return self

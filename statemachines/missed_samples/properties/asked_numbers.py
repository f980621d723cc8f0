"""AskedNumbers and OpenQuery: a query as it is sent, and while it is waited for."""

from __future__ import annotations

import msgspec


class AskedNumbers(msgspec.Struct, frozen=True, gc=False):
    """A query `n` for `first` to `last` (`last` below `first`: it looks for the newest there is); of those it wants the
    `newest` so many (0: all).  `periodic`: the period of its source is over."""

    n: int
    first: int
    last: int
    newest: int = 0
    periodic: bool = False

    @property
    def has_end(self) -> bool:
        """Whether it asks for a range, and does not look for the newest."""
        return self.last >= self.first


class OpenQuery(msgspec.Struct, frozen=True, gc=False):
    """A query that is waited for.  `tried`: what was known to be missing when it was sent (bits from `first` on);
    `filled`: so many of those have come since."""

    n: int
    first: int
    last: int
    newest: int
    tried: int
    filled: int = 0

    @property
    def is_whole(self) -> bool:
        """All that a cache has of it fits into what it asks for."""
        return not self.newest or self.filled < self.newest - 1

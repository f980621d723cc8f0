"""TakeoverLimit: clients of one id that take each other over without end, and how long the id is refused then."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

TAKEOVERS_MAX: Final = 10
"""Connections of a client id that may be taken over within the period."""

PERIOD_NS: Final = 30_000_000_000
"""After it the count begins anew."""

CLIENTS_MAX: Final = 10_000
"""Client ids that are counted; the one that was taken over longest ago is forgotten first."""


class TakeoverCount(NamedTuple):
    """Since when takeovers are counted, and how many there were."""

    began_ns: int
    takeovers: int


class TakeoverLimit:
    """Counts takeovers of each client id."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, TakeoverCount] = OrderedDict()

    def note_takeover(self, client_id: str, now_ns: int) -> None:
        """A connection of the client id was taken over."""
        known = self._counts.pop(client_id, None)
        if known is None or now_ns - known.began_ns >= PERIOD_NS:
            known = TakeoverCount(now_ns, 0)
        self._counts[client_id] = known._replace(takeovers=known.takeovers + 1)
        if len(self._counts) > CLIENTS_MAX:
            self._counts.popitem(last=False)

    def is_reached(self, client_id: str, now_ns: int) -> bool:
        """Whether a connection of the client id is refused now."""
        known = self._counts.get(client_id)
        return known is not None and known.takeovers >= TAKEOVERS_MAX and now_ns - known.began_ns < PERIOD_NS

"""LeaderlessGroups: names in the log the subscriptions of a session that no leader host has taken for long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from statemachines.drivers.clock import Clock

logger = logging.getLogger("gapless")

AFTER_S: Final = 10.0
"""After so long a subscription is named, then after twice that time, and so on."""

LOOKS: Final = 4
"""Looks within that time."""

WAITS: Final = (
    "%s: no leader host has taken %s for %.0f s; is `gapless node leader` running, on this store and with the same "
    "times (--config)? Its log says why it does not lead a group"
)


def name_first(names: list[str]) -> str:
    """The first of them, and how many there are beside it: one line of the log is enough for a thousand."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} other subscriptions"


class LeaderlessGroups:
    """`clock`: the steady one; `list_waiting`: the subscriptions that have no leader now."""

    def __init__(self, clock: Clock, list_waiting: Callable[[], Iterable[str]]) -> None:
        self.node = ""
        self._clock = clock
        self._list_waiting = list_waiting
        self._since: dict[str, tuple[int, float]] = {}
        self._wake: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Look at the subscriptions, and plan the next look."""
        now_ns = self._clock()
        before, self._since = self._since, {}
        said: list[str] = []
        longest_s = 0.0
        for name in self._list_waiting():
            since_ns, say_s = before.get(name, (now_ns, AFTER_S))
            waited_s = (now_ns - since_ns) / 1e9
            if waited_s >= say_s:
                said.append(name)
                longest_s = max(longest_s, waited_s)
                say_s *= 2
            self._since[name] = since_ns, say_s
        if said:
            logger.warning(WAITS, self.node, name_first(said), longest_s)
        self._wake = asyncio.get_running_loop().call_later(AFTER_S / LOOKS, self.look)

    def close(self) -> None:
        """Look no more."""
        if self._wake is not None:
            self._wake.cancel()

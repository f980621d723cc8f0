"""MessageFaults: whole messages lost, repeated, delayed and so reordered, which TCP alone never does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

REPEAT_S: Final = 0.2
"""A repetition comes within so long."""

DELAY_S: Final = 0.3
"""A message that is delayed comes within so long."""


class MessageFaults:
    """Carries messages, some of them badly.

    Args:
        share: so much of the messages is lost, as much is repeated, and twice as much is delayed.
        counts: how many were, by name.
    """

    def __init__(self, share: float, chance: Random, counts: Counter[str]) -> None:
        self._share = share
        self._chance = chance
        self._counts = counts

    def carry(self, act: Callable[[], None]) -> None:
        """Act as the message arrives: never, at once, later, or twice."""
        for delay_s in self._draw_delays():
            if delay_s:
                asyncio.get_running_loop().call_later(delay_s, act)
            else:
                act()

    def _draw_delays(self) -> list[float]:
        """How long each copy takes (s)."""
        chance, share = self._chance, self._share
        if chance.random() < share:
            self._counts["lost"] += 1
            return []
        delays = [0.0]
        if chance.random() < share:
            self._counts["repeated"] += 1
            delays.append(chance.random() * REPEAT_S)
        if chance.random() < 2 * share:
            self._counts["delayed"] += 1
            delays[0] = chance.random() * DELAY_S
        return delays

"""MessageFaults: whole messages lost, repeated, delayed and so reordered, which TCP alone never does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from statemachines.testing.conformance.wire_choice import WireChoice

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

    def __init__(self, share: float, choice: WireChoice, counts: Counter[str]) -> None:
        self._share = share
        self._choice = choice
        self._counts = counts

    def carry(self, act: Callable[[], None]) -> None:
        """Act as the message arrives: never, at once, later, or twice."""
        chance = self._choice.draw_fault(min(1.0, 4 * self._share))
        for delay_s in [0.0] if chance is None else self._draw_delays(chance):
            if delay_s:
                asyncio.get_running_loop().call_later(delay_s, act)
            else:
                act()

    def _draw_delays(self, chance: Random) -> list[float]:
        """How long each copy takes (s)."""
        kind = chance.random()
        if kind < 0.25:
            self._counts["lost"] += 1
            return []
        if kind < 0.5:
            self._counts["repeated"] += 1
            return [0.0, chance.random() * REPEAT_S]
        self._counts["delayed"] += 1
        return [chance.random() * DELAY_S]

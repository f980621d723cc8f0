"""PacketBudget: how many packets of all clients together a node handles in one turn of its loop.

A client may send 500 messages before it hears of the first one.  Of a few hundred such clients at once one turn would
last longer than the lease of the node, and others would take it for dead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

PACKETS_MAX: Final = 1_000
"""Packets in one turn."""

SHARE_MAX: Final = 50
"""Packets of one client in a turn, while others wait."""


class PacketBudget:
    """Of one node.  Clients that find nothing left wait for a later turn, and take it in their order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = PACKETS_MAX
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_renewing = False

    def count_left(self) -> int:
        """How many more packets may be handled in this turn."""
        return 0 if self._waiting else self._left

    def take(self, packets: int) -> None:
        """So many of them are."""
        self._left -= packets
        if not self._is_renewing:
            self._renew_soon()

    async def wait_for_share(self) -> int:
        """Wait for a turn; how many packets may be handled in it."""
        share: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(share)
        self._renew_soon()
        await share
        return SHARE_MAX

    def _renew_soon(self) -> None:
        if not self._is_renewing:
            self._is_renewing = True
            self._loop.call_soon(self._renew)

    def _renew(self) -> None:
        self._is_renewing = False
        self._left = PACKETS_MAX
        while self._waiting and self._left >= SHARE_MAX:
            share = self._waiting.popleft()
            if not share.done():  # else its client has gone
                share.set_result(None)
                self._left -= SHARE_MAX
        if self._left < PACKETS_MAX:
            self._renew_soon()

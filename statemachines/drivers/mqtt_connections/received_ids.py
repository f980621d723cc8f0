"""ReceivedIds: packet ids of QoS 2 that a client has published and not released when its connection ended.

They are in the memory of one node: at another node a publisher that repeats stores its message twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from statemachines.mqtt_connections.connection_record import IncomingStage

CLIENTS_MAX: Final = 10_000
"""Clients whose ids are kept; those of the one that ended first go first."""


class ReceivedIds:
    """Client id -> packet ids."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def keep(self, client_id: str, incoming: Mapping[int, IncomingStage]) -> None:
        """The connection of the client is over."""
        done = (IncomingStage.RECEIVED, IncomingStage.RELEASING)
        ids = tuple(one for one, stage in incoming.items() if stage in done)
        self._kept.pop(client_id, None)
        if ids:
            self._kept[client_id] = ids
        while len(self._kept) > CLIENTS_MAX:
            self._kept.popitem(last=False)

    def take(self, client_id: str) -> tuple[int, ...]:
        """The ids of the client, which are kept no more: its connection has them."""
        return self._kept.pop(client_id, ())

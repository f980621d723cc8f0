"""System topics: a node publishes some of its counters below `$SYS/brokers/NAME/`, with QoS 0, every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from statemachines.drivers.persistent_sessions.front_message import FrontPublish
from statemachines.drivers.persistent_sessions.node_link import NodeLink
from statemachines.drivers.persistent_sessions.session_node import SessionNode

EVERY_S: Final = 10.0


class SystemTopics:
    """The publisher of one node.

    Args:
        node: that owns sessions.
        read_counters: topic, behind the name of the node -> value.
    """

    def __init__(self, node: SessionNode, read_counters: Callable[[], Mapping[str, int | str]]) -> None:
        self._name = node.name
        self._read_counters = read_counters
        self._began = time.monotonic()
        self._count = 0
        self._due = self._began
        self._link = NodeLink.local(node, lambda message: None, lambda: None)

    def publish_due(self) -> None:
        """Publish all counters, if it is time."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY_S
        uptime = {"uptime": int(time.monotonic() - self._began)}
        for name, value in {**uptime, **self._read_counters()}.items():
            self._count += 1
            topic = f"$SYS/brokers/{self._name}/{name}"
            self._link.say(FrontPublish(self._count, topic, str(value).encode(), 0, None, b"", False))

    async def close(self) -> None:
        """No more."""
        await self._link.close()

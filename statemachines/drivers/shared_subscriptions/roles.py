"""Roles: who a leader host and a consumer are to each other."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.role import NodeRole
from statemachines.shared_subscriptions.message import ToConsumer, ToLeaderHost

PROTOCOL: Final = "shared_subscriptions"

LEADER: Final = NodeRole(
    PROTOCOL,
    "leader",
    takes=ToLeaderHost,
    dials=("leader",),
    dialled_by=("consumer", "leader"),
    proved=("leader",),
)
"""Leader hosts dial each other, to relay for borrowers; who proves to be one speaks for borrowers of others."""

CONSUMER: Final = NodeRole(PROTOCOL, "consumer", takes=ToConsumer, dials=("leader",), proved=("leader",))
"""What leads is proved to it by a certificate; a secret that all share proves no role (SS-252)."""

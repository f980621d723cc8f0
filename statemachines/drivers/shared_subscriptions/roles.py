"""Roles: who a leader host and a consumer are to each other."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.role import Role
from statemachines.shared_subscriptions.message import BorrowerMessage, LeaderMessage

PROTOCOL: Final = "shared_subscriptions"

LEADER: Final = Role(PROTOCOL, "leader", takes=BorrowerMessage, dials=("leader",), dialled_by=("consumer", "leader"))
"""Leader hosts dial each other, to pass borrowers on."""

CONSUMER: Final = Role(PROTOCOL, "consumer", takes=LeaderMessage, dials=("leader",))

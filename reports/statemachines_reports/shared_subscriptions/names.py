"""Names: the machines of shared subscriptions as traces name them."""

from __future__ import annotations

from typing import Final

PROTOCOL: Final = "shared_subscriptions"
ASSIGNMENT: Final = "shared_subscriptions/assignment"
BORROWER: Final = "shared_subscriptions/borrower"
LEADER: Final = "shared_subscriptions/leader"
MEMBER: Final = "shared_subscriptions/member"
SESSION: Final = "shared_subscriptions/session"
PUBLISHER: Final = ""
"""A publisher is no machine."""

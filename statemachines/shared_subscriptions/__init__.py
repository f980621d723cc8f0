"""Durable shared subscriptions: Borrower, Stream, Leader, Assignment (source: EIP-0028)."""

from statemachines.shared_subscriptions.borrower import BORROWER
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.session import SESSION

MACHINES = (BORROWER, SESSION, LEADER)
"""The machines of the protocol; each names its child machines."""

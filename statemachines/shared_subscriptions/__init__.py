"""Durable shared subscriptions: Borrower, Stream, Session, Leader, Member, Assignment, Group (source: EIP-0028)."""

from statemachines.shared_subscriptions.borrower import BORROWER
from statemachines.shared_subscriptions.group import GROUP
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.session import SESSION

MACHINES = (BORROWER, SESSION, LEADER, GROUP)
"""The machines of the protocol; each names its child machines."""

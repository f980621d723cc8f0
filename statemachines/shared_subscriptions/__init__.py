"""Durable shared subscriptions: Borrower, Stream, Session, Private, Leader, Member, Assignment, Group (EIP-0028)."""

from statemachines.shared_subscriptions.borrower import BORROWER
from statemachines.shared_subscriptions.group import GROUP
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.private import PRIVATE
from statemachines.shared_subscriptions.session import SESSION

MACHINES = (BORROWER, SESSION, PRIVATE, LEADER, GROUP)
"""The machines of the protocol; each names its child machines."""

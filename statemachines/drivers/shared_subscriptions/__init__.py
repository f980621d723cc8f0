"""Durable shared subscriptions in an application: a consumer, a leader host, a publisher, over real stores.

from statemachines.drivers.shared_subscriptions import SharedSubscription
"""

from statemachines.drivers.shared_subscriptions.groups import declare as declare
from statemachines.drivers.shared_subscriptions.groups import destroy as destroy
from statemachines.drivers.shared_subscriptions.lead import LeaderNode as LeaderNode
from statemachines.drivers.shared_subscriptions.publish import Publisher as Publisher
from statemachines.drivers.shared_subscriptions.subscribe import Delivered as Delivered
from statemachines.drivers.shared_subscriptions.subscribe import SharedSession as SharedSession
from statemachines.drivers.shared_subscriptions.subscribe import SharedSubscription as SharedSubscription

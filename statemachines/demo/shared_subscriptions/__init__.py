"""The demo of shared subscriptions: a real consumer group loses a consumer and its leading host, and no message."""

from statemachines.demo.shared_subscriptions.play import GroupDemo

DEMO = GroupDemo()

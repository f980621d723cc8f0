"""Durable shared subscriptions in an application: a consumer, a leader host, a publisher, over real stores.

    from statemachines.drivers.shared_subscriptions import SharedSubscription

A name is imported when it is used first: who lists the roles of `gapless node` needs no machine.
"""

from typing import TYPE_CHECKING, Final

from statemachines.drivers.lazy_import import import_lazily
from statemachines.drivers.protocol import DriverProtocol

if TYPE_CHECKING:
    from statemachines.drivers.shared_subscriptions.deliveries import (
        AcknowledgementUncertain as AcknowledgementUncertain,
    )
    from statemachines.drivers.shared_subscriptions.deliveries import Delivered as Delivered
    from statemachines.drivers.shared_subscriptions.deliveries import Deliveries as Deliveries
    from statemachines.drivers.shared_subscriptions.groups import declare as declare
    from statemachines.drivers.shared_subscriptions.groups import destroy as destroy
    from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode as LeaderNode
    from statemachines.drivers.shared_subscriptions.publisher import Publisher as Publisher
    from statemachines.drivers.shared_subscriptions.shared_session import SharedSession as SharedSession
    from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription as SharedSubscription

_COMMANDS: Final = f"{__name__}.node_commands"

DRIVERS: Final = DriverProtocol(
    roles={
        "leader": f"{_COMMANDS}:leader",
        "consumer": f"{_COMMANDS}:consumer",
        "publisher": f"{_COMMANDS}:publisher",
    }
)

__getattr__ = import_lazily(
    __name__,
    {
        f"{__name__}.deliveries": ("AcknowledgementUncertain", "Deliveries", "Delivered"),
        f"{__name__}.groups": ("declare", "destroy"),
        f"{__name__}.leader_node": ("LeaderNode",),
        f"{__name__}.publisher": ("Publisher",),
        f"{__name__}.shared_session": ("SharedSession", "SharedSubscription"),
    },
)

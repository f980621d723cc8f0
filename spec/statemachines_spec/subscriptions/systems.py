"""Systems: the closed systems of shared subscriptions that `gapless check` explores, in three sizes each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.member import ExpiryTimer
from statemachines.shared_subscriptions.stream_store import StreamStore
from statemachines_spec.actor import Crash
from statemachines_spec.network import Network
from statemachines_spec.subscriptions.consumer import Consumer
from statemachines_spec.subscriptions.leader_host import LeaderHost
from statemachines_spec.subscriptions.orders import ORDERS
from statemachines_spec.subscriptions.properties import STEPWISE, declared, exclusive, sometimes_served
from statemachines_spec.subscriptions.stores import Store, streams
from statemachines_spec.subscriptions.variants import borrower, configuration
from statemachines_spec.system import Budget, System


def crash(size: str, variant: str) -> System:
    times = configuration(variant)
    topics = ("a",)
    names = ("consumer-1", "consumer-2")
    held = tuple(f"0.0/{topic}" for topic in topics)
    return System(
        "borrower-crash",
        "a borrower crashes",
        (
            *(Consumer(name, times, fsm=borrower(variant), pings=1, offsets=1, faults=(Crash,), silent=("ping",)) for name in names),
            LeaderHost("leader-1", times),
            Store(GroupStore()),
            Store(StreamStore(1), state=streams(topics, 1)),
        ),
        Network(in_flight=1),
        (exclusive(names, held), *declared(names, ("leader-1",)), *sometimes_served(names, held), *STEPWISE),
        (Budget("crashes", 1, lambda actor, event: isinstance(event, Crash)),
         Budget("expiries", 1, lambda actor, event: isinstance(event, ExpiryTimer))),
        ORDERS,
    )

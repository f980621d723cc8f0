"""Subscription: a session with one shared subscription at a time, for an application that wants no more.

It may be started again as soon as it is unsubscribed: what is in hand is finished beside the new one.
"""

from __future__ import annotations

from typing import Literal

from statemachines.kernel import Outgoing
from statemachines.kernel.node import Observer
from statemachines.shared_subscriptions.agent_record import BUFFER, SharedFilter
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import Order
from statemachines.shared_subscriptions.handler import Handler
from statemachines.shared_subscriptions.names import check_filter, check_group


class Subscription(Handler):
    """`life` is the incarnation of the process (`consumer-1~3`); `registries`: the nodes where leaders are found
    (`leader-1`); `start_ns`, `at_delivery` as for `Shared`."""

    def __init__(
        self,
        life: str,
        group: str,
        topic_filter: str,
        registries: str | tuple[str, ...],
        configuration: Configuration,
        *,
        start_ns: int = -1,
        at_delivery: bool = False,
        order: Order | Literal[""] = "",
        buffer: int = BUFFER,
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        super().__init__(life, registries, configuration, buffer=buffer, observe=observe, check=check)
        check_group(group)
        check_filter(topic_filter, topic_filter)
        self.wanted = SharedFilter(group, topic_filter, at_delivery, start_ns, order)
        self.subscription = ""

    @property
    def borrower(self) -> str:
        """The borrower of the moment ("" = not begun, the group is not declared yet, or ended)."""
        return self.borrower_of(self.subscription)

    @property
    def is_ended(self) -> bool:
        """The last borrower is gone for good: nothing will be delivered any more."""
        return self.subscription != "" and not self.has_subscription(self.subscription)

    def start(self, now_ns: int) -> list[Outgoing]:
        """Subscribe: declare the group, then look for its leader."""
        self.subscription, out = self.subscribe(self.wanted, now_ns)
        return out

    def end(self, now_ns: int) -> list[Outgoing]:
        """Finish what is in hand, then end."""
        return self.unsubscribe(self.subscription, now_ns)

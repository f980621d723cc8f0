"""Set aside: messages that a group gives up, by which S20 is judged."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Step, Tell, in_order
from statemachines.shared_subscriptions.failed_deliveries import MessageDropped, StreamParked
from statemachines.shared_subscriptions.properties.failing_history import FailingHistory
from statemachines.shared_subscriptions.relaxed_order import find_in_hand
from statemachines.shared_subscriptions.session import Deliver
from statemachines.shared_subscriptions.session_record import reading_key
from statemachines_sim.judge import Judge
from statemachines_sim.shared_subscriptions.consumer import ConsumerNode
from statemachines_sim.shared_subscriptions.monitors.progress import Progress

Message = tuple[str, int]
"""(stream, offset)"""


class SetAside:
    """`most`: so often a message is delivered before it is set aside (None: nothing is)."""

    def __init__(self, judge: Judge, progress: Progress, most: int | None) -> None:
        self.count = 0
        self._judge = judge
        self._progress = progress
        self._most = most
        self._histories: dict[Message, FailingHistory] = {}

    def deliver(self, consumer: ConsumerNode, event: Deliver) -> None:
        """An application gets messages."""
        if self._most is None:
            return
        is_alone = event.first == event.last and has_nothing_else(consumer, event)
        for offset in range(event.first, event.last + 1):
            message = (event.stream, offset)
            self._histories[message] = self._histories.get(message, UNDELIVERED).observe_delivery(is_alone)

    def give_back(self, stream: str, offset: int) -> None:
        """An application gives a message back."""
        self._histories[stream, offset] = self._histories.get((stream, offset), UNDELIVERED).observe_return()

    def step(self, step: Step[Any]) -> None:
        """A leader takes a step."""
        if self._most is None:
            return
        for effect in step.effects:
            if isinstance(effect, Tell) and isinstance(effect.event, StreamParked | MessageDropped):
                self._judge_message(effect.event)

    def _judge_message(self, event: StreamParked | MessageDropped) -> None:
        message = (event.stream, event.progress)
        history = self._histories.get(message, UNDELIVERED)
        self._judge.report_properties(history.check_set_aside(event, self._most or 0))
        if isinstance(event, MessageDropped):
            self.count += 1
            self._progress.acknowledge(event.stream, event.progress, event.progress)  # in the name of the group


UNDELIVERED = FailingHistory()


def has_nothing_else(consumer: ConsumerNode, event: Deliver) -> bool:
    """The message is all that the application has in hand."""
    readings = consumer.host.nodes[consumer.host.session].record.readings
    ours = reading_key(event.owner, event.stream)
    for key, reading in in_order(readings):
        first = find_in_hand(reading)
        if first is not None and (key != ours or first != event.first or find_in_hand(reading, first + 1) is not None):
            return False
    return True

"""PublisherProcess: hands messages to a node, and again to the next one what it was not answered."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from statemachines.kernel import Message
from statemachines.persistent_sessions.client_message import Farewell, PublishStored, PublishWanted, Refused
from statemachines_sim.cluster import Cluster
from statemachines_sim.persistent_sessions.client_process import ClientProcess
from statemachines_sim.persistent_sessions.section import Section
from statemachines_sim.units import MS

AGAIN_NS = 200 * MS
WINDOW = 50
"""So many messages may be unanswered; beyond that nothing is published."""


class Item(NamedTuple):
    """A message."""

    topic: str
    qos: int
    expiry_ms: int | None


class PublisherProcess(ClientProcess):
    """`unanswered`: what it does not know to be stored, by number.

    A message says over which connection it was handed over, and its number: one that is handed over again is another
    message, and what became of the first nobody knows.
    """

    def __init__(self, world: Cluster, node: str, number: int, own: Section) -> None:
        super().__init__(world, node, number, own)
        self.unanswered: dict[int, Item] = {}
        self._count = 0
        self._handed = 0

    def start(self) -> None:
        super().start()
        self._rest()

    def handle_open(self) -> None:
        for number in list(self.unanswered):
            self._hand_over(number)
        if self.own.moves_ms[1]:
            self.after(self.chance.randint(*self.own.moves_ms) * MS, partial(self._move, self.connection))

    def _move(self, connection: str) -> None:
        """To the next node, when all is answered; what is not is waited for."""
        if connection != self.connection or self._env.now >= self.end_ns:
            return
        if self.unanswered:
            self.after(MS, partial(self._move, connection))
        else:
            self.hang_up(1)

    def handle_close(self) -> None:
        """What is unanswered is handed over again."""

    def hear(self, message: Message) -> None:
        match message:
            case PublishStored(n):
                if self.unanswered.pop(n, None) is not None:
                    self.watch.observe_answer(self._name(n))
            case Refused(n, _):
                connection = self.connection
                self.after(AGAIN_NS, lambda: self._again(n, connection))
            case Farewell():
                self.hang_up()

    def _rest(self) -> None:
        self.after(self.chance.randint(*self.own.publish_ms) * MS, self._publish)

    def _publish(self) -> None:
        if self._env.now >= self.end_ns:
            return
        if len(self.unanswered) < WINDOW:
            self._count += 1
            topic, qos = self.chance.choice(self.own.names), self.chance.choice(self.own.qos)
            self.unanswered[self._count] = Item(topic, qos, self._expiry())
            if self.connection:
                self._hand_over(self._count)
        self._rest()

    def _expiry(self) -> int | None:
        """None: it does not expire; drawn only where some do, so that other runs stay as they are."""
        if not self.own.expires or self.chance.random() >= self.own.expires:
            return None
        return self.chance.randint(*self.own.message_expiry_ms)

    def _again(self, number: int, connection: str) -> None:
        if connection == self.connection and number in self.unanswered:
            self._hand_over(number)

    def _hand_over(self, number: int) -> None:
        item = self.unanswered[number]
        name = self._name(number)
        self.watch.observe_publish(name, item.topic, again=number <= self._handed)
        self._handed = max(self._handed, number)
        self.say(PublishWanted(number, item.topic, name.encode(), item.qos, item.expiry_ms))

    def _name(self, number: int) -> str:
        return f"{self.connection}:{number}"

"""PublisherProcess: hands messages to a node, and again to the next one what it was not answered."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from statemachines.kernel import Event, Message, Node, Send, Tell
from statemachines.persistent_sessions.message import Farewell, PublishStored, PublishWanted, Refused
from statemachines.persistent_sessions.publication import (
    PUBLICATION,
    HandMessage,
    MessageRefused,
    MessageStored,
    NodeLost,
    NodeReached,
    PublicationRecord,
    PublishPayload,
)
from statemachines_sim.cluster import SimCluster
from statemachines_sim.persistent_sessions.client_process import ClientProcess
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.units import MS

AGAIN_NS = 200 * MS
WINDOW = 50
"""So many messages may be unanswered; beyond that nothing is published."""


class Item(NamedTuple):
    """A message."""

    topic: str
    qos: int
    expiry_ms: int | None


class SessionPublisherProcess(ClientProcess):
    """`unanswered`: what it does not know to be stored, by number.  As of real clients, no steps are in the trace.

    A message says over which connection it was handed over, and its number: one that is handed over again is another
    message, and what became of the first nobody knows.
    """

    def __init__(self, world: SimCluster, node: str, number: int, own: SessionSection) -> None:
        super().__init__(world, node, number, own)
        record = PublicationRecord(self.life, WINDOW // 2, WINDOW)
        self.window = Node(PUBLICATION, record, name=self.life, now_ns=0, check=world.judging)
        self.host.add(self.window)
        self.unanswered: dict[int, Item] = {}
        self._handed = 0

    def start(self) -> None:
        super().start()
        self._rest()

    def handle_open(self) -> None:
        self._feed_window(NodeReached())
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
        self._feed_window(NodeLost())

    def hear(self, message: Message) -> None:
        match message:
            case PublishStored() | Refused():
                self._feed_window(message)
            case Farewell():
                self.hang_up()

    def _rest(self) -> None:
        self.after(self.chance.randint(*self.own.publish_ms) * MS, self._publish_next)

    def _publish_next(self) -> None:
        if self._env.now >= self.end_ns:
            return
        if len(self.unanswered) < WINDOW:
            topic, qos = self.chance.choice(self.own.names), self.chance.choice(self.own.qos)
            self._publish(Item(topic, qos, self._expiry()))
        self._rest()

    def _expiry(self) -> int | None:
        """None: it does not expire; drawn only where some do, so that other runs stay as they are."""
        if not self.own.expires or self.chance.random() >= self.own.expires:
            return None
        return self.chance.randint(*self.own.message_expiry_ms)

    def _publish(self, item: Item) -> None:
        self.unanswered[self.window.record.count + 1] = item
        self._feed_window(PublishPayload(1))

    def _feed_window(self, event: Event) -> None:
        for _, effect in self.host.feed(self.life, event, self.local_now()):
            match effect:
                case Send(_, HandMessage(n)):
                    self._hand_over(n)
                case Tell(MessageStored(n)):
                    del self.unanswered[n]
                    self.watch.observe_answer(self._name(n))
                case Tell(MessageRefused(n)):
                    self.after(AGAIN_NS, partial(self._publish, self.unanswered.pop(n)))

    def _hand_over(self, number: int) -> None:
        item = self.unanswered[number]
        name = self._name(number)
        self.watch.observe_publish(name, item.topic, again=number <= self._handed)
        self._handed = max(self._handed, number)
        self.say(PublishWanted(number, item.topic, name.encode(), item.qos, item.expiry_ms))

    def _name(self, number: int) -> str:
        return f"{self.connection}:{number}"

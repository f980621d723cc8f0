"""Consumer: a simulated process with one subscription and an application that takes, works and acknowledges."""

from __future__ import annotations

import random
from functools import partial
from typing import get_args

from statemachines.kernel import Event, Message, Outgoing, RemoteProtocolError, Send, in_order
from statemachines.shared_subscriptions.group import start_of
from statemachines.shared_subscriptions.handler import Subscription
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderMessage,
    RelayedToBorrower,
    UpdateProgress,
    check_relay,
)
from statemachines.shared_subscriptions.returned_messages import find_objection
from statemachines.shared_subscriptions.session import SESSION, Acknowledged, Deliver, Nack, Ready
from statemachines.shared_subscriptions.stream import ABSENT
from statemachines_sim.cluster import SimCluster
from statemachines_sim.forged_message import Forger
from statemachines_sim.node_life import NodeLife
from statemachines_sim.shared_subscriptions.leader_host import is_leader_host
from statemachines_sim.shared_subscriptions.section import GroupSection
from statemachines_sim.units import MS, S

BEYOND = 2**62
"""More messages than any stream has, and an epoch that no claim reaches."""

RESTART_NS = 2 * S
"""Who dies of a message starts again so much later."""

PRETENDER = "pretender~1/1"


class ConsumerNode(NodeLife):
    """One consumer; it deals with one batch at a time, `slow` times as slowly as it should; one that is `mute` never
    hears of a grant."""

    world: SimCluster

    host: Subscription

    def __init__(self, world: SimCluster, node: str, number: int, own: GroupSection) -> None:
        super().__init__(world, node, number)
        group, topic_filter = own.group_and_filter
        self.host = Subscription(
            self.life,
            group,
            topic_filter,
            list_registries(node, own.members.leaders),
            own.configuration,
            start_ns=start_of(own.load.start),
            order="" if own.order == "strict" else own.order,
            observe=world.recorder.step,
            check=world.judging,
        )
        self._take = own.load.take
        self._work_ms = own.load.work_ms
        self._poison = own.load.poison
        self._given_back = own.load.given_back
        self._is_relaxed = own.order == "relaxed"
        self._moods = random.Random(f"{world.seed}/{self.life}/moods")
        self._chance = random.Random(f"{world.seed}/{self.life}")
        self._busy = False
        self.slow = 1
        self.mute = False
        self.left = False
        self.left_for_a_while = False

    def start(self) -> None:
        self.perform(self.host.start(self.local_now()), self._env.now)

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        said = message.message if isinstance(message, RelayedToBorrower) else message
        if self.mute and isinstance(said, Grant):
            return self.host.fire_first(now_ns)
        try:
            check_relay(sender, message, is_leader_host(self.world, sender))
        except RemoteProtocolError:
            if sender != PRETENDER:
                raise
            return self.host.fire_first(now_ns)  # as a node does with what its protocol does not take
        return self.host.receive(sender, to, message, now_ns)

    def route_answer(self, party: str, answer: object, now_ns: int) -> list[Outgoing]:
        return self.host.feed(party, answer, now_ns)  # type: ignore[arg-type]

    def route_tell(self, party: str, event: Event) -> None:
        now = self._env.now
        if isinstance(event, Ready):
            self._go_on()
        elif isinstance(event, Deliver):
            self.world.recorder.tell(now, self.node, party, SESSION.full_name, event)
            self.world.watch.tell(self, party, event, self._env.now)
            self._busy = True
            self.after(self._chance.randint(*self._work_ms) * MS * self.slow, lambda: self._finish(event))
        elif isinstance(event, Acknowledged):
            self.world.recorder.tell(now, self.node, party, SESSION.full_name, event)
            self.world.watch.tell(self, party, event, self._env.now)

    def leave(self) -> None:
        """Unsubscribe."""
        self.left = True
        self._run(self._unsubscribe)

    def leave_for_a_while(self) -> None:
        """Unsubscribe; `come_back` will follow."""
        self.left_for_a_while = True
        self.leave()

    def come_back(self) -> None:
        """Subscribe again, whether or not the old borrower has ended."""
        self.left = self.left_for_a_while = False
        self._run(self.start)

    def resubscribe(self) -> None:
        """Unsubscribe, and subscribe again at once: the old borrower finishes while the new one connects."""
        self._run(self._unsubscribe)
        self._run(self.start)

    def lies(self) -> list[UpdateProgress]:
        """What it could say of the streams it holds that is not so: of the last one that it has ended, of the others
        more than can be there."""
        node = self.host.nodes.get(self.host.borrower)
        if node is None or node.record.link is None:
            return []
        link = node.record.link
        held = [child for _, child in in_order(node.record.streams) if child.status is not ABSENT]
        said = [BEYOND] * (len(held) - 1) + [END_OF_STREAM]
        return [
            UpdateProgress(link.borrower, link.epoch, link.registration, child.stream, child.grant, progress, True)
            for child, progress in zip(held, said, strict=False)
        ]

    def lie(self) -> None:
        """Say so to its leader."""
        leader = self.host.nodes[self.host.borrower].record.link.leader
        self.perform([(one.borrower, Send(leader, one)) for one in self.lies()], self._env.now)

    def hear_pretender(self) -> None:
        """Somebody whom no claim names speaks to its borrower as leader of an epoch that nobody will reach; first for
        it to begin anew, then for the one that begins to follow."""
        for kind in (Invalidate, Grant, LeaderConnectResponse):
            self._run(partial(self._hear_lie, kind))
        self._run(self._hear_anything)

    def _hear_anything(self) -> None:
        """One message of each kind that a leader has, as if the stranger had read what the last one said."""
        forger = Forger(random.Random(f"{self.world.seed}/{self.life}/{self._env.now}"), self.host.nodes)
        link = self.host.nodes[self.host.borrower].record.link if self.host.borrower else None
        if link is not None:
            forger.learn(link)
        for kind in get_args(LeaderMessage):
            lie = forger.make(kind, borrower=self.host.borrower)
            leader = PRETENDER if link is None else link.leader
            for said in (lie, RelayedToBorrower(leader, PRETENDER, lie)):
                self.perform(self.handle(PRETENDER, "", said, self.local_now()), self._env.now)

    def _hear_lie(self, kind: type[Message]) -> None:
        given = {"leader": PRETENDER, "stream": "0.0/pretended", "grant": 1, "progress": 0}
        wanted = {name: value for name, value in given.items() if name in kind.__struct_fields__}
        lie = kind(borrower=self.host.borrower, epoch=BEYOND, registration=1, **wanted)
        self.perform(self.handle(PRETENDER, "", lie, self.local_now()), self._env.now)

    def heal(self) -> None:
        self.slow, self.mute = 1, False
        super().heal()
        if self.left_for_a_while:
            self.come_back()

    def _unsubscribe(self) -> None:
        self.perform(self.host.end(self.local_now()), self._env.now)

    def _go_on(self) -> None:
        if not self._busy:
            self.perform(self.host.take_messages(self._take, self.local_now()), self._env.now)

    def _finish(self, done: Deliver) -> None:
        self._busy = False
        if self._is_poisoned(done):
            self.world.crash(self.node, "poisoned")
            self.world.after(RESTART_NS, self._come_back)
            return
        first = done.first
        if self._gives_back(done):
            first += 1
            if not self._is_relaxed or first > done.last:  # else what is behind it is in hand still
                self._go_on()
                return
        held = (done.owner, done.stream, done.grant, first, done.last)
        self.perform(self.host.acknowledge(*held, self.local_now()), self._env.now)
        self._go_on()

    def _is_poisoned(self, done: Deliver) -> bool:
        is_first = done.stream.endswith("/t000")
        return is_first and any(done.first <= offset <= done.last for offset in self._poison)

    def _come_back(self) -> None:
        """The next life of the node, unless something else has brought one."""
        if self.world.living(self.node) is None:
            self.world.restart(self.node)

    def _gives_back(self, done: Deliver) -> bool:
        """Give the first message back, if it is in hand still, now and then."""
        if not self._given_back or self._moods.random() >= self._given_back:
            return False
        nack = Nack(done.owner, done.stream, done.grant, done.first, self._moods.choice((0, S // 2)))
        now_ns = self.local_now()
        out = self.host.fire_first(now_ns)  # it may end the lease, and then nothing can be given back
        is_in_hand = find_objection(self.host.reads, nack) == ""
        if is_in_hand:
            self.world.watch.give_back(self, nack)  # type: ignore[attr-defined]
            out += self.host.give_back(nack, now_ns)
        self.perform(out, self._env.now)
        return is_in_hand


def list_registries(node: str, leaders: int) -> tuple[str, ...]:
    """The leader hosts in the order in which `node` asks them: its own first, the others in turn."""
    first = int(node.split("-")[1]) - 1
    return tuple(f"leader-{(first + turn) % leaders + 1}" for turn in range(leaders))

"""SubscriberProcess: a client whose session outlives its connections: it comes and goes, subscribes, acknowledges."""

from __future__ import annotations

from statemachines.kernel import Message
from statemachines.persistent_sessions.life_record import KEEP
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Delivered,
    Farewell,
    LeaveWanted,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Refused,
    Subscribed,
    SubscribeWanted,
    UnsubscribeWanted,
    Welcome,
)
from statemachines_sim.cluster import SimCluster
from statemachines_sim.persistent_sessions.client_process import ClientProcess
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.units import MS, S

AGAIN_NS = 200 * MS
"""What was refused is asked for again after so long."""


class SessionSubscriberProcess(ClientProcess):
    """`session`: its own ("": none yet); `welcome`: the node has connected it; `open`: packets that it has not
    acknowledged over this connection."""

    has_session = True

    def __init__(self, world: SimCluster, node: str, number: int, own: SessionSection) -> None:
        super().__init__(world, node, number, own)
        place = int(node.rpartition("-")[2])
        self.receive_maximum = own.receive_maximum[place % len(own.receive_maximum)]
        self.wanted = {one: own.qos[(place + at) % len(own.qos)] for at, one in enumerate(own.filters_of(place))}
        self.session = ""
        self.welcome = False
        self.open: set[int] = set()
        self._clean = False
        self._away_ms = 0
        self._subscribed: set[str] = set()
        self._exact: set[int] = set()
        self._count = 0
        self._asked: dict[int, SubscribeWanted | UnsubscribeWanted] = {}

    # -- the connection -------------------------------------------------------------------------------------------

    def handle_open(self) -> None:
        own = self.own
        self.watch.connecting(self, self._clean)
        which = (self.node, self.attempt)
        self.say(ConnectWanted(self.node, self._clean, own.expiry_ms, self.receive_maximum, *which))

    def handle_close(self) -> None:
        self.welcome = False
        self.open.clear()
        self._asked.clear()

    def hear(self, message: Message) -> None:
        if self.welcome:
            self.watch.observe_heard(self)
        match message:
            case Welcome(session, present):
                self._begin(session, present)
            case Delivered():
                self._take(message)
            case Pubrel(packet):
                self._exact.discard(packet)
                self.open.discard(packet)
                self.say(Pubcomp(packet))
            case Subscribed(n):
                self._settle(n)
            case Refused(n, _):
                self._later(AGAIN_NS, lambda: self._again(n))
            case Farewell(why):
                self._end(why)

    def _begin(self, session: str, present: bool) -> None:
        self.watch.observe_welcome(self, session, present)
        if session != self.session:
            self._subscribed.clear()
            self._exact.clear()
        self.session, self.welcome, self._clean = session, True, False
        for topic_filter in self.wanted:
            if topic_filter not in self._subscribed:
                self._want(SubscribeWanted(self._next(), topic_filter, self.wanted[topic_filter]))
        self._stay()

    def _end(self, why: str) -> None:
        if why == "left":
            self.watch.observe_left(self)
        self.watch.observe_end(self, why)
        self.hang_up(self._away_ms)

    # -- what it does ---------------------------------------------------------------------------------------------

    def _stay(self) -> None:
        """For a while; as long as it takes, where that is what the scenario says, and once nothing goes wrong."""
        own = self.own
        if own.stay_s[1]:
            low, high = own.stay_s
            self._later(self.chance.randint(low * S, high * S), self._move)

    def _move(self) -> None:
        own, chance = self.own, self.chance
        if self._env.now >= self.end_ns:
            return
        if chance.random() < own.resubscribe:
            self._toggle()
            self._stay()
            return
        self._clean = chance.random() < own.clean
        self._away_ms = max(chance.randint(*own.away_ms), 1)
        if chance.random() >= own.leave:
            self.hang_up(self._away_ms)
            return
        discards = chance.random() < own.discard
        self.watch.leaving(self, discards)
        self.say(LeaveWanted(0 if discards else KEEP))

    def _toggle(self) -> None:
        """End a subscription, or begin one."""
        topic_filter = self.chance.choice(sorted(self.wanted))
        if topic_filter in self._subscribed:
            self._subscribed.discard(topic_filter)
            self.watch.unsubscribes(self, topic_filter)
            self._want(UnsubscribeWanted(self._next(), topic_filter))
        else:
            self._want(SubscribeWanted(self._next(), topic_filter, self.wanted[topic_filter]))

    def _want(self, wanted: SubscribeWanted | UnsubscribeWanted) -> None:
        self._asked[wanted.n] = wanted
        self.say(wanted)

    def _again(self, n: int) -> None:
        wanted = self._asked.get(n)
        if wanted is not None:
            self.say(wanted)

    def _settle(self, n: int) -> None:
        wanted = self._asked.pop(n, None)
        if isinstance(wanted, SubscribeWanted):
            self._subscribed.add(wanted.filter)
            self.watch.observe_subscription(self, wanted.filter)

    def _next(self) -> int:
        self._count += 1
        return self._count

    # -- messages -------------------------------------------------------------------------------------------------

    def _take(self, message: Delivered) -> None:
        packet = message.packet
        if packet:
            self.open.add(packet)
        self.watch.observe_delivery(self, message)
        if message.qos == 1:
            self._acknowledge(Puback(packet))
        elif message.qos == 2:
            self._exact.add(packet)
            self._acknowledge(Pubrec(packet))

    def _acknowledge(self, message: Puback | Pubrec) -> None:
        def say() -> None:
            if isinstance(message, Puback):
                self.open.discard(message.packet)
            self.say(message)

        self._later(self.chance.randint(*self.own.ack_ms) * MS, say)

    def _later(self, delay_ns: int, do: object) -> None:
        """If it still is connected as it is now."""
        connection = self.connection

        def run() -> None:
            if connection == self.connection:
                do()  # type: ignore[operator]

        self.after(delay_ns, run)

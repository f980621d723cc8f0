"""WireSession: how the owner of a session is tested over the wire: a subscriber and a publisher of the kit meet a node.

The subscriber connects, subscribes, acknowledges late, loses its connection, leaves, and comes back with its session or
with a clean start; the publisher publishes numbers.  A client sees neither the database nor the other machines of the
node: what comes is judged by rules, each with its clause.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from statemachines.drivers.persistent_sessions.node_roles import CLIENT, NODE, ClientAnswer
from statemachines.kernel import Message
from statemachines.persistent_sessions import client_message
from statemachines.persistent_sessions.message import Puback, Pubcomp, Pubrec, Pubrel
from statemachines.testing.conformance.conformance_run import Cell, ConformanceViolation
from statemachines.testing.conformance.wire_course import WireCourse
from statemachines.testing.conformance.wire_judge import WireCoverage
from statemachines.testing.conformance.wire_peer import WirePeer
from statemachines.testing.conformance.wire_role import WireRole
from statemachines.testing.conformance.wire_violation import words_of
from statemachines.testing.persistent_sessions.session_rules import RULES, RuleBroken, SessionRules
from statemachines.wire import Packet

CLIENT_ID: Final = "conform"
TOPIC: Final = "conform/numbers"
FILTER: Final = "conform/#"
EXPIRY_MS: Final = 60_000
RECEIVE_MAXIMUM: Final = 4
SUBSCRIBER, PUBLISHER = 0, 1
BEAT_S: Final = 0.02
LATE_S: Final = 0.2
"""The subscriber acknowledges within so long."""

LASTS: Final = 3.0
"""A connection of the subscriber lasts up to so many tolerances: what is owed over it is missed, too."""


class SessionClients:
    """The clients of the kit in one run."""

    def __init__(self, course: WireCourse) -> None:
        self.coverage = WireCoverage(set(), set(), set())
        self._course = course
        self._rules = SessionRules(RECEIVE_MAXIMUM, course.tolerance_ns)
        self._chance = course.choice.draw_player()
        self._peers: dict[int, WirePeer] = {}
        self._later: list[tuple[int, WirePeer, Callable[[], None]]] = []
        self._number = 0
        self._requests = 0
        self._qos: dict[int, int] = {}
        self._is_leaving = self._ends = False
        self._ends_ns = 0

    # -- connections --------------------------------------------------------------------------------------------

    def join(self, peer: WirePeer) -> str:
        """A connection is there: the subscriber asks for its session."""
        self._peers[peer.place] = peer
        if peer.place == SUBSCRIBER:
            clean = self._rules.life == 0 or self._chance.random() < 0.15
            self._is_leaving = self._ends = False
            self._rules.connect(self._course.now_ns(), clean=clean)
            wanted = client_message.ConnectWanted(CLIENT_ID, clean, EXPIRY_MS, RECEIVE_MAXIMUM, "kit", self._rules.life)
            self._say(peer, wanted)
        return ""

    def leave(self, peer: WirePeer) -> None:
        """The node has closed a connection."""
        self._forget(peer)
        if not self._is_leaving or peer.place != SUBSCRIBER:
            self._course.give_up("the node has closed a connection of a client that had not left; keep it open")

    def _forget(self, peer: WirePeer) -> None:
        if self._peers.get(peer.place) is not peer:
            return
        del self._peers[peer.place]
        self._course.note(f"{peer.life} is not connected any more")
        if peer.place == SUBSCRIBER:
            self._rules.lose(self._course.now_ns(), session_ends=self._ends)
        else:
            self._rules.lose_publisher()

    def _cut(self, peer: WirePeer) -> None:
        self._course.counts["connections cut"] += 1
        self._forget(peer)
        peer.close()

    # -- messages -----------------------------------------------------------------------------------------------

    def receive(self, peer: WirePeer, packet: Packet[Any]) -> None:
        """A message has come."""
        if self._peers.get(peer.place) is not peer:
            return
        self._course.counts["messages that came"] += 1
        self._course.note(f"{peer.life} <- {words_of(packet.message)}")
        self._guard(lambda: self._take(peer, packet.message), words_of(packet.message))

    def _take(self, peer: WirePeer, message: Any) -> None:
        rules, now_ns = self._rules, self._course.now_ns()
        match message:
            case client_message.Welcome():
                rules.take_welcome(message, now_ns)
                self._course.counts["instances"] += 1
                self._ends_ns = now_ns + int(self._chance.random() ** 3 * LASTS * self._course.tolerance_ns)
                if not message.present:
                    self._subscribe(peer)
            case client_message.Subscribed(n):
                rules.take_subscribed(n, self._number + 1)
            case client_message.PublishStored(n):
                rules.take_stored(n, self._qos.pop(n, 0), now_ns)
            case client_message.Delivered(packet, _, _, _, qos):
                rules.take_delivered(message, now_ns)
                if packet:
                    self._act_late(peer, lambda: self._acknowledge(peer, packet, qos))
            case Pubrel(packet):
                if rules.take_pubrel(packet):
                    self._act_late(peer, lambda: self._complete(peer, packet))
            case client_message.Farewell():
                rules.take_farewell(message)
                self._cut(peer)
            case client_message.Refused(n, why):
                self._course.give_up(f"the node has refused number {n}: {why}")

    def _subscribe(self, peer: WirePeer) -> None:
        self._requests += 1
        self._rules.subscribe(self._requests, self._course.now_ns())
        self._say(peer, client_message.SubscribeWanted(self._requests, FILTER, 2))

    def _acknowledge(self, peer: WirePeer, packet: int, qos: int) -> None:
        if packet in self._rules.flying:
            self._rules.acknowledge(packet, self._course.now_ns())
            self._say(peer, Puback(packet) if qos == 1 else Pubrec(packet))

    def _complete(self, peer: WirePeer, packet: int) -> None:
        self._rules.complete(packet, self._course.now_ns())
        self._say(peer, Pubcomp(packet))

    def _act_late(self, peer: WirePeer, act: Callable[[], None]) -> None:
        late_ns = int(self._chance.random() * LATE_S * 1e9)
        self._later.append((self._course.now_ns() + late_ns, peer, act))

    def _say(self, peer: WirePeer, message: Message) -> None:
        self._course.count_sent(f"{peer.life} -> {words_of(message)}")
        peer.send(peer.life, "node", message)

    # -- as time goes -------------------------------------------------------------------------------------------

    def beat(self, now_ns: int) -> None:
        """Acknowledge what is due, judge silence, do something."""
        due = [one for one in self._later if one[0] <= now_ns]
        self._later = [one for one in self._later if one[0] > now_ns]
        for _, peer, act in due:
            if self._peers.get(peer.place) is peer:
                act()
        self._guard(lambda: self._rules.check_silence(self._course.settled_ns), "nothing")
        if not self._course.is_decided:
            self._propose()

    def _propose(self) -> None:
        course = self._course
        subscriber, publisher = self._peers.get(SUBSCRIBER), self._peers.get(PUBLISHER)
        chance = None if publisher is None else course.choice.draw_input(BEAT_S * course.options.rate)
        if chance is None:
            return
        course.choice.count_input()
        may_end = subscriber is not None and self._rules.is_connected and course.now_ns() >= self._ends_ns
        if subscriber is not None and may_end and course.choice.draw_fault(10 * course.options.faults) is not None:
            self._end_connection(subscriber, chance)
        elif publisher is not None:
            self._number += 1
            qos = self._qos[self._number] = chance.choice((0, 1, 1, 2, 2))
            self._rules.publish(self._number, course.now_ns())
            self._say(publisher, client_message.PublishWanted(self._number, TOPIC, str(self._number).encode(), qos))
        if subscriber is not None and self._rules.is_connected and chance.random() < 0.05:
            self._say(subscriber, client_message.Ping())

    def _end_connection(self, peer: WirePeer, chance: Random) -> None:
        """It is cut; or the client leaves, and its session stays or ends."""
        if self._is_leaving:
            return
        if chance.random() < 0.5:
            self._cut(peer)
            return
        self._is_leaving, self._ends = True, chance.random() < 0.3
        self._rules.leave(self._course.now_ns())
        self._say(peer, client_message.LeaveWanted(0 if self._ends else -1))

    # -- verdicts -----------------------------------------------------------------------------------------------

    def _guard(self, act: Callable[[], None], came: str) -> None:
        try:
            act()
        except RuleBroken as error:
            wrong = f"{error}; the rule is: {RULES[error.clause]}"
            at_ns = self._course.now_ns() - self._course.started_ns
            state = "connected" if self._rules.is_connected else "not connected"
            found = ConformanceViolation(came, at_ns, (state,), (((), (error.clause,)),), (), wrong)
            self._course.fail(wrong, CLIENT_ID, found)

    def find_missing(self) -> str:
        """Why a run in which nothing was wrong shows nothing."""
        if not self._course.counts["instances"]:
            return f"no client was connected within {self._course.options.seconds:g} s; answer connect_wanted"
        return ""

    def list_table(self) -> frozenset[Cell]:
        """No row of a table is seen."""
        return frozenset()

    def list_rules(self) -> dict[str, int]:
        """How often each rule was applied."""
        return {clause: self._rules.checked[clause] for clause in RULES}


WIRE_SESSION: Final = WireRole(
    plays=CLIENT,
    peer=NODE.full_name,
    takes=ClientAnswer,
    dials=True,
    connections=2,
    party=SessionClients,
)

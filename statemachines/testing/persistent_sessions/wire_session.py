"""WireSession: how the owner of a session is tested over the wire: a subscriber and a publisher of the kit meet a node.

The subscriber connects, subscribes, acknowledges late, loses its connection, leaves, and comes back with its session or
with a clean start; the publisher publishes numbers.  A client sees neither the database nor the other machines of the
node: what comes is judged by rules, each with its clause.

SessionRules: what a client and a publisher may see of a node of sessions, rule by rule, each with its clause.

The numbers of messages rise, and the payload of a message is its number.  What is uncertain counts for the node: a
message or an acknowledgement that was on its way when the connection ended may have arrived or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from statemachines.drivers.persistent_sessions.node_messages import CLIENT, NODE, ClientAnswer
from statemachines.kernel import Message
from statemachines.persistent_sessions import message
from statemachines.persistent_sessions.message import Delivered, Farewell, Puback, Pubcomp, Pubrec, Pubrel, Welcome
from statemachines.testing.conformance.conformance_run import Cell, ConformanceViolation
from statemachines.testing.conformance.relation import words_of
from statemachines.testing.conformance.role import WireRole
from statemachines.testing.conformance.wire_judge import WireCoverage
from statemachines.testing.conformance.wire_nodes import WirePeer
from statemachines.testing.conformance.wire_verdict import WireCourse
from statemachines.wire import Packet

RULES: Final = {
    "PS-04": "a publisher is answered, once, when its message is stored",
    "PS-44": "messages are sent in the order in which they were taken, and none is left out",
    "PS-49": "no more is in flight than the client receives, and each packet has one message",
    "PS-50": "a message is sent under its packet once",
    "PS-51": "a message of QoS 1 is done when it is acknowledged",
    "PS-52": "a message of QoS 2 that was received is released",
    "PS-55": "a message that is sent again is marked, and keeps its packet",
    "PS-103": "a clean start, and a client whose session is over, get a session id that nobody had",
    "PS-104": "otherwise the client has its session again",
    "PS-106": "a client is told that it is connected",
    "PS-108": "a client that leaves is told so",
}


class RuleBroken(Exception):
    """A rule does not allow what came, or that nothing came."""

    def __init__(self, clause: str, wrong: str) -> None:
        super().__init__(wrong)
        self.clause = clause


class FlyingMessage(msgspec.Struct):
    """A message in flight; of QoS 2, whether the client has received and the node has released it."""

    number: int
    qos: int
    life: int
    """The connection over which it came last."""
    is_received: bool = False
    is_released: bool = False


class SessionRules:
    """Judges one session and one publisher; `checked` counts the rules that were applied."""

    def __init__(self, receive_maximum: int, tolerance_ns: int) -> None:
        self.checked: Counter[str] = Counter()
        self.is_connected = False
        self.flying: dict[int, FlyingMessage] = {}
        self.life = 0
        """Counts the connections of the subscriber."""
        self._receive_maximum = receive_maximum
        self._tolerance_ns = tolerance_ns
        self._owed: dict[tuple[str, int], tuple[int, str, str]] = {}
        self._done: dict[int, tuple[int, int]] = {}
        """Number -> connection in which it was acknowledged, and when."""
        self._due: dict[int, int] = {}
        """Number -> when it was stored for the session."""
        self._last = -1
        self._session = ""
        self._sessions: set[str] = set()
        self._may_be_present = False
        self._must_be_present = False
        self._subscribed_from: int | None = None
        self._has_resumed = False
        self._room_ns = 0

    # -- what the kit does --------------------------------------------------------------------------------------

    def connect(self, now_ns: int, *, clean: bool) -> None:
        """The client asks to be connected."""
        self.life += 1
        if clean:
            self._may_be_present = self._must_be_present = False
        self._owe("welcome", 0, now_ns, "PS-106", "welcome")

    def lose(self, now_ns: int, *, session_ends: bool = False) -> None:
        """The connection of the client is over; acknowledgements of the last moments may not have arrived."""
        self.is_connected = False
        for key in [key for key in self._owed if key[0] not in ("publish_stored",)]:
            del self._owed[key]
        for number, (life, at_ns) in list(self._done.items()):
            if life == self.life and now_ns - at_ns < self._tolerance_ns:
                del self._done[number]
        if session_ends:
            self._may_be_present = self._must_be_present = False

    def subscribe(self, n: int, now_ns: int) -> None:
        """The client subscribes."""
        self._owe("subscribed", n, now_ns, "PS-106", "subscribed")

    def publish(self, number: int, now_ns: int) -> None:
        """The publisher hands a message over."""
        self._owe("publish_stored", number, now_ns, "PS-04", f"publish_stored(n={number})")

    def lose_publisher(self) -> None:
        """The connection of the publisher is over: what it was not answered may be stored or not."""
        for key in [key for key in self._owed if key[0] == "publish_stored"]:
            del self._owed[key]

    def leave(self, now_ns: int) -> None:
        """The client leaves."""
        self._owe("farewell", 0, now_ns, "PS-108", "farewell(why='left')")

    def acknowledge(self, packet: int, now_ns: int) -> None:
        """QoS 1: puback; QoS 2: pubrec."""
        held = self.flying[packet]
        if held.qos == 2:
            held.is_received = True
            self._owe("pubrel", packet, now_ns, "PS-52", f"pubrel(packet={packet})")
        else:
            self.complete(packet, now_ns)

    def complete(self, packet: int, now_ns: int) -> None:
        """QoS 2: pubcomp; QoS 1: it was acknowledged."""
        if len(self.flying) >= self._receive_maximum:
            self._room_ns = now_ns
        held = self.flying.pop(packet, None)
        if held is not None:
            self._done[held.number] = (self.life, now_ns)

    # -- what comes ---------------------------------------------------------------------------------------------

    def take_welcome(self, came: Welcome, now_ns: int) -> None:
        """The client is connected."""
        self._settle("welcome", 0, "PS-106", "welcome")
        if came.present:
            self._check(self._may_be_present, "PS-103", "welcome: present is true; the session was over")
            self._check(came.session == self._session, "PS-104", f"welcome: session is {came.session!r}, another")
            self._has_resumed = True
            for packet, held in self.flying.items():
                self._owe_again(packet, held, now_ns)
        else:
            self._check(not self._must_be_present, "PS-104", "welcome: present is false; the session is not over")
            self._check(came.session not in self._sessions, "PS-103", f"welcome: session {came.session!r} was there")
            self.flying.clear()
            self._due.clear()
            self._subscribed_from = None
            self._has_resumed = False
        self._session = came.session
        self._sessions.add(came.session)
        self._may_be_present = self._must_be_present = True
        self.is_connected = True
        self._room_ns = now_ns

    def _owe_again(self, packet: int, held: FlyingMessage, now_ns: int) -> None:
        if held.is_received:
            self._owe("pubrel", packet, now_ns, "PS-55", f"pubrel(packet={packet}), once more")
        else:
            self._owe("delivered", packet, now_ns, "PS-55", f"delivered(packet={packet}), once more")

    def take_subscribed(self, n: int, next_number: int) -> None:
        """The subscription is stored: what is published from now on is for the session."""
        self._settle("subscribed", n, "PS-106", f"subscribed(n={n})")
        if self._subscribed_from is None:
            self._subscribed_from = next_number

    def take_stored(self, number: int, qos: int, now_ns: int) -> None:
        """A message is stored."""
        self._settle("publish_stored", number, "PS-04", f"publish_stored(n={number})")
        is_for_session = self._subscribed_from is not None and number >= self._subscribed_from
        if qos and is_for_session and number > self._last:
            self._due[number] = now_ns

    def take_delivered(self, came: Delivered, now_ns: int) -> None:
        """A message comes."""
        number, packet = int(came.payload), came.packet
        self._check(self.is_connected, "PS-106", f"delivered({number}) before welcome")
        if not packet:
            return
        held = self.flying.get(packet)
        if held is not None:
            self._take_again(came, held)
            return
        self._check(number not in self._done, "PS-51", f"delivered({number}) comes again; it was acknowledged")
        self._check(self._has_resumed or not came.dup, "PS-55", f"delivered({number}) is marked; it comes first")
        self._check(
            len(self.flying) < self._receive_maximum,
            "PS-49",
            f"delivered({number}) under packet {packet}; {len(self.flying)} are in flight, which is all",
        )
        for other, one in self.flying.items():
            self._check(one.number != number, "PS-55", f"delivered({number}) under packet {packet}, not {other}")
        self.flying[packet] = FlyingMessage(number, came.qos, self.life)
        if number > self._last:
            skipped = [one for one in self._due if self._last < one < number]
            self._check(not skipped, "PS-44", f"delivered({number}) comes before {min(skipped, default=0)}")
            self._last = number
        elif not came.dup:
            self._check(False, "PS-44", f"delivered({number}) comes after {self._last}")
        self._due.pop(number, None)

    def _take_again(self, came: Delivered, held: FlyingMessage) -> None:
        number, packet = int(came.payload), came.packet
        self._check(
            held.number == number, "PS-49", f"packet {packet} has message {number}; it has {held.number}, in flight"
        )
        self._check(held.life != self.life, "PS-50", f"delivered({number}) comes twice over one connection")
        self._check(came.dup, "PS-55", f"delivered({number}) comes again, and is not marked")
        self._check(not held.is_released, "PS-52", f"delivered({number}) comes again; it was released")
        held.life, held.is_received = self.life, False
        for name in ("delivered", "pubrel"):
            self._owed.pop((name, packet), None)

    def take_pubrel(self, packet: int) -> None:
        """A packet may be forgotten."""
        held = self.flying.get(packet)
        if held is None:
            self._check(self._has_resumed, "PS-52", f"pubrel(packet={packet}), which is not in flight")
            return
        self._check(held.is_received, "PS-52", f"pubrel(packet={packet}) before pubrec")
        held.is_released = True
        self._owed.pop(("pubrel", packet), None)

    def take_farewell(self, came: Farewell) -> None:
        """The connection is over for the node."""
        self._check(came.why == "left", "PS-108", f"farewell(why={came.why!r}); left is expected")
        self._settle("farewell", 0, "PS-108", "farewell")

    # -- silence ------------------------------------------------------------------------------------------------

    def check_silence(self, settled_ns: int) -> None:
        """What had to come has come."""
        before_ns = settled_ns - self._tolerance_ns
        tolerance = f"{self._tolerance_ns / 1e9:g} s after it was owed"
        for since_ns, clause, what in self._owed.values():
            if since_ns < before_ns:
                raise RuleBroken(clause, f"missing: {what}, {tolerance}")
        if self.is_connected and len(self.flying) < self._receive_maximum and self._room_ns < before_ns:
            late = [number for number, stored_ns in self._due.items() if stored_ns < before_ns]
            if late:
                raise RuleBroken("PS-44", f"missing: delivered({min(late)}), {tolerance}")

    # -- rules --------------------------------------------------------------------------------------------------

    def _owe(self, name: str, number: int, now_ns: int, clause: str, what: str) -> None:
        self._owed[name, number] = (now_ns, clause, what)

    def _settle(self, name: str, number: int, clause: str, what: str) -> None:
        self._check((name, number) in self._owed, clause, f"not expected: {what}")
        del self._owed[name, number]

    def _check(self, holds: Any, clause: str, wrong: str) -> None:
        self.checked[clause] += 1
        if not holds:
            raise RuleBroken(clause, wrong)


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
            wanted = message.ConnectWanted(CLIENT_ID, clean, EXPIRY_MS, RECEIVE_MAXIMUM, "kit", self._rules.life)
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

    def _take(self, peer: WirePeer, said: Any) -> None:
        rules, now_ns = self._rules, self._course.now_ns()
        match said:
            case message.Welcome():
                rules.take_welcome(said, now_ns)
                self._course.counts["instances"] += 1
                self._ends_ns = now_ns + int(self._chance.random() ** 3 * LASTS * self._course.tolerance_ns)
                if not said.present:
                    self._subscribe(peer)
            case message.Subscribed(n):
                rules.take_subscribed(n, self._number + 1)
            case message.PublishStored(n):
                rules.take_stored(n, self._qos.pop(n, 0), now_ns)
            case message.Delivered(packet, _, _, _, qos):
                rules.take_delivered(said, now_ns)
                if packet:
                    self._act_late(peer, lambda: self._acknowledge(peer, packet, qos))
            case Pubrel(packet):
                rules.take_pubrel(packet)
                self._act_late(peer, lambda: self._complete(peer, packet))
            case message.Farewell():
                rules.take_farewell(said)
                self._cut(peer)
            case message.Refused(n, why):
                self._course.give_up(f"the node has refused number {n}: {why}")

    def _subscribe(self, peer: WirePeer) -> None:
        self._requests += 1
        self._rules.subscribe(self._requests, self._course.now_ns())
        self._say(peer, message.SubscribeWanted(self._requests, FILTER, 2))

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
            self._say(publisher, message.PublishWanted(self._number, TOPIC, str(self._number).encode(), qos))
        if subscriber is not None and self._rules.is_connected and chance.random() < 0.05:
            self._say(subscriber, message.Ping())

    def _end_connection(self, peer: WirePeer, chance: Random) -> None:
        """It is cut; or the client leaves, and its session stays or ends."""
        if self._is_leaving:
            return
        if chance.random() < 0.5:
            self._cut(peer)
            return
        self._is_leaving, self._ends = True, chance.random() < 0.3
        self._rules.leave(self._course.now_ns())
        self._say(peer, message.LeaveWanted(0 if self._ends else -1))

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

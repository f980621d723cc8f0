"""SessionRules: what a client and a publisher may see of a node of sessions, rule by rule, each with its clause.

The numbers of messages rise, and the payload of a message is its number.  What is uncertain counts for the node: a
message or an acknowledgement that was on its way when the connection ended may have arrived or not.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from statemachines.persistent_sessions.client_message import Delivered, Farewell, Welcome

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
            self._end(packet, now_ns)

    def complete(self, packet: int, now_ns: int) -> None:
        """QoS 2: pubcomp."""
        self._end(packet, now_ns)

    def _end(self, packet: int, now_ns: int) -> None:
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
        self._check_done(number)
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

    def _check_done(self, number: int) -> None:
        self._check(number not in self._done, "PS-51", f"delivered({number}) comes again; it was acknowledged")

    def take_pubrel(self, packet: int) -> bool:
        """A packet may be forgotten; whether it is answered."""
        held = self.flying.get(packet)
        if held is None:
            self._check(self._has_resumed, "PS-52", f"pubrel(packet={packet}), which is not in flight")
            return True
        self._check(held.is_received, "PS-52", f"pubrel(packet={packet}) before pubrec")
        held.is_released = True
        self._owed.pop(("pubrel", packet), None)
        return True

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

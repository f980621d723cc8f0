"""WireNodes: the lives of an implementation on the wire, their instances, and what the kit says to them.

Each instance has a judge, which carries the states that the table allows.

WireNode: one life of an implementation on the wire, with its instances.

InputChoice: which of the messages that peers may send is sent next.

MessageFaults: whole messages lost, repeated, delayed and so reordered, which TCP alone never does.

WirePeer: one connection of an implementation to the kit: its greeting, and its messages.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, Protocol, cast

import msgspec
from msgspec.structs import replace

from statemachines.drivers.credentials import Credentials
from statemachines.drivers.greeting import GREETING_MAX, NONCE_SIZE, Greeting, Terms
from statemachines.drivers.tcp import HELLO_S, TELL_S
from statemachines.kernel import Fsm, ProtocolError, Send, name_of
from statemachines.testing.conformance.conformance_run import Cell, ConformanceViolation, Inconclusive, Violated
from statemachines.testing.conformance.relation import OutputsOf, answered_values, words_of
from statemachines.testing.conformance.role import ConformanceRole, EarlierInstance, PeerPlayer, WireRole
from statemachines.testing.conformance.wire_judge import SentInput, WireCoverage, WireJudge
from statemachines.testing.conformance.wire_verdict import WireChoice, WireCourse
from statemachines.wire import (
    FRAME_MAX,
    FrameError,
    Frames,
    Hello,
    Packet,
    PacketCodec,
    decode_hello,
    encode_refusal,
    hello_of,
    quote_for_log,
    refusal_in,
)

WRITE_MAX: Final = 4 * 2**20
"""So many bytes may wait for an implementation that does not read."""


class PeerOwner(Protocol):
    """The run that a connection belongs to."""

    wire: WireRole
    store: str
    credentials: Credentials

    def join(self, peer: WirePeer) -> str:
        """The greeting is over; why the peer may not stay ("": it may)."""

    def receive(self, peer: WirePeer, packet: Packet[Any]) -> None:
        """A message has come."""

    def leave(self, peer: WirePeer, why: str) -> None:
        """The connection is gone; `why`: the peer did something wrong ("": it did not)."""


class WirePeer(asyncio.Protocol):
    """One connection of the kit's `life`; `hello` is set when the greeting is over.

    Args:
        place: which of the connections that the kit keeps it is.
        dialled: the kit has made it.  It then says hello second, and names the store that the other side names.
    """

    def __init__(self, owner: PeerOwner, life: str, *, dialled: bool, place: int = 0) -> None:
        self.life = life
        self.place = place
        self.hello: Hello | None = None
        self.closed = asyncio.Event()
        self.name = "?"
        self.is_open = True
        self._owner = owner
        self._dialled = dialled
        self._greeting: Greeting | None = None
        self._codec: PacketCodec[Any] = PacketCodec(owner.wire.takes)
        self._frames = Frames(GREETING_MAX)
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    # -- asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.name = "{}:{}".format(*(transport.get_extra_info("peername") or ("?", "?"))[:2])
        if not self._dialled:
            self._begin_greeting(self._owner.store)
        self._timer = asyncio.get_running_loop().call_later(HELLO_S, self._end_late)

    def _begin_greeting(self, store: str) -> Greeting:
        """Say hello, on this store."""
        owner, credentials = self._owner, self._owner.credentials
        nonce = secrets.token_bytes(NONCE_SIZE) if credentials.secrets else b""
        hello = hello_of(owner.wire.plays.full_name, self.life, nonce=nonce, mutual=credentials.mutual, store=store)
        terms = Terms(credentials.secrets)
        greeting = Greeting(hello, owner.wire.peer, dialled=self._dialled, terms=terms, has_store=lambda role: False)
        self._transport.write(greeting.begin())
        self._greeting = greeting
        return greeting

    def data_received(self, data: bytes) -> None:
        body: bytes | memoryview = b""
        try:
            for body in self._frames.feed(data) if self.is_open else ():
                if self.hello is None:
                    self._greet(body)
                else:
                    packet = self._codec.decode(body)
                    self._check_parties(packet)
                    self._owner.receive(self, packet)
                if not self.is_open:
                    return
        except FrameError as error:
            why = refusal_in(body)
            self.refuse(f"refuses the kit: {why}" if why else str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.closed.set()
        if self.is_open:
            self.is_open = False
            early = (
                "" if self.hello is not None else "has closed its connection before its hello; the first frame is one"
            )
            self._owner.leave(self, f"{early}{_reason(exc)}" if early else "")

    # -- sending ------------------------------------------------------------------------------------------------

    def send(self, sender: str, to: str, message: Any) -> None:
        """Send a message of a party of the kit."""
        self._number += 1
        self._transport.write(self._codec.encode(Packet(sender, to, self._number, message)))
        if self._transport.get_write_buffer_size() > WRITE_MAX:
            self.refuse(f"does not read: {WRITE_MAX:,} bytes wait for it")

    def refuse(self, why: str) -> None:
        """End the connection, and tell the peer why."""
        if self.is_open:
            self.is_open = False
            self._transport.write(encode_refusal(why))
            self._transport.close()
            asyncio.get_running_loop().call_later(TELL_S, self._transport.abort)
            self._owner.leave(self, why)

    def close(self) -> None:
        """The run is over; TLS may never have been set up."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._transport.abort()

    # -- the peer -----------------------------------------------------------------------------------------------

    def _end_late(self) -> None:
        if self.hello is None:
            self.refuse(f"has said no hello within {HELLO_S:g} s; the first frame of a connection is one")

    def _greet(self, body: memoryview | bytes) -> None:
        greeting = self._greeting or self._begin_greeting(
            self._owner.store or decode_hello(body, self._owner.wire.peer).store
        )
        answer = greeting.feed(body)
        if answer:
            self._transport.write(answer)
        if greeting.done:
            assert self._timer is not None
            self._timer.cancel()
            self.hello = greeting.peer
            self._frames.frame_max = FRAME_MAX
            if why := self._owner.join(self):
                self.refuse(why)

    def _check_parties(self, packet: Packet[Any]) -> None:
        assert self.hello is not None
        if not f"{packet.sender}/".startswith(f"{self.hello.life}/"):
            rule = f"the id of a party begins with the life of its hello, {quote_for_log(self.hello.life)}"
            raise FrameError(f"sent a message as {quote_for_log(packet.sender)}; {rule}")
        node, wire = self.life.partition("~")[0], self._owner.wire
        if "~" in packet.to and not packet.to.startswith(f"{node}~"):
            raise FrameError(f"sent a message to {quote_for_log(packet.to)}, which does not live on {node}")
        for field, party, how in ((wire.speaker, packet.sender, "as"), (wire.addressee, packet.to, "to")):
            if field and (named := getattr(packet.message, field)) != party:
                said = f"sent a message {how} {quote_for_log(party)} that names {quote_for_log(named)}"
                raise FrameError(f"{said}; the two are equal")


def _reason(exc: Exception | None) -> str:
    if isinstance(exc, ssl.SSLError):
        return f" ({exc.reason})"
    return ""


class WireInstance(msgspec.Struct, eq=False):
    """One instance of the role under test."""

    node: WireNode
    judge: WireJudge
    first: Any
    is_retired: bool = False
    """Another has followed it, and it may have ended: nothing is owed any more."""
    earlier: WireInstance | None = None
    """The one before it, until that has certainly ended."""


class WireNode(msgspec.Struct, eq=False):
    """One life of an implementation: its instances, and its peers as the kit plays them."""

    peer: WirePeer
    player: PeerPlayer
    instances: dict[str, WireInstance] = {}
    early: list[SentInput] = []
    """What was said where no instance was known."""


ENDING: Final = 0.04
"""So much of what the kit proposes ends the instance."""

FRESH: Final = 0.4
"""So much of it takes a row that was not taken."""


class InputChoice:
    """Chooses messages, steered to rows that were not taken."""

    def __init__(self, fsm: Fsm[Any], coverage: WireCoverage) -> None:
        self._fsm = fsm
        self._coverage = coverage

    def choose(self, record: Any, messages: Iterable[Any], chance: Random) -> Any | None:
        """One of the messages for an instance in this state; None: the table takes none of them."""
        fsm, taken = self._fsm, self._coverage.cells
        kinds: dict[tuple[bool, bool], list[Any]] = {}
        for message in messages:
            try:
                step = fsm.step(record, message, 0)
            except ProtocolError:
                continue
            is_fresh = (fsm.full_name, step.row, str(record.status.value)) not in taken
            kinds.setdefault((step.record.status in fsm.final, is_fresh), []).append(message)
        ends = chance.random() < ENDING
        order = [(ends, chance.random() < FRESH), (ends, False), (ends, True), (not ends, False), (not ends, True)]
        found = next((kinds[kind] for kind in order if kind in kinds), None)
        return None if found is None else chance.choice(found)


REPEAT_S: Final = 0.2
"""A repetition comes within so long."""

DELAY_S: Final = 0.3
"""A message that is delayed comes within so long."""


class MessageFaults:
    """Carries messages, some of them badly.

    Args:
        share: so much of the messages is lost, as much is repeated, and twice as much is delayed.
        counts: how many were, by name.
    """

    def __init__(self, share: float, choice: WireChoice, counts: Counter[str]) -> None:
        self._share = share
        self._choice = choice
        self._counts = counts

    def carry(self, act: Callable[[], None]) -> None:
        """Act as the message arrives: never, at once, later, or twice."""
        chance = self._choice.draw_fault(min(1.0, 4 * self._share))
        for delay_s in [0.0] if chance is None else self._draw_delays(chance):
            if delay_s:
                asyncio.get_running_loop().call_later(delay_s, act)
            else:
                act()

    def _draw_delays(self, chance: Random) -> list[float]:
        """How long each copy takes (s)."""
        kind = chance.random()
        if kind < 0.25:
            self._counts["lost"] += 1
            return []
        if kind < 0.5:
            self._counts["repeated"] += 1
            return [0.0, chance.random() * REPEAT_S]
        self._counts["delayed"] += 1
        return [chance.random() * DELAY_S]


MS: Final = 1_000_000
BEAT_S: Final = 0.02
"""The kit looks at the time so often."""

TRAVEL_NS: Final = 100 * MS
"""The first message of an instance was sent at most so long before the kit looked for messages and found none."""

CHECK_NS: Final = 100 * MS
"""It judges silence so often."""

GREET_NS: Final = 300 * MS
"""It looks for an instance so often, where none is known."""

NODES_MAX: Final = 16
INSTANCES_MAX: Final = 16
"""So many instances of one node are remembered."""

UNHANDLED_MAX: Final = 8
"""While so many inputs may not be handled yet, the kit only asks what shows that they are."""


class WireNodes:
    """The nodes that are connected in one run; what is wrong goes to its course."""

    def __init__(self, role: ConformanceRole, wire: WireRole, course: WireCourse) -> None:
        self.role = role
        self.wire = wire
        self.left = ""
        """Why nothing is certain of an instance, since its connection was closed."""
        self.coverage = WireCoverage(set(), set(), set())
        self._course = course
        self._nodes: dict[str, WireNode] = {}
        self._outputs = OutputsOf(role.relation)
        self._inputs = InputChoice(role.fsm, self.coverage)
        self._faults = MessageFaults(course.options.faults, course.choice, course.counts)
        self._check_ns = 0
        self._greet_ns = 0

    # -- connections --------------------------------------------------------------------------------------------

    def join(self, peer: WirePeer) -> str:
        """The greeting is over; why the peer may not stay."""
        assert peer.hello is not None
        hello = peer.hello
        open_nodes = [node for node in self._nodes.values() if node.peer.is_open]
        if any(node.peer.hello.node == hello.node for node in open_nodes if node.peer.hello):
            return f"connects as {hello.life} while {hello.node} is connected; end the first connection before"
        if hello.life in self._nodes and not self.wire.dials:
            return f"connects as {hello.life} again; a connection of the kit ends with the life, so count the lives"
        if len(open_nodes) >= NODES_MAX:
            return f"is one node too many; the kit takes {NODES_MAX} at a time"
        self.left = ""
        assert self.wire.player is not None
        player = self.wire.player(peer.life, self._course.choice.draw_player())
        self._nodes[hello.life] = WireNode(peer, player)
        return ""

    def leave(self, peer: WirePeer) -> None:
        """A connection is gone."""
        node = self._nodes.get(peer.hello.life) if peer.hello is not None else None
        if node is None or node.peer is not peer:
            return
        self._course.note(f"{node.peer.name} has closed its connection")
        for name, one in node.instances.items():
            if not any(state.stopped for state in one.judge.states):
                status = one.judge.likeliest.record.status.value
                rule = "keep the connection until the kit ends it, or until the instance has ended"
                self.left = f"the connection was closed while {name} was {status}; {rule}"
        node.instances.clear()

    def receive(self, peer: WirePeer, packet: Packet[Any]) -> None:
        """A message has come."""
        assert peer.hello is not None
        node, course = self._nodes[peer.hello.life], self._course
        course.counts["messages that came"] += 1
        course.note(f"{packet.sender} -> {words_of(packet.message)}")
        if self._is_of_node(node, packet):
            return
        instance = node.instances.get(packet.sender) or self._begin(node, packet)
        if instance is None:
            return
        (came,) = self._outputs.of((Send(packet.to, packet.message),))
        now_ns = course.now_ns()
        self._guard(instance, lambda one: one.judge.observe(came, now_ns, max(course.settled_ns, course.started_ns)))
        if not course.is_decided:
            self._answer(instance, packet.message)

    def _is_of_node(self, node: WireNode, packet: Packet[Any]) -> bool:
        """The node says what it may of an instance that is gone."""
        assert node.peer.hello is not None
        if packet.sender != node.peer.hello.life or name_of(type(packet.message)) not in self.wire.node_says:
            return False
        now_ns = self._course.now_ns()
        return not node.instances or any(one.judge.may_have_ended(now_ns) for one in node.instances.values())

    def _begin(self, node: WireNode, packet: Packet[Any]) -> WireInstance | None:
        """A new instance, which this message begins."""
        if len(node.instances) >= INSTANCES_MAX:
            node.instances = dict(list(node.instances.items())[-INSTANCES_MAX // 2 :])
        course, message = self._course, packet.message
        now_ns = course.now_ns()
        earlier = tuple(EarlierInstance(one.first, one.judge.list_ends(now_ns)) for one in node.instances.values())
        for one, before in zip(node.instances.values(), earlier, strict=True):
            one.judge.is_followed = True
            one.is_retired = one.is_retired or any(farewell for _, farewell in before.ends)
        records = self.wire.begin(packet.to, message, course.configuration, earlier)
        if not records:
            came = self._outputs.of((Send(packet.to, message),))
            wrong = f"{packet.sender} is new, and no instance begins so, or the one before it goes on"
            found = ConformanceViolation(
                "nothing", now_ns - course.started_ns, ("not begun",), (((), ()),), came, wrong
            )
            course.fail(wrong, packet.sender, found)
            return None
        course.counts["instances"] += 1
        early, node.early = node.early, []
        began_ns = early[0].at_ns if early else min(course.settled_ns, now_ns) - TRAVEL_NS
        moments = (max(course.started_ns, began_ns), now_ns)
        tolerance_ns = course.tolerance_ns
        judge = WireJudge(self.role, self.wire, packet.sender, records, moments, tolerance_ns, self.coverage, early)
        last = next(reversed(node.instances.values()), None)
        node.instances[packet.sender] = WireInstance(node, judge, message, earlier=last)
        return node.instances[packet.sender]

    # -- as time goes -------------------------------------------------------------------------------------------

    def beat(self, now_ns: int) -> None:
        """Judge silence, look for instances, propose inputs."""
        course = self._course
        if now_ns >= self._check_ns:
            self._check_ns = now_ns + CHECK_NS
            for instance in self._list_open():
                self._guard(instance, lambda one: one.judge.check_silence(now_ns, course.settled_ns))
            for instance in self._list_followed():
                if instance.earlier is not None and instance.earlier.judge.has_ended(now_ns, course.settled_ns):
                    instance.earlier = None
                    self._guard(instance, lambda one: one.judge.note_end())
        if now_ns >= self._greet_ns:
            self._greet_ns = now_ns + GREET_NS
            for node in self._list_nodes():
                self._greet(node)
        self._propose()

    def _list_nodes(self) -> list[WireNode]:
        return [] if self._course.is_decided else [node for node in self._nodes.values() if node.peer.is_open]

    def _list_open(self) -> list[WireInstance]:
        """The instances of which something may be owed."""
        found = [one for node in self._list_nodes() for one in node.instances.values()]
        return [one for one in found if not one.is_retired]

    def _list_followed(self) -> list[WireInstance]:
        """The instances that have followed another, of which it is not certain that it has ended."""
        return [one for node in self._list_nodes() for one in node.instances.values() if one.earlier is not None]

    # -- the kit's messages -------------------------------------------------------------------------------------

    def _greet(self, node: WireNode) -> None:
        """Look for an instance, where none may be there."""
        last = next(reversed(node.instances.values()), None)
        if last is not None and not last.judge.may_have_ended(self._course.now_ns()):
            return
        for message in node.player.greet():
            self._faults.carry(lambda message=message: self._send_early(node, last, message))  # type: ignore[misc]

    def _send_early(self, node: WireNode, last: WireInstance | None, message: Any) -> None:
        if self._course.is_decided or not node.peer.is_open:
            return
        now_ns = self._course.now_ns()
        newest = next(reversed(node.instances.values()), None)
        if newest is not None:
            newest.judge.send(message, now_ns)
        if newest is last:
            node.early.append(SentInput(message, now_ns))
        self._course.count_sent(f"{self.wire.host} <- {words_of(message)}")
        node.peer.send(node.player.sender(message), self.wire.host, message)

    def _answer(self, instance: WireInstance, message: Any) -> None:
        """The peers answer, unless the message is lost on its way to them; it may reach them twice, or later."""
        self._faults.carry(lambda: self._answer_now(instance, message))

    def _answer_now(self, instance: WireInstance, message: Any) -> None:
        state = instance.judge.likeliest
        for answer in instance.node.player.answer(state.record, message):
            self._say(instance, answer)

    def _propose(self) -> None:
        """An input of the kit's own to one of the instances that may be there."""
        course = self._course
        found = [one for one in self._list_open() if not one.judge.is_over and len(one.judge.sent) < 2 * UNHANDLED_MAX]
        chance = course.choice.draw_input(BEAT_S * course.options.rate) if found else None
        if chance is None:
            return
        instance = chance.choice(found)
        player, record = instance.node.player, instance.judge.likeliest.record
        if len(instance.judge.sent) < UNHANDLED_MAX:
            message = self._inputs.choose(record, player.propose(record), chance)
        else:
            message = player.probe(record)
        if message is not None:
            course.choice.count_input()
            self._say(instance, message)

    def _say(self, instance: WireInstance, message: Any) -> None:
        """Send a message, unless it is lost; perhaps twice, perhaps later than others."""
        state = instance.judge.likeliest
        said = answered_values(self.role.relation, message, state.binding)
        self._faults.carry(lambda: self._send(instance, said))

    def _send(self, instance: WireInstance, message: Any) -> None:
        node = instance.node
        if self._course.is_decided or not node.peer.is_open:
            return
        self._course.count_sent(f"{instance.judge.name} <- {words_of(message)}")
        instance.judge.send(message, self._course.now_ns())
        node.peer.send(node.player.sender(message), instance.judge.name, message)

    # -- verdicts -----------------------------------------------------------------------------------------------

    def _guard(self, instance: WireInstance, act: Callable[[WireInstance], None]) -> None:
        if self._course.is_decided:
            return
        try:
            act(instance)
        except Violated as error:
            found = replace(error.violation, at_ns=self._course.now_ns() - self._course.started_ns)
            self._course.fail(found.wrong, instance.judge.name, found)
        except Inconclusive as error:
            self._course.give_up(str(error))

    def find_missing(self) -> str:
        """Why a run in which nothing was wrong shows nothing ("": it shows something)."""
        if not self._course.counts["instances"]:
            seconds = self._course.options.seconds
            return f"no message has come within {seconds:g} s; an instance begins with one"
        return self.left

    def list_table(self) -> frozenset[Cell]:
        """The rows of the table, state by state."""
        lines = ((one, line) for one in self.role.fsm.family() for line in one.lines if line.kind == "row")
        return frozenset(
            (one.full_name, line.number, str(state.value)) for one, line in lines for state in line.sources
        )

    def list_rules(self) -> dict[str, int]:
        """The table is the rule."""
        return {}

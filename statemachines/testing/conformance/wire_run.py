"""WireRun: an implementation tested over real sockets, in real time.

    verdict = asyncio.run(WireRun(role, WireOptions(seconds=10)).judge(print))

The kit listens, and an implementation connects to it.  The kit plays the peers: it answers, proposes inputs of its own,
steered to rows that were not taken, and loses, repeats, delays and reorders messages in both directions.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from statemachines.drivers.tcp import Address
from statemachines.kernel import ConfigurationError, Send, incarnation
from statemachines.testing.conformance.campaign import Outcome
from statemachines.testing.conformance.conformance_run import Inconclusive, Violated, Violation
from statemachines.testing.conformance.input_choice import InputChoice
from statemachines.testing.conformance.interface import InterfaceError
from statemachines.testing.conformance.message_faults import MessageFaults
from statemachines.testing.conformance.relation import OutputsOf, answered_values
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.started_process import StartedProcess
from statemachines.testing.conformance.wire_judge import WireCoverage, WireJudge, words_of
from statemachines.testing.conformance.wire_node import WireInstance, WireNode
from statemachines.testing.conformance.wire_peer import WirePeer
from statemachines.testing.conformance.wire_role import EarlierInstance, WireRole
from statemachines.testing.conformance.wire_verdict import Note, WireOptions, WireVerdict
from statemachines.wire import Packet

MS: Final = 1_000_000
BEAT_S: Final = 0.02
"""The kit looks at the time so often."""

TRAVEL_NS: Final = 100 * MS
"""The first message of an instance was sent at most so long before the kit looked for messages and found none."""

CHECK_NS: Final = 100 * MS
"""It judges silence so often."""

NOTES_MAX: Final = 200
NODES_MAX: Final = 16
INSTANCES_MAX: Final = 16
"""So many instances of one node are remembered."""

UNHANDLED_MAX: Final = 8
"""The kit proposes nothing while so many inputs may not be handled yet."""


RESTART_S: Final = 0.2
"""A process that has ended is started again after so long."""


class WireRun:
    """One run: it listens for a while, and judges every implementation that connects."""

    def __init__(self, role: ConformanceRole, options: WireOptions, command: tuple[str, ...] = ()) -> None:
        if role.wire is None:
            rule = "cannot be tested over the wire: its protocol declares no WireRole; test it in lockstep"
            raise ConfigurationError("role", role.fsm.full_name, rule)
        self.role = role
        self.wire: WireRole = role.wire
        self.options = options
        self.configuration = options.configuration or self.wire.configuration
        self.store = options.store
        self.credentials = options.credentials
        self.life = incarnation("kit", 1)
        self.counts: Counter[str] = Counter()
        self._command = command
        self._chance = Random(options.seed)
        self._faults = MessageFaults(options.faults, self._chance, self.counts)
        self._tolerance_ns = int(options.tolerance_s * 1e9)
        self._nodes: dict[str, WireNode] = {}
        self._peers: set[WirePeer] = set()
        self._notes: deque[Note] = deque(maxlen=NOTES_MAX)
        self._outputs = OutputsOf(role.relation)
        self._coverage = WireCoverage(set(), set(), set())
        self._inputs = InputChoice(role.fsm, self._coverage, self._chance)
        self._verdict: WireVerdict | None = None
        self._error: InterfaceError | None = None
        self._left = ""
        self._settled_ns = 0
        self._started_ns = 0
        self._check_ns = 0
        self._hold_until_ns = 0
        self._held_ns = 0

    # -- running ------------------------------------------------------------------------------------------------

    async def judge(self, announce: Callable[[Address], None]) -> WireVerdict:
        """The verdict, after the run; `announce` is called with the address when the kit listens.

        Raises:
            InterfaceError: the peer does not speak the protocol of the wire.
            ConfigurationError: the address cannot be listened on, or the command cannot be started.
        """
        loop = asyncio.get_running_loop()
        host, port = self.options.listen
        try:
            server = await loop.create_server(self._accept, host, port, ssl=self.credentials.listening())
        except (OSError, UnicodeError) as error:
            rule = f"cannot be listened on: {getattr(error, 'strerror', None) or error}; choose another, or port 0"
            raise ConfigurationError("address", f"{host}:{port}", rule) from error
        process: StartedProcess | None = None
        try:
            address: Address = server.sockets[0].getsockname()[:2]
            announce(address)
            self._started_ns = self._settled_ns = self._now()
            end_ns = self._started_ns + int(self.options.seconds * 1e9)
            starts_ns = 0
            while not self._is_decided() and self._now() < end_ns:
                if self._command and process is None and self._now() >= starts_ns:
                    process = self._start(address)
                if process is not None and process.exit_code is not None:
                    self._note_end(process)
                    process, starts_ns = None, self._now() + int(RESTART_S * 1e9)
                await self._beat()
        finally:
            server.close()
            for peer in list(self._peers):
                peer.close()
            if process is not None:
                process.close()
        if self._error is not None:
            raise self._error
        return self._verdict or self._conclude()

    async def _beat(self) -> None:
        """Let messages come, look at the time, propose inputs."""
        before_ns = self._now()
        await asyncio.sleep(BEAT_S)
        now_ns = self._now()
        if now_ns - before_ns > self._tolerance_ns // 2:
            self._hold_until_ns = now_ns + self._tolerance_ns  # the kit was late itself
            self._held_ns += now_ns - before_ns + self._tolerance_ns
        if now_ns >= self._hold_until_ns:
            self._settled_ns = before_ns
        if now_ns >= self._check_ns:
            self._check_ns = now_ns + CHECK_NS
            for instance in self._list_open():
                self._guard(instance, lambda one: one.judge.check_silence(now_ns, self._settled_ns))
            for instance in self._followed():
                if instance.earlier is not None and instance.earlier.judge.has_ended(now_ns, self._settled_ns):
                    instance.earlier = None
                    self._guard(instance, lambda one: one.judge.note_end())
        if self._chance.random() < BEAT_S * self.options.rate:
            self._propose()

    def _list_open(self) -> list[WireInstance]:
        """The instances of which something may be owed."""
        nodes = [node for node in self._nodes.values() if node.peer.is_open]
        found = [one for node in nodes for one in node.instances.values()]
        return [one for one in found if not one.is_retired and not self._is_decided()]

    def _followed(self) -> list[WireInstance]:
        """The instances that have followed another, of which it is not certain that it has ended."""
        nodes = [node for node in self._nodes.values() if node.peer.is_open]
        found = [one for node in nodes for one in node.instances.values() if one.earlier is not None]
        return [] if self._is_decided() else found

    def _is_decided(self) -> bool:
        return self._verdict is not None or self._error is not None

    def _now(self) -> int:
        return time.monotonic_ns()

    # -- the implementation -------------------------------------------------------------------------------------

    def _start(self, address: Address) -> StartedProcess:
        """Start the command; {address} and the like are filled in."""
        self.counts["processes"] += 1
        values = {
            "{address}": "{}:{}".format(*address),
            "{host}": address[0],
            "{port}": str(address[1]),
            "{configuration}": msgspec.json.encode(self.configuration).decode(),
            "{store}": self.store,
            "{life}": str(self.counts["processes"]),
            "{seed}": str(self.options.seed),
        }
        words = list(self._command)
        for name, value in values.items():
            words = [word.replace(name, value) for word in words]
        return StartedProcess(tuple(words))

    def _note_end(self, process: StartedProcess) -> None:
        """The process has ended: in good order where its exit code is 0."""
        said = process.describe_end()
        if process.exit_code:
            self._fail_with(f"the implementation {said}; it must run until the kit ends it", "")
        elif not self.counts["connections"]:
            self._error = InterfaceError(f"the implementation {said}, and has never connected; it dials {{address}}")
        process.close()

    # -- connections (WirePeer calls these) ---------------------------------------------------------------------

    def _accept(self) -> WirePeer:
        peer = WirePeer(self)
        self._peers.add(peer)
        return peer

    def join(self, peer: WirePeer) -> str:
        """The greeting is over; why the peer may not stay."""
        assert peer.hello is not None
        hello = peer.hello
        if any(
            node.peer.is_open and node.peer.hello.node == hello.node for node in self._nodes.values() if node.peer.hello
        ):
            return f"connects as {hello.life} while {hello.node} is connected; end the first connection before"
        if hello.life in self._nodes:
            return f"connects as {hello.life} again; a connection of the kit ends with the life, so count the lives"
        if sum(node.peer.is_open for node in self._nodes.values()) >= NODES_MAX:
            return f"is one node too many; the kit takes {NODES_MAX} at a time"
        self.counts["connections"] += 1
        self._left = ""
        self._note(f"{hello.life} has connected")
        chance = Random(self._chance.random())
        self._nodes[hello.life] = WireNode(peer, self.wire.player(self.life, chance))
        return ""

    def leave(self, peer: WirePeer, why: str) -> None:
        """A connection is gone."""
        self._peers.discard(peer)
        if why and self._error is None:
            who = peer.hello.life if peer.hello is not None else peer.name
            self._error = InterfaceError(f"the implementation ({who}) {why}")
        node = self._nodes.get(peer.hello.life) if peer.hello is not None else None
        if node is None or self._is_decided():
            return
        self._note(f"{node.peer.name} has closed its connection")
        for name, one in node.instances.items():
            if not any(state.stopped for state in one.judge.states):
                status = one.judge.likeliest.record.status.value
                rule = "keep the connection until the kit ends it, or until the instance has ended"
                self._left = f"the connection was closed while {name} was {status}; {rule}"
        node.instances.clear()

    def receive(self, peer: WirePeer, packet: Packet[Any]) -> None:
        """A message has come."""
        assert peer.hello is not None
        if self._is_decided():
            return
        node = self._nodes[peer.hello.life]
        self.counts["messages that came"] += 1
        self._note(f"{packet.sender} -> {words_of(packet.message)}")
        instance = node.instances.get(packet.sender) or self._begin(node, packet)
        if instance is None:
            return
        (came,) = self._outputs.of((Send(packet.to, packet.message),))
        now_ns = self._now()
        self._guard(instance, lambda one: one.judge.observe(came, now_ns, max(self._settled_ns, self._started_ns)))
        if not self._is_decided():
            self._answer(instance, packet.message)

    def _begin(self, node: WireNode, packet: Packet[Any]) -> WireInstance | None:
        """A new instance, which this message begins."""
        if len(node.instances) >= INSTANCES_MAX:
            node.instances = dict(list(node.instances.items())[-INSTANCES_MAX // 2 :])
        now_ns = self._now()
        earlier = tuple(EarlierInstance(one.first, one.judge.list_ends(now_ns)) for one in node.instances.values())
        for one, before in zip(node.instances.values(), earlier, strict=True):
            one.judge.is_followed = True
            one.is_retired = one.is_retired or any(farewell for _, farewell in before.ends)
        message = packet.message
        records = self.wire.begin(packet.to, message, self.configuration, earlier)
        if not records:
            came = self._outputs.of((Send(packet.to, message),))
            wrong = f"{packet.sender} is new, and no instance begins so, or the one before it goes on"
            found = Violation("nothing", self._now() - self._started_ns, ("not begun",), (((), ()),), came, wrong)
            self._fail_with(wrong, packet.sender, found)
            return None
        self.counts["instances"] += 1
        began_ns = max(self._started_ns, min(self._settled_ns, now_ns) - TRAVEL_NS)
        judge = WireJudge(
            self.role, self.wire, packet.sender, records, (began_ns, now_ns), self._tolerance_ns, self._coverage
        )
        last = next(reversed(node.instances.values()), None)
        node.instances[packet.sender] = WireInstance(node, judge, message, earlier=last)
        return node.instances[packet.sender]

    # -- the kit's messages -------------------------------------------------------------------------------------

    def _answer(self, instance: WireInstance, message: Any) -> None:
        """The peers answer, unless the message is lost on its way to them; it may reach them twice, or later."""
        self._faults.carry(lambda: self._answer_now(instance, message))

    def _answer_now(self, instance: WireInstance, message: Any) -> None:
        state = instance.judge.likeliest
        for answer in instance.node.player.answer(state.record, message):
            self._say(instance, answer)

    def _propose(self) -> None:
        """An input of the kit's own to one of the instances that may be there."""
        found = [one for one in self._list_open() if not one.judge.is_over and len(one.judge.sent) < UNHANDLED_MAX]
        if not found:
            return
        instance = self._chance.choice(found)
        record = instance.judge.likeliest.record
        message = self._inputs.choose(record, instance.node.player.propose(record))
        if message is not None:
            self._say(instance, message)

    def _say(self, instance: WireInstance, message: Any) -> None:
        """Send a message, unless it is lost; perhaps twice, perhaps later than others."""
        state = instance.judge.likeliest
        said = answered_values(self.role.relation, message, state.binding)
        self._faults.carry(lambda: self._send(instance, said))

    def _send(self, instance: WireInstance, message: Any) -> None:
        node = instance.node
        if self._is_decided() or not node.peer.is_open:
            return
        self.counts["messages sent"] += 1
        self._note(f"{instance.judge.name} <- {words_of(message)}")
        instance.judge.send(message, self._now())
        node.peer.send(node.player.sender(message), instance.judge.name, message)

    # -- verdicts -----------------------------------------------------------------------------------------------

    def _guard(self, instance: WireInstance, act: Callable[[WireInstance], None]) -> None:
        try:
            act(instance)
        except Violated as error:
            found = msgspec.structs.replace(error.violation, at_ns=self._now() - self._started_ns)
            self._fail_with(found.wrong, instance.judge.name, found)
        except Inconclusive as error:
            self._verdict = self._made(Outcome.INCONCLUSIVE, str(error))

    def _fail_with(self, why: str, instance: str, violation: Violation | None = None) -> None:
        self._verdict = self._made(Outcome.FAIL, why, violation, instance)

    def _conclude(self) -> WireVerdict:
        """The verdict of a run in which nothing was wrong."""
        seconds = self.options.seconds
        if not self.counts["connections"]:
            return self._made(
                Outcome.INCONCLUSIVE, f"nothing has connected within {seconds:g} s; dial the address above"
            )
        if not self.counts["instances"]:
            return self._made(
                Outcome.INCONCLUSIVE, f"no message has come within {seconds:g} s; an instance begins with one"
            )
        if self._left:
            return self._made(Outcome.INCONCLUSIVE, self._left)
        if self._held_ns > seconds * 1e9 / 2:
            why = "the kit was late for more than half of the run; give the machine less to do, or --tolerance more"
            return self._made(Outcome.INCONCLUSIVE, why)
        return self._made(Outcome.PASS, "")

    def _made(self, outcome: Outcome, why: str, violation: Violation | None = None, instance: str = "") -> WireVerdict:
        lines = ((one, line) for one in self.role.fsm.family() for line in one.lines if line.kind == "row")
        table = frozenset(
            (one.full_name, line.number, str(state.value)) for one, line in lines for state in line.sources
        )
        cells, possible = (table.intersection(one) for one in (self._coverage.cells, self._coverage.possible))
        notes = tuple(self._notes)
        return WireVerdict(
            outcome,
            why,
            violation,
            instance,
            notes,
            table,
            cells,
            possible,
            len(self._coverage.pairs),
            dict(self.counts),
        )

    def _note(self, what: str) -> None:
        self._notes.append(Note(self._now() - self._started_ns, what))

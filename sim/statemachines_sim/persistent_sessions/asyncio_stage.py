"""A scripted run of persistent sessions on the asyncio runtime: writers and owners on the drivers' runtime, live
messages and requests for markers as frames of the wire, and a SQLite file that each node asks through its own desk.

Client and publisher are the script's (`script_board`), and so is when a live message arrives, when a request that the
system calls slow comes to a desk, and when its answer comes back.  What a file does not do (lag behind, lose an answer)
is not done here: such a step ends the run, and says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    ConfigurationError,
    Event,
    Node,
    Request,
    Step,
    incarnation,
    name_of,
    node_of,
)
from statemachines.persistent_sessions.message import Live, LiveMarker
from statemachines.persistent_sessions.request import (
    DATABASE,
    BeginEpoch,
    SubscribeLive,
    UnsubscribeLive,
)
from statemachines.persistent_sessions.writer_record import LiveGone, LiveKnown
from statemachines.wire import Packet
from statemachines_sim.asyncio_stage import AsyncioNode
from statemachines_sim.persistent_sessions.machine_node import HeldSession, NodeStage, SessionMachineNode
from statemachines_sim.persistent_sessions.script_board import SERVE_NS, SERVES, BoardJudge, ScriptBoard
from statemachines_sim.persistent_sessions.script_store import ScriptStore
from statemachines_sim.replay_result import ReplayedScript, carry_out
from statemachines_spec.explorer.actor import Crash, Envelope, Restart
from statemachines_spec.explorer.fsm_actor import DOWN, RUNNING, FsmLocal
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.attached import AttachedActor
from statemachines_spec.persistent_sessions.database import CarryOut, DatabaseService, Lives, OpenRequest
from statemachines_spec.persistent_sessions.takeover_systems import HostedOwner
from statemachines_spec.script.origin import system_of
from statemachines_spec.script.script import Script
from statemachines_spec.script.script import ScriptStep as ScriptStep
from statemachines_spec.script.stage import CannotFollow

UNDONE: Final = {
    "appear": "a file has no replica that shows entries later: what is committed is read by all",
    "spread": "a store tells who is live in the transaction that stores, so no writer can learn of it late",
    "blur": "the desk of a node asks again until it knows, so no answer is lost",
    "fail": "the desk of a node asks again until it is done",
}
"""What happens to the explorer's database, and why not to a file."""


def run_live(script: Script, variant: str = "", trace: Path | None = None) -> ReplayedScript:
    """Follow the script on the asyncio runtime, by the rules of `variant` ("" = its own); the nodes' logs go to the
    directory `trace`.  Raises `ConfigurationError` for a system with takeovers, or with a collector."""
    system = system_of(script, variant)
    if not any(type(one) is DatabaseService for one in system.actors):
        rule = "has a collector, or connections, and what only their database can do; leave --runtime out"
        raise ConfigurationError("script", script.system, rule)
    if any(isinstance(one, HostedOwner) for one in system.actors):
        rule = (
            "has takeovers, in which a host answers for owners that are gone, or not there yet, on its own and at once"
        )
        raise ConfigurationError("script", script.system, f"{rule}; leave --runtime out")
    with ExitStack() as stack:
        stack.enter_context(script.part.rules(script, variant))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gapless-")))
        stage = SessionStage(script, system, directory, trace)
        stack.callback(stage.close)
        return carry_out(stage, stage.conductor, stage.judged.broken, stage.check, stage.refused)


class SessionStage(NodeStage):
    """Machines as nodes, paths and client and publisher on a board, and the store."""

    def __init__(self, script: Script, system: System, directory: Path, trace: Path | None) -> None:
        super().__init__(script)
        self.actors = {one.name: one for one in system.actors if isinstance(one, AttachedActor)}
        self.board = ScriptBoard(system, self._put_off, (DATABASE,))
        self.judged = BoardJudge(system, self.board)
        self.store = ScriptStore(system, directory / "sessions.db", self.time.read_ns)
        self.trace = trace
        self.held: list[HeldSession] = []
        self._calls: list[Envelope] = []
        self._frames: list[tuple[str, Any, Callable[[], None]]] = []
        self._lives: dict[str, int] = {}
        self.store_loop.run_until_complete(self.store.begin())
        self._seen = self.store.read()
        self.judged.look(DATABASE, self._seen)
        self.judged.begin(self.local)
        for name, actor in self.actors.items():
            if actor.start is None:
                self.launch(name)
        self.settle()

    def local(self, name: str) -> FsmLocal:
        """The component as the explorer would have it."""
        one = self.nodes.get(name)
        if one is None or not one.alive:
            return FsmLocal(DOWN, self._lives.get(name, 0), None)
        node: SessionMachineNode = one.node
        return node.local()

    # -- the stage ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """What nodes have to do, and what is called meanwhile, in turn."""
        super().settle()
        while self._calls:
            self._take(self._calls.pop(0))
            super().settle()

    def start(self, node: str) -> None:
        raise CannotFollow(f"{node} begins by a restart")

    def restart(self, node: str) -> None:
        if node in self.nodes and self.nodes[node].alive:
            raise CannotFollow(f"{node} is running")
        before = self.local(node)
        self.launch(node)  # it begins when its loop runs; whom its client is connected to is known before
        life = self._lives[node]
        self.judged.step(node, before, Restart(), FsmLocal(RUNNING, life, None, incarnation(node, life)))
        for _ in range(len(self._calls)):
            self._take(self._calls.pop(0))
        self.settle()

    def crash(self, node: str) -> None:
        one, before = self.live(node), self.local(node)
        super().crash(node)
        self.held = [held for held in self.held if held.node is not one.node]
        self.judged.step(node, before, Crash(), self.local(node))

    def do(self, step: ScriptStep) -> None:
        if step.node == DATABASE:
            self._go_on(step)
            return
        if step.do == "call":
            self._call(step)
        else:
            self.board.carry_out(step)

    def end(self, release: Callable[[], None]) -> None:
        """As in the simulator."""
        if self.judged.broken:
            return
        release()
        for _ in range(SERVES):
            self.advance(self.time.now_ns + SERVE_NS)
            self.settle()
            while self.board.serve() or self.held:
                for held in list(self.held):
                    self._advance(held)
                self.settle()
        self.check()
        self.judged.check(quiet=True)
        self.judged.ends()

    def check(self) -> None:
        super().check()
        waiting = tuple(OpenRequest(held.node.life, name_of(type(held.request))) for held in self.held)
        self.judged.look(DATABASE, replace(self._seen, owed=waiting))
        for name in self.actors:
            self.judged.look(name, self.local(name))
        self.judged.check(quiet=not self.conductor.in_flight)

    def _call(self, step: ScriptStep) -> None:
        node: SessionMachineNode = self.live(step.node).node
        kinds = {name_of(kind): kind for kind in node.actor.fsm.alphabet}
        if step.what not in kinds:
            raise CannotFollow(f"{step.node} knows no call {step.what!r}")
        try:
            event = msgspec.json.decode(step.fields or b"{}", type=kinds[step.what])
        except msgspec.MsgspecError as error:
            raise CannotFollow(f"{step.what}: {error}") from error
        node.feed(Envelope("", node.life, event))

    def _go_on(self, step: ScriptStep) -> None:
        """The first thing that a party waits for is done, or it hears of it."""
        if step.what in UNDONE:
            raise CannotFollow(UNDONE[step.what])
        party = msgspec.json.decode(step.fields, type=CarryOut).party
        held = next((one for one in self.held if party in (one.node.actor.name, one.node.life)), None)
        if held is None or (held.answers is None) != (step.what == name_of(CarryOut)):
            raise CannotFollow(f"{party} does not wait for that")
        self._advance(held)

    def _advance(self, held: HeldSession) -> None:
        if held.answers is None:
            held.answers = []
            held.node.carry_out(held.request, held.answers)
            return
        self.held.remove(held)
        for answer in held.answers:
            held.node.feed(Envelope(DATABASE, held.node.life, answer))

    # -- nodes and the store --------------------------------------------------------------------------------------

    def observe_commit(self, request: Request) -> None:
        """A node's request is carried out: whoever watches the tables sees what lies there now; writers hear who is
        live."""
        before, self._seen = self._seen, self.store.read()
        self.judged.look(DATABASE, self._seen)
        self.board.saw(DATABASE, before, request, self._seen)
        if isinstance(request, SubscribeLive):
            self._tell_writers(LiveKnown(self._seen.owner, self._seen.token))
        elif isinstance(request, UnsubscribeLive) and not self._seen.owner:
            self._tell_writers(LiveGone(request.token))
        elif isinstance(request, BeginEpoch) and self._seen.owner:
            self._put_off(Envelope(DATABASE, request.writer, LiveKnown(self._seen.owner, self._seen.token)))

    def route_tell(self, node: str, party: str, event: Event) -> None:
        """A machine tells something that is for another component."""
        component = self.actors[node].tells.get(type(event))
        if component is not None:
            self._put_off(Envelope(party, component, event))

    def send_near(self, node: str, packet: Packet[Any]) -> bool:
        """A message for somebody beside the sender; False: it travels.  What a path carries waits as a frame."""
        actor = self.actors[node]
        if type(packet.message) not in actor.beside:
            return False
        self._put_off(actor.near(Envelope(packet.sender, packet.to, packet.message)))
        return not isinstance(packet.message, Live | LiveMarker)

    def _tell_writers(self, event: Event) -> None:
        for writer in self.store.database.writers:
            self._put_off(Envelope(DATABASE, writer, event))

    def launch(self, node: str) -> None:
        self._lives[node] = self._lives.get(node, 0) + 1
        self.enter(node, AsyncioNode(SessionMachineNode(self, self.actors[node], self._lives[node]), self.time))

    def _gate(self, node: str, to: str, packet: Packet[Any], arrive: Callable[[], None]) -> None:
        if isinstance(packet.message, Live | LiveMarker):
            self._frames.append((packet.to, packet.message, arrive))
        else:
            super()._gate(node, to, packet, arrive)

    # -- calls ----------------------------------------------------------------------------------------------------

    def _put_off(self, envelope: Envelope) -> None:
        self._calls.append(envelope)

    def _take(self, envelope: Envelope) -> None:
        event, name = envelope.event, node_of(envelope.to)
        if name in self.board.actors:
            self.board.take(envelope)
        elif name == DATABASE:
            if isinstance(event, Lives):
                self.store_loop.run_until_complete(self.store.live(event.who, event.up))
        elif isinstance(event, Live | LiveMarker):
            self._hand_over(envelope)
        elif name in self.nodes and self.nodes[name].alive:
            self.nodes[name].node.feed(envelope)

    def _hand_over(self, envelope: Envelope) -> None:
        """The frame arrives, if there is anybody whom it was sent to."""
        place = next((at for at, one in enumerate(self._frames) if one[:2] == (envelope.to, envelope.event)), None)
        if place is not None:
            self._frames.pop(place)[2]()

    # -- what happens ---------------------------------------------------------------------------------------------

    def watch_step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        one: SessionMachineNode = self.nodes[node_of(node.name)].node
        was, one.seen = one.seen, one.local(step)
        self.judged.step(one.actor.name, was, event, one.seen)

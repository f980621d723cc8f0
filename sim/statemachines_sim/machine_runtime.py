"""MachineRuntime: a script of declared machines without glue, on the asyncio runtime.

Every machine is a node of the drivers, as `gapless node` has it, with a loop and a log of its own.  Its messages are
frames of the wire; when one arrives the script says, so a copy may, and one that was sent to a life that is gone.  What
machines ask is carried out by the pure services of the system.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from statemachines import registry
from statemachines.drivers.memory import MemoryTransport
from statemachines.drivers.node import MachineNode, NodeEnvironment, NodeHost
from statemachines.drivers.port import Feed
from statemachines.drivers.role import NodeRole
from statemachines.kernel import Answer, ConfigurationError, Event, Message, Node, Request, Step, node_of
from statemachines.kernel.node import Observer
from statemachines.wire import Packet
from statemachines_sim.asyncio_stage import AsyncioNode, AsyncioStage
from statemachines_sim.machine_stage import MachineStage, StageJudge, components_of, local_of
from statemachines_sim.replay_result import ReplayedScript, carry_out
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.service_actor import ServiceActor
from statemachines_spec.explorer.system import System
from statemachines_spec.script.origin import system_of
from statemachines_spec.script.script import Script


def run_live(script: Script, variant: str = "", trace: Path | None = None) -> ReplayedScript:
    """Follow the script on the asyncio runtime, by the rules of `variant` ("" = its own); the nodes' logs go to the
    directory `trace`.  Raises `ConfigurationError` as `machine_world.simulate` does, and for logs of machines whose
    protocol is not registered."""
    with ExitStack() as stack:
        stack.enter_context(script.part.rules(script, variant))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gapless-")))
        stage = MachineRuntime(script, system_of(script, variant), directory, trace)
        stack.callback(stage.close)
        stage.begin_machines()
        return carry_out(stage, stage.conductor, stage.judge.broken, stage.check, stage.refused)


class MachineRuntime(MachineStage, AsyncioStage):
    """The nodes of a system, the frames between them, and what the services keep."""

    def __init__(self, script: Script, system: System, directory: Path, trace: Path | None) -> None:
        self.actors = components_of(script, system)
        machines = [one.fsm for one in self.actors.values() if isinstance(one, FsmActor)]
        unknown = {fsm.protocol for fsm in machines} - set(registry.names())
        if trace is not None and unknown:
            rule = "is not registered, and a log says whose tables it is judged by; leave --trace out, or register it"
            raise ConfigurationError("protocol", min(unknown) or "(none)", rule)
        super().__init__(script)
        self.states = {one.name: one.initial().state for one in self.actors.values() if isinstance(one, ServiceActor)}
        self.judge = StageJudge(system)
        self.transports: dict[str, MemoryTransport] = {}
        self._directory = directory
        self._trace = trace
        self._travelling = {sent.to for step in script.steps for sent in step.sends}
        kinds = {kind for fsm in machines for kind in fsm.alphabet if issubclass(kind, Message)}
        self._takes: Any = reduce(or_, kinds, Message)

    def check(self) -> None:
        """After each step: every invariant, every property of the system."""
        super().check()
        self.look_at_all(quiet=not self.conductor.in_flight)

    # -- what runs the nodes --------------------------------------------------------------------------------------

    def find_life(self, name: str) -> MachineOnLoop | None:
        one = self.nodes.get(name)
        assert one is None or isinstance(one, MachineOnLoop)
        return one

    def read_ns(self) -> int:
        return self.time.now_ns

    def launch(self, node: str) -> None:
        actor, before = self.actors[node], self.find_life(node)
        assert isinstance(actor, FsmActor)
        one = MachineOnLoop(self, actor, 1 if before is None else before.number + 1)
        self.enter(node, one)
        self.spawn(one, one.node.wait_for_failure())
        self.settle()

    def feed(self, name: str, event: Event) -> None:
        one = self.nodes.get(name)
        if one is not None and one.alive:
            self.spawn(one, _feed(one.node, event))

    # -- what happens ---------------------------------------------------------------------------------------------

    def watch_step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        self.judge_step(node_of(node.name), event, step)

    def post(self, sender: MemoryTransport, packet: Packet[Any]) -> None:
        """A frame travels, and comes to the life that the node has by then."""
        to, encoded = node_of(packet.to), sender.codec.encode(packet)

        def arrive() -> None:
            if to in self.transports:
                self.transports[to].take(sender, encoded)

        self.conductor.send_message(self._part.words_of(packet.message, sender.node, to), arrive, lambda: None)

    def serve(self, one: MachineOnLoop, service: str, party: str, request: Request, feed: Feed) -> None:
        """A request travels, or is answered at once, or, where the script leaves it out, never."""
        node = one.actor.name

        def travelled() -> None:
            for answer in self._apply(service, request):
                words = self._part.words_of(answer, service, node)
                self.conductor.send_message(words, partial(one.come, feed, party, answer), lambda: None)

        if not one.alive:
            return  # what was on its way when it crashed has no effect
        if service in self._travelling:
            self.conductor.send_message(self._part.words_of(request, node, service), travelled, lambda: None)
        elif self.conductor.answers(node, request):
            for answer in self._apply(service, request):
                feed(party, answer)

    def _apply(self, service: str, request: Request) -> tuple[Answer, ...]:
        actor = self.actors[service]
        assert isinstance(actor, ServiceActor)
        before = self.local(service)
        answers: tuple[Answer, ...]
        self.states[service], answers = actor.service.apply(before.state, request, self.time.now_ns)
        self.judge_request(service, before, request)
        return answers

    # -- one life -------------------------------------------------------------------------------------------------

    def make_node(self, one: MachineOnLoop) -> MachineNode:
        """A node of the drivers, of one machine."""
        actor, read_ns = one.actor, self.time.read_ns
        services = [name for name, other in self.actors.items() if isinstance(other, ServiceActor)]
        return MachineNode(
            NodeRole(actor.fsm.protocol, actor.fsm.name, self._takes, dialled_by=(actor.fsm.name,)),
            one.make_host,
            node=actor.name,
            state=self._directory,
            services={name: partial(self.serve, one, name) for name in services},
            begin=() if actor.start is None else (actor.start,),
            tell=one.tell,
            trace=self._trace,
            environment=NodeEnvironment(
                transport=partial(self._open, one),
                steady_ns=read_ns,
                time_ns=read_ns,
                observe=self.observe,
                refused=self.refused.append,
            ),
        )

    def _open(self, one: MachineOnLoop, *, life: str, role: NodeRole, receive: Any, **_: Any) -> MemoryTransport:
        """Nobody dials: every node is reached by its name."""
        name = one.actor.name
        self.transports[name] = RoutedTransport(self, one.actor, life, role, receive)
        return self.transports[name]


class MachineOnLoop(AsyncioNode):
    """One life of a node with one machine."""

    machine: Node[Any]

    def __init__(self, stage: MachineRuntime, actor: FsmActor, number: int) -> None:
        self.actor = actor
        self.number = number
        self.id = ""
        self._stage = stage
        super().__init__(stage.make_node(self), stage.time)

    def make_host(self, life: str, now_ns: int, observe: Observer) -> NodeHost:
        """Its machine, under the name of the life."""
        record, self.id = self._stage.new_record(self.actor, self.number)
        self.machine = Node(self.actor.fsm, record, name=life, now_ns=now_ns, observe=observe, check=True)
        self._stage.seen[self.actor.name] = local_of(self.machine, self.number, self.id)
        host = NodeHost(life)
        host.add(self.machine)
        return host

    def tell(self, event: Event) -> None:
        """What it tells is for other components, too."""
        if type(event) in self.actor.tells:
            self._stage.tell(self.actor.tells[type(event)], self.id, event)

    def come(self, feed: Feed, party: str, answer: Answer) -> None:
        """An answer comes to this life, and to no later one."""
        if self.alive:
            self.loop.call_soon(feed, party, answer)


class RoutedTransport(MemoryTransport):
    """Sends a message to all that its route names."""

    def __init__(self, stage: MachineRuntime, actor: FsmActor, life: str, role: NodeRole, receive: Any) -> None:
        super().__init__(stage.network, life, role, role.codec(), receive, None, {}, "")
        self._stage = stage
        self._route = actor.route

    def send(self, packet: Packet[Any]) -> None:
        for to in () if self.closing else self._route(packet.to):
            self._stage.post(self, replace(packet, to=to))


async def _feed(node: MachineNode, event: Event) -> None:
    node.feed(event)

"""MachineWorld: a script of declared machines without glue, in the simulator."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Answer, Ask, Event, Fsm, Host, Message, Node, Outgoing, Request, Send, Step, node_of
from statemachines.kernel.loop import Feed
from statemachines_sim.machine_stage import MachineStage, StageJudge, components_of
from statemachines_sim.recorder import Recorder
from statemachines_sim.replay_result import SimulatedReplay, carry_out, parameters_of
from statemachines_sim.script_world import ScriptProcess, ScriptWorld
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.service_actor import ServiceActor
from statemachines_spec.explorer.system import System
from statemachines_spec.script.origin import system_of
from statemachines_spec.script.script import Script


def simulate(script: Script, variant: str = "", *, data: bool = False) -> SimulatedReplay:
    """Follow the script in the simulator; `variant`: by these rules ("" = its own).  Raises `ConfigurationError` where
    its system cannot be made again, or has components that are no declared machines."""
    with script.part.rules(script, variant):
        world = MachineWorld(script, system_of(script, variant), data)
        replayed = carry_out(world, world.conductor, world.judge.broken, world.check)
    return SimulatedReplay(replayed, world.recorder.rows, parameters_of(script, replayed, variant, world.machines))


class MachineWorld(MachineStage, ScriptWorld):
    """The nodes of a system; those whose lives begin with an event begin when the script says so."""

    def __init__(self, script: Script, system: System, data: bool = False) -> None:
        self.actors = self.components(script, system)
        asked = [one for one in self.actors.values() if isinstance(one, ServiceActor)]
        states = {one.name: one.initial().state for one in asked}
        super().__init__(script, Recorder(None, data), {one.name: one.service for one in asked}, states)
        self.judge = self.make_judge(system)
        self.begin_machines()

    def components(self, script: Script, system: System) -> dict[str, FsmActor | ServiceActor]:
        """Those that have a counterpart here."""
        return components_of(script, system)

    @property
    def machines(self) -> list[Fsm[Any]]:
        """The declarations that its nodes run."""
        return [one.fsm for one in self.actors.values() if isinstance(one, FsmActor)]

    def make_judge(self, system: System) -> StageJudge:
        """Of what the system promises."""
        return StageJudge(system)

    def make_process(self, node: str, number: int) -> ScriptProcess:
        return ScriptMachineProcess(self, node, number)

    def check(self) -> None:
        """After each step: every invariant, every property of the system."""
        self.check_nodes()
        self.look_at_all(quiet=not self.conductor.in_flight)

    # -- what runs the nodes --------------------------------------------------------------------------------------

    def find_life(self, name: str) -> ScriptMachineProcess | None:
        process = self.processes.get(name)
        assert process is None or isinstance(process, ScriptMachineProcess)
        return process

    def feed(self, name: str, event: Event) -> None:
        process = self.find_life(name)
        if process is not None:
            process.run(lambda: process.loop.feed(process.id, event))

    def read_ns(self) -> int:
        return self.now_ns

    # -- what happens ---------------------------------------------------------------------------------------------

    def observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        super().observe(node, event, before, step, now_ns)
        self.judge_step(node_of(node.name), event, step)

    def apply(self, party: str, service: str, request: Request) -> tuple[Answer, ...]:
        before = self.local(service)
        answers = super().apply(party, service, request)
        self.judge_request(service, before, request)
        return answers


class ScriptMachineProcess(ScriptProcess):
    """One life of a node with one machine."""

    world: MachineWorld

    def __init__(self, world: MachineWorld, node: str, number: int) -> None:
        actor = world.actors[node]
        assert isinstance(actor, FsmActor)
        self.actor = actor
        self.number = number
        super().__init__(world, node, number)

    def make_host(self) -> Host:
        world = self.world
        record, self.id = world.new_record(self.actor, self.number)
        self.machine: Node[Any] = Node(
            self.actor.fsm, record, name=self.id, now_ns=world.now_ns, observe=world.observe, check=True
        )
        host = Host()
        host.add(self.machine)
        return host

    def start(self) -> None:
        self.world.seen[self.node] = self.world.local(self.node)
        if self.actor.start is not None:
            self.loop.feed(self.id, self.actor.start)

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        return self.host.feed(self.id, message, now_ns) if to in (self.node, self.life, self.id) else []

    def perform(self, party: str, effect: Send | Ask, feed: Feed) -> None:
        """A message goes to all that its route names."""
        if isinstance(effect, Send):
            for to in self.actor.route(effect.to):
                super().perform(party, replace(effect, to=to), feed)
        else:
            super().perform(party, effect, feed)

    def route_tell(self, party: str, event: Event) -> None:
        super().route_tell(party, event)
        if type(event) in self.actor.tells:
            self.world.tell(self.actor.tells[type(event)], party, event)

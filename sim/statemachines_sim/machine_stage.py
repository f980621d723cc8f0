"""MachineStage: what stages of declared machines without glue have in common.  An `FsmActor` becomes a node with real
timers, a `ServiceActor` the service that nodes ask.

The properties are those of the explored system: they read the same local states, made from what the real nodes are.

MachineWorld: a script of declared machines without glue, in the simulator.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    Answer,
    Ask,
    CancelTimer,
    ConfigurationError,
    Effects,
    Event,
    Fsm,
    Host,
    Message,
    Node,
    Outgoing,
    Request,
    Send,
    SetTimer,
    Step,
    Stop,
    name_of,
    node_of,
)
from statemachines.kernel.loop import Feed
from statemachines.kernel.pmap import dec_hook
from statemachines_sim.recorder import Recorder
from statemachines_sim.replay_result import SimulatedReplay, carry_out, parameters_of
from statemachines_sim.script_world import ScriptProcess, ScriptWorld
from statemachines_spec.explorer.actor import Actor, Crash, Envelope, LoseDisk, Observer, Pause, Restart, Wake
from statemachines_spec.explorer.fsm_actor import DOWN, ENDED, PAUSED, RUNNING, FsmActor, FsmLocal
from statemachines_spec.explorer.party import Party
from statemachines_spec.explorer.property import Always, Stepwise, View
from statemachines_spec.explorer.service_actor import Asked, ServiceActor, ServiceLocal
from statemachines_spec.explorer.system import System
from statemachines_spec.script.origin import system_of
from statemachines_spec.script.script import Script
from statemachines_spec.script.script import ScriptStep as ScriptStep
from statemachines_spec.script.stage import CannotFollow, PartyStage


class MachineLife(Protocol):
    """One life of a node with one machine: `actor` is its declaration, `number` that of the life, `id` what the record
    calls itself, `machine` its one node (the last that was, where the machine has stopped)."""

    actor: FsmActor
    number: int
    id: str
    alive: bool
    standing: bool

    @property
    def machine(self) -> Node[Any]: ...


class MachineStage(PartyStage):
    """The components of a system and what judges them; `begin_machines` is called once.  It goes before the class that
    runs the nodes."""

    actors: Mapping[str, FsmActor | ServiceActor]
    states: dict[str, Any]
    judge: StageJudge
    launch: Callable[[str], None]

    # -- what runs the nodes --------------------------------------------------------------------------------------

    @abstractmethod
    def find_life(self, name: str) -> MachineLife | None:
        """The last life of a node; None before its first."""

    @abstractmethod
    def read_ns(self) -> int:
        """The time now."""

    @abstractmethod
    def feed(self, name: str, event: Event) -> None:
        """An event for the machine of a node that lives, from beside it."""

    # -- the components -------------------------------------------------------------------------------------------

    def begin_machines(self) -> None:
        """Those whose lives begin with an event begin when the script says so; all others now."""
        self.kept: dict[str, Any] = {}
        self.seen: dict[str, FsmLocal] = {}
        self.judge.begin(self.local)
        for name, actor in self.actors.items():
            if isinstance(actor, FsmActor) and actor.start is None:
                self.launch(name)
                self.judge.look(name, self.local(name))

    def new_record(self, actor: FsmActor, number: int) -> tuple[Any, str]:
        """The record that a life begins with, and its id."""
        kept = self.kept.pop(actor.name, None)
        record = actor.fresh(number) if kept is None else kept
        return record, getattr(record, "id", "") or actor.name

    def local(self, name: str, step: Step[Any] | None = None) -> Any:
        """The component as the explorer would have it; `step`: one whose effects on timers are still to come."""
        actor = self.actors[name]
        if isinstance(actor, ServiceActor):
            return ServiceLocal(self.states[name])
        life = self.find_life(name)
        if life is None:
            return actor.initial() if actor.start is not None else FsmLocal(DOWN, 0, None)
        if not life.alive:
            return FsmLocal(DOWN, life.number, None, kept=self.kept.get(name))
        there = local_of(life.machine, life.number, life.id, step)
        if there.mode is ENDED or not life.standing:
            return there
        armed = life.machine.armed_timers() if step is None else timers_after(life.machine.armed_timers(), step.effects)
        passed = sorted((deadline, *timer) for timer, deadline in armed.items() if deadline <= self.read_ns())
        return replace(there, mode=PAUSED, passed=tuple((name, key) for _, name, key in passed))

    # -- the stage ------------------------------------------------------------------------------------------------

    def start(self, node: str) -> None:
        raise CannotFollow(f"{node} is there from the beginning")

    def crash(self, node: str) -> None:
        life = self._living(node)
        self._end_life(node, Crash(), life.actor.survives(life.machine.record, life.number))

    def lose_disk(self, node: str) -> None:
        self._end_life(node, LoseDisk(), None)

    def restart(self, node: str) -> None:
        self._act_and_judge(node, Restart(), super().restart)

    def pause(self, node: str) -> None:
        self._act_and_judge(node, Pause(), super().pause)

    def wake(self, node: str) -> None:
        self._act_and_judge(node, Wake(), super().wake)

    def do(self, step: ScriptStep) -> None:
        """A call of the application."""
        kinds = {name_of(kind): kind for kind in self._living(step.node).actor.fsm.alphabet}
        if step.do != "call" or step.what not in kinds:
            raise CannotFollow(f"{step.node} knows no call {step.what!r}")
        try:
            event = msgspec.json.decode(step.fields or b"{}", type=kinds[step.what], dec_hook=dec_hook)
        except msgspec.MsgspecError as error:
            raise CannotFollow(f"{step.what}: {error}") from error
        self.feed(step.node, event)

    def _living(self, node: str) -> MachineLife:
        life = self.find_life(node)
        if life is None or not life.alive:
            raise CannotFollow(f"{node} is not running")
        return life

    def _end_life(self, node: str, event: Event, kept: Any) -> None:
        if kept is None:
            self.kept.pop(node, None)
        else:
            self.kept[node] = kept
        self._act_and_judge(node, event, super().crash)

    def _act_and_judge(self, node: str, event: Event, act: Callable[[str], None]) -> None:
        before = self.local(node)
        act(node)
        self.judge.step(node, before, event, self.local(node))

    # -- what happens ---------------------------------------------------------------------------------------------

    def look_at_all(self, *, quiet: bool) -> None:
        """After each step: every property of the system; `quiet`: no message is in flight."""
        for name in self.actors:
            self.judge.look(name, self.local(name))
        self.judge.check(quiet=quiet)

    def judge_step(self, name: str, event: Event, step: Step[Any]) -> None:
        """The machine of a node took a step, whose effects are still to come."""
        was, self.seen[name] = self.seen[name], self.local(name, step)
        self.judge.step(name, was, event, self.seen[name])

    def judge_request(self, service: str, before: ServiceLocal, request: Request) -> None:
        """A service has carried out a request; the event is the explorer's."""
        actor = self.actors[service]
        assert isinstance(actor, ServiceActor)
        self.judge.step(service, before, Asked(request) if actor.remote else request, self.local(service))

    def tell(self, component: str, party: str, event: Event) -> None:
        """A machine tells another component something, within its step."""
        if isinstance(self.actors.get(component), FsmActor):
            self.feed(component, event)
        else:
            self.judge.tell(component, party, event)


def local_of(node: Node[Any], life: int, name: str, step: Step[Any] | None = None) -> FsmLocal:
    """A node that goes on, as the explorer would have it; `step`: one whose effects on timers are still to come."""
    armed, stopped = node.armed_timers(), node.stopped
    if step is not None:
        armed = timers_after(armed, step.effects)
        stopped = node.record.status in node.fsm.final or any(isinstance(one, Stop) for one in step.effects)
    party = Party(node.record, () if stopped else tuple(sorted(armed)))
    return FsmLocal(ENDED if stopped else RUNNING, life, party, name)


def timers_after(armed: dict[tuple[str, str], int], effects: Effects) -> dict[tuple[str, str], int]:
    """The armed timers, once the effects of a step on them have been performed."""
    after = dict(armed)
    for effect in effects:
        if isinstance(effect, SetTimer):
            after[effect.timer, effect.key] = effect.deadline_ns
        elif isinstance(effect, CancelTimer):
            after.pop((effect.timer, effect.key), None)
    return after


class StageJudge:
    """The properties of a system over its real nodes: `broken` keeps what happened first."""

    def __init__(self, system: System) -> None:
        self.broken: dict[str, str] = {}
        self._system = system
        self._locals: dict[str, Any] = {one.name: one.initial() for one in system.observers}

    def begin(self, local: Callable[[str], Any]) -> None:
        """Every component as it is at the beginning."""
        for actor in self._system.actors:
            if actor.name not in self._locals:
                self._locals[actor.name] = local(actor.name)

    def look(self, name: str, local: Any) -> None:
        """A component is so now."""
        self._locals[name] = local

    def step(self, name: str, before: Any, event: Event | Request, after: Any) -> None:
        """A component took an event: observers hear of it, and every step must keep what steps must keep."""
        self._locals[name] = after
        for one in self._system.properties:
            if isinstance(one, Stepwise) and not one.holds(name, before, event, after):
                self.note(one.name, f"{name}: {name_of(type(event))}: {one.text}")
        for observer in self._system.observers:
            seen = observer.sees(name, before, event, after)
            if seen is not None:
                self.tell(observer.name, "", seen)

    def tell(self, component: str, party: str, event: Event) -> None:
        """An observer is told something."""
        for observer in self._system.observers:
            if observer.name == component:
                reaction = observer.react(self._locals[component], Envelope(party, component, event))
                if reaction is not None:
                    self._locals[component] = reaction.local

    def check(self, *, quiet: bool) -> None:
        """Every property over states; `quiet`: no message is in flight."""
        for one in self._system.properties:
            if isinstance(one, Always) and (quiet or not one.quiet):
                values = [self.read(view) for view in one.views]
                if not one.holds(*values):
                    read = ", ".join(f"{view.actor}: {value}" for view, value in zip(one.views, values, strict=True))
                    self.note(one.name, f"{one.text} ({read})")

    def read(self, view: View) -> int:
        """What the view shows now."""
        return view.of(self._locals[view.actor])

    def note(self, name: str, detail: str) -> None:
        """A property is broken; what happened first is kept."""
        self.broken.setdefault(name, detail)


def components_of(script: Script, system: System) -> dict[str, FsmActor | ServiceActor]:
    """Every component but observers; raises `ConfigurationError` for one that no node and no service stands for."""
    return {one.name: _check_actor(script, one) for one in system.actors if not isinstance(one, Observer)}


def _check_actor(script: Script, actor: Actor) -> FsmActor | ServiceActor:
    if isinstance(actor, FsmActor | ServiceActor):
        return actor
    rule = f"is a {type(actor).__name__}: only an FsmActor or a ServiceActor has a counterpart outside the explorer"
    raise ConfigurationError(f"script of {script.system}, component", actor.name, rule)


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

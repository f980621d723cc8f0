"""MachineWorld: a script of declared machines without glue, in the simulator.  An `FsmActor` becomes a node with real
timers, a `ServiceActor` the service that nodes ask.

The properties are those of the explored system: they read the same local states, made from what the real nodes are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    Answer,
    Ask,
    CancelTimer,
    ConfigurationError,
    Effects,
    Event,
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
from statemachines_sim.replayed import Simulated, carry_out, parameters_of
from statemachines_sim.script_world import ScriptProcess, ScriptWorld
from statemachines_spec.explorer.actor import Actor, Crash, Envelope, LoseDisk, Observer, Pause, Restart, Wake
from statemachines_spec.explorer.fsm_actor import DOWN, ENDED, PAUSED, RUNNING, FsmActor, FsmLocal
from statemachines_spec.explorer.party import Party
from statemachines_spec.explorer.property import Always, Stepwise, View
from statemachines_spec.explorer.service_actor import ServiceActor, ServiceLocal
from statemachines_spec.explorer.system import System
from statemachines_spec.script.origin import system_of
from statemachines_spec.script.script import Script
from statemachines_spec.script.script import Step as ScriptStep
from statemachines_spec.script.stage import CannotFollow


def simulate(script: Script, variant: str = "", *, data: bool = False) -> Simulated:
    """Follow the script in the simulator; `variant`: by these rules ("" = its own).  Raises `ConfigurationError` where
    its system cannot be made again, or has components that are no declared machines."""
    with script.part.rules(script, variant):
        world = MachineWorld(script, system_of(script, variant), data)
        replayed = carry_out(world, world.conductor, world.judge.broken, world.check)
    return Simulated(replayed, world.recorder.rows, parameters_of(script, replayed, variant))


class MachineWorld(ScriptWorld):
    """The nodes of a system; those whose lives begin with an event begin when the script says so."""

    def __init__(self, script: Script, system: System, data: bool = False) -> None:
        self.actors = self.components(script, system)
        asked = [one for one in self.actors.values() if isinstance(one, ServiceActor)]
        states = {one.name: one.initial().state for one in asked}
        super().__init__(script, Recorder(None, data), {one.name: one.service for one in asked}, states)
        self.kept: dict[str, Any] = {}
        self.judge = self.make_judge(system)
        self.judge.begin(self.local)
        for name, actor in self.actors.items():
            if isinstance(actor, FsmActor) and actor.start is None:
                self.launch(name)
                self.judge.look(name, self.local(name))

    def components(self, script: Script, system: System) -> dict[str, FsmActor | ServiceActor]:
        """Those that have a counterpart here."""
        return {one.name: _known(script, one) for one in system.actors if not isinstance(one, Observer)}

    def make_judge(self, system: System) -> Judge:
        """Of what the system promises."""
        return Judge(system)

    def make_process(self, node: str, number: int) -> ScriptProcess:
        return MachineProcess(self, node, number)

    def check(self) -> None:
        """After each step: every invariant, every property of the system."""
        self.check_nodes()
        for name in self.actors:
            self.judge.look(name, self.local(name))
        self.judge.check(quiet=not self.conductor.in_flight)

    def local(self, name: str) -> Any:
        """The component as the explorer would have it."""
        actor = self.actors[name]
        if isinstance(actor, ServiceActor):
            return ServiceLocal(self.states[name])
        process = self.processes.get(name)
        if process is None:
            return actor.initial() if actor.start is not None else FsmLocal(DOWN, 0, None)
        assert isinstance(process, MachineProcess)
        return process.local()

    # -- the stage ------------------------------------------------------------------------------------------------

    def start(self, node: str) -> None:
        raise CannotFollow(f"{node} is there from the beginning")

    def crash(self, node: str) -> None:
        process = self.alive(node)
        assert isinstance(process, MachineProcess)
        actor, record = process.actor, process.node_of_machine.record
        self._gone(node, Crash(), actor.survives(record, process.number))

    def lose_disk(self, node: str) -> None:
        self._gone(node, LoseDisk(), None)

    def restart(self, node: str) -> None:
        self._moved(node, Restart(), lambda: super(MachineWorld, self).restart(node))

    def pause(self, node: str) -> None:
        self._moved(node, Pause(), lambda: super(MachineWorld, self).pause(node))

    def wake(self, node: str) -> None:
        self._moved(node, Wake(), lambda: super(MachineWorld, self).wake(node))

    def do(self, step: ScriptStep) -> None:
        """A call of the application."""
        process = self.alive(step.node)
        assert isinstance(process, MachineProcess)
        kinds = {name_of(kind): kind for kind in process.actor.fsm.alphabet}
        if step.do != "call" or step.what not in kinds:
            raise CannotFollow(f"{step.node} knows no call {step.what!r}")
        try:
            event = msgspec.json.decode(step.fields or b"{}", type=kinds[step.what], dec_hook=dec_hook)
        except msgspec.MsgspecError as error:
            raise CannotFollow(f"{step.what}: {error}") from error
        process.run(lambda: process.loop.feed(process.id, event))

    def _gone(self, node: str, event: Event, kept: Any) -> None:
        if kept is None:
            self.kept.pop(node, None)
        else:
            self.kept[node] = kept
        self._moved(node, event, lambda: super(MachineWorld, self).crash(node))

    def _moved(self, node: str, event: Event, act: Callable[[], None]) -> None:
        before = self.local(node)
        act()
        self.judge.step(node, before, event, self.local(node))

    # -- what happens ---------------------------------------------------------------------------------------------

    def observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        super().observe(node, event, before, step, now_ns)
        name = node_of(node.name)
        process = self.processes[name]
        assert isinstance(process, MachineProcess)
        was, process.seen = process.seen, process.local(step)
        self.judge.step(name, was, event, process.seen)

    def carried_out(self, party: str, service: str, request: Request, answers: tuple[Answer, ...]) -> None:
        self.judge.look(service, self.local(service))

    def tell(self, component: str, party: str, event: Event) -> None:
        """A machine tells another component something, within its step."""
        there = self.processes.get(component)
        if isinstance(there, MachineProcess):
            there.run(lambda: there.loop.feed(there.id, event))
        else:
            self.judge.tell(component, party, event)


class MachineProcess(ScriptProcess):
    """One life of a node with one machine.  `seen`: its local state after the last step."""

    world: MachineWorld

    def __init__(self, world: MachineWorld, node: str, number: int) -> None:
        actor = world.actors[node]
        assert isinstance(actor, FsmActor)
        self.actor = actor
        self.number = number
        self.id = node
        super().__init__(world, node, number)
        self.seen = self.local()

    @property
    def node_of_machine(self) -> Node[Any]:
        """Its one node; the last that was, where the machine has stopped."""
        return self._node

    def make_host(self) -> Host:
        world = self.world
        kept = world.kept.pop(self.node, None)
        record = self.actor.fresh(self.number) if kept is None else kept
        self.id = getattr(record, "id", "") or self.node
        self._node: Node[Any] = Node(
            self.actor.fsm, record, name=self.id, now_ns=world.now_ns, observe=world.observe, check=True
        )
        host = Host()
        host.add(self._node)
        return host

    def start(self) -> None:
        if self.actor.start is not None:
            event = self.actor.start
            self.loop.feed(self.id, event)

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        return self.host.feed(self.id, message, now_ns) if to in (self.node, self.life, self.id) else []

    def perform(self, party: str, effect: Send | Ask, feed: Feed) -> None:
        """A message goes to all that its route names."""
        if isinstance(effect, Send):
            for to in self.actor.route(effect.to):
                super().perform(party, replace(effect, to=to), feed)
        else:
            super().perform(party, effect, feed)

    def told(self, party: str, event: Event) -> None:
        super().told(party, event)
        if type(event) in self.actor.tells:
            self.world.tell(self.actor.tells[type(event)], party, event)

    def local(self, step: Step[Any] | None = None) -> FsmLocal:
        """As the explorer would have it; `step`: one whose effects on timers are still to come."""
        if not self.alive:
            return FsmLocal(DOWN, self.number, None, kept=self.world.kept.get(self.node))
        there = local_of(self._node, self.number, self.id, step)
        if there.mode is ENDED or not self.standing:
            return there
        armed = self._node.armed() if step is None else timers_after(self._node.armed(), step.effects)
        passed = sorted((deadline, *timer) for timer, deadline in armed.items() if deadline <= self.world.now_ns)
        return replace(there, mode=PAUSED, passed=tuple((name, key) for _, name, key in passed))


def local_of(node: Node[Any], life: int, name: str, step: Step[Any] | None = None) -> FsmLocal:
    """A node that goes on, as the explorer would have it; `step`: one whose effects on timers are still to come."""
    armed, stopped = node.armed(), node.stopped
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


class Judge:
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

    def step(self, name: str, before: Any, event: Event, after: Any) -> None:
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


def _known(script: Script, actor: Actor) -> FsmActor | ServiceActor:
    if isinstance(actor, FsmActor | ServiceActor):
        return actor
    rule = f"is a {type(actor).__name__}: only an FsmActor or a ServiceActor has a counterpart in the simulator"
    raise ConfigurationError(f"script of {script.system}, component", actor.name, rule)

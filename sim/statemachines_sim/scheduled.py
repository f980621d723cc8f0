"""Scheduled: a simulated run that takes its decisions from a schedule: the simulator's own hosts, stores and monitors,
and a network that asks the conductor about every message.

Hosts are those of any simulated run (`Registry`, `Subscription` with its agent and session).  Stores answer at once,
clocks are true.  An application takes a message when the schedule says so, and at the end, when all take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Message, Node, Step, node_of
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.leader_record import SERVING
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.session import SESSION, Acknowledged, Deliver
from statemachines.shared_subscriptions.stream_store import StreamStore
from statemachines.shared_subscriptions.subscription import Subscription
from statemachines.trace import TraceRow
from statemachines.trace.parquet import Run
from statemachines_sim.judge import Judge
from statemachines_sim.network import Network, Packet
from statemachines_sim.process import Process
from statemachines_sim.protocol import Reply
from statemachines_sim.recorder import Recorder
from statemachines_sim.remote_store import CarriedOut, Failed, RemoteStore
from statemachines_sim.replayed import Replayed, carry_out, installed, ruled_by
from statemachines_sim.runfile import tables
from statemachines_sim.scenario import Scenario
from statemachines_sim.shared_subscriptions.consumer import Consumer
from statemachines_sim.shared_subscriptions.leader_host import LeaderHost
from statemachines_sim.shared_subscriptions.liveness import leaders, subscribed
from statemachines_sim.shared_subscriptions.load import Publisher, leave
from statemachines_sim.shared_subscriptions.section import Load, Members, Section
from statemachines_sim.shared_subscriptions.sim import failed, not_fetched
from statemachines_sim.shared_subscriptions.watch import PROPERTIES, Watch
from statemachines_sim.world import World
from statemachines_spec.conductor import TURN_NS, TURNS, CannotFollow, Conductor
from statemachines_spec.schedule import Schedule, words_of


def simulate(schedule: Schedule, variant: str = "", *, data: bool = False) -> tuple[Replayed, list[TraceRow]]:
    """Follow the schedule in the simulator, by the rules of `variant` ("" = the schedule's own): what broke, and the
    trace."""
    with ExitStack() as stack:
        stack.enter_context(installed(schedule, variant))
        run = ScheduledWorld(schedule, variant, data)
        return run.follow(), run.rows


class ScheduledWorld(World):
    """A world without chance; it is the stage of its conductor."""

    def __init__(self, schedule: Schedule, variant: str = "", data: bool = False) -> None:
        self._schedule = schedule = ruled_by(schedule, variant)
        self.conductor = conductor = Conductor(schedule)
        super().__init__(scenario_of(schedule), 0, schedule=(), data=data)
        # Whatever is promised: that two deliver one stream is what a counterexample may be about.
        promised = replace(schedule.configuration, exclusive=True)
        _, topic_filter = self.scenario.own.group_and_filter
        self.judged = watch = Watch(promised, topic_filter, Judge(self.scenario.out_of_scope))
        self.watch = watch
        self.recorder = WatchedRecorder(watch, conductor, data)
        self.network = HeldNetwork(self, conductor)
        self.devices = {
            group_store.SERVICE: PromptStore(self, GroupStore(), failed, watch.carried_out),
            stream_store.SERVICE: PromptStore(self, StreamStore(1), not_fetched),
        }
        publisher = Publisher(self, topic_filter)
        for topic in schedule.topics:
            publisher.publish(topic, schedule.messages)
        for host in schedule.hosts:
            self._launch(host)

    def populate(self) -> None:
        """Who takes part, and when, is the schedule's, and so is what is published."""

    # -- the run ------------------------------------------------------------------------------------------------

    def follow(self) -> Replayed:
        """Carry the schedule out."""
        return carry_out(self, self.conductor, self.judged, self.check)

    def check(self) -> None:
        super().check()
        serving = [record.id for record in leaders(self.processes) if record.status in SERVING]
        if len(serving) > 1:
            self.watch.judge.broken("one leader", f"{' and '.join(serving)} serve the group at the same time")

    # -- the stage ----------------------------------------------------------------------------------------------

    def advance(self, at_ns: int) -> None:
        if at_ns > self.env.now:
            self.env.run(until=at_ns)

    def settle(self) -> None:
        while self.env.peek() == self.env.now:
            self.env.step()

    def start(self, node: str) -> None:
        self.join(node)

    def acknowledge(self, node: str, stream: str) -> None:
        process = self._alive(node)
        assert isinstance(process, ScheduledConsumer)
        process.take_one(stream)

    def unsubscribe(self, node: str) -> None:
        process = self._alive(node)
        assert isinstance(process, ScheduledConsumer)
        if process.host.ended:
            raise CannotFollow(f"{node} has unsubscribed already")
        leave(self, node)

    def crash(self, node: str) -> None:
        process = self._alive(node)
        self.note("leader_crash" if node in self._schedule.hosts else "crash", node)
        process.crash()
        if node in self._schedule.hosts:
            self.restart(node)

    def pause(self, node: str) -> None:
        self._alive(node)
        super().pause(node)

    def wake(self, node: str) -> None:
        self._alive(node)
        self.resume(node)

    def take_turns(self) -> None:
        for _ in range(TURNS):
            for node in sorted(self._schedule.consumers):
                process = self.processes.get(node)
                if isinstance(process, ScheduledConsumer) and process.alive and not process.paused:
                    self.advance(self.env.now + TURN_NS)
                    process.take()
                    self.settle()

    def serve(self, for_ns: int) -> bool:
        for node in sorted(self.processes):
            if self.processes[node].paused:
                self.wake(node)
        self.advance(self.env.now + for_ns)
        self.settle()
        consumers = [one for one in subscribed(self.processes) if isinstance(one, ScheduledConsumer)]
        for one in consumers:
            one.serve()
            self.settle()
        return bool(consumers)

    def _alive(self, node: str) -> Process:
        process = self.processes.get(node)
        if process is None or not process.alive:
            raise CannotFollow(f"{node} is not running")
        return process

    def _launch(self, node: str) -> None:
        self._lives[node] = self._lives.get(node, 0) + 1
        self._numbers += 1
        self.network.attach(node, self._numbers)
        process: Process
        if node in self._schedule.hosts:
            process = ScheduledHost(self, node, self._lives[node], self._schedule.configuration_of(node))
        else:
            registry = self._schedule.consumers[node]
            configuration = self._schedule.configuration_of(node)
            process = ScheduledConsumer(self, node, self._lives[node], registry, configuration)
        self.processes[node] = process
        process.start()


class ScheduledHost(LeaderHost):
    """A leader host with times of its own."""

    def __init__(self, world: ScheduledWorld, node: str, number: int, configuration: Configuration) -> None:
        super().__init__(world, node, number, configuration)
        self.host = Registry(self.life, configuration, observe=world.recorder.step, check=world.watching)


class ScheduledConsumer(Consumer):
    """A consumer whose application does what it is told; it asks one leader host only."""

    def __init__(
        self, world: ScheduledWorld, node: str, number: int, registry: str, configuration: Configuration
    ) -> None:
        super().__init__(world, node, number, world.scenario.own)
        group, topic_filter = world.scenario.own.group_and_filter
        self.host = Subscription(
            self.life,
            group,
            topic_filter,
            registry,
            configuration,
            start_ns=0,
            observe=world.recorder.step,
            check=world.watching,
        )
        self._taken: Deliver | None = None
        self._in_hand: list[Deliver] = []

    def told(self, party: str, event: Event) -> None:
        now = self._env.now
        if isinstance(event, Deliver):
            self._taken = event
            self._in_hand.append(event)
            self.world.recorder.tell(now, self.node, party, SESSION.full_name, event)
            self.world.watch.tell(self, party, event, now)
        elif isinstance(event, Acknowledged):
            self.world.recorder.tell(now, self.node, party, SESSION.full_name, event)
            self.world.watch.tell(self, party, event, now)

    def take(self) -> Deliver | None:
        """One message, if there is any."""
        self._taken = None
        self.perform(self.host.take(1, self.local_now()), self._env.now)
        return self._taken

    def serve(self) -> None:
        """Deal with what is in hand, and with all that can be taken."""
        while self._in_hand or self.take() is not None:
            self._finish(self._in_hand.pop(0))

    def take_one(self, stream: str) -> None:
        """Take one message of `stream`, and acknowledge it."""
        taken = self.take()
        if taken is None or taken.stream != stream:
            raise CannotFollow(f"there is no message of {stream} for its application to take")
        self._in_hand.remove(taken)
        self._finish(taken)

    def _go_on(self) -> None:
        """Not before it is told to."""


class WatchedRecorder(Recorder):
    """Tells the conductor what every machine takes."""

    def __init__(self, monitors: Any, conductor: Conductor, data: bool) -> None:
        super().__init__(monitors, data)
        self._conductor = conductor

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        self._conductor.saw(node_of(node.name), node.fsm.name, event)
        super().step(node, event, before, step, now_ns)


class HeldNetwork(Network):
    """Every message waits for the conductor's word."""

    def __init__(self, world: ScheduledWorld, conductor: Conductor) -> None:
        super().__init__(world.env, world.scenario.network, 0, world.recorder, world.processes)
        self._conductor = conductor

    def send(self, node: str, party: str, to: str, message: Message, now_ns: int) -> None:
        msg = self._counts[node]
        self._counts[node] = msg + 1
        self.sent += 1
        self._rows.append(self._makers[type(message)](now_ns, node, "", party, "send", to, msg, message))
        packet: Packet = (node_of(to), party, to, message, msg)
        arrived = 0

        def hand_over() -> None:
            nonlocal arrived
            if arrived:
                self._note("duplicate", packet)
            arrived += 1
            self._env.timeout(0).callbacks.append(lambda event: self._hand_over(packet))

        self._conductor.sent(words_of(message, node, packet[0]), hand_over, lambda: self.drop(packet))

    def _hand_over(self, packet: Packet) -> None:
        process = self._processes.get(packet[0])
        if process is None or not process.alive:
            self.drop(packet)
        else:
            process.receive(packet)


class PromptStore(RemoteStore):
    """Answers at once what the schedule does not know; a request that it knows travels as a message, and so do its
    answers."""

    def __init__(
        self, world: ScheduledWorld, service: Any, failed: Failed, carried_out: CarriedOut | None = None
    ) -> None:
        super().__init__(world.env, service, 0, failed, carried_out)
        self._conductor = world.conductor
        known = (sent for step in world.conductor.schedule.steps for sent in step.sends)
        self._travels = any(sent.to == self._name for sent in known)

    def ask(self, process: Process, party: str, request: Any, reply: Reply) -> None:
        node = process.node
        if node not in self._conductor.schedule.hosts:
            self._soon(lambda: self._answer_now(request, reply, party))
            return
        if not self._travels:
            if self._conductor.answers(node, request):
                self._soon(lambda: self._answer_now(request, reply, party))
            return
        words = words_of(request, node, self._name)

        def answer() -> None:
            for one in self.apply(request, party):
                back = words_of(one, self._name, node)
                self._conductor.sent(back, lambda one=one: self._soon(lambda: reply(one)), lambda: None)  # type: ignore[misc]

        self._conductor.sent(words, lambda: self._soon(answer), lambda: None)

    def _answer_now(self, request: Any, reply: Reply, party: str) -> None:
        for one in self.apply(request, party):
            self._soon(lambda one=one: reply(one))  # type: ignore[misc]

    def _soon(self, run: Callable[[], None]) -> None:
        self._env.timeout(0).callbacks.append(lambda event: run())


def run_row(schedule: Schedule, replayed: Replayed, variant: str = "") -> Run:
    """The line of the run in the table of runs.  Its rules promise exclusive hand-over if their configuration does."""
    schedule = ruled_by(schedule, variant)
    facts = {
        "followed": replayed.followed,
        "broken": replayed.broken,
        "schedule": schedule,
        "variant": variant or schedule.variant,
        "settings": {"configuration": schedule.configuration},
        "exclusive": schedule.configuration.exclusive,
    }
    return Run(
        0,
        f"schedule-{schedule.system}",
        0,
        msgspec.json.encode(facts).decode(),
        "; ".join(f"{name}: {detail}" for name, detail in replayed.broken.items()) or "held",
        msgspec.json.encode({"gapless": version("gapless"), "simpy": version("simpy")}).decode(),
        msgspec.json.encode(tables("shared_subscriptions")).decode(),
    )


def scenario_of(schedule: Schedule) -> Scenario:
    """A scenario without chance: no load, no faults; every property is noted and ends no run."""
    return Scenario(
        f"schedule of {schedule.system}",
        "shared_subscriptions",
        Section(
            subscription=f"$shared/{schedule.group}/#",
            load=Load(messages=0, start="beginning"),
            members=Members(consumers=0, leaders=len(schedule.hosts)),
            configuration=schedule.configuration,
        ),
        out_of_scope=(*PROPERTIES, "one leader"),
    )

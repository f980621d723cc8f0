"""A scripted run of shared subscriptions on the asyncio runtime, with stores in a file.

The watch of the simulator judges what the machines do, and what the group store carries out.

A scripted run of shared subscriptions: the hosts and the watch of any simulated run, under a script.

Hosts are those that applications embed (`Registry`, `Subscription` with its agent and session).  An application takes a
message when the script says so, and at the end, when all take turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from statemachines.drivers.lives import begin_life
from statemachines.drivers.node import NodeEnvironment
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.open_stores import OpenStores
from statemachines.drivers.shared_subscriptions.shared_session import Deliveries, SharedSubscription
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore, SqliteStreamStore
from statemachines.kernel import Answer, Event, Message, Node, Outgoing, Request, Step
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.handler import Subscription
from statemachines.shared_subscriptions.leader_record import LEADING
from statemachines.shared_subscriptions.properties import PROPERTIES
from statemachines.shared_subscriptions.properties.settled_group import find_leaderless
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.session import SESSION, Acknowledged, Deliver
from statemachines.shared_subscriptions.stream_store import Append, Appended, Published, StreamStore
from statemachines.trace import event_row
from statemachines_sim.asyncio_stage import AsyncioNode, AsyncioStage
from statemachines_sim.held_store import HeldStore
from statemachines_sim.judge import Judge
from statemachines_sim.recorder import Recorder
from statemachines_sim.replay_result import ReplayedScript, SimulatedReplay, carry_out, parameters_of
from statemachines_sim.script_world import ScriptProcess, ScriptWorld
from statemachines_sim.shared_subscriptions.watch import GroupWatch
from statemachines_spec.script.script import Script
from statemachines_spec.script.script import ScriptStep as ScriptStep
from statemachines_spec.script.stage import CannotFollow
from statemachines_spec.shared_subscriptions.script import GroupOrigin, set_variant

TURNS, TURN_NS = 2, 1_000
"""At the end every application takes so many messages, in turn; each turn is so much later than the one before."""

SERVES, SERVE_NS = 1_200, 250_000_000
"""How often, and after what time each, applications deal with what there is, once a script is over."""


def simulate(script: Script, variant: str = "", *, data: bool = False) -> SimulatedReplay:
    """Follow the script in the simulator, by the rules of `variant` ("" = its own)."""
    with ExitStack() as stack:
        stack.enter_context(script.part.rules(script, variant))
        ruled = set_variant(script, variant)
        world = GroupWorld(ruled, data)
        replayed = carry_out(world, world.conductor, world.watch.judge.first, world.check)
    ours = ruled.own.configuration
    parameters = parameters_of(ruled, replayed, variant)
    parameters |= {"settings": {"configuration": ours}, "exclusive": ours.exclusive}
    return SimulatedReplay(replayed, world.recorder.rows, parameters)


class GroupWorld(ScriptWorld):
    """Leader hosts from the beginning, consumers as they are started."""

    def __init__(self, script: Script, data: bool = False) -> None:
        self.own: GroupOrigin = script.own
        self.watch = watch_of(self.own)
        services: dict[str, Any] = {group_store.SERVICE: GroupStore(), stream_store.SERVICE: StreamStore(1)}
        states = {name: service.initial() for name, service in services.items()}
        super().__init__(script, Recorder(self.watch, data), services, states)
        for topic in self.own.topics:
            self._publish(topic)
        for host in self.own.hosts:
            self.launch(host)

    def make_process(self, node: str, number: int) -> ScriptProcess:
        return (ScriptHost if node in self.own.hosts else ScriptConsumer)(self, node, number)

    def is_played(self, node: str) -> bool:
        return node in self.own.hosts

    def observe_request(self, party: str, service: str, request: Request, answers: tuple[Answer, ...]) -> None:
        self.watch.observe_request(service, party, request, answers, self.now_ns)

    def check(self) -> None:
        """After each step: every invariant, and that one leader serves the group."""
        self.check_nodes()
        hosts = [self.processes[name] for name in self.own.hosts if self.processes[name].alive]
        leaders = [node.record for process in hosts for node in process.host.nodes.values()]
        serving = sorted((one.epoch, one.id) for one in leaders if one.status is LEADING)
        for one in find_leaderless([name for _, name in serving], is_needed=False):
            self.watch.judge.report_broken("one leader", one.detail)

    # -- the stage ------------------------------------------------------------------------------------------------

    def do(self, step: ScriptStep) -> None:
        consumer = self.alive(step.node)
        assert isinstance(consumer, ScriptConsumer)
        if step.do == "acknowledge":
            consumer.take_one(step.about)
        elif consumer.host.is_ended:
            raise CannotFollow(f"{step.node} has unsubscribed already")
        else:
            self.recorder.fault(self.now_ns, step.node, "unsubscribe")
            consumer.run(lambda: consumer.loop.run(consumer.host.end))

    def crash(self, node: str) -> None:
        """A leader host comes back at once."""
        process = self.alive(node)
        is_host = node in self.own.hosts
        self.recorder.fault(self.now_ns, node, "leader_crash" if is_host else "crash")
        process.alive = False
        if is_host:
            self.restart(node)
        else:
            self.watch.observe_death(process, self.now_ns)

    def end(self, release: Callable[[], None]) -> None:
        """Who holds a stream shows it; where nothing broke, L5: while somebody is left to deliver to, everything that
        is published is acknowledged in time."""
        self._take_turns()
        if self.watch.judge.first:
            return
        release()
        for _ in range(SERVES):
            if not self._serve() or not self.watch.list_unacknowledged():
                return
        self.watch.report_unread()

    def _take_turns(self) -> None:
        for _ in range(TURNS):
            for consumer in self._consumers():
                if not consumer.standing:
                    self.advance(self.now_ns + TURN_NS)
                    consumer.take()
                    self.settle()

    def _serve(self) -> bool:
        """Later, every application has dealt with what it could take; whether somebody is left who does."""
        for node in sorted(self.processes):
            if self.processes[node].standing:
                self.wake(node)
        self.advance(self.now_ns + SERVE_NS)
        self.settle()
        consumers = [one for one in self._consumers() if not one.host.is_ended]
        for one in consumers:
            one.serve()
            self.settle()
        return bool(consumers)

    def _consumers(self) -> list[ScriptConsumer]:
        return [one for _, one in sorted(self.processes.items()) if isinstance(one, ScriptConsumer) and one.alive]

    def _publish(self, topic: str) -> None:
        (answer,) = self.apply("publisher-1~1", stream_store.SERVICE, Append(0, topic, self.own.messages))
        assert isinstance(answer, Appended)
        published = Published(answer.stream, answer.first, answer.last)
        self.recorder.tell(0, "publisher-1", "publisher-1~1", "", published)
        self.watch.publish(answer.stream, answer.first, answer.last)


class ScriptHost(ScriptProcess):
    """A leader host with times of its own."""

    world: GroupWorld

    def make_host(self) -> Registry:
        return Registry(
            self.life, self.world.own.configuration_of(self.node), alone=True, observe=self.world.observe, check=True
        )

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        out: list[Outgoing] = self.host.receive(sender, to, message, now_ns)
        return out

    def route_tell(self, party: str, event: Event) -> None:
        """A leader resigned; the next `leader_wanted` starts another."""


class ScriptConsumer(ScriptProcess):
    """A consumer whose application does what it is told; it asks one leader host only."""

    world: GroupWorld
    host: Subscription

    def __init__(self, world: GroupWorld, node: str, number: int) -> None:
        super().__init__(world, node, number)
        self._taken: Deliver | None = None
        self._in_hand: list[Deliver] = []

    def make_host(self) -> Subscription:
        own = self.world.own
        return Subscription(
            self.life, own.group, "#", own.consumers[self.node], own.configuration_of(self.node),
            start_ns=0, observe=self.world.observe, check=True,
        )  # fmt: skip

    def start(self) -> None:
        self.loop.run(self.host.start)

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        return self.host.receive(sender, to, message, now_ns)

    def route_tell(self, party: str, event: Event) -> None:
        world = self.world
        if isinstance(event, Deliver):
            self._taken = event
            self._in_hand.append(event)
        if isinstance(event, Deliver | Acknowledged):
            world.recorder.tell(world.now_ns, self.node, party, SESSION.full_name, event)
            world.watch.tell(self, party, event, world.now_ns)

    def take(self) -> Deliver | None:
        """One message, if there is any."""
        self._taken = None
        self.loop.run(lambda now_ns: self.host.take_messages(1, now_ns))
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

    def _finish(self, done: Deliver) -> None:
        held = (done.owner, done.stream, done.grant, done.first, done.last)
        self.loop.run(lambda now_ns: self.host.acknowledge(*held, now_ns))


def watch_of(own: GroupOrigin) -> GroupWatch:
    """Whatever is promised: that two deliver one stream is what a counterexample may be about."""
    return GroupWatch(replace(own.configuration, exclusive=True), "#", Judge((*PROPERTIES, "one leader")))


PORT = 7411
"""Leader hosts listen at this port and the next ones; no socket is opened."""


def run_live(script: Script, variant: str = "", trace: Path | None = None) -> ReplayedScript:
    """Follow the script on the asyncio runtime, by the rules of `variant` ("" = its own); the nodes' logs go to the
    directory `trace`."""
    with ExitStack() as stack:
        stack.enter_context(script.part.rules(script, variant))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gapless-")))
        stage = GroupStage(set_variant(script, variant), directory, trace)
        stack.callback(stage.close)
        return carry_out(stage, stage.conductor, stage.watch.judge.first, stage.check, stage.refused)


class GroupStage(AsyncioStage):
    """Leader nodes from the beginning, consumers as they are started."""

    def __init__(self, script: Script, directory: Path, trace: Path | None) -> None:
        super().__init__(script)
        self.own: GroupOrigin = script.own
        self.watch = watch_of(self.own)
        self._directory = directory
        self._trace = trace
        self._publish()
        for host in self.own.hosts:
            self.restart(host)

    # -- the stage ------------------------------------------------------------------------------------------------

    def start(self, node: str) -> None:
        subscription = SharedSubscription(
            f"$shared/{self.own.group}/#",
            leader="{}:{}".format(*self._address(self.own.consumers[node])),
            store=self._directory,
            start="beginning",
            node=node,
            state=self._directory,
            trace=self._trace,
            configuration=self.own.configuration_of(node),
            environment=self._environment(node),
        )
        self.enter(node, AsyncioNode(subscription, self.time))
        self.settle()

    def restart(self, node: str) -> None:
        """A leader host begins, or comes back."""
        if node not in self.own.hosts:
            raise CannotFollow(f"{node} is gone for good")
        leader = LeaderNode(
            listen=self._address(node),
            store=self._directory,
            node=node,
            state=self._directory,
            trace=self._trace,
            configuration=self.own.configuration_of(node),
            peers=[self._address(other) for other in self.own.hosts if other != node],
            environment=self._environment(node),
        )
        self.enter(node, AsyncioNode(leader, self.time))
        self.settle()

    def crash(self, node: str) -> None:
        """A leader host comes back at once."""
        one = self.live(node)
        is_host = node in self.own.hosts
        self.watch.fault("leader_crash" if is_host else "crash", node, self.time.now_ns)
        self.watch.observe_death(one, self.time.now_ns)
        super().crash(node)
        if is_host:
            self.restart(node)

    def wake(self, node: str) -> None:
        super().wake(node)
        self.watch.fault("resume", node, self.time.now_ns)

    def do(self, step: ScriptStep) -> None:
        one = self.live(step.node)
        if step.do == "acknowledge":
            taken = self._take(one)
            if taken is None or taken[0].stream != step.about:
                raise CannotFollow(f"there is no message of {step.about} for its application to take")
            one.in_hand.remove(taken)
            self._acknowledge(one, taken)
        elif not one.host.parties:
            raise CannotFollow(f"{step.node} has unsubscribed already")
        else:
            self.watch.fault("unsubscribe", step.node, self.time.now_ns)
            self.spawn(one, one.node.unsubscribe())

    def end(self, release: Callable[[], None]) -> None:
        """As in the simulator."""
        self._take_turns()
        if self.watch.judge.first:
            return
        release()
        for _ in range(SERVES):
            if not self._serve() or not self.watch.list_unacknowledged():
                return
        self.watch.report_unread()

    def _take_turns(self) -> None:
        for _ in range(TURNS):
            for one in self._consumers():
                if not one.standing:
                    self.advance(self.time.now_ns + TURN_NS)
                    self._take(one)

    def _serve(self) -> bool:
        for name, one in sorted(self.nodes.items()):
            if one.standing:
                self.wake(name)
        self.advance(self.time.now_ns + SERVE_NS)
        self.settle()
        consumers = [one for one in self._consumers() if one.host.parties]
        for one in consumers:
            while one.in_hand or self._take(one) is not None:
                self._acknowledge(one, one.in_hand.pop(0))
        return bool(consumers)

    def _consumers(self) -> list[AsyncioNode]:
        nodes = (self.nodes[node] for node in sorted(self.own.consumers) if node in self.nodes)
        return [one for one in nodes if one.alive]

    # -- nodes and stores -----------------------------------------------------------------------------------------

    def _environment(self, node: str) -> NodeEnvironment:
        read_ns = self.time.read_ns
        return NodeEnvironment(
            transport=self.network.transport,
            open_stores=partial(self._open_held, node),
            bits=lambda: 0,
            steady_ns=read_ns,
            time_ns=read_ns,
            observe=self.observe,
            refused=self.refused.append,
        )

    def _open_stores(self, where: str | Path) -> OpenStores:
        path = Path(where) / "messages.db"
        clock = self.time.read_ns
        return OpenStores(SqliteGroupStore(path, clock=clock), SqliteStreamStore(path, 1, clock=clock))

    def _open_held(self, node: str, where: str | Path) -> OpenStores:
        """The stores as a node sees them; the watch hears what is committed."""
        groups, streams = self._open_stores(where)

        def committed(request: Any, answers: tuple[Answer, ...]) -> None:
            party = self.asking.get(node, node)
            self.watch.observe_request(group_store.SERVICE, party, request, answers, self.time.now_ns)

        common = (node, node in self.own.hosts, self.conductor, self.work.append)
        return OpenStores(
            cast(Any, HeldStore(groups, group_store.SERVICE, *common, committed)),
            cast(Any, HeldStore(streams, stream_store.SERVICE, *common, lambda request, answers: None)),
        )

    def _address(self, host: str) -> tuple[str, int]:
        return ("memory", PORT + self.own.hosts.index(host))

    # -- what happens ---------------------------------------------------------------------------------------------

    def watch_step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        self.watch.step(node, event, before, step, now_ns)

    def _take(self, one: AsyncioNode) -> Deliveries | None:
        """One message, if there is any now."""
        batches = one.node.batches(1)
        task = one.loop.create_task(anext(batches))
        self.settle()
        if not task.done():
            task.cancel()
            self.settle()
            return None
        if isinstance(task.exception(), StopAsyncIteration):
            return None  # its subscription has ended
        taken: Deliveries = task.result()
        message = taken[0]
        event = Deliver(message.owner, message.stream, message.grant, message.offset, message.offset)
        self.watch.deliver(one, event, self.time.now_ns)
        one.in_hand.append(taken)
        return taken

    def _acknowledge(self, one: AsyncioNode, taken: Deliveries) -> None:
        done = taken[0]
        self.watch.acknowledge(Acknowledged(done.owner, done.stream, done.grant, done.offset, done.offset))
        self.spawn(one, taken.ack())
        self.settle()

    def _publish(self) -> None:
        """Every topic has its messages before anything else happens; a publisher's log says so."""
        stores, loop = self._open_stores(self._directory), self.store_loop
        life = begin_life("publisher-1", self._directory, self._trace, None, "shared_subscriptions")
        for topic in self.own.topics:
            payloads = [b"%d" % number for number in range(self.own.messages)]
            appended = loop.run_until_complete(stores.streams.append(topic, payloads))
            self.watch.publish(appended.stream, appended.first, appended.last)
            if life.log is not None:
                event = Published(appended.stream, appended.first, appended.last)
                life.log.write([event_row(0, "publisher-1", life.name, "tell", event)])
        loop.run_until_complete(stores.streams.close())
        loop.run_until_complete(stores.groups.close())
        if life.log is not None:
            life.log.close()

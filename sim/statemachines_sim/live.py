"""Live: a schedule on the asyncio runtime: the drivers that applications use, over a network in memory whose deliveries
the schedule decides, with stores in a file, and time that moves from step to step.

Every node has a loop of its own, as every process has: one that stands still is not run.  The simulator's monitors
judge what the machines do, and what the group store carries out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from statemachines.drivers.environment import Environment
from statemachines.drivers.lives import begin_life
from statemachines.drivers.memory import MemoryNetwork
from statemachines.drivers.shared_subscriptions.lead import LeaderNode
from statemachines.drivers.shared_subscriptions.open_stores import Stores
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore, SqliteStreamStore
from statemachines.drivers.shared_subscriptions.subscribe import Deliveries, SharedSubscription
from statemachines.kernel import Answer, Event, Node, RemoteProtocolError, Step, node_of
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.session import Acknowledged, Deliver
from statemachines.shared_subscriptions.stream_store import Published
from statemachines.trace import event_row
from statemachines.wire import Packet
from statemachines_sim.held_store import HeldStore, Work
from statemachines_sim.monitor import Monitors
from statemachines_sim.replayed import Replayed, carry_out, installed, ruled_by
from statemachines_sim.scenario import PROPERTIES
from statemachines_sim.stepped_loop import SteppedLoop, Time
from statemachines_spec.conductor import TURN_NS, TURNS, CannotFollow, Conductor
from statemachines_spec.schedule import Schedule, words_of

PORT = 7411
"""Leader hosts listen at this port and the next ones; no socket is opened."""


def run_live(schedule: Schedule, variant: str = "", trace: Path | None = None) -> Replayed:
    """Follow the schedule on the asyncio runtime, by the rules of `variant` ("" = the schedule's own); the nodes' logs
    go to the directory `trace`."""
    with ExitStack() as stack:
        stack.enter_context(installed(schedule, variant))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gapless-")))
        stage = LiveStage(ruled_by(schedule, variant), directory, trace)
        stack.callback(stage.close)
        return stage.follow()


class LiveNode:
    """A node and its loop: what monitors want to know of a consumer, and what the stage needs of any."""

    clock = None

    def __init__(self, node: Any, time: Time) -> None:
        self.node = node
        self.loop = SteppedLoop(time)
        self.alive = True
        self.standing = False
        self.in_hand: list[Deliveries] = []

    @property
    def host(self) -> Any:
        """Its machines: a `Handler`, or a `Registry`."""
        return self.node.machines

    @property
    def life(self) -> str:
        """Its incarnation."""
        return str(self.node.machines.host)


class LiveStage:
    """The stage of a conductor; `work`: what stores have to carry out, on a loop of their own."""

    def __init__(self, schedule: Schedule, directory: Path, trace: Path | None) -> None:
        self.conductor = Conductor(schedule)
        self._schedule = schedule
        self._directory = directory
        self._trace = trace
        self._time = Time()
        self._loop = SteppedLoop(self._time)
        self.work: list[Work] = []
        self._asking: dict[str, str] = {}
        self._nodes: dict[str, LiveNode] = {}
        self._failed: list[BaseException] = []
        self._refused: list[RemoteProtocolError] = []
        self._network = MemoryNetwork(self._gate)
        promised = replace(schedule.configuration, exclusive=True)
        self.monitors = Monitors(promised, "#", (*PROPERTIES, "one leader"))
        self._publish()
        for host in schedule.hosts:
            self._start_host(host)

    # -- the run ------------------------------------------------------------------------------------------------

    def follow(self) -> Replayed:
        """Carry the schedule out."""
        return carry_out(self, self.conductor, self.monitors, self._check, self._refused)

    def close(self) -> None:
        """Every node stops; nobody says goodbye, so that the logs end with the run."""
        for one in self._nodes.values():
            if one.alive:
                self._stop(one)
        self._loop.finish()

    def _check(self) -> None:
        for _, one in sorted(self._nodes.items()):
            if one.alive:
                for _, node in sorted(one.host.nodes.items()):
                    node.check()

    # -- the stage ----------------------------------------------------------------------------------------------

    def advance(self, at_ns: int) -> None:
        """From deadline to deadline; at the last moment nothing has happened yet."""
        while True:
            running = [one.loop.deadline() for one in self._running()]
            due = min((deadline for deadline in running if deadline is not None), default=at_ns)
            if due >= at_ns:
                break
            self._time.now_ns = max(due, self._time.now_ns)
            self.settle()
        self._time.now_ns = max(at_ns, self._time.now_ns)

    def settle(self) -> None:
        while sum(one.loop.settle() for one in self._running()) or self.work:  # all of them: `any` stops at the first
            while self.work:
                self._loop.run_until_complete(self.work.pop(0)())
        if self._failed:
            raise self._failed.pop(0)

    def start(self, node: str) -> None:
        schedule = self._schedule
        registry = schedule.consumers[node]
        subscription = SharedSubscription(
            f"$shared/{schedule.group}/#",
            leader="{}:{}".format(*self._address(registry)),
            store=self._directory,
            start="beginning",
            node=node,
            state=self._directory,
            trace=self._trace,
            configuration=schedule.configuration_of(node),
            environment=self._environment(node),
        )
        self._enter(node, subscription)
        self.settle()

    def acknowledge(self, node: str, stream: str) -> None:
        one = self._live(node)
        taken = self._take(one)
        if taken is None or taken[0].stream != stream:
            raise CannotFollow(f"there is no message of {stream} for its application to take")
        one.in_hand.remove(taken)
        self._acknowledge(one, taken)

    def unsubscribe(self, node: str) -> None:
        one = self._live(node)
        if not one.host.shared:
            raise CannotFollow(f"{node} has unsubscribed already")
        self.monitors.fault("unsubscribe", node, self._time.now_ns)
        self._spawn(one, one.node.unsubscribe())

    def crash(self, node: str) -> None:
        one = self._live(node)
        self.monitors.fault("leader_crash" if node in self._schedule.hosts else "crash", node, self._time.now_ns)
        for party in one.host.nodes:
            self.monitors.died(party, self._time.now_ns)
        self._network.kill(node)
        self._stop(one)
        if node in self._schedule.hosts:
            self._start_host(node)

    def pause(self, node: str) -> None:
        self._live(node).standing = True

    def wake(self, node: str) -> None:
        self._live(node).standing = False
        self.monitors.fault("resume", node, self._time.now_ns)

    def take_turns(self) -> None:
        for _ in range(TURNS):
            for node in sorted(self._schedule.consumers):
                one = self._nodes.get(node)
                if one is not None and one.alive and not one.standing:
                    self.advance(self._time.now_ns + TURN_NS)
                    self._take(one)

    def serve(self, for_ns: int) -> bool:
        for name, one in sorted(self._nodes.items()):
            if one.standing:
                self.wake(name)
        self.advance(self._time.now_ns + for_ns)
        self.settle()
        consumers = [self._nodes[node] for node in sorted(self._schedule.consumers) if node in self._nodes]
        consumers = [one for one in consumers if one.alive and one.host.shared]
        for one in consumers:
            while one.in_hand or self._take(one) is not None:
                self._acknowledge(one, one.in_hand.pop(0))
        return bool(consumers)

    # -- nodes --------------------------------------------------------------------------------------------------

    def _start_host(self, host: str) -> None:
        others = [self._address(other) for other in self._schedule.hosts if other != host]
        node = LeaderNode(
            listen=self._address(host),
            store=self._directory,
            node=host,
            state=self._directory,
            trace=self._trace,
            configuration=self._schedule.configuration_of(host),
            peers=others,
            environment=self._environment(host),
        )
        self._enter(host, node)
        self.settle()

    def _enter(self, name: str, node: Any) -> None:
        one = self._nodes[name] = LiveNode(node, self._time)
        one.loop.set_exception_handler(lambda loop, context: self._failed.append(_error_of(context)))
        self._spawn(one, node.__aenter__())

    def _stop(self, one: LiveNode) -> None:
        one.alive = False
        one.loop.run_until_complete(one.node.abort())
        one.loop.finish()

    def _spawn(self, one: LiveNode, work: Coroutine[Any, Any, Any]) -> None:
        task = one.loop.create_task(work)
        task.add_done_callback(lambda done: self._keep_error(one, done))

    def _keep_error(self, one: LiveNode, task: Any) -> None:
        if one.alive and not task.cancelled() and task.exception() is not None:
            self._failed.append(task.exception())

    def _environment(self, node: str) -> Environment:
        read_ns = self._time.read_ns
        return Environment(
            transport=self._network.transport,
            open_stores=partial(self._open_held, node),
            monotonic_ns=read_ns,
            time_ns=read_ns,
            observe=self._observe,
            refused=self._refused.append,
        )

    def _open_stores(self, where: str | Path) -> Stores:
        path = Path(where) / "messages.db"
        clock = self._time.read_ns
        return Stores(SqliteGroupStore(path, clock=clock), SqliteStreamStore(path, 1, clock=clock))

    def _open_held(self, node: str, where: str | Path) -> Stores:
        """The stores as a node sees them; the monitors hear what is committed."""
        groups, streams = self._open_stores(where)

        def committed(request: Any, answers: tuple[Answer, ...]) -> None:
            self.monitors.commit(self._asking.get(node, node), request, answers, self._time.now_ns)

        common = (node, self.conductor, self.work.append)
        return Stores(
            cast(Any, HeldStore(groups, group_store.SERVICE, *common, committed)),
            cast(Any, HeldStore(streams, stream_store.SERVICE, *common, lambda request, answers: None)),
        )

    def _address(self, host: str) -> tuple[str, int]:
        return ("memory", PORT + self._schedule.hosts.index(host))

    def _running(self) -> list[LiveNode]:
        return [one for one in self._nodes.values() if one.alive and not one.standing]

    def _live(self, node: str) -> LiveNode:
        one = self._nodes.get(node)
        if one is None or not one.alive:
            raise CannotFollow(f"{node} is not running")
        return one

    # -- what happens -------------------------------------------------------------------------------------------

    def _gate(self, node: str, to: str, packet: Packet[Any], arrive: Callable[[], None]) -> None:
        self.conductor.sent(words_of(packet.message, node, to), arrive, lambda: None)

    def _observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        name = node_of(node.name)
        if self._nodes[name].alive:
            self._asking[name] = node.name  # who stepped last is who asks
            self.conductor.saw(name, node.fsm.name, event)
            self.monitors.step(node, event, before, step, now_ns)

    def _take(self, one: LiveNode) -> Deliveries | None:
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
        self.monitors.deliver(cast(Any, one), event, self._time.now_ns)
        one.in_hand.append(taken)
        return taken

    def _acknowledge(self, one: LiveNode, taken: Deliveries) -> None:
        done = taken[0]
        self.monitors.acknowledge(Acknowledged(done.owner, done.stream, done.grant, done.offset, done.offset))
        self._spawn(one, taken.ack())
        self.settle()

    def _publish(self) -> None:
        """Every topic has its messages before anything else happens; a publisher's log says so."""
        stores = self._open_stores(self._directory)
        life = begin_life("publisher-1", self._directory, self._trace, None, "shared_subscriptions")
        for topic in self._schedule.topics:
            payloads = [b"%d" % number for number in range(self._schedule.messages)]
            appended = self._loop.run_until_complete(stores.streams.append(topic, payloads))
            self.monitors.publish(appended.stream, appended.first, appended.last)
            if life.log is not None:
                event = Published(appended.stream, appended.first, appended.last)
                life.log.write([event_row(0, "publisher-1", life.name, "tell", event)])
        self._loop.run_until_complete(stores.streams.close())
        self._loop.run_until_complete(stores.groups.close())
        if life.log is not None:
            life.log.close()


def _error_of(context: dict[str, Any]) -> BaseException:
    error = context.get("exception")
    return error if isinstance(error, BaseException) else RuntimeError(str(context.get("message")))

"""A scripted run of shared subscriptions on the asyncio runtime, with stores in a file.

The watch of the simulator judges what the machines do, and what the group store carries out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

from statemachines.drivers.environment import NodeEnvironment
from statemachines.drivers.lives import begin_life
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.open_stores import OpenStores
from statemachines.drivers.shared_subscriptions.shared_session import Deliveries, SharedSubscription
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore, SqliteStreamStore
from statemachines.kernel import Answer, Event, Node, Step
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.session import Acknowledged, Deliver
from statemachines.shared_subscriptions.stream_store import Published
from statemachines.trace import event_row
from statemachines_sim.asyncio_stage import AsyncioNode, AsyncioStage
from statemachines_sim.held_store import HeldStore
from statemachines_sim.replay_result import ReplayedScript, carry_out
from statemachines_sim.shared_subscriptions.script_world import SERVE_NS, SERVES, TURN_NS, TURNS, watch_of
from statemachines_spec.script.script import Script
from statemachines_spec.script.script import ScriptStep as ScriptStep
from statemachines_spec.script.stage import CannotFollow
from statemachines_spec.shared_subscriptions.script import GroupOrigin, set_variant

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

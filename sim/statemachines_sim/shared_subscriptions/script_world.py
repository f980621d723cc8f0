"""A scripted run of shared subscriptions: the hosts and the watch of any simulated run, under a script.

Hosts are those that applications embed (`Registry`, `Subscription` with its agent and session).  An application takes a
message when the script says so, and at the end, when all take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Answer, Event, Message, Outgoing, Request
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.leader_record import LEADING
from statemachines.shared_subscriptions.properties import PROPERTIES
from statemachines.shared_subscriptions.properties.settled_group import find_leaderless
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.session import SESSION, Acknowledged, Deliver
from statemachines.shared_subscriptions.stream_store import Append, Appended, Published, StreamStore
from statemachines.shared_subscriptions.subscription import Subscription
from statemachines_sim.judge import Judge
from statemachines_sim.recorder import Recorder
from statemachines_sim.replay_result import SimulatedReplay, carry_out, parameters_of
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

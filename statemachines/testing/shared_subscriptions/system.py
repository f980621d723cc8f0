"""System: a whole small group, leader, consumers and stores, with nobody but the caller deciding what happens next.

Nothing happens by itself: no clock runs, no message arrives and no store answers until somebody says so.  What is on
its way stands in `packets`, `held` and `questions`; `run(n)` makes the `n` moves that an untroubled world would make.
All of it is pure parts (`Host`, `Node`, the services): the same moves give the same story, event by event.

The watch of the simulator keeps the books; the first property that breaks is in `broken`.  `story()` tells what
happened: who said what to whom, and each step with the state before and after, its row and its clause.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import msgspec

from statemachines.kernel import (
    Answer,
    Ask,
    Event,
    Host,
    Message,
    Node,
    Outgoing,
    Request,
    Send,
    Step,
    incarnation,
    node_of,
)
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import GroupStore, StoreFailed
from statemachines.shared_subscriptions.handler import Subscription
from statemachines.shared_subscriptions.leader_record import LEADING, LeaderRecord
from statemachines.shared_subscriptions.properties.settled_group import find_uncommitted, find_unended
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.session import Acknowledged, Deliver, PollTimer, Ready
from statemachines.shared_subscriptions.stream_store import Append, Appended, Fetched, FetchFailed, StreamStore
from statemachines.testing.script import ScriptStory
from statemachines_sim.judge import Violation
from statemachines_sim.shared_subscriptions.watch import GroupWatch
from statemachines_sim.units import S

QUICK = Configuration(
    find_leader_ms=100,
    ping_interval_ms=100,
    ping_timeout_ms=200,
    validity_ms=500,
    max_delay_ms=40,
    clock_drift=0.0,
    unsubscribe_timeout_ms=500,
    resend_interval_ms=100,
    renew_streams_ms=500,
    revoke_timeout_ms=1_000,
    claim_ttl_ms=1_500,
    claim_heartbeat_ms=500,
    commit_interval_ms=100,
    idle_stop_ms=3_000,
    count_deliveries=False,
)
"""All times a tenth of the usual, so that few moves see a lease, a claim or an idle leader to its end."""

STORE_NS = 10**15
"""The stores' clock is nobody's."""

POLL_NS = 50_000_000
"""Sessions look for news so often: more often would only make more moves in which nothing happens."""

TAKE = 2
FATES_MAX = 16
"""No more than this is foreseen at a time."""
PACKETS_MAX = 400
"""More than this is never on its way: the oldest is lost, as in a full buffer."""


Fates = list[tuple[int, str]]
"""How many come before it, and what becomes of it."""

SETTLE_NS = 60 * S
"""Far more than every timeout one after the other, in the quick configuration."""

STEADY_NS = 2 * S
"""Longer than a claim and a revoke timeout."""

MOVES_MAX = 30_000
CHUNK = 100


class TravellingPacket(NamedTuple):
    """A message on its way."""

    sender: str
    to: str
    message: Message

    def __str__(self) -> str:
        return f"{self.sender} -> {self.to}: {told(self.message)}"


class Question(NamedTuple):
    """A request on its way to a store, or its answer on the way back."""

    life: str
    party: str
    ask: Ask


class MemberProcess:
    """One life of a node.  `in_hand`: what its application was given and has not acknowledged; `ready`: there may be
    more to take; `busy`: it does nothing by itself; `answers`: of stores, while it stands still."""

    def __init__(self, life: str, host: Host) -> None:
        self.life = life
        self.host: Any = host
        self.alive = True
        self.clock = None  # every process goes by the one clock of the system
        self.paused = False
        self.busy = False
        self.ready = False
        self.left = False
        self.in_hand: deque[Deliver] = deque()
        self.answers: deque[tuple[str, Answer]] = deque()

    @property
    def node(self) -> str:
        """Where it lives."""
        return node_of(self.life)

    @property
    def running(self) -> bool:
        """It lives, and does not stand still."""
        return self.alive and not self.paused


class GroupSystem:
    """`leader-1`, and consumers as they subscribe, of one group that reads everything from the beginning.

    A move that cannot be made does nothing, so that a list of moves stays one when some are left out.
    """

    def __init__(self, configuration: Configuration = QUICK) -> None:
        self.configuration = configuration
        self.now = 0
        self.packets: list[TravellingPacket] = []
        self.held: list[TravellingPacket] = []
        self.questions: list[Question] = []
        self.late: list[Question] = []
        self.fates: Fates = []
        self.failing: Fates = []
        self.processes: dict[str, MemberProcess] = {}
        self.stores: dict[str, Any] = {group_store.SERVICE: GroupStore(), stream_store.SERVICE: StreamStore(shards=1)}
        self.states = {name: service.initial() for name, service in self.stores.items()}
        self.failures = {group_store.SERVICE: StoreFailed, stream_store.SERVICE: FetchFailed}
        self.published: dict[str, int] = {}
        self.monitors = GroupWatch(configuration)
        self.tale = ScriptStory(dull)
        self.broken: Violation | None = None
        self.moves = 0
        self.transit_ns = 0
        self.network = self
        """As the watch asks it what is on its way."""
        self.devices = self.stores
        self.lasting: frozenset[tuple[str, str]] = frozenset()
        """No way is cut for good here."""
        self._arrival: int | None = None
        self._lives: dict[str, int] = {}
        self.restart("leader-1")

    # -- processes ----------------------------------------------------------------------------------------------

    def restart(self, node: str) -> MemberProcess:
        """A new life of a node, whose old one is over; a consumer subscribes at once."""
        self.crash(node)
        self._lives[node] = self._lives.get(node, 0) + 1
        life = incarnation(node, self._lives[node])
        self._fault("restart", node)
        if node.startswith("leader"):
            host: Host = Registry(life, self.configuration, observe=self._observe, check=True)
        else:
            host = Subscription(
                life, "g", "#", "leader-1", self.configuration, start_ns=0, observe=self._observe, check=True
            )
        process = self.processes[node] = MemberProcess(life, host)
        if isinstance(host, Subscription):
            out = host.start(self.now)
            session = host.nodes[host.session]
            session.record = msgspec.structs.replace(session.record, poll_ns=POLL_NS)
            self._do(process, out)
        return process

    def crash(self, node: str) -> None:
        """Dead, with everything it knew; what it sent is still on its way."""
        process = self.processes.get(node)
        if process is None or not process.alive:
            return
        process.alive = False
        self._fault("leader_crash" if node.startswith("leader") else "crash", node)

    def pause(self, node: str) -> None:
        """It stands still, and the world goes on."""
        process = self.processes.get(node)
        if process is not None and process.running:
            process.paused = True
            self._fault("pause", node)

    def resume(self, node: str) -> None:
        """It goes on; what ends a right comes before anything that it is told then."""
        process = self.processes.get(node)
        if process is not None and process.alive and process.paused:
            process.paused = False
            self._fault("resume", node)
            self._answer(process)

    def subscribe(self, node: str) -> None:
        """A new consumer, or one that was dead or has left."""
        process = self.processes.get(node)
        if process is None or not process.alive or process.host.is_ended:
            self.restart(node)

    def leave(self, node: str, at_once: bool = False) -> None:
        """The client unsubscribes, or its session goes `at_once`."""
        process = self.processes.get(node)
        if process is not None and process.running and not process.left:
            process.left = True
            self._fault("unsubscribe", node)
            end = process.host.leave_all if at_once else process.host.end
            out = end(self.now)
            self.monitors.observe_unsubscribed(process.life)
            self._do(process, out)

    def halt(self) -> None:
        """The leader host is told to stop in good order; it goes on if somebody asks it."""
        process = self.processes["leader-1"]
        if process.running:
            self._fault("halt", "leader-1")
            self._do(process, process.host.halt(self.now))

    # -- the application ----------------------------------------------------------------------------------------

    def publish(self, topic: str, count: int) -> None:
        """Messages come into the store; a stream that has ended takes none."""
        stream = stream_store.stream_id(topic, 1, 0)
        state = self.states[stream_store.SERVICE].by_id.get(stream)
        if state is not None and state.ended:
            return
        (answer,) = self._apply("publisher", stream_store.SERVICE, Append(0, topic, max(count, 1)))
        assert isinstance(answer, Appended)
        self.tale.say(f"published: {told(answer)}")
        self.published[answer.stream] = answer.last + 1
        self.monitors.publish(answer.stream, answer.first, answer.last)

    def end_stream(self, topic: str) -> None:
        """Nothing follows any more."""
        stream = stream_store.stream_id(topic, 1, 0)
        state = self.states[stream_store.SERVICE]
        if stream in state.by_id:
            self.tale.say(f"{stream} has ended")
            ended = msgspec.structs.replace(state.by_id[stream], ended=True)
            self.states[stream_store.SERVICE] = msgspec.structs.replace(state, by_id=state.by_id.set(stream, ended))

    def tire(self, node: str) -> None:
        """Its application takes and acknowledges nothing by itself; the next time, it is lively again."""
        process = self.processes.get(node)
        if process is not None:
            process.busy = not process.busy
            self.tale.say(f"{node} is {'busy' if process.busy else 'lively'}")

    def take(self, node: str, limit: int = TAKE) -> None:
        """The application asks for messages."""
        process = self.processes.get(node)
        if process is not None and process.running:
            before = len(process.in_hand)
            self._do(process, process.host.take_messages(limit, self.now))
            process.ready = len(process.in_hand) > before

    def acknowledge(self, node: str, number: int = 0) -> None:
        """The application is done with something in its hands."""
        process = self.processes.get(node)
        if process is not None and process.running and process.in_hand:
            done = process.in_hand[number % len(process.in_hand)]
            process.in_hand.remove(done)
            held = (done.owner, done.stream, done.grant, done.first, done.last)
            self._do(process, process.host.acknowledge(*held, self.now))

    # -- the network, the stores, the clock ---------------------------------------------------------------------

    def deliver(self, number: int = 0) -> None:
        """A message arrives; at a process that is dead or stands still it is lost, or waits."""
        if not self.packets:
            return
        packet = self.packets.pop(number % len(self.packets))
        if not (process := self.processes[node_of(packet.to)]).alive:
            self.tale.say(f"{packet}  (nobody there)")
        elif process.paused:
            self.held.append(packet)
        else:
            self.tale.say(str(packet))
            self._do(process, process.host.receive(packet.sender, packet.to, packet.message, self.now))

    def foresee(self, fate: str, after: int = 0) -> None:
        """What will become of a message that is yet to be sent, after so many others: "lost", "late" (held back until
        somebody lets it go), or "twice" (the copy late)."""
        if len(self.fates) < FATES_MAX:
            self.tale.say(f"the message after {after} others will be {fate}")
            self.fates.append((after, fate))

    def foresee_failure(self, outcome: str, after: int = 0) -> None:
        """The same for a request to a store: "failed", "in doubt" (carried out, and said to have failed), or "late"."""
        if len(self.failing) < FATES_MAX:
            self.tale.say(f"the request after {after} others will be {outcome}")
            self.failing.append((after, outcome))

    def let_go(self, number: int = 0) -> None:
        """A message, or (odd numbers) a request, that was held back goes on, before everything else."""
        if self.late and number % 2:
            self.questions.insert(0, self.late.pop(0))
        elif self.held:
            self.packets.insert(0, self.held.pop(number % len(self.held)))

    def answer(self, number: int = 0) -> None:
        """A store carries a request out, unless something else was foreseen."""
        if not self.questions:
            return
        question = self.questions.pop(number % len(self.questions))
        outcome, self.failing = next_fate(self.failing, "done")
        if outcome == "late":
            self.late.append(question)
            return
        ask = question.ask
        answers: tuple[Answer, ...] = ()
        if outcome != "failed":
            answers = self._apply(question.party, ask.service, ask.request)
        if outcome != "done":
            self._fault("store", "")
            answers = (self.failures[ask.service](ask.request.n),)  # type: ignore[attr-defined]
        process = self.processes[node_of(question.life)]
        if process.life != question.life or not process.alive:
            return
        process.answers.extend((question.party, answer) for answer in answers)
        self._answer(process)

    def deadline(self) -> tuple[int, str] | None:
        """When the next timer of a process that runs is due, and whose."""
        due = [
            (deadline, node)
            for node, process in self.processes.items()
            if process.running and (deadline := process.host.deadline()) is not None
        ]
        return min(due) if due else None

    def fire(self) -> None:
        """The next timer is due."""
        if (due := self.deadline()) is not None:
            self.now = max(self.now, due[0])
            process = self.processes[due[1]]
            self._do(process, process.host.fire(self.now))

    def fire_late(self, number: int, timer: str) -> None:
        """A timer that was taken back fires all the same, at one of the parties that have such a timer."""
        parties = [
            (process, party)
            for _, process in sorted(self.processes.items())
            if process.running
            for party, node in sorted(process.host.nodes.items())
            if timer in node.fsm.timer_registry()
        ]
        if parties:
            process, party = parties[number % len(parties)]
            event = process.host.nodes[party].fsm.timer_registry()[timer]()
            self.tale.say(f"{party}: {told(event)}, late")
            self._do(process, process.host.feed(party, event, self.now))

    def take_time(self, ms: int) -> None:
        """From now on a message takes so long to arrive, where nobody decides otherwise; timers fire meanwhile."""
        self.tale.say(f"messages take {ms} ms")
        self.transit_ns = ms * 1_000_000

    # -- an untroubled world ------------------------------------------------------------------------------------

    def run(self, moves: int) -> None:
        """So many moves as they come: messages in order, then answers, then applications, then the clock."""
        for _ in range(moves):
            if self.broken is not None or not self._move():
                return

    def heal(self) -> None:
        """Nothing is held back or down any more, and nothing more will go wrong."""
        self.fates.clear()
        self.failing.clear()
        self.packets.extend(self.held)
        self.held.clear()
        self.transit_ns = 0
        self.questions.extend(self.late)
        self.late.clear()
        for node in sorted(self.processes):
            process = self.processes[node]
            process.busy = False
            if not process.alive:
                self.restart(node)
            elif process.paused:
                self.resume(node)
        self.tale.say("everything has healed")
        self.monitors.settle(False)

    def leader(self) -> LeaderRecord | None:
        """The record of the leader that leads, if one does."""
        for node in self.processes["leader-1"].host.nodes.values():
            if node.record.status is LEADING:
                record: LeaderRecord = node.record
                return record
        return None

    def consumers(self) -> list[MemberProcess]:
        """Every life of the moment, by node."""
        return [process for node, process in sorted(self.processes.items()) if not node.startswith("leader")]

    def _move(self) -> bool:
        self.moves += 1
        if self.packets:
            self._transport()
        elif self.questions:
            self.answer()
        elif not self._work():
            if self.deadline() is None:
                return False
            self.fire()
        return True

    def _transport(self) -> None:
        """The next message arrives, unless a timer is due before."""
        if self._arrival is None:
            self._arrival = self.now + self.transit_ns
        due = self.deadline()
        if self.transit_ns and due is not None and due[0] <= self._arrival:
            self.fire()
            return
        self.now, self._arrival = max(self.now, self._arrival), None
        self.deliver()

    def _work(self) -> bool:
        for process in self.consumers():
            if process.busy:
                continue
            if process.running and process.in_hand:
                self.acknowledge(process.node)
                return True
            if process.running and process.ready:
                self.take(process.node)
                return True
        return False

    # -- inside -------------------------------------------------------------------------------------------------

    def _do(self, process: MemberProcess, out: list[Outgoing]) -> None:
        for party, effect in out:
            if type(effect) is Send:
                self._send(TravellingPacket(party, effect.to, effect.message))
            elif type(effect) is Ask:
                self.questions.append(Question(process.life, party, effect))
            else:
                self._hear(process, effect.event)  # type: ignore[union-attr]
        if len(self.packets) > PACKETS_MAX:
            del self.packets[: len(self.packets) - PACKETS_MAX]

    def _send(self, packet: TravellingPacket) -> None:
        fate, self.fates = next_fate(self.fates, "")
        if fate:
            self.tale.say(f"{packet}  ({fate})")
        if fate == "lost":
            self._fault("loss", "")
            return
        if fate:
            self.held.append(packet)
        if fate != "late":
            self.packets.append(packet)

    def _answer(self, process: MemberProcess) -> None:
        """What stores answered, once the process does not stand still; no answer to one that lives is ever lost."""
        while process.running and process.answers:
            party, answer = process.answers.popleft()
            self._do(process, process.host.feed(party, answer, self.now))

    def _hear(self, process: MemberProcess, event: Event) -> None:
        if isinstance(event, Deliver):
            self.tale.say(f"{process.life} gets {told(event)}")
            process.in_hand.append(event)
            self._judge(lambda: self.monitors.deliver(process, event, self.now))
        elif isinstance(event, Acknowledged):
            self.monitors.acknowledge(event)
        elif isinstance(event, Ready):
            process.ready = True

    def _apply(self, party: str, name: str, request: Request) -> tuple[Answer, ...]:
        answers: tuple[Answer, ...]
        state, answers = self.stores[name].apply(self.states[name], request, self.now + STORE_NS)
        self.states[name] = state
        if name == group_store.SERVICE:
            self.tale.say(f"{name}: {told(request)}: {', '.join(map(told, answers))}")
            self._judge(lambda: self.monitors.observe_request(name, party, request, answers, self.now + STORE_NS))
        return answers

    def _observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        self.tale.step(node, event, before, step, now_ns)
        self._judge(lambda: self.monitors.step(node, event, before, step, now_ns))

    def messages_in_flight(self) -> list[Message]:
        """What is on its way."""
        return [packet.message for packet in (*self.packets, *self.held)]

    def in_flight(self) -> set[tuple[str, str]]:
        """Who has said something to whom that has not arrived."""
        return {(packet.sender, packet.to) for packet in (*self.packets, *self.held)}

    def missing(self) -> tuple[str, str] | None:
        """The first property that is not true yet, and why; for a system that has healed."""
        found: list[tuple[str, str] | None] = [None]
        self._judge(lambda: found.append(self.monitors.missing(self)))
        return found[-1]

    def _fault(self, fault: str, node: str) -> None:
        self.tale.say(f"{fault} {node}".rstrip())
        self.monitors.fault(fault, node, self.now)

    def _judge(self, check: Any) -> None:
        """The first violation counts; what follows from it does not."""
        try:
            check()
        except Violation as violation:
            if self.broken is None:
                self.broken = violation

    def finish(self) -> None:
        """Everything heals, and what must come true does; a property that does not is `broken`."""
        finish(self)

    def story(self) -> str:
        """What happened, and what broke."""
        end = "" if self.broken is None else f"\n\n{self.broken}"
        return self.tale.text() + end


def dull(event: Event) -> bool:
    """A look that brings no news."""
    return isinstance(event, PollTimer) or (
        isinstance(event, Fetched) and all(batch.last < batch.first for batch in event.batches)
    )


def next_fate(fates: Fates, usual: str) -> tuple[str, Fates]:
    """What becomes of the next one, and what is foreseen for those after it."""
    due = [fate for after, fate in fates if after == 0]
    later = [(after - 1, fate) for after, fate in fates if after]
    later += [(0, fate) for fate in due[1:]]
    return (due[0] if due else usual), later


told = ScriptStory.describe_value


def finish(system: GroupSystem) -> None:
    """Heal the system and see it settle, twice; a property that does not come true is its `broken`."""
    if system.broken is not None:
        return
    system.heal()
    settle(system)
    wait_for_rest(system)
    if system.broken is None:
        system.monitors.settle()
        system.tale.say("one more joins, and more is published; nothing is wrong")
        for stream in sorted(system.published):
            system.publish(stream.partition("/")[2], 2)
        system.restart("consumer-9")
        settle(system)
        wait_for_rest(system)


def wait_for_rest(system: GroupSystem) -> None:
    """Long enough for every claim and revoke of before to have come to its end."""
    end = system.now + STEADY_NS
    while system.broken is None and system.now < end and system.deadline() is not None:
        system.run(CHUNK)


def settle(system: GroupSystem) -> None:
    """Run until everything that must come true is true."""
    end, moves = system.now + SETTLE_NS, system.moves + MOVES_MAX
    while system.broken is None and (missing := find_unsettled(system)) is not None:
        if system.now > end or system.moves > moves:
            system.broken = Violation(*missing)
            return
        system.run(CHUNK)


def find_unsettled(system: GroupSystem) -> tuple[str, str] | None:
    """The first property that is not true yet, and why."""
    for process in system.consumers():
        for one in find_unended(process.life, process.left, process.host.is_ended):
            return one.name, one.detail
    if all(process.left for process in system.consumers()):
        return None
    leader = system.leader()
    if leader is not None and not system.monitors.list_unacknowledged():
        for stream, count in sorted(system.published.items()):
            stored = system.states[group_store.SERVICE].get(leader.key(f"progress:{stream}"))
            for one in find_uncommitted(stream, count, 0 if stored is None else stored.value):
                return one.name, one.detail
    return system.missing()

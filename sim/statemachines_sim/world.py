"""World: one simulated run: processes, network, stores, a nemesis, monitors; a safety phase, then a liveness phase.

Everything follows from the scenario, the seed and the fault schedule: the same three give the same run, byte for byte.
"""

from __future__ import annotations

import random
import traceback

import msgspec

from statemachines.kernel import GaplessError
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.group_store import GroupStore, StoreFailed
from statemachines.shared_subscriptions.leader_record import LEADING, LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.session import Acknowledged, Deliver
from statemachines.shared_subscriptions.stream_store import (
    Append,
    Appended,
    Drop,
    Dropped,
    FetchFailed,
    Published,
    Rotate,
    StreamStore,
    matches,
    parse_filter,
)
from statemachines.trace import TraceRow
from statemachines_sim.clock import Clock
from statemachines_sim.consumer import Consumer
from statemachines_sim.fault import Fault, S, draw
from statemachines_sim.leader_host import LeaderHost
from statemachines_sim.liveness import Liveness
from statemachines_sim.monitor import Monitors, Violation, balanced
from statemachines_sim.nemesis import Nemesis
from statemachines_sim.network import Network
from statemachines_sim.process import Process
from statemachines_sim.recorder import Recorder
from statemachines_sim.scenario import Scenario
from statemachines_sim.silent import Silent
from statemachines_sim.store import Store
from statemachines_sim.swarm import settle

TICK = S // 4
"""How often the liveness phase looks whether it is done."""

RESUBSCRIBES, RESUBSCRIBE_NS = 10, S // 200
"""A quick resubscribe is so many, so far apart."""


class Outcome(msgspec.Struct, frozen=True):
    """What a run came to.  `monitor` and `detail`: the property that broke ("" = everything held).

    `delivered`, `acknowledged`, `duplicates` count messages; `sent`, `dropped` count packets; `faults` by kind;
    `lasted_ns` of simulated time; `noted`: how often a property that the scenario puts out of scope was broken.
    """

    scenario: str
    seed: int
    monitor: str
    detail: str
    delivered: int
    acknowledged: int
    duplicates: int
    sent: int
    dropped: int
    faults: dict[str, int]
    lasted_ns: int
    rows: int
    noted: dict[str, int] = {}

    @property
    def held(self) -> bool:
        """Every property held."""
        return not self.monitor


def is_quick(scenario: Scenario) -> bool:
    """Whether applications and network are so quick that, without a fault, every revoke is finished in time."""
    most_ms = scenario.load.work_ms[1] + scenario.network.delay_ms[1] + scenario.network.tail_ms
    return 4 * most_ms < scenario.configuration.revoke_timeout_ms


class World:
    """`World(scenario, seed).run()`; `recorder.rows` is the trace (empty without `trace`).  `schedule`: another than
    the seed draws."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        *,
        schedule: tuple[Fault, ...] | None = None,
        monitors: bool = True,
        data: bool = False,
        trace: bool = True,
    ) -> None:
        self.schedule = draw(scenario, seed) if schedule is None else schedule
        self.scenario = scenario = settle(scenario, seed)
        self.seed = seed
        self.group, self.filter = parse_filter(scenario.subscription)
        self.env = Clock()
        self.checks = monitors
        self.monitors = Monitors(scenario.configuration, self.filter, scenario.out_of_scope)
        self.monitors.assignments.calm = not self.schedule and is_quick(scenario)
        self.recorder = (Recorder if trace else Silent)(self.monitors if monitors else None, data)
        self.processes: dict[str, Process] = {}
        self.network = Network(self.env, scenario.network, seed, self.recorder, self.processes)
        self.stores = {
            group_store.SERVICE: Store(
                self.env, GroupStore(), seed, StoreFailed, self.monitors.commit if monitors else None
            ),
            stream_store.SERVICE: Store(self.env, StreamStore(), seed, FetchFailed),
        }
        self._lives: dict[str, int] = {}
        self._numbers = 0
        self._buried: list[str] = []
        self.unpublished = 0
        self.nemesis = Nemesis(self, self.schedule)
        self.liveness = Liveness(self)
        self._plan_members()
        self._plan_load()

    # -- running ------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Both phases; an error of a machine, or any other, is a violation too."""
        monitor = detail = ""
        try:
            self.env.run(until=int(self.scenario.phases.safety_s * S))
            self.nemesis.heal()
            self._live()
            self._check_nodes()
        except Violation as violation:
            monitor, detail = violation.monitor, violation.detail
        except GaplessError as error:
            monitor, detail = type(error).__name__, str(error)
        except Exception as error:  # a bug of ours is a result, with its place, not the end of a campaign
            where = traceback.extract_tb(error.__traceback__)[-1]
            monitor, detail = type(error).__name__, f"{error} ({where.filename.rpartition('/')[2]}:{where.lineno})"
        return self._outcome(monitor, detail)

    def delivered(self, consumer: Consumer, event: Deliver) -> None:
        """An application got messages."""
        if self.checks:
            self.monitors.deliver(consumer, event, self.env.now)

    def acknowledged(self, event: Acknowledged) -> None:
        """An application has dealt with messages."""
        self.monitors.acknowledge(event)

    def restart(self, node: str) -> None:
        """The node comes back under a new incarnation."""
        self.recorder.fault(self.env.now, node, "restart")
        self._launch(node)

    def bury(self, node: str) -> None:
        """Its disk is gone, and with it the number of its lives: nobody may come back under its name."""
        del self.processes[node]
        self._buried.append(node)

    def revive(self, node: str) -> None:
        """If the node is dead it comes back; without a disk, a new node in its place."""
        if node in self._buried:
            self._buried.remove(node)
            self._join(f"{node}-new")
        elif node in self.processes and not self.processes[node].alive:
            self.restart(node)

    @property
    def dead(self) -> list[str]:
        """The names of all nodes that are dead."""
        return sorted([*self._buried, *(node for node, process in self.processes.items() if not process.alive)])

    # -- members and load ---------------------------------------------------------------------------------------

    def _plan_members(self) -> None:
        members = self.scenario.members
        for number in range(members.leaders):
            self._launch(f"leader-{number + 1}")
        for number in range(members.consumers):
            self._at(number * S // 50, self._join, f"consumer-{number + 1}")
        for number, at in enumerate(members.join_s):
            self._at(int(at * S), self._join, f"consumer-{members.consumers + number + 1}")
        for number, at in enumerate(members.leave_s):
            self._at(int(at * S), self._leave, f"consumer-{number + 1}")
        for number, at in enumerate(members.resubscribe_s):
            for turn in range(RESUBSCRIBES):
                self._at(int(at * S) + turn * RESUBSCRIBE_NS, self._resubscribe, f"consumer-{number + 1}")

    def _launch(self, node: str) -> None:
        self._lives[node] = self._lives.get(node, 0) + 1
        self._numbers += 1
        self.network.attach(node, self._numbers)
        kind = LeaderHost if node.startswith("leader") else Consumer
        process = self.processes[node] = kind(self, node, self._lives[node])
        process.clock = self.nemesis.clock_of(node)
        process.start()

    def _join(self, node: str) -> None:
        self.recorder.fault(self.env.now, node, "join")
        self._launch(node)

    def _leave(self, node: str) -> None:
        process = self.processes.get(node)
        if isinstance(process, Consumer) and process.alive:
            self.recorder.fault(self.env.now, node, "unsubscribe")
            process.leave()

    def _resubscribe(self, node: str) -> None:
        process = self.processes.get(node)
        if isinstance(process, Consumer) and process.alive and not process.host.ended:
            self.recorder.fault(self.env.now, node, "unsubscribe")
            process.resubscribe()

    def _plan_load(self) -> None:
        """Publishes are spread over most of the safety phase."""
        load = self.scenario.load
        chance = random.Random(f"{self.seed}/load")
        end = int(self.scenario.phases.safety_s * 0.9 * S)
        left = load.messages
        while left > 0:
            count = min(left, load.batch)
            left -= count
            topic = f"t{chance.randrange(load.topics):03}"
            self._at(chance.randrange(end), self._publish, topic, count)
        for _ in range(0, load.stray, load.batch):
            topic = f"stray/t{chance.randrange(load.topics):03}"
            self._at(chance.randrange(end), self._publish, topic, load.batch)

        for at in load.rotate_s:
            self._at(int(at * S), self.rotate)
        for at in load.drop_s:
            self._at(int(at * S), self.drop)

    def rotate(self) -> None:
        """A new generation begins: every stream so far has ended."""
        self.stores[stream_store.SERVICE].apply(Rotate(0))
        self.recorder.fault(self.env.now, stream_store.SERVICE, "rotate")

    def drop(self) -> None:
        """All generations but the current one are gone, read or not."""
        store = self.stores[stream_store.SERVICE]
        (dropped,) = store.apply(Drop(0, store.state.generation))
        assert isinstance(dropped, Dropped)
        self.monitors.progress.oldest = dropped.oldest
        self.recorder.fault(self.env.now, stream_store.SERVICE, "drop")

    def _publish(self, topic: str, count: int) -> None:
        """A publisher tries again until the store is there; what it published once is there for good."""
        store = self.stores[stream_store.SERVICE]
        if store.down:
            self.unpublished += 1
            self._at(S // 10, self._publish_again, topic, count)
            return
        (answer,) = store.apply(Append(0, topic, count))
        assert isinstance(answer, Appended)
        if not matches(self.filter, topic):
            return  # no business of the group's: whoever delivers it all the same delivers what nobody published
        published = Published(answer.stream, answer.first, answer.last)
        self.recorder.tell(self.env.now, "publisher-1", "publisher-1~1", "", published)
        self.monitors.publish(answer.stream, answer.first, answer.last)

    def _publish_again(self, topic: str, count: int) -> None:
        self.unpublished -= 1
        self._publish(topic, count)

    def _at(self, when: int, run, *args) -> None:  # type: ignore[no-untyped-def]
        self.env.timeout(when).callbacks.append(lambda event: run(*args))

    # -- the liveness phase -------------------------------------------------------------------------------------

    def _live(self) -> None:
        """Until every liveness property is true, or the time is up."""
        end = self.env.now + int(self.scenario.phases.liveness_s * S)
        while (missing := self._missing()) is not None:
            if self.env.now >= end:
                raise Violation(*missing)
            self.env.run(until=self.env.now + TICK)

    def _missing(self) -> tuple[str, str] | None:
        """The first liveness property that is not true yet."""
        left = self.monitors.unacknowledged()
        leaders = self.leaders()
        if len(leaders) > 1:
            return ("L6", f"{', '.join(one.id for one in leaders)} lead the group")
        leader = leaders[0] if leaders else None
        idle = not any(self.subscribed())
        if left:
            if leader is None:
                return ("L6", "nobody leads the group")
            if idle:
                return None
            lost = [stream for stream in left if not self._is_served(leader, stream)]
            if lost:
                return ("L2", f"{', '.join(lost[:3])}: unread messages, and granted to no live member")
            return ("L5", f"{', '.join(left[:3])}: published and never acknowledged")
        if leader is not None and not balanced(leader.members):
            return ("L4", "the members' numbers of streams differ by more than one")
        return self.liveness.missing(leader) if self.checks else None

    def subscribed(self) -> list[Consumer]:
        """Everybody who lives and wants messages."""
        return [
            process
            for _, process in sorted(self.processes.items())
            if isinstance(process, Consumer) and process.alive and not process.host.ended
        ]

    def leaders(self) -> list[LeaderRecord]:
        """Everybody who believes to lead; the last has the highest epoch."""
        found = [
            node.record
            for process in self.processes.values()
            if isinstance(process, LeaderHost) and process.alive
            for node in process.host.nodes.values()
            if node.record.status is LEADING
        ]
        return sorted(found, key=lambda record: record.epoch)

    def _leader(self) -> LeaderRecord | None:
        return next(reversed(self.leaders()), None)

    def _is_served(self, leader: LeaderRecord, stream: str) -> bool:
        assignment = leader.assignments.get(stream)
        if assignment is None:
            return False
        member = leader.members.get(assignment.link.borrower)
        return member is not None and member.status is REGISTERED

    def _check_nodes(self) -> None:
        for _, process in sorted(self.processes.items()):
            if process.alive:
                for _, node in sorted(process.host.nodes.items()):
                    node.check()

    def _outcome(self, monitor: str, detail: str) -> Outcome:
        monitors = self.monitors
        return Outcome(
            self.scenario.name,
            self.seed,
            monitor,
            detail,
            monitors.delivered,
            monitors.acknowledged,
            monitors.duplicates,
            self.network.sent,
            self.network.dropped,
            dict(sorted(self.nemesis.done.items())),
            self.env.now,
            self.recorder.count,
            dict(sorted(monitors.judge.noted.items())),
        )

    @property
    def rows(self) -> list[TraceRow]:
        """The trace so far."""
        return self.recorder.rows

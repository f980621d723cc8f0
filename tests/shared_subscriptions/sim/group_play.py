"""Group: a simulated group to tell a story with: join, publish, kill, leave, and what everybody got."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from statemachines.kernel import Host, Node
from statemachines.shared_subscriptions.assignment import GRANTED, GRANTING
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group import GROUP, Destroy, GroupRecord
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.names import record_name
from statemachines.shared_subscriptions.session_record import reading_key
from statemachines.shared_subscriptions.stream_store import SERVICE as STREAM_STORE
from statemachines.shared_subscriptions.stream_store import Append
from statemachines_sim.cluster import Role
from statemachines_sim.machine_process import MachineProcess
from statemachines_sim.scenario import Net, Phases
from statemachines_sim.shared_subscriptions import GroupLoad, Members
from statemachines_sim.shared_subscriptions import scenario as scenario_of
from statemachines_sim.shared_subscriptions.sim import LoadPublisher, leave
from statemachines_sim.shared_subscriptions.watch import list_leaders
from statemachines_sim.units import S
from statemachines_sim.world import World


class Got(NamedTuple):
    """Messages `first`..`last` of `stream` were given to the application of `node`."""

    at_s: float
    node: str
    stream: str
    first: int
    last: int


def destroyer(world, node, number):
    """A node that destroys the group."""

    def host(process):
        group, topic_filter = world.scenario.own.group_and_filter
        record = GroupRecord(f"{process.life}/1", group, topic_filter, world.scenario.own.configuration)
        admin = Host()
        admin.add(Node(GROUP, record, name=record.id, now_ns=world.now, observe=world.recorder.step))
        return admin

    return MachineProcess(world, node, number, host, start=Destroy())


class Group:
    """Monitors and invariants are on all the time; a property that breaks raises."""

    def __init__(
        self,
        *consumers,
        seed=1,
        take=4,
        work_ms=(10, 40),
        configuration=None,
        subscription="$shared/g/#",
        start="beginning",
        leaders=1,
    ):
        scenario = scenario_of(
            "story",
            subscription=subscription,
            load=GroupLoad(messages=0, take=take, work_ms=work_ms, start=start),
            members=Members(consumers=0, leaders=leaders),
            network=Net(tail=0.0),
            phases=Phases(liveness_s=90.0),
            configuration=configuration or Configuration(),
        )
        self.world = World(scenario, seed, schedule=())
        self.watch = self.world.watch
        self.publisher = LoadPublisher(self.world, scenario.own.group_and_filter[1])
        for name in consumers:
            self.join(name)

    # -- what is done -------------------------------------------------------------------------------------------

    def run(self, seconds):
        """Time passes."""
        self.world.run(until_ns=self.world.now + int(seconds * S))

    def settle(self):
        """Time passes until every liveness property is true."""
        self.world.finish()

    def join(self, name):
        self.world.join(name)

    def leave(self, name):
        """Unsubscribe."""
        leave(self.world, name)

    def disconnect(self, name):
        """The session goes away: what is known is reported, nothing is waited for."""
        process = self.process(name)
        process.perform(process.host.leave_all(process.local_now()), self.world.env.now)

    def kill(self, name):
        self.world.crash(name, "leader_crash" if name.startswith("leader") else "crash")

    def restart(self, name):
        self.world.restart(name)

    def publish(self, topic, count, over_s=0.0, batch=10):
        """`count` messages, in batches, evenly over the next seconds."""
        batches = -(-count // batch)
        for number in range(batches):
            size = min(batch, count - number * batch)
            self.world.after(int(number * over_s * S / batches), self.publisher.publish, topic, size)

    def store_before(self, topic, count):
        """Messages that are stored before the group begins: they are none of its business."""
        (answer,) = self.world.devices[STREAM_STORE].apply(Append(0, topic, count))
        self.watch.progress.acknowledge(answer.stream, answer.first, answer.last)
        self.watch.deliveries.skip(answer.stream, answer.last + 1)

    def destroy(self):
        """Somebody destroys the group; returns the host that does, whose `done` says when it is done."""
        return self.world.add("admin-1", Role("admin", destroyer))

    def stop_working(self, name):
        """Its application takes what comes next and never gets done with it."""
        self.process(name)._work_ms = (10**9, 10**9)

    def acknowledge(self, got, first, last):
        """Some of what was taken is dealt with after all."""
        process = self.process(got.node)
        owner = process.host.borrower
        grant = process.host.nodes[process.host.session].record.readings[reading_key(owner, got.stream)].grant
        out = process.host.acknowledge(owner, got.stream, grant, first, last, process.local_now())
        process.perform(out, self.world.env.now)

    # -- what is seen -------------------------------------------------------------------------------------------

    def process(self, name):
        return self.world.processes[name]

    @property
    def now_s(self):
        return self.world.env.now / S

    @property
    def leader(self):
        """The record of whoever leads, or None."""
        return next(reversed(list_leaders(self.world.processes)), None)

    @property
    def published(self):
        return sum(self.watch.progress.published.values())

    @property
    def acknowledged(self):
        return self.watch.acknowledged_count

    @property
    def durable(self):
        """Stream -> progress that survives everybody."""
        records = self.world.devices[GROUP_STORE].state
        return {record_name(key).stream: one.value for key, one in records.items() if record_name(key).stream}

    def got(self, name=None, since_s=0.0):
        """What applications got, in order."""
        rows = (row for row in self.world.rows if row[4] == "tell" and row[5] == "deliver")
        all_got = (Got(row[0] / S, row[1], row[11], row[14], row[15]) for row in rows)
        return [one for one in all_got if (name is None or one.node == name) and one.at_s >= since_s]

    def times_got(self):
        """(stream, offset) -> how often it was given to an application."""
        times = defaultdict(int)
        for one in self.got():
            for offset in range(one.first, one.last + 1):
                times[one.stream, offset] += 1
        return times

    def acknowledged_by(self, name):
        """(stream, offset) of everything that the application of `name` has dealt with so far."""
        rows = (row for row in self.world.rows if row[4] == "tell" and row[5] == "acknowledged" and row[1] == name)
        return {(row[11], offset) for row in rows for offset in range(row[14], row[15] + 1)}

    def served_by(self):
        """Stream -> the consumer that it is granted to, by the leader."""
        found = {}
        for stream, one in sorted(self.leader.assignments.items()):
            if one.status in (GRANTED, GRANTING):
                found[stream] = one.link.borrower.partition("~")[0]
        return found

    def shares(self):
        """How many streams each member has, by name."""
        counts = dict.fromkeys(sorted(borrower.partition("~")[0] for borrower in self.leader.members), 0)
        for name in self.served_by().values():
            counts[name] += 1
        return counts

    def until(self, true, within_s):
        """Time passes until `true()`; how long that took, in seconds."""
        begin = self.world.env.now
        while not true():
            assert self.world.env.now < begin + within_s * S, f"not within {within_s} s"
            self.world.env.run(until=self.world.env.now + 10 * MS)
        return (self.world.env.now - begin) / S

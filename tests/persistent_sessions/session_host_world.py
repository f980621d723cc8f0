"""A world of seeded chance for the nodes of sessions, as declared processes over one store.

Clients connect, leave, are lost and acknowledge; messages of nodes are lost or forged; the store does not answer; nodes
die.  Each node has a twin that is made anew from its value before each input.
"""

from __future__ import annotations

from random import Random

from process_twins import Twins
from session_cluster import MS, Cluster

from statemachines.drivers.persistent_sessions.route_rows import Subscribe
from statemachines.kernel import Map, ProcessRunner, fresh
from statemachines.persistent_sessions.graces import Graces
from statemachines.persistent_sessions.life_record import CONNECTED, LifeRecord
from statemachines.persistent_sessions.life_request import LockClient
from statemachines.persistent_sessions.message import (
    Live,
    LiveMarker,
    MarkerWanted,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Queued,
)
from statemachines.persistent_sessions.request import CommitState, LoadSession, PutRows
from statemachines.persistent_sessions.session_host import SessionHost
from statemachines.persistent_sessions.session_host_parties import life_of_owner
from statemachines.persistent_sessions.session_host_record import RowsSeen
from statemachines.persistent_sessions.takeover_message import BeginTakeover, EndTakeover, OwnerReplaced, TakeoverEnded

NODES = ("a", "b")
CLIENTS = ("one", "two", "three")


class TwinHost(SessionHost):
    """Whatever it takes, its twin takes."""

    def __init__(self, life, **given):
        super().__init__(life, **given)
        self.twins = Twins(self)

    def call(self, event, now_ns):
        return self.twins.do(lambda process: ProcessRunner.call(process, event, now_ns))

    def feed(self, party, event, now_ns):
        return self.twins.do(lambda process: ProcessRunner.feed(process, party, event, now_ns))

    def receive(self, sender, to, message, now_ns):
        return self.twins.do(lambda process: ProcessRunner.receive(process, sender, to, message, now_ns))

    def fire(self, now_ns):
        return self.twins.do(lambda process: ProcessRunner.fire(process, now_ns))


class SessionHostWorld(Cluster):
    """One `step` is one thing that happens, with all that comes of it."""

    HOST = TwinHost

    def __init__(self, path, seed):
        super().__init__(path, writers_max=2, graces=Graces(round_ms=500))
        self.chance = Random(seed)
        self.lives = dict.fromkeys(NODES, 0)
        self.messages = 0
        self.outs = 0
        self.restart("a")
        self.restart("b")

    def restart(self, name):
        """Another life of the node; what it knew is gone."""
        old = self.hosts.get(name)
        self.outs += 0 if old is None else old.twins.outs
        self.lives[name] += 1
        self.start(name, self.lives[name])

    def step(self):
        name = self.chance.choice(NODES)
        what = self.chance.choice(self.MOVES)
        what(self, name)
        self.now_ns += self.chance.choice((1, 5, 100)) * MS
        for one in NODES:
            self.act(one, self.hosts[one].fire(self.now_ns))

    # -- what happens ----------------------------------------------------------------------------------------------

    def owner_at(self, name):
        """One of its owners, or one that was, or will be; never a writer, which has an id of the same form."""
        host = self.hosts[name]
        other = fresh(host.id, self.chance.randint(1, host.record.number + 1))
        owners = sorted(host.owners)
        return self.chance.choice([*owners, other] if other not in host.record.writers.values() else owners or [""])

    def join(self, name):
        clean, expiry = self.chance.random() < 0.2, self.chance.choice((0, 60_000))
        self.connect(name, self.chance.choice(CLIENTS), clean=clean, expiry_ms=expiry, receive_maximum=3)

    def go(self, name):
        goes = self.chance.choice((SessionHost.leave, SessionHost.lose))
        self.act(name, goes(self.hosts[name], self.owner_at(name), self.now_ns))

    def supersede(self, name):
        for owner in list(self.hosts[name].owners)[:1]:
            self.act(name, self.hosts[name].take_look(RowsSeen(owner, superseded=True), self.now_ns))

    def take_topic(self, name):
        owner = self.owner_at(name)
        node = self.hosts[name].nodes.get(life_of_owner(owner))
        if node is not None and isinstance(node.record, LifeRecord) and node.record.status is CONNECTED:
            topic_filter, qos = self.chance.choice(("t/#", "t/+", "t/1")), self.chance.choice((1, 2))
            self.do(Subscribe(node.record.session, node.record.token, topic_filter, qos))

    def say(self, name):
        self.messages += 1
        self.publish(name, f"m{self.messages}", "t/1", qos=2)

    def take(self, name):
        owner = self.owner_at(name)
        heard = [one for one in self.heard[owner] if isinstance(one, Publish)][-3:]
        kind = self.chance.choice((Puback, Pubrec, Pubcomp))
        self.act(name, self.hosts[name].acknowledge(owner, [kind(one.packet) for one in heard], self.now_ns))

    def commit(self, name):
        self.act(name, self.hosts[name].commit_acknowledged(self.now_ns))

    def miss(self, name):
        writer = self.chance.choice((*NODES, "c"))
        loses = self.chance.choice((SessionHost.lose_link, SessionHost.lose_writer))
        self.act(name, loses(self.hosts[name], writer, self.now_ns))
        last = Map({one: (1, self.chance.randint(1, 5)) for one in NODES})
        self.act(
            name, self.hosts[name].take_look(RowsSeen(self.owner_at(name), None, False, (writer,), last), self.now_ns)
        )

    def lie(self, name):
        """Of another node, or in the name of one."""
        to, liar, client = self.owner_at(name), self.chance.choice(("c~1/1", "a~1/1", "b~1/1")), "one"
        session = self.chance.choice((*(one.session for one in self.hosts[name].record.resumes.values()), "none"))
        token = self.chance.choice((0, 1, 5, 2**61))
        message = self.chance.choice((
            MarkerWanted(session, liar, token, 1), BeginTakeover(client, liar, token), EndTakeover(client, liar, token),
            OwnerReplaced(client, liar, token), TakeoverEnded(client, token), Live(session, "c", 1, Queued(1, "m1")),
            LiveMarker(session, "b", 1, 1, token, 1), Puback(1),
        ))  # fmt: skip
        self.act(name, self.hosts[name].receive(liar, to, message, self.now_ns))

    def fail(self, name):
        """Nodes do not hear each other, or the store does not answer, for a while; or all is well again."""
        self.lost = self.chance.choice((set(), set(), {Live}, {LiveMarker, MarkerWanted}, {EndTakeover}))
        self.unanswered = self.chance.choice((set(), set(), {CommitState}, {PutRows}, {LoadSession}, {LockClient}))

    def die(self, name):
        if self.chance.random() < 0.1:
            self.restart(name)

    MOVES = (
        join,
        join,
        go,
        supersede,
        take_topic,
        take_topic,
        say,
        say,
        say,
        say,
        take,
        take,
        commit,
        miss,
        lie,
        fail,
        die,
    )

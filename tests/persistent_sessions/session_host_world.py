"""A world of seeded chance for the nodes of sessions, as declared processes over one store.

Clients connect, leave, are lost and acknowledge; messages of nodes are lost or forged; the store does not answer; nodes
die.  Each node has a twin that is made anew from its value before each input.

A cluster without a network: hosts of sessions that share a store, and whatever leaves them is carried by hand.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from random import Random
from typing import ClassVar

from process_twins import Twins

from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import Ask, Map, ProcessRunner, Send, Tell, fresh, node_of
from statemachines.persistent_sessions.collector import Graces
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
    Pubrel,
    Queued,
)
from statemachines.persistent_sessions.request import CommitState, LoadSession, PutRows
from statemachines.persistent_sessions.session_host_parties import life_of_owner
from statemachines.persistent_sessions.session_host_process import SessionHost
from statemachines.persistent_sessions.session_host_record import MatchedMessage, RoutedMessage, RowsSeen
from statemachines.persistent_sessions.takeover_record import (
    ANSWERED,
    BeginTakeover,
    EndTakeover,
    OwnerReplaced,
    TakeoverEnded,
)

MS = 1_000_000


class Cluster:
    """Hosts by the names of their nodes; what clients get, what applications are told, and what was asked.

    `close_all` closes the stores of every cluster: a fixture calls it when a test is over.
    """

    opened: ClassVar[list] = []
    HOST = SessionHost

    def __init__(self, path, *names, **given):
        self.store = open_session_store(path)
        self.opened.append(self.store)
        self.given = given
        self.now_ns = 0
        self.hosts = {}
        self.heard = defaultdict(list)
        self.told = []
        self.asked = []
        self.sent = []
        self.lost = set()
        """Types of messages that do not arrive."""
        self.unanswered = set()
        """Types of requests that the store does not answer."""
        self._queue = deque()
        for name in names:
            self.start(name, 1)

    @classmethod
    def close_all(cls):
        while cls.opened:
            asyncio.run(cls.opened.pop().close())

    def start(self, name, life):
        self.do_life(name)
        self.hosts[name] = self.HOST(f"{name}~{life}", check=True, **self.given)

    def do_life(self, name):
        asyncio.run(self.store.begin_life(name, 3_600_000))

    def do(self, request):
        return asyncio.run(self.store.do(request))

    # -- what happens ------------------------------------------------------------------------------------------------

    def act(self, name, outgoing):
        """Carry what came out of this host, and whatever comes of it."""
        self._queue.extend((name, *one) for one in outgoing)
        while self._queue:
            self._carry(*self._queue.popleft())

    def _carry(self, name, party, effect):
        host = self.hosts[name]
        match effect:
            case Send(_, Publish() | Pubrel() as message):
                self.heard[party].append(message)
            case Send(to, message):
                self.sent.append(message)
                there = self.hosts.get(node_of(to))
                if there is None and type(message) in ANSWERED:
                    self._queue.extend((name, *one) for one in host.fail_to_send(party, to, message, self.now_ns))
                elif there is not None and type(message) not in self.lost:
                    out = there.receive(party, to, message, self.now_ns)
                    self._queue.extend((node_of(to), *one) for one in out)
            case Ask(_, request):
                self.asked.append(request)
                # A store carries out what a node asks in its order, so what nobody is told of has been done, too.
                answers = asyncio.run(self.store.ask(request))
                for answer in answers if type(request) not in self.unanswered else ():
                    out = host.feed(party, answer, self.now_ns)
                    self._queue.extend((name, *one) for one in out)
            case Tell(event):
                self.told.append((party, event))

    def pass_ms(self, ms, step_ms=5):
        """Time goes by on every node."""
        end = self.now_ns + ms * MS
        while self.now_ns < end:
            self.now_ns += step_ms * MS
            for name, host in self.hosts.items():
                self.act(name, host.fire(self.now_ns))

    def connect(self, name, client="tablet", *, clean=False, expiry_ms=60_000, receive_maximum=100):
        host = self.hosts[name]
        owner = host.next_owner
        given = {"clean": clean, "expiry_ms": expiry_ms, "now_ns": self.now_ns}
        self.act(name, host.connect(client, receive_maximum, **given))
        return owner

    def life(self, name, owner):
        return self.hosts[name].nodes[life_of_owner(owner)].record

    def subscribe(self, name, owner, topic_filter="t/#", qos=1):
        life = self.life(name, owner)
        assert self.do(Subscribe(life.session, life.token, topic_filter, qos))

    def publish(self, name, message, topic="t/1", qos=1):
        routes = self.do(PutMessage(message, topic, message.encode(), qos))
        handed = [MatchedMessage(one.session, one.filter, min(one.qos, qos)) for one in routes]
        self.act(name, self.hosts[name].publish([RoutedMessage(message, tuple(handed))], self.now_ns))

    def feed(self, name, party, event):
        self.act(name, self.hosts[name].feed(party, event, self.now_ns))

    def got(self, owner):
        """The messages that its client was given."""
        return [one.message for one in self.heard[owner] if isinstance(one, Publish)]

    def told_of(self, kind):
        return [event for _, event in self.told if isinstance(event, kind)]

    def asked_of(self, kind):
        return [one for one in self.asked if isinstance(one, kind)]


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

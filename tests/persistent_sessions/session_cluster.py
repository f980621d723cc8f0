"""A cluster without a network: hosts of sessions that share a store, and whatever leaves them is carried by hand."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import ClassVar

from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import Ask, Send, Tell, node_of
from statemachines.persistent_sessions.message import Publish, Pubrel
from statemachines.persistent_sessions.session_host import SessionHost
from statemachines.persistent_sessions.session_host_parties import life_of_owner
from statemachines.persistent_sessions.session_host_record import MatchedMessage, RoutedMessage
from statemachines.persistent_sessions.takeover_message import ANSWERED

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

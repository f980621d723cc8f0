"""A world of seeded chance for the declared processes: leader hosts, sessions, and an agent over pure stores.

Messages are lost, doubled, reordered, and forged; stores answer late, or fail.  Each process has a twin that is made
anew from its value before each input; what comes out of both must be equal.
"""

from random import Random

from msgspec.structs import replace
from process_twins import Twins

from statemachines.kernel import Ask, Map, Send, Tell, fresh, is_fresh, node_of
from statemachines.kernel.pmap import in_order
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import Claim, GroupStore, StoreFailed
from statemachines.shared_subscriptions.handler import Agent, Handler
from statemachines.shared_subscriptions.message import Invalidate, LeaderWanted, RelayedToLeader
from statemachines.shared_subscriptions.private_subscription import (
    EndSubscription,
    LeaveSubscription,
    Private,
    SharedFilter,
    SubscribeAlone,
    SubscribeShared,
)
from statemachines.shared_subscriptions.registry import Close, HaltAll, Registry
from statemachines.shared_subscriptions.session import Ack, Deliver, Take
from statemachines.shared_subscriptions.stream_store import SERVICE as STREAM_STORE
from statemachines.shared_subscriptions.stream_store import Append, Drop, FetchFailed, Rotate, StreamStore

MS = 1_000_000
C = Configuration()
LEADERS = ("leader-1", "leader-2")
WANTED = (
    SharedFilter("g", "#", start_ns=0),
    SharedFilter("g", "a/#"),
    SharedFilter("h", "#", at_delivery=True, start_ns=0),
)
ALONE = (Private("#", 0), Private("", progress=Map({"0.0/a/x": 0})))
HISTORY = 60


def leader_host(life):
    return Twins(Registry(life, C, check=True))


class ProcessWorld:
    """Two leader hosts, two sessions, one agent; `step` makes one thing happen."""

    def __init__(self, seed):
        self.chance = Random(seed)
        self.now = 10**12
        self.hosts = {"leader-1": leader_host("leader-1~1"), "leader-2": leader_host("leader-2~1")}
        sessions = {name: Twins(Handler(f"{name}~1", LEADERS, C, buffer=4, check=True)) for name in ("c1", "c2")}
        self.members = {**sessions, "c3": Twins(Agent("c3~1", LEADERS, C, check=True))}
        self.stores = {GROUP_STORE: GroupStore(), STREAM_STORE: StreamStore(1)}
        self.states = {name: store.initial() for name, store in self.stores.items()}
        self.packets = []
        self.history = []
        self.asks = []
        self.handed = []
        self.subscriptions = {name: [] for name in self.members}
        self.seen = set()
        for topic in ("a/x", "b", "c"):
            self.append(topic)

    @property
    def twins(self):
        return (*self.hosts.values(), *self.members.values())

    def append(self, topic):
        self.apply(STREAM_STORE, Append(0, topic, 3))

    def apply(self, service, request):
        self.states[service], answers = self.stores[service].apply(self.states[service], request, 0)
        return answers

    def twin_of(self, party):
        return self.hosts.get(node_of(party)) or self.members.get(node_of(party))

    def perform(self, name, out):
        for party, effect in out:
            match effect:
                case Send(to, message):
                    self.packets.append((party, to, message))
                    self.history = [*self.history[-HISTORY:], (party, to, message)]
                    self.seen.add(type(message).__name__)
                case Ask(service, request):
                    self.asks.append((party, service, request))
                case Tell(event):
                    self.seen.add(type(event).__name__)
                    if isinstance(event, Deliver):
                        self.handed.append((name, party, event))

    # -- what may happen ----------------------------------------------------------------------------------------

    def step(self):
        moves = {
            self.deliver: 40, self.answer: 30, self.fail: 2, self.pass_time: 12, self.take: 8, self.acknowledge: 8,
            self.subscribe: 1.5, self.unsubscribe: 0.6, self.leave: 0.3, self.forge: 3, self.reroute: 2,
            self.publish: 1, self.rotate: 0.2, self.drop: 0.1, self.halt: 0.1, self.crash: 0.1, self.put_back: 0.2,
        }  # fmt: skip
        (move,) = self.chance.choices(list(moves), list(moves.values()))
        move()

    def deliver(self):
        if not self.packets:
            self.pass_time()
            return
        fate = self.chance.random()
        place = self.chance.randrange(min(4, len(self.packets)))
        packet = self.packets[place] if fate > 0.95 else self.packets.pop(place)
        del self.packets[:-200]
        if fate > 0.05:
            self.arrive(*packet)

    def arrive(self, sender, to, message):
        twin = self.twin_of(to)
        if twin is not None:
            self.perform(node_of(to), twin.do(lambda process: process.receive(sender, to, message, self.now)))

    def answer(self):
        if not self.asks:
            self.deliver()
            return
        party, service, request = self.asks.pop(self.chance.randrange(len(self.asks)))
        for one in self.apply(service, request):
            self.give(party, one)

    def fail(self):
        if self.asks:
            party, service, request = self.asks.pop(self.chance.randrange(len(self.asks)))
            if self.chance.random() < 0.5:
                self.apply(service, request)
            self.give(party, (StoreFailed if service == GROUP_STORE else FetchFailed)(request.n))

    def give(self, party, answer):
        twin = self.twin_of(party)
        if twin is not None:
            self.perform(node_of(party), twin.feed(party, answer, self.now))

    def pass_time(self):
        most = self.chance.choice((5, 50, 500, 3_000, 20_000) if self.chance.random() < 0.2 else (1, 10, 100))
        self.now += self.chance.randrange(most * MS)
        for name, twin in {**self.hosts, **self.members}.items():
            self.perform(name, twin.do(lambda process: process.fire(self.now)))

    def take(self):
        name = self.chance.choice(("c1", "c2"))
        twin = self.members[name]
        self.perform(name, twin.feed(fresh(twin.live.id, 0), Take(self.chance.randrange(1, 4)), self.now))

    def acknowledge(self):
        if self.handed:
            name, party, event = self.handed.pop(self.chance.randrange(len(self.handed)))
            ack = Ack(event.owner, event.stream, event.grant, event.first, event.last)
            self.perform(name, self.members[name].feed(party, ack, self.now))

    def subscribe(self):
        name = self.chance.choice(list(self.members))
        twin, now = self.members[name], self.now
        wanted = self.chance.choice((*WANTED, *ALONE) if name != "c3" else WANTED)
        if len(self.subscriptions[name]) > 4:
            return
        call = SubscribeShared(wanted) if isinstance(wanted, SharedFilter) else SubscribeAlone(wanted)
        self.perform(name, twin.call(call, now))
        self.subscriptions[name].append(fresh(twin.live.id, twin.live.record.number))

    def unsubscribe(self):
        self.end(EndSubscription)

    def leave(self):
        self.end(LeaveSubscription)

    def end(self, call):
        name = self.chance.choice(list(self.members))
        if self.subscriptions[name]:
            one = self.subscriptions[name].pop(self.chance.randrange(len(self.subscriptions[name])))
            self.perform(name, self.members[name].call(call(one), self.now))

    def forge(self):
        """What was said is said again by somebody else, or under another epoch."""
        if not self.history:
            return
        sender, to, message = self.chance.choice(self.history)
        if hasattr(message, "epoch") and self.chance.random() < 0.7:
            message = replace(message, epoch=max(0, message.epoch + self.chance.choice((-1, 1))))
        if self.chance.random() < 0.5:
            sender = self.chance.choice(("leader-1~1/1", "leader-2~1/1", "leader-1~1", "leader-1~9/1"))
        if node_of(to) in self.members and self.chance.random() < 0.2:
            message = Invalidate(to, getattr(message, "epoch", 0), getattr(message, "registration", 0))
        self.arrive(sender, to, message)

    def reroute(self):
        """A leader that does not reach a borrower, or is not reached, is relayed by the other host."""
        said = [one for one in self.history if node_of(one[1]) in self.hosts and not hasattr(one[2], "via")]
        if said:
            _, to, message = self.chance.choice(said)
            if isinstance(message, LeaderWanted):
                to = next((party for party in self.hosts[node_of(to)].live.nodes if is_fresh(party)), to)
            via = f"leader-{3 - int(node_of(to)[-1])}~1/1"
            self.arrive(via, to, RelayedToLeader(to, via, message))

    def publish(self):
        self.append(self.chance.choice(("a/x", "b", "c")))

    def rotate(self):
        self.apply(STREAM_STORE, Rotate(0))

    def drop(self):
        self.apply(STREAM_STORE, Drop(0, 1))

    def halt(self):
        name = self.chance.choice(LEADERS)
        self.perform(name, self.hosts[name].call(HaltAll() if self.chance.random() < 0.8 else Close(), self.now))

    def crash(self):
        name = self.chance.choice(LEADERS)
        number = int(self.hosts[name].live.id.partition("~")[2]) + 1
        self.hosts[name] = leader_host(f"{name}~{number}")

    def put_back(self):
        """The claim names another leader than it did: the store was put back."""
        state = self.states[GROUP_STORE]
        for key, stored in in_order(state):
            if isinstance(stored.value, Claim) and self.chance.random() < 0.3:
                claim = replace(stored.value, epoch=max(0, stored.value.epoch + self.chance.choice((-1, 0, 1))))
                state = state.set(key, replace(stored, value=claim))
        self.states[GROUP_STORE] = state

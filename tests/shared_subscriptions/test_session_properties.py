"""The Session under any sequence of events: who may deliver, in which order, and that no turn is ever lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from statemachines.kernel import Ask, Node, Tell
from statemachines.shared_subscriptions.borrower import LeaseBegan, LeaseEnded
from statemachines.shared_subscriptions.session import SESSION, Ack, Admit, Deliver, Dismiss, Ready, SessionRecord, Take
from statemachines.shared_subscriptions.stream import Finish, Install, Uninstall
from statemachines.shared_subscriptions.stream_store import Fetched, FetchFailed, MessageBatch

OWNERS = ("o1", "o2", "o3")
STREAMS = ("a", "b")
LENGTH = 12

owners, streams = st.sampled_from(OWNERS), st.sampled_from(STREAMS)
DEEDS = st.one_of(
    st.tuples(st.sampled_from(["began", "ended", "dismiss", "admit"]), owners),
    st.tuples(st.sampled_from(["install", "uninstall", "finish"]), owners, streams),
    st.tuples(st.just("take"), st.integers(1, 5)),
    st.tuples(st.sampled_from(["ack", "tick", "serve", "fail", "late"])),
)


class World:
    """The session, a store that answers when asked to, an application that goes on taking until it gets nothing."""

    def __init__(self):
        self.node = Node(SESSION, SessionRecord("s", buffer=4), name="s", now_ns=0, check=True)
        self.now = 0
        self.grant = 0
        self.asked = None
        self.answered = []
        self.ready = False
        self.hand = []
        self.leased = set()
        self.held = {}
        for owner in OWNERS:
            self.admit(owner)

    def feed(self, event):
        self.perform(self.node.feed(event, self.now))

    def perform(self, effects):
        for effect in effects:
            if isinstance(effect, Ask):
                assert self.asked is None, "one fetch at a time"
                self.asked = effect.request
            elif isinstance(effect, Tell) and isinstance(effect.event, Deliver):
                self.deliver(effect.event)
            elif isinstance(effect, Tell) and isinstance(effect.event, Ready):
                self.ready = True

    def deliver(self, event):
        assert event.owner in self.leased
        grant, position = self.held[event.owner, event.stream]
        assert (event.grant, event.first) == (grant, position), "in order, under the grant that is installed"
        self.held[event.owner, event.stream] = (grant, event.last + 1)
        self.hand.append(event)

    # -- deeds ----------------------------------------------------------------------------------------------------

    def admit(self, owner):
        self.feed(Admit(owner))

    def began(self, owner):
        if any(owner == known for known in self.node.record.leases):
            self.leased.add(owner)
        self.feed(LeaseBegan(owner))

    def ended(self, owner):
        self.leased.discard(owner)
        self.feed(LeaseEnded(owner))

    def dismiss(self, owner):
        self.leased.discard(owner)
        self.held = {key: value for key, value in self.held.items() if key[0] != owner}
        self.feed(Dismiss(owner))

    def install(self, owner, stream):
        self.grant += 1
        if owner in self.node.record.leases:
            self.held[owner, stream] = (self.grant, 0)
        self.feed(Install(owner, stream, self.grant, 0))

    def uninstall(self, owner, stream):
        grant, _ = self.held.pop((owner, stream), (0, 0))
        self.feed(Uninstall(owner, stream, grant))

    def finish(self, owner, stream):
        grant, _ = self.held.pop((owner, stream), (0, 0))
        self.feed(Finish(owner, stream, grant))

    def take(self, limit):
        before = len(self.hand)
        self.feed(Take(limit))
        self.ready = len(self.hand) > before

    def ack(self):
        if self.hand:
            one = self.hand.pop()
            self.feed(Ack(one.owner, one.stream, one.grant, one.first, one.last))

    def tick(self):
        if (deadline := self.node.deadline()) is not None:
            self.now = max(self.now, deadline)
            self.perform(self.node.fire(self.now))

    def serve(self):
        if self.asked is not None:
            request, self.asked = self.asked, None
            answer = Fetched(request.n, tuple(self.batch(one) for one in request.slices))
            self.answered.append(answer)
            self.feed(answer)

    def batch(self, one):
        last = max(min(LENGTH, one.first + one.limit), one.first) - 1
        return MessageBatch(one.stream, one.grant, one.first, last, False)

    def fail(self):
        if self.asked is not None:
            request, self.asked = self.asked, None
            self.feed(FetchFailed(request.n))

    def late(self):
        if self.answered:
            self.feed(self.answered[-1])

    def drain(self):
        """Everybody has a lease, the store answers, the application takes when it is told to, and acknowledges."""
        for owner in OWNERS:
            self.began(owner)
        for _ in range(200):
            self.tick()
            self.serve()
            while self.ready:
                self.take(5)
            while self.hand:
                self.ack()


@given(st.lists(DEEDS, max_size=80))
def test_SS_100_to_SS_112_whatever_happens_the_right_ones_deliver_in_order_and_nobody_is_forgotten(deeds):
    world = World()
    for name, *args in deeds:
        getattr(world, name)(*args)
    world.drain()
    assert {key: position for key, (_, position) in world.held.items()} == dict.fromkeys(world.held, LENGTH)
    assert not world.node.record.to_take
    assert not world.node.record.asked

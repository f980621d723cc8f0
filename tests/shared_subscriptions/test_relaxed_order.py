"""Relaxed order where a loop or another bound is needed (SS-406 to SS-408); the rest is `steps/relaxed_order.txt`.

Messages that an application gives back, and those that failed elsewhere: the session (SS-332 to SS-338).

The Session under any sequence of events: who may deliver, in which order, and that no turn is ever lost.
"""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_session import A, B, Bench
from test_session import Bench as SessionBench

from statemachines.kernel import Ask, Map, Node, Tell
from statemachines.shared_subscriptions.acknowledged_ranges import join_ranges
from statemachines.shared_subscriptions.borrower import LeaseBegan, LeaseEnded
from statemachines.shared_subscriptions.relaxed_order import is_full
from statemachines.shared_subscriptions.session import (
    SESSION,
    Ack,
    Admit,
    Deliver,
    Dismiss,
    Nack,
    Ready,
    SessionRecord,
    Take,
)
from statemachines.shared_subscriptions.stream import Finish, Install, Uninstall
from statemachines.shared_subscriptions.stream_store import Fetched, FetchFailed, MessageBatch

SECOND = 1_000_000_000
POLL_NS = 20_000_000


@given(
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=12),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=12),
)
def test_SS_407_ranges_say_what_was_said_in_whatever_order(progress, these, those):
    these, those = ([(first, first + more) for first, more in part] for part in (these, those))
    wanted = set(range(progress)).union(*(range(first, last + 1) for first, last in [*these, *those]))
    at, ranges = join_ranges(progress, these, those)
    assert (at, ranges) == join_ranges(progress, those, these) == join_ranges(at, ranges)
    assert wanted == set(range(at)).union(*(range(first, last + 1) for first, last in ranges))
    assert at not in wanted, "the progress is the first that is not acknowledged"


def relaxed(progress=0, acked=(), failed=0, most=0, buffer=64, **lengths):
    bench = SessionBench(buffer, **lengths)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, progress, failed, most, True, acked))
    return bench


def take(bench, limit=9):
    """What is handed over, after what can be fetched now was."""
    for _ in range(4):
        if (bench.node.deadline() or 0) <= bench.now + POLL_NS:
            bench.tick()
        if bench.asks:
            bench.serve()
    return [one for one in bench.feed(Take(limit)) if isinstance(one, Deliver)]


def ack(bench, first, last=None):
    return bench.feed(Ack(B, "a", 1, first, first if last is None else last))


def nack(bench, offset, delay_ns=0):
    return bench.feed(Nack(B, "a", 1, offset, delay_ns))


def wait(bench, until_ns):
    bench.now = until_ns
    bench.perform(bench.node.fire(until_ns))
    if bench.asks:
        bench.serve()


@pytest.mark.parametrize("kind", ["returned", "acked"])
def test_SS_408_it_is_full_with_its_last_hole(monkeypatch, kind):
    monkeypatch.setattr("statemachines.shared_subscriptions.relaxed_order.HOLES_MAX", 3)
    holes = {"returned": Map(), "acked": Map()}
    for count in range(5):
        assert is_full(SimpleNamespace(fetched=9, **holes)) is (count >= 3)
        holes[kind] = holes[kind].set(count, count)


def bound(monkeypatch, most):
    for module in ("relaxed_order", "acknowledged_ranges"):
        monkeypatch.setattr(f"statemachines.shared_subscriptions.{module}.HOLES_MAX", most)


@pytest.mark.long
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60),
    st.sampled_from([0, 3]),
    st.lists(st.tuples(st.integers(1, 11), st.integers(0, 3)), max_size=3),
)
def test_SS_406_whatever_is_given_back_everything_comes_and_nothing_acknowledged_again(moves, most, before):
    """S6, S13 and S14 of one session: messages are taken, acknowledged and given back in any order."""
    _, acked = join_ranges(0, [(first, min(first + more, 11)) for first, more in before])
    bench = relaxed(0, acked, 0, most, a=12)
    done = {offset for first, last in acked for offset in range(first, last + 1)}
    hand, spent = [], {}

    def receive(limit):
        for one in take(bench, limit):
            offsets = range(one.first, one.last + 1)
            assert not done.intersection(offsets)
            assert not set(hand).intersection(offsets)
            hand.extend(offsets)

    for move, place in moves:
        if move == 0:
            receive(1 + place)
        elif hand:
            offset = hand.pop(place % len(hand))
            if move == 1:
                ack(bench, offset)
                done.add(offset)
            else:
                spent[offset] = spent.get(offset, 0) + 1
                nack(bench, offset, (move - 2) * SECOND)
        reading = bench.node.record.readings[A]
        assert all(offset in done for offset in range(reading.progress))
    for _ in range(30):
        for offset in hand:
            ack(bench, offset)
            done.add(offset)
        hand.clear()
        wait(bench, bench.now + 65 * SECOND)
        receive(9)
    assert set(range(12)) - done == {offset for offset, count in spent.items() if 0 < most <= count} - done


def take_of_returned_messages(bench, limit=1):
    """What is handed over, after what can be fetched was."""
    bench.settle()
    return [event for event in bench.feed(Take(limit)) if isinstance(event, Deliver)]


MOVES = st.lists(
    st.tuples(st.sampled_from(("take", "ack", "nack", "delay")), st.integers(0, 7), st.integers(1, 4)), max_size=30
)


@pytest.mark.long
@given(moves=MOVES, failed=st.integers(0, 2), most=st.sampled_from((0, 3)))
def test_SS_332_whatever_is_given_back_comes_again_in_order(moves, failed, most):
    """Nothing is lost, and nothing that is acknowledged comes again."""
    bench = Bench(a=8)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0, failed, most))
    acked, in_hand = set(), set()
    for move, number, limit in (*moves, *((("take", 0, 1), ("ack all", 0, 1)) * 20)):
        reading = bench.node.record.readings[A]
        if move == "take":
            for _ in range(8):
                bench.tick()
                if bench.asks:
                    bench.serve()
            for one in take_of_returned_messages(bench, limit):
                handed = set(range(one.first, one.last + 1))
                assert not handed & acked
                assert all(at in acked or at in in_hand for at in range(one.first)), "order"
                in_hand |= handed
        elif move in ("ack", "ack all"):
            chosen = sorted(in_hand) if move == "ack all" else sorted(in_hand)[number : number + 1]
            for at in chosen:
                bench.feed(Ack(B, "a", 1, at, at))
            acked |= set(chosen)
            in_hand -= set(chosen)
        elif reading.progress <= number < reading.delivered and number not in acked and reading.failed < 2:
            bench.feed(Nack(B, "a", 1, number, SECOND if move == "delay" else 0))
            in_hand = {at for at in in_hand if at < number}
    assert bench.node.record.readings[A].progress == 8


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

"""Publishers and a receiver under losses, copies, rotations, restarts and clocks that step, against a judge that knows.

MONO, ONCE, EXACT, NOFALSE, DETECT and CROWD in FIFO runs; MONO and ONCE where messages overtake each other; THROTTLE
and NOTIFY of the notifier (spec/sequence_windows/properties.md); JOIN is explored.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from loss_judge import Judge

from statemachines.kernel import Node, Tell
from statemachines.sequence_windows.loss_notifier import LOSS_NOTIFIER, LossNotifierRecord, Lost
from statemachines.sequence_windows.message import Numbered
from statemachines.sequence_windows.properties.advised_losses import AdvisedLosses
from statemachines.sequence_windows.publisher_table import PublisherTable
from statemachines.sequence_windows.rotation import Window
from statemachines.sequence_windows.sequence import BASE_MAX
from statemachines.sequence_windows.subject_publishers import PLACES
from statemachines.sequence_windows.subscriber_table import SubscriberTable

S = 1_000_000_000
T = 1659131646 * S


class Play:
    """Two publishers and a receiver; every move is drawn by `chance`."""

    def __init__(self, chance, fifo=True):
        self.chance, self.fifo = chance, fifo
        places = chance.choice((0, 2))
        self.judge = Judge(ordered=fifo, places=places)
        self.now, self.wall = 0, T
        self.lives = {"p": 0, "q": 0}
        self.tables = {"p": PublisherTable(Window(1), 0), "q": PublisherTable(Window(100), 0)}
        self.receiver = SubscriberTable(
            Window(chance.choice((1, 10**9))), 0, everything=True, publishers_max=places or PLACES
        )
        self.wire = []
        self.old = []

    def move(self):
        (kind,) = self.chance.choices(*zip(*MOVES.items(), strict=True))
        getattr(self, kind)()

    def publish(self, count=1):
        node, subject = self.chance.choice("pq"), self.chance.choice("xyz")
        table, who = self.tables[node], f"{node}{self.lives[node]}"
        if table.record(subject).status.value == "absent":
            self.judge.forgot(who, subject)
        for told in table.stamp_many(subject, count, self.wall):
            size = told.last - told.first + 1
            ordinal = self.judge.publish(who, subject, told.number, told.number + size - 1)
            if size == 1:
                event = Numbered(told.frame, told.first, told.last, told.time_ns, told.chain)
                self.wire.append((who, subject, ordinal, event))

    def burst(self):
        """Very many, all of which are lost; a base is nearly used up by them, or just."""
        self.publish(self.chance.choice((3, 40_000, BASE_MAX - 3, BASE_MAX - 1)))

    def hand_over(self):
        if self.wire:
            at = 0 if self.fifo else self.chance.randrange(len(self.wire))
            self.receive(self.wire.pop(at))

    def lose(self):
        if self.wire:
            self.wire.pop(self.chance.randrange(len(self.wire)))

    def copy(self):
        if self.wire:
            self.receive(self.wire[0])

    def replay(self):
        """Somebody sends again what came long ago; a receiver that has forgotten the stream cannot know it."""
        if self.old:
            who, subject, *rest = self.chance.choice(self.old)
            if (who, subject) in self.judge.heard and self.judge.heard[who, subject].known:
                self.receive((who, subject, *rest))

    def receive(self, one):
        who, subject, ordinal, event = one
        (told,) = self.receiver.receive(subject, who, event, self.wall)
        self.judge.receive(who, subject, ordinal, event, told)
        self.old.append(one)

    def tick(self):
        self.now += self.chance.choice((1, 5, 11)) * S
        self.wall += self.chance.choice((1, 5, 11)) * S
        for table in self.tables.values():
            table.tick(self.now)
        if self.receiver.tick(self.now):
            self.judge.flip()

    def converge(self):
        for table in self.tables.values():
            table.converge(self.wall)

    def step_clock(self):
        self.wall += self.chance.choice((-3600, -9, 9, 3600)) * S

    def restart(self):
        node = self.chance.choice("pq")
        self.lives[node] += 1
        self.tables[node] = PublisherTable(Window(1), self.now)

    def unsubscribe(self):
        subject = self.chance.choice("xyz")
        self.receiver.unsubscribe(subject)
        self.receiver.subscribe(subject)
        self.judge.forget(subject)


MOVES = {"publish": 30, "hand_over": 32, "lose": 6, "copy": 3, "replay": 2, "tick": 4, "converge": 2, "step_clock": 4,
         "restart": 1, "unsubscribe": 1, "burst": 2}  # fmt: skip


def play(seed, fifo=True, moves=400):
    one = Play(random.Random(seed), fifo)
    for _ in range(moves):
        one.move()
    return one.judge


@given(st.lists(st.tuples(st.integers(0, 3_000), st.sampled_from("abc"), st.integers(1, 50)), max_size=25))
@settings(max_examples=100, deadline=None)
def test_SW_40_to_SW_44_THROTTLE_and_NOTIFY(losses):
    """Advisories are at least a second apart, their sum is the sum of losses, and none comes later than a second."""
    node = Node(LOSS_NOTIFIER, LossNotifierRecord("c"), name="c", now_ns=0, check=True)
    now, told, advised, broken = 0, 0, AdvisedLosses(), []

    def keep(effects, at):
        nonlocal told, advised
        broken.extend(advised.judge_wait(at, S))
        for effect in effects:
            if isinstance(effect, Tell):
                told += effect.event.lost
                advised, found = advised.observe(effect.event, at, at, S)
                broken.extend(found)
        broken.extend(advised.judge_count(node.record.lost))

    def until(at):
        while (deadline := node.deadline()) is not None and deadline <= at:
            keep(node.fire(deadline), deadline)

    for after_ms, subject, count in losses:
        now += after_ms * 1_000_000
        until(now)
        lost = ((subject, count),)
        advised = advised.lose(lost, now).settle_newest()
        keep(node.feed(Lost(lost), now), now)
    until(now + 100 * S)
    assert broken == []
    assert advised.since is None
    assert told == sum(count for *_, count in losses)

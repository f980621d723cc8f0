"""Load: what a run of shared subscriptions plans beside its members: who leaves, what is published, what the store
does."""

from __future__ import annotations

from random import Random
from typing import Any

from statemachines.shared_subscriptions import stream_store
from statemachines.shared_subscriptions.stream_store import Append, Appended, Drop, Dropped, Published, Rotate, matches
from statemachines_sim.cluster import SimCluster
from statemachines_sim.devices.remote_store import RemoteStore
from statemachines_sim.shared_subscriptions.consumer import ConsumerNode
from statemachines_sim.shared_subscriptions.section import GroupSection
from statemachines_sim.shared_subscriptions.watch import GroupWatch
from statemachines_sim.units import S

RESUBSCRIBES, RESUBSCRIBE_NS = 10, S // 200
"""A quick resubscribe is so many, so far apart."""


class LoadPublisher:
    """Publishes into the stream store of a world, and tells its watch; `waiting`: publishes that wait for the store."""

    def __init__(self, world: SimCluster, topic_filter: str) -> None:
        self._world = world
        self._filter = topic_filter
        self._watch: GroupWatch = world.watch  # type: ignore[assignment]
        self.waiting = 0

    @property
    def store(self) -> RemoteStore:
        """Where messages go."""
        store: Any = self._world.devices[stream_store.SERVICE]
        return store  # type: ignore[no-any-return]

    def publish(self, topic: str, count: int) -> None:
        """A publisher tries again until the store is there; what it published once is there for good."""
        if self.store.down:
            self.waiting += 1
            self._watch.waiting = self.waiting
            self._world.after(S // 10, self._publish_again, topic, count)
            return
        (answer,) = self.store.apply(Append(0, topic, count))
        assert isinstance(answer, Appended)
        if not matches(self._filter, topic):
            return  # no business of the group's: whoever delivers it all the same delivers what nobody published
        published = Published(answer.stream, answer.first, answer.last)
        self._world.recorder.tell(self._world.now, "publisher-1", "publisher-1~1", "", published)
        self._watch.publish(answer.stream, answer.first, answer.last)

    def rotate(self) -> None:
        """A new generation begins: every stream so far has ended."""
        self.store.apply(Rotate(0))
        self._watch.progress.generation = self.store.state.generation
        self._world.note("rotate", stream_store.SERVICE)

    def drop(self) -> None:
        """All generations but the current one are gone, read or not."""
        (dropped,) = self.store.apply(Drop(0, self.store.state.generation))
        assert isinstance(dropped, Dropped)
        self._watch.progress.oldest = dropped.oldest
        self._world.note("drop", stream_store.SERVICE)

    def _publish_again(self, topic: str, count: int) -> None:
        self.waiting -= 1
        self._watch.waiting = self.waiting
        self.publish(topic, count)


def play(own: GroupSection, world: SimCluster, chance: Random) -> None:
    """Who leaves, and publishes, spread over most of the safety phase."""
    for number, at in enumerate(own.members.leave_s):
        world.after(int(at * S), leave, world, f"consumer-{number + 1}")
    for number, at in enumerate(own.members.resubscribe_s):
        for turn in range(RESUBSCRIBES):
            world.after(int(at * S) + turn * RESUBSCRIBE_NS, resubscribe, world, f"consumer-{number + 1}")
    load, publisher = own.load, LoadPublisher(world, own.group_and_filter[1])
    end = int(world.scenario.phases.safety_s * 0.9 * S)
    left = load.messages
    while left > 0:
        count = min(left, load.batch)
        left -= count
        topic = f"t{chance.randrange(load.topics):03}"
        world.after(chance.randrange(end), publisher.publish, topic, count)
    for _ in range(0, load.stray, load.batch):
        topic = f"stray/t{chance.randrange(load.topics):03}"
        world.after(chance.randrange(end), publisher.publish, topic, load.batch)
    for at in load.rotate_s:
        world.after(int(at * S), publisher.rotate)
    for at in load.drop_s:
        world.after(int(at * S), publisher.drop)


def leave(world: SimCluster, node: str) -> None:
    """Unsubscribe."""
    process = world.living(node)
    if isinstance(process, ConsumerNode):
        world.note("unsubscribe", node)
        process.leave()


def resubscribe(world: SimCluster, node: str) -> None:
    """Unsubscribe, and subscribe again at once."""
    process = world.living(node)
    if isinstance(process, ConsumerNode) and not process.host.is_ended:
        world.note("unsubscribe", node)
        process.resubscribe()

"""Strangers: sources and queues for which there is no place (spec/missed_samples/clauses.md)."""

from __future__ import annotations

import msgspec
import pytest
from samples_world import KEY, World

from statemachines.kernel import ConfigurationError, Node, Tell
from statemachines.missed_samples.cache import CACHE, CacheRecord, CrowdedOver, Published
from statemachines.missed_samples.message import Heartbeat, Sample
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.source_record import Appeared

# -- subscriber -----------------------------------------------------------------------------------------------------


def test_MS_64_a_heartbeat_or_token_of_a_stranger_is_counted_and_nothing_else():
    world = World(sources=1, past=True)
    world.tell(Sample("p", 0, 0))
    before = world.node.record
    assert world.tell(Heartbeat("q", 7)) == []
    assert world.tell(Appeared("q", True)) == []
    assert world.node.record == msgspec.structs.replace(before, turned_away=2)
    assert world.open == []
    assert world.clauses.count("MS-64") == 2
    assert world.tell(Heartbeat("p", 2)) == [], "of who is known it counts"
    assert len(world.open) == 1


def test_MS_63_a_limit_that_cannot_be_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="sources = 0: at least 1"):
        Recovery(sources=0)


# -- cache ----------------------------------------------------------------------------------------------------------


class Host:
    """A cache with two places, beside whoever publishes; `told` is what it told."""

    def __init__(self, **given):
        self.now = 0
        self.node = Node(CACHE, CacheRecord(places=2, retention_ms=1_000, **given), name="c", now_ns=0, check=True)

    def publish(self, source, first=0, last=None, key=KEY):
        last = first if last is None else last
        return [one.event for one in self.node.feed(Published(key, source, first, last), self.now)]

    def fire(self):
        self.now = self.node.deadline()
        return [one.event for one in self.node.fire(self.now) if isinstance(one, Tell)]

    @property
    def places(self):
        return sorted(self.node.record.queues)


def test_MS_48_a_limit_that_cannot_be_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="places = 0: at least 1"):
        CacheRecord(places=0)
    with pytest.raises(ConfigurationError, match="retention_ms = 0: at least 1"):
        CacheRecord(retention_ms=0)


def test_MS_49_a_late_timer_changes_nothing():
    host = Host()
    host.publish("p")
    before = host.node.record
    assert not host.node.feed(CrowdedOver(), 0)
    assert host.node.record == before

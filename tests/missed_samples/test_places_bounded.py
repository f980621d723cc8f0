"""Strangers: sources and queues for which there is no place (spec/missed_samples/clauses.md)."""

from __future__ import annotations

import msgspec
import pytest
from samples_world import KEY, World

from statemachines.kernel import ConfigurationError, Node, Tell
from statemachines.missed_samples.cache import CACHE, CacheRecord, CacheStatus, CrowdedOver, LetGo, NotKept, Published
from statemachines.missed_samples.message import Deliver, Heartbeat, Missed, Sample, TurnedAway
from statemachines.missed_samples.recovery import MS, Recovery
from statemachines.missed_samples.source_record import Appeared, Disappeared
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import History

# -- subscriber -----------------------------------------------------------------------------------------------------


def test_MS_63_one_source_too_many_is_turned_away_counted_and_told():
    world = World(sources=2)
    world.tell(Sample("p", 3, 3))
    world.tell(Sample("q", 0, 0))
    assert world.tell(Sample("r", 4, 6)) == [TurnedAway("r", 4, 6)]
    assert sorted(world.node.record.sources) == ["p", "q"]
    assert world.node.record.turned_away == 3
    assert world.open == []
    assert world.tell(Sample("p", 4, 4)) == [Deliver("p", 4, 4)], "who is known goes on"
    assert "MS-63" in world.clauses


def test_MS_63_a_source_with_a_hole_keeps_its_place_against_any_flood():
    world = World(sources=1)
    world.publisher("p")
    world.cache(owner="p", history=9)
    world.publish()
    world.publish(lost=True)
    world.publish()
    for number in range(200):
        assert world.tell(Sample(f"stranger-{number}", 0, 0)) == [TurnedAway(f"stranger-{number}", 0, 0)]
    world.answer()
    assert world.numbers(Deliver) == [0, 1, 2]
    assert world.numbers(Missed) == []
    assert world.node.record.turned_away == 200


def test_MS_63_a_place_is_free_again_when_a_source_is_forgotten():
    world = World(sources=1, retention_ms=1_000)
    world.tell(Sample("p", 0, 0))
    world.tell(Sample("q", 0, 0))
    world.wait(1_999)
    assert list(world.node.record.sources) == ["p"]
    assert world.tell(Sample("q", 1, 1)) == [TurnedAway("q", 1, 1)]
    world.wait(1)
    assert list(world.node.record.sources) == []
    assert world.tell(Sample("q", 2, 2)) == [Deliver("q", 2, 2)]
    assert world.tell(Sample("p", 1, 1)) == [TurnedAway("p", 1, 1)]


def test_MS_63_a_source_that_is_known_to_live_keeps_its_place():
    world = World(sources=1, retention_ms=1_000)
    world.tell(Appeared("p", False))
    world.wait(10_000)
    assert world.tell(Sample("q", 0, 0)) == [TurnedAway("q", 0, 0)]
    world.tell(Disappeared("p"))
    assert world.tell(Sample("q", 1, 1)) == [Deliver("q", 1, 1)]


def test_MS_63_while_the_first_query_is_open_as_well():
    world = World(sources=1, history=History())
    world.cache()
    world.tell(Sample("p", 0, 0))
    assert world.tell(Sample("q", 0, 1)) == [TurnedAway("q", 0, 1)]
    world.answer()
    assert world.numbers(Deliver) == [0]


def test_MS_63_what_is_turned_away_has_the_numbers_it_would_be_delivered_by():
    taken, full = World(width=8), World(width=8, sources=1)
    full.tell(Sample("p", 0, 0))
    (delivered,) = taken.node.feed(Sample("q", 250, 260), 0)
    (told,) = full.node.feed(Sample("q", 250, 260), 0)
    assert (told.event.first, told.event.last) == (delivered.event.first, delivered.event.last) == (506, 516)


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


def test_MS_63_the_invariant_tells_too_many_sources():
    (invariant,) = [one for one in SUBSCRIBER.invariants if one.clause == "MS-63"]
    world = World(sources=2)
    world.tell(Sample("p", 0, 0))
    world.tell(Sample("q", 0, 0))
    record = world.node.record
    assert invariant.holds(record)
    assert not invariant.holds(msgspec.structs.replace(record, recovery=Recovery(sources=1)))


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


def test_MS_48_one_queue_too_many_is_not_kept_counted_and_told():
    host = Host(history=5)
    assert host.publish("p") == host.publish("q") == []
    assert host.publish("r", 4, 6) == [NotKept(KEY, "r", 4, 6)]
    assert host.publish("p", key="demo/b") == [NotKept("demo/b", "p", 0, 0)], "a queue is of a key and a source"
    assert host.places == [("p", KEY), ("q", KEY)]
    assert host.node.record.not_kept == 4
    assert host.publish("p", 1) == []
    assert host.node.record.queues["p", KEY].count == 2


def test_MS_48_a_limit_that_cannot_be_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="places = 0: at least 1"):
        CacheRecord(places=0)
    with pytest.raises(ConfigurationError, match="retention_ms = 0: at least 1"):
        CacheRecord(retention_ms=0)


def test_MS_48_the_invariant_tells_too_many_queues():
    (invariant,) = [one for one in CACHE.invariants if one.clause == "MS-48"]
    host = Host()
    host.publish("p")
    host.publish("q")
    record = host.node.record
    assert invariant.holds(record)
    assert not invariant.holds(msgspec.structs.replace(record, places=1))
    assert not invariant.holds(
        msgspec.structs.replace(record, heard=record.heard.set("a", True).set("b", True).set("c", True))
    )


def test_MS_49_a_retention_after_it_was_crowded_silent_queues_are_let_go():
    host = Host()
    host.publish("p")
    host.publish("q")
    assert host.node.deadline() is None, "a cache with room looks at nobody"
    host.now = 500 * MS
    host.publish("r")
    host.now = 1_400 * MS
    host.publish("q", 1)
    host.publish("s")
    assert host.node.deadline() == 1_500 * MS, "the first that found no place decides"
    assert host.fire() == [LetGo(KEY, "p")]
    assert host.places == [("q", KEY)]
    assert host.node.record.status is CacheStatus.OPEN
    assert dict(host.node.record.heard) == {}
    assert host.publish("r", 1) == []
    assert host.places == [("q", KEY), ("r", KEY)]


def test_MS_49_what_was_heard_the_time_before_does_not_count():
    host = Host()
    for source in "pqr":
        host.publish(source)
    host.publish("p", 1)
    host.publish("q", 1)
    assert host.fire() == []
    host.publish("r", 1)
    host.publish("q", 2)
    assert host.fire() == [LetGo(KEY, "p")]


def test_MS_49_several_silent_queues_go_in_the_order_of_their_sources():
    host = Host()
    for source in "qpr":
        host.publish(source)
    assert host.fire() == [LetGo(KEY, "p"), LetGo(KEY, "q")]
    assert host.places == []


def test_MS_49_a_late_timer_changes_nothing():
    host = Host()
    host.publish("p")
    before = host.node.record
    assert not host.node.feed(CrowdedOver(), 0)
    assert host.node.record == before


def test_MS_48_publishers_that_come_and_go_for_ever_leave_no_more_than_there_are_places():
    host = Host()
    kept = 0
    for number in range(500):
        source = f"life-{number:04}"
        host.now += 100 * MS
        while host.node.deadline() is not None and host.node.deadline() <= host.now:
            host.node.fire(host.now)
        kept += not host.publish(source)
        assert len(host.places) <= 2
    assert kept == 84, "two are kept, and ten turned away until a retention is over, again and again"
    assert host.node.record.not_kept == 416

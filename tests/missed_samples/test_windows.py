"""Long holes and slow answers, with caches; the clauses of windows are in steps/query_windows.txt."""

from __future__ import annotations

from samples_world import World

from statemachines.missed_samples.message import Deliver, Missed
from statemachines.missed_samples.source_record import SourceStatus


def test_MS_69_a_cache_that_has_little_of_a_long_hole_costs_few_queries():
    world = World()
    world.publisher()
    world.cache(owner="p", history=1_000)
    world.publish()
    world.publish(count=100_000, lost=True)
    world.publish(count=2)
    while world.source().status is not SourceStatus.LIVE:
        world.answer_all()
        if world.source().status is SourceStatus.RESTING:
            world.tick()
    assert world.numbers(Missed) == list(range(1, 99_003))
    assert len(world.asked) < 20


def test_a_slow_answer_behind_a_silence_that_is_longer_than_every_timeout_loses_nothing():
    """As it was found: 3 MB of somebody else's answer lie before ours on a link of 200 kB/s."""
    world = World()
    world.publisher()
    world.cache(owner="p", history=5_000)
    world.publish()
    world.publish(count=3_000, lost=True)
    world.publish()
    world.wait(20_000)
    assert world.numbers(Missed) == []
    while world.source().status is not SourceStatus.LIVE:
        world.answer_all()
        world.tick()
    assert world.numbers(Deliver) == list(range(3_002))

"""What is missing is asked for: gaps, lost ends, what no cache has, history."""

from __future__ import annotations

import random
from typing import Any

from waiting import pause_async, until_async

from statemachines.drivers.missed_samples import (
    Beats,
    History,
    declare_reliability_cache,
    declare_reliable_publisher,
    declare_reliable_subscriber,
)
from zenoh_scenes.scene import (
    APART,
    BEATS,
    PATIENT,
    SURE,
    loses,
    numbers,
    say,
    scene,
    take,
    two_sessions,
    until_answered,
)


async def one_gap(layout: str) -> None:
    async with (
        two_sessions() as (near, far, link),
        declare_reliable_subscriber(far, "k/*", layout=layout) as subscriber,
        declare_reliable_publisher(near, "k/a", layout=layout, history=100, **APART) as publisher,
    ):
        await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
        link.lose = loses(0, 4, 5)
        for number in range(10):
            publisher.put(say(number))
        got = await take(subscriber, 10)
        assert numbers(got) == list(range(10))
        assert all(one.recovered for one in got if one.number in (0, 4, 5))  # 0: its token came before it
        assert link.lost == 3
        assert subscriber.statistics.missed == 0


@scene
async def one_gap_is_filled() -> None:
    await one_gap("advanced")
    await one_gap("plain")


@scene
async def thirty_percent_are_lost() -> None:
    chance = random.Random(7)
    lost = {number for number in range(600) if chance.random() < 0.3}
    async with (
        two_sessions() as (near, far, link),
        declare_reliable_subscriber(far, "k/*") as subscriber,
        declare_reliable_publisher(near, "k/a", history=600, **APART, **BEATS) as publisher,
    ):
        await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
        link.lose = loses(*lost)
        for number in range(600):
            publisher.put(say(number))
            if number % 20 == 0:
                await pause_async(0.002, "the burst is not one batch")
        got = await take(subscriber, 600)
        assert numbers(got) == list(range(600))
        assert link.lost > 100
        assert subscriber.statistics.recovered >= len(lost)
        assert subscriber.statistics.missed == 0
        assert subscriber.held_samples == 0


@scene
async def the_last_is_lost() -> None:
    """A heartbeat tells, or a periodic query."""
    async with (
        two_sessions() as (near, far, link),
        declare_reliable_subscriber(far, "k/*") as by_heartbeat,
        declare_reliable_subscriber(far, "p/*", period_s=0.05) as by_query,
        declare_reliable_publisher(
            near, "k/a", history=9, **APART, heartbeat=Beats.SPORADIC, heartbeat_period_s=0.05
        ) as beating,  # fmt: skip
        declare_reliable_publisher(near, "p/a", history=9, **APART) as silent,
    ):
        for subscriber, publisher in ((by_heartbeat, beating), (by_query, silent)):
            await until_async(lambda one=publisher, other=subscriber: one.is_heard and one.source in other.sources)
            publisher.put(say(0))
            assert numbers(await take(subscriber, 1)) == [0]
            link.lose = loses(1, 2)
            publisher.put(say(1))
            publisher.put(say(2))
            assert [(one.number, one.recovered) for one in await take(subscriber, 2)] == [(1, True), (2, True)]
        await until_async(lambda: by_query.statistics.queries > 2)  # it goes on asking
        assert beating.statistics.heartbeats <= 3  # and the other says nothing more
        assert by_heartbeat.statistics.queries <= 2


@scene
async def what_no_cache_has_is_reported_once() -> None:
    async with two_sessions() as (near, far, link):
        missed: list[Any] = []
        async with (
            declare_reliable_subscriber(far, "k/*", on_missed=missed.append) as subscriber,
            declare_reliable_publisher(near, "k/a", history=1, **APART) as publisher,
        ):
            await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            publisher.put(say(0))
            await take(subscriber, 1)
            link.lose = loses(1, 2)
            for number in (1, 2, 3):
                publisher.put(say(number))
            assert numbers(await take(subscriber, 1)) == [3]
            assert [(one.source, one.first, one.last) for one in missed] == [(publisher.source, 1, 2)]
            assert subscriber.statistics.missed == 2
            assert subscriber.statistics.queries == 1 + 1  # for its token; and one answer convicts


@scene
async def a_late_subscriber_gets_history() -> None:
    async with (
        two_sessions() as (near, far, _),
        declare_reliable_publisher(near, "k/a", history=8, **SURE) as publisher,
    ):
        for number in range(10):
            publisher.put(say(number))
        await until_answered(far, publisher.source)
        async with (
            declare_reliable_subscriber(far, "k/*", history=History()) as all_,
            declare_reliable_subscriber(far, "k/*", history=History(newest=3)) as some,
            declare_reliable_subscriber(far, "k/*", history=History(age_ms=60_000)) as young,
            declare_reliable_subscriber(far, "k/*") as none,
        ):
            every = (all_, some, young, none)
            await until_async(lambda: publisher.is_heard and all(publisher.source in one.sources for one in every))
            assert numbers(await take(all_, 8)) == list(range(2, 10))
            assert numbers(await take(some, 3)) == [7, 8, 9]
            assert numbers(await take(young, 8)) == list(range(2, 10))
            publisher.put(say(10))
            for subscriber in every:
                assert numbers(await take(subscriber, 1)) == [10]
                assert subscriber.statistics.missed == 0


@scene
async def a_publisher_starts_again() -> None:
    async with two_sessions() as (near, far, link):
        missed: list[Any] = []
        async with (
            declare_reliable_subscriber(far, "k/*", on_missed=missed.append) as subscriber,
            declare_reliable_subscriber(far, "p/*", layout="plain", recovery=PATIENT, on_missed=missed.append) as plain,
            declare_reliability_cache(far, "p/*", layout="plain", history=100) as cache,
        ):
            ids = set()
            for _ in range(2):  # another id each time, and numbers from 0
                async with declare_reliable_publisher(near, "k/a", history=9, **SURE) as publisher:
                    await until_async(lambda one=publisher: one.is_heard and one.source in subscriber.sources)
                    ids.add(publisher.source)
                    publisher.put("x")
                    publisher.put("y")
                    assert [(one.number, one.source) for one in await take(subscriber, 2)] == [
                        (0, publisher.source),
                        (1, publisher.source),
                    ]
            assert len(ids) == 2
            next_ = 0
            for _ in range(2):  # the same id, going on
                options = {"layout": "plain", "source": "meter-7", "next": next_, "history": 9, **APART}
                async with declare_reliable_publisher(near, "p/a", **options) as publisher:
                    await until_async(lambda one=publisher: one.is_heard and one.source in plain.sources)
                    link.lose = loses(3)
                    for number in range(next_, next_ + 3):
                        publisher.put(say(number))
                    next_ = publisher.next_number
                    got = await take(plain, 3)
                    assert [(one.number, one.source) for one in got] == [
                        (n, "meter-7") for n in range(next_ - 3, next_)
                    ]
            assert next_ == 6
            assert not missed
            assert link.lost == 1
            await until_async(lambda: cache.statistics.samples >= 5)

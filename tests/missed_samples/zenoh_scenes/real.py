"""zenoh's own publishers and subscribers, in both directions."""

# ruff: noqa: SIM117 (the network outlives what is in it)

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import zenoh
import zenoh.ext
from waiting import pause_async, until_async

from statemachines.drivers.missed_samples import (
    History,
    declare_reliability_cache,
    declare_reliable_publisher,
    declare_reliable_subscriber,
    sample_store,
)
from zenoh_scenes.room import room_for
from zenoh_scenes.scene import (
    APART,
    BEATS,
    SURE,
    ask,
    can_ask,
    loses,
    numbers,
    say,
    scene,
    take,
    two_sessions,
    until_answered,
)


def real_publisher(session: zenoh.Session, key: str, depth: int, heartbeat_s: float | None = 0.05) -> Any:
    return zenoh.ext.declare_advanced_publisher(
        session, key, cache=zenoh.ext.CacheConfig(depth), publisher_detection=True,
        sample_miss_detection=zenoh.ext.MissDetectionConfig(heartbeat=heartbeat_s, sporadic_heartbeat=None), **APART,
    )  # fmt: skip


@scene
async def ours_on_a_real_publisher() -> None:
    chance = random.Random(11)
    lost = {number for number in range(300) if chance.random() < 0.3} | {0, 299}
    async with two_sessions() as (near, far, link), declare_reliable_subscriber(far, "k/*") as subscriber:
        publisher = real_publisher(near, "k/a", 1_000)
        source = f"{publisher.id.zid}/{publisher.id.eid}"
        await until_async(lambda: source in subscriber.sources)
        link.lose = loses(*lost)
        for number in range(300):
            publisher.put(say(number), attachment=b"mine")
            if number % 20 == 0:
                await pause_async(0.002, "the burst is not one batch")
        got = await take(subscriber, 300)
        assert [one.payload.to_string() for one in got] == [say(n) for n in range(300)]
        assert {one.source for one in got} == {source}
        assert {one.attachment for one in got} == {b"mine"}
        assert subscriber.statistics.recovered >= len(lost)
        assert subscriber.statistics.missed == 0
        publisher.delete()
        (last,) = await take(subscriber, 1)
        assert last.kind == zenoh.SampleKind.DELETE
        link.lose = loses()  # a heartbeat and all of an answer may share a batch, and 299 is in it
        async with declare_reliable_subscriber(far, "k/*", history=History(newest=5)) as late:
            assert numbers(await take(late, 5)) == list(range(296, 301))
        publisher.undeclare()


@scene
async def an_answer_of_a_real_publisher_that_finds_no_room_convicts_nothing() -> None:
    async with two_sessions() as (near, far, link):
        async with declare_reliable_subscriber(far, "k/*", waiting_max=10) as subscriber:
            publisher = real_publisher(near, "k/a", 1_000)
            source = f"{publisher.id.zid}/{publisher.id.eid}"
            await until_async(lambda: source in subscriber.sources)
            publisher.put(say(0))
            assert numbers(await take(subscriber, 1)) == [0]
            link.lose = lambda batch: b"#600;" not in batch
            room_for(subscriber, 20)
            for number in range(1, 601):
                publisher.put(say(number))
            assert numbers(await take(subscriber, 600)) == list(range(1, 601))
            assert subscriber._mailbox.refused > 0
            assert subscriber.statistics.missed == 0
            publisher.undeclare()


@scene
async def heartbeats_are_no_samples() -> None:
    """Nor are they where the key expression has wild cards in front, so that it is about heartbeats as well."""
    async with two_sessions() as (near, far, _):
        async with (
            declare_reliable_subscriber(far, "**", layout="plain") as subscriber,
            declare_reliable_publisher(near, "k/a", layout="plain", **BEATS, **SURE) as publisher,
        ):
            await until_async(lambda: publisher.is_heard)
            publisher.put("x")
            await until_async(lambda: publisher.statistics.heartbeats > 2)
            publisher.put("y")
            assert numbers(await take(subscriber, 2)) == [0, 1]
            assert subscriber.statistics.unnumbered == 0


@scene
async def a_real_publisher_has_lost_what_its_cache_has_not() -> None:
    async with two_sessions() as (near, far, link):
        missed: list[Any] = []
        async with declare_reliable_subscriber(far, "k/*", on_missed=missed.append) as subscriber:
            publisher = real_publisher(near, "k/a", 2, heartbeat_s=None)  # 9 shows the gap, and nothing earlier does
            source = f"{publisher.id.zid}/{publisher.id.eid}"
            await until_async(lambda: source in subscriber.sources)
            await until_async(
                lambda: not subscriber._sender._queries
            )  # its first question might be answered with 1 and 2
            publisher.put(say(0))
            await take(subscriber, 1)
            link.lose = loses(*range(1, 9))
            for number in range(1, 10):
                publisher.put(say(number))
            assert numbers(await take(subscriber, 2)) == [8, 9]
            assert [(one.source, one.first, one.last) for one in missed] == [(source, 1, 7)]
            publisher.undeclare()


def lose_once(once: set[int]) -> Callable[[bytes], bool]:
    """The first batch with each of these is lost."""

    def lose(batch: bytes) -> bool:
        lost = {number for number in once if f"#{number};".encode() in batch}
        once.difference_update(lost)
        return bool(lost)

    return lose


async def until_there(got: list[Any], count: int, shows: Callable[[], Any] = str) -> None:
    """One loss after the other: the next put in its own time could come again, and be lost then in place of others."""
    await until_async(lambda: len(got) == count, shows)


@scene
async def what_is_put_again_comes_before_the_end_of_the_query() -> None:
    """Whatever the priority that it was put with: a real subscriber takes nothing after that."""
    async with two_sessions() as (near, far, link):
        low: dict[str, Any] = {"priority": zenoh.Priority.BACKGROUND, "express": True, **SURE}
        async with declare_reliable_publisher(near, "k/a", history=100, **low) as publisher:
            got: list[int] = []
            subscriber = zenoh.ext.declare_advanced_subscriber(
                far, "k/*", lambda sample: got.append(sample.source_info.source_sn),
                recovery=zenoh.ext.RecoveryConfig(heartbeat=True, periodic_queries=None),
            )  # fmt: skip
            await until_async(lambda: publisher.is_heard)
            await until_answered(far, publisher.source)
            once: set[int] = set()
            link.lose = lose_once(once)
            publisher.put(say(0))
            for begin in range(1, 121, 20):
                once.update(range(begin, begin + 19))
                for number in range(begin, begin + 19):
                    publisher.put(say(number))
                await until_async(lambda: not once)  # nobody knows of them: no query can bring them before
                publisher.put(say(begin + 19))
                await until_there(got, begin + 20, lambda: got)
            assert got == list(range(121))
            subscriber.undeclare()


@scene
async def a_query_that_comes_before_the_declaration_is_answered_behind_it() -> None:
    """zenoh carries the one past the other now and then; here the one who asks does it."""
    sample_store.DECLARED_S = 3.0  # type: ignore[misc]  # longer than any declaration takes
    async with two_sessions() as (near, far, _):
        async with declare_reliable_publisher(near, "k/a", history=100) as publisher:
            publisher.put(say(0))
            await until_answered(far, publisher.source)
            counts = publisher.cache_statistics
            assert counts is not None
            before = counts.queries
            asked = asyncio.ensure_future(ask(far, f"k/a/@adv/*/{publisher.source}/**"))
            await until_async(lambda: counts.queries > before)
            got: list[Any] = []
            far.declare_subscriber("k/*", got.append)
            assert await asked == []
            await until_async(lambda: [one.source_info.source_sn for one in got] == [0], lambda: got)


@scene
async def a_real_subscriber_on_ours() -> None:
    """What is put again arrives here, since nothing is lost but what the link is told to."""
    async with two_sessions() as (near, far, link):
        async with declare_reliable_publisher(near, "k/a", history=100, **APART, **BEATS) as publisher:
            for number in range(3):
                publisher.put(say(number))
            await until_answered(far, publisher.source)
            await until_async(lambda: publisher.cache_statistics.replies == 3)  # counted once they are sent
            got: list[Any] = []
            misses: list[int] = []
            subscriber = zenoh.ext.declare_advanced_subscriber(
                far, "k/*", got.append,
                history=zenoh.ext.HistoryConfig(detect_late_publishers=True),
                recovery=zenoh.ext.RecoveryConfig(heartbeat=True, periodic_queries=None),
            )  # fmt: skip
            listener = subscriber.sample_miss_listener(lambda miss: misses.append(miss.nb))
            counts = publisher.cache_statistics

            def there_is() -> Any:
                came = [one.source_info.source_sn for one in got]
                return publisher.is_heard, came, counts, publisher.statistics, far.info.transports()

            await until_async(lambda: publisher.is_heard and len(got) == 3, there_is)
            once = {5, 6, 9}
            link.lose = lose_once(once)
            for number in range(3, 9):
                publisher.put(say(number), encoding="text/plain", attachment=b"a")
                await until_there(got, number + 1, there_is)
            publisher.delete(attachment="#9;")
            await until_there(got, 10, there_is)
            assert not once
            assert [one.source_info.source_sn for one in got] == list(range(10))
            assert [one.payload.to_string() for one in got[:9]] == [say(n) for n in range(9)]
            assert {str(one.encoding) for one in got[3:9]} == {"text/plain"}
            assert {one.attachment.to_bytes() for one in got[3:9]} == {b"a"}
            assert got[9].kind == zenoh.SampleKind.DELETE
            assert link.lost == 3
            assert misses == []
            await until_async(lambda: publisher.cache_statistics.put_again >= 6)
            assert publisher.cache_statistics.replies == 3
            listener.undeclare()
            subscriber.undeclare()


@scene
async def a_mixed_network() -> None:
    """Publishers of both kinds, subscribers of both kinds, on one key; a cache of ours keeps what both publish."""
    async with (
        two_sessions() as (near, far, link),
        declare_reliability_cache(near, "k/*", history=1_000) as cache,
        declare_reliable_subscriber(far, "k/*") as subscriber,
        declare_reliable_publisher(near, "k/a", history=1_000, **APART, **BEATS) as ours,
    ):
        theirs = real_publisher(near, "k/a", 1_000)
        source = f"{theirs.id.zid}/{theirs.id.eid}"
        heard: dict[int, list[int]] = {}

        def hear(sample: zenoh.Sample) -> None:
            heard.setdefault(sample.source_info.source_id.eid, []).append(sample.source_info.source_sn)

        real = zenoh.ext.declare_advanced_subscriber(
            far, "k/*", hear, recovery=zenoh.ext.RecoveryConfig(heartbeat=True)
        )
        await until_async(lambda: ours.is_heard and {source, ours.source} <= set(subscriber.sources))
        await until_async(can_ask(far, "k/*/@adv/**"))
        once = {*range(2, 60, 3)}
        link.lose = lose_once(once)  # of whichever publisher it comes first
        for number in range(60):
            ours.put(say(number))
            theirs.put(say(number))
            if number % 10 == 0:
                await pause_async(0.002, "the burst is not one batch")
        got = await take(subscriber, 120)
        for one in (source, ours.source):
            assert [sample.number for sample in got if sample.source == one] == list(range(60))
        assert not once  # each was lost, and came again: as a reply, or put again for the real one
        assert subscriber.statistics.missed == 0
        await until_async(lambda: sum(map(len, heard.values())) > 0)
        assert all(numbers == sorted(set(numbers)) for numbers in heard.values())  # which of them, nobody promises
        real.undeclare()
        await until_async(lambda: cache.statistics.samples == 120)
        theirs.undeclare()  # from now on the cache answers for it
        await until_async(can_ask(far, f"k/a/@adv/pub/{source}/_"))
        async with declare_reliable_subscriber(far, "k/*", history=History()) as late:
            again = await take(late, 120)
            assert [sample.number for sample in again if sample.source == source] == list(range(60))


@scene
async def a_real_subscriber_on_a_cache_of_ours() -> None:
    """The publisher is dead; the cache puts its samples again."""
    async with two_sessions() as (near, far, _), declare_reliability_cache(near, "k/**", history=9) as cache:
        async with declare_reliable_publisher(near, "k/a", with_cache=False, token=False, **SURE) as publisher:
            for number in range(3):
                publisher.put(say(number))
            await until_async(lambda: cache.statistics.kept == 3)
        await until_async(can_ask(far, "k/a/@adv/**"))
        got: list[Any] = []
        subscriber = zenoh.ext.declare_advanced_subscriber(
            far, "k/*", got.append, history=zenoh.ext.HistoryConfig(max_samples=2),
        )  # fmt: skip
        await until_async(lambda: len(got) == 2)
        assert [one.payload.to_string() for one in got] == [say(1), say(2)]
        subscriber.undeclare()

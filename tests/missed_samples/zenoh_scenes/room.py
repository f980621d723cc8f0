"""Loops that are blocked, readers that are slow, answers that are long or never end."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import zenoh
import zenoh.ext
from waiting import until, until_async
from zenoh.handlers import Callback

from statemachines.drivers.missed_samples import (
    LoopThread,
    Recovery,
    declare_reliable_publisher,
    declare_reliable_subscriber,
)
from statemachines.missed_samples.recovery import make_recovery
from zenoh_scenes.scene import (
    APART,
    BEATS,
    SURE,
    can_ask,
    loses,
    numbers,
    put_until,
    say,
    scene,
    take,
    two_sessions,
)


@scene
async def a_loop_that_is_blocked_loses_nothing_for_good() -> None:
    """What finds no room is refused, counted, and asked for."""
    count = 2_000
    block = zenoh.CongestionControl.BLOCK
    async with two_sessions() as (near, far, _):
        got: list[int] = []
        receive = declare_reliable_subscriber(far, "k/*", lambda sample: got.append(sample.number), queue_max=1_500)
        async with receive as subscriber:
            with LoopThread() as other:
                made = declare_reliable_publisher(near, "k/a", history=5_000, congestion_control=block, **BEATS)
                publisher = other.enter(made)
                await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)

                def burst() -> None:
                    for number in range(count):
                        publisher.put(say(number))

                thread = threading.Thread(target=other.call, args=(burst,))
                thread.start()
                until(lambda: subscriber._mailbox.refused)
                await asyncio.to_thread(thread.join)
                await until_async(lambda: len(got) >= count)
            assert got == list(range(count))
            assert subscriber.statistics.missed == 0
            assert subscriber.statistics.overflowed > 0


@scene
async def a_query_that_never_ends_delays_nobody() -> None:
    async with two_sessions() as (near, far, link):
        stuck: list[zenoh.Query] = []
        missed: list[Any] = []
        recovery = make_recovery(retries=0, timeout_ms=60_000)
        async with (
            declare_reliable_subscriber(far, "k/*", recovery=recovery, on_missed=missed.append) as subscriber,
            declare_reliable_publisher(near, "k/b", history=9, **APART) as publisher,
        ):
            entity = near.declare_publisher("k/a", **SURE)
            source = f"{entity.id.zid}/{entity.id.eid}"
            queryable = near.declare_queryable(f"k/a/@adv/pub/{source}/_", Callback(stuck.append, indirect=False))
            await until_async(can_ask(far, f"k/a/@adv/pub/{source}/_"))
            await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            await put_until(entity, 0, lambda: subscriber.statistics.delivered == 1)
            entity.put(say(2), source_info=zenoh.SourceInfo(entity.id, 2))
            await until_async(lambda: stuck)
            link.lose = loses(101)
            for number in (100, 101, 102):
                publisher.put(say(number))
            got = await take(subscriber, 4)
            assert [one.number for one in got if one.source == publisher.source] == [0, 1, 2]  # it waits for nobody
            assert [one.number for one in got if one.source == source] == [0]
            assert not missed
            for query in stuck:
                with query:
                    pass
            assert numbers(await take(subscriber, 1)) == [2]
            assert [(one.source, one.first, one.last) for one in missed] == [(source, 1, 1)]
            queryable.undeclare()


@scene
async def a_query_that_never_ends_is_given_up() -> None:
    async with two_sessions() as (near, far, _):
        stuck: list[zenoh.Query] = []
        missed: list[Any] = []
        recovery = Recovery(deadline_ms=400)
        async with declare_reliable_subscriber(far, "k/*", recovery=recovery, on_missed=missed.append) as subscriber:
            entity = near.declare_publisher("k/a", **SURE)
            source = f"{entity.id.zid}/{entity.id.eid}"
            queryable = near.declare_queryable(f"k/a/@adv/pub/{source}/_", Callback(stuck.append, indirect=False))
            await until_async(can_ask(far, f"k/a/@adv/pub/{source}/_"))
            await put_until(entity, 0, lambda: subscriber.statistics.delivered == 1)
            entity.put(say(2), source_info=zenoh.SourceInfo(entity.id, 2))
            assert numbers(await take(subscriber, 2)) == [0, 2]
            assert [(one.source, one.first, one.last) for one in missed] == [(source, 1, 1)]
            assert subscriber.statistics.queries > 2
            assert subscriber.statistics.bad_ends == 0, "zenoh waits for all"
            queryable.undeclare()
            for query in stuck:
                with query:
                    pass


def room_for(subscriber: Any, replies: int) -> None:
    """Of each answer, from now on, so many replies find room, and no more."""
    mailbox, put, seen = subscriber._mailbox, subscriber._mailbox.put, Counter[int]()
    room = mailbox._count_max

    def bounded(act: Any, given: Any, size: int = 0, *, always: bool = False) -> bool:
        if act == subscriber._sender._hear_reply:
            seen[id(given[0])] += 1
            kept.append(given[0])  # so that its id is nobody else's
            mailbox._count_max = room if seen[id(given[0])] <= replies else 0
        taken: bool = put(act, given, size, always=always)
        mailbox._count_max = room
        return taken

    kept: list[Any] = []
    subscriber.put = mailbox.put = bounded


@scene
async def answers_longer_than_the_mailbox_lose_nothing() -> None:
    """Though nothing may fail once: an answer of which something fits has not failed."""
    once = make_recovery(retries=0, timeout_ms=60_000)
    async with two_sessions() as (near, far, link):
        for layout in ("advanced", "plain"):
            async with (
                declare_reliable_subscriber(far, "k/*", layout=layout, recovery=once) as subscriber,
                declare_reliable_publisher(near, "k/a", layout=layout, history=500, **APART) as publisher,
            ):
                await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
                room_for(subscriber, 30)
                link.lose = lambda batch: b"#200;" not in batch
                for number in range(201):
                    publisher.put(say(number))
                assert numbers(await take(subscriber, 201)) == list(range(201))
                assert subscriber.statistics.missed == 0
                assert subscriber.statistics.queries >= 7
                assert subscriber._mailbox.refused > 0
                link.lose = lambda batch: False


@scene
async def a_sample_larger_than_the_mailbox_is_given_up() -> None:
    """Whatever is asked again, it finds no room."""
    missed: list[Any] = []
    few = make_recovery(deadline_ms=1_000, timeout_ms=60_000)
    async with (
        two_sessions() as (near, far, link),
        declare_reliable_subscriber(
            far, "k/*", queue_bytes_max=1 << 20, recovery=few, on_missed=missed.append
        ) as subscriber,
        declare_reliable_publisher(near, "k/a", history=9, **APART) as publisher,
    ):
        await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
        link.lose = loses(1)  # what is next would pass without the mailbox
        for payload in (b"0", b"#1;", bytes(2 << 20), b"3"):
            publisher.put(payload)
        assert numbers(await take(subscriber, 3)) == [0, 1, 3]
        assert [(one.first, one.last) for one in missed] == [(2, 2)]
        assert subscriber.statistics.bad_ends > 3

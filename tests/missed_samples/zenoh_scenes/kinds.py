"""Kinds and properties of samples; caches, sources and sessions."""

# ruff: noqa: SIM117 (the network outlives what is in it)

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import zenoh
import zenoh.ext
from waiting import until_async
from zenoh.handlers import Callback

from statemachines.drivers.missed_samples import (
    History,
    LoopThread,
    Recovery,
    declare_reliability_cache,
    declare_reliable_publisher,
    declare_reliable_subscriber,
    session_config,
)
from statemachines.drivers.missed_samples.layout import layout_of
from statemachines.kernel import LocalProtocolError
from zenoh_scenes.scene import APART, SURE, can_ask, loses, numbers, refuses, say, scene, take, two_sessions

EACH, THREADS = 200, 8


async def everything_is_kept(layout: str) -> None:
    """By the publisher's own cache, and by one elsewhere that answers when the publisher is dead."""
    async with two_sessions() as (near, far, link):
        async with declare_reliability_cache(near, "k/**", history=50, layout=layout) as cache:
            async with declare_reliable_publisher(near, "k/a", layout=layout, history=50, **APART) as publisher:
                async with declare_reliable_subscriber(far, "k/*", layout=layout) as subscriber:
                    await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
                    link.lose = loses(1, 2, 3)
                    stamp = near.new_timestamp()
                    publisher.put(say(0))
                    publisher.put(b"\x00#1;\xff", encoding="application/json", attachment=b"one", timestamp=stamp)
                    publisher.delete(attachment="#2;")
                    publisher.put(say(3))
                    publisher.put(say(4))
                    got = await take(subscriber, 5)
                    assert link.lost == 3
                    check_kept(got, stamp)
                    assert [one.recovered for one in got][:4] == [False, True, True, True]
                await until_async(lambda: cache.statistics.samples == 5)
            await until_async(
                can_ask(far, layout_of(layout).query_key(publisher.source, "k/a")), "the way to the cache"
            )
            async with declare_reliable_subscriber(far, "k/*", layout=layout, history=History()) as late:
                await until_async(lambda: late.statistics.queries == 1)
                got = await take(late, 5)
                check_kept(got, stamp)
                assert all(one.recovered for one in got)


def check_kept(got: list[Any], stamp: zenoh.Timestamp) -> None:
    assert numbers(got) == list(range(5))
    assert got[1].payload.to_bytes() == b"\x00#1;\xff"
    assert got[1].encoding == zenoh.Encoding("application/json")
    assert got[1].attachment == b"one"
    assert got[1].timestamp == stamp
    assert [one.kind for one in got] == [zenoh.SampleKind.PUT] * 2 + [zenoh.SampleKind.DELETE] + [
        zenoh.SampleKind.PUT
    ] * 2
    assert got[2].attachment == b"#2;"
    assert got[3].attachment is None
    assert all(one.priority == zenoh.Priority.DATA_HIGH for one in got)
    assert {one.key_expr for one in got} == {"k/a"}
    assert all(one.timestamp is not None for one in got)


@scene
async def kinds_and_properties_are_kept() -> None:
    await everything_is_kept("advanced")
    await everything_is_kept("plain")


@scene
async def two_publishers_of_one_session_and_nobody() -> None:
    async with (
        two_sessions() as (near, far, _),
        declare_reliable_subscriber(far, "k/*") as subscriber,
        declare_reliable_publisher(near, "k/a", with_cache=False, **SURE) as one,
        declare_reliable_publisher(near, "k/a", with_cache=False, **SURE) as other,
    ):
        await until_async(lambda: one.is_heard and other.is_heard and len(subscriber.sources) == 2)
        assert one.cache_statistics is None
        one.put("1")
        other.put("2")
        near.put("k/b", "nobody's", **SURE)
        got = {(sample.source, sample.number, sample.payload.to_string()) for sample in await take(subscriber, 3)}
        assert got == {(one.source, 0, "1"), (other.source, 0, "2"), ("", -1, "nobody's")}
        assert subscriber.statistics.unnumbered == 1


@scene
async def one_source_too_many_is_turned_away() -> None:
    async with (
        two_sessions() as (near, far, _),
        declare_reliable_subscriber(far, "k/*", recovery=Recovery(sources=1), detect_publishers=False) as subscriber,
        declare_reliable_publisher(near, "k/a") as known,
        declare_reliable_publisher(near, "k/b") as stranger,
    ):
        await until_async(lambda: subscriber.sources, "the way", meanwhile=lambda: known.put("here"))
        await until_async(lambda: subscriber.statistics.turned_away, meanwhile=lambda: stranger.put("me too"))
        last = known.put("the last")
        got = await take(subscriber, 1)
        while got[-1].number != last:
            got += await take(subscriber, 1)
        assert {one.source for one in got} == {known.source}
        assert subscriber.sources == (known.source,)
        assert subscriber.held_samples == 0


@scene
async def a_local_cache_keeps_what_its_session_publishes() -> None:
    async with two_sessions() as (near, far, _):
        local = zenoh.Locality.SESSION_LOCAL
        async with (
            declare_reliability_cache(near, "k/*", history=9, allowed_origin=local) as cache,
            declare_reliability_cache(near, "k/*", history=9) as any_,
            declare_reliable_publisher(near, "k/a", with_cache=False, **SURE) as here,
            declare_reliable_publisher(far, "k/a", with_cache=False) as there,
            declare_reliability_cache(near, "k/*", history=9, prefix=here.source) as own,
        ):
            await until_async(lambda: here.is_heard and there.is_heard)
            here.put("1")
            near.put("k/a", "nobody's", **SURE)
            await until_async(lambda: any_.statistics.kept >= 2, meanwhile=lambda: there.put("2"))
            await until_async(lambda: cache.statistics.unnumbered == 1)
            assert cache.statistics.kept == own.statistics.kept == 1


@scene
async def a_publisher_without_a_loop_is_for_any_thread() -> None:
    """Also for a callback that is called while it publishes; and the process ends though nobody undeclares by hand."""
    order: list[int] = []

    def hear(sample: zenoh.Sample) -> None:
        order.append(sample.source_info.source_sn)
        assert order != [0] or publisher.put("within the put of 0") == 1

    with zenoh.open(session_config()) as session, LoopThread() as thread:
        subscriber = thread.enter(declare_reliable_subscriber(session, "k/a"))
        publisher = declare_reliable_publisher(session, "k/a", history=EACH)
        with refuses(LocalProtocolError, "nothing is published on k/a but within `with`"):
            publisher.put("too early")
        with publisher, session.declare_subscriber("k/a", Callback(hear, indirect=False)):
            assert publisher.put("x", encoding="text/plain") == 0
            with ThreadPoolExecutor(THREADS) as pool:
                said = list(pool.map(publisher.put, map(str, range(EACH * THREADS))))
            assert [0, 1, *sorted(said)] == order == list(range(2 + EACH * THREADS))
            assert publisher.cache_statistics.samples == EACH
            await until_async(lambda: subscriber.statistics.delivered == len(order))
        with refuses(LocalProtocolError, "[MS-35]"):
            publisher.put("too late")

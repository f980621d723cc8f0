"""Scenes over real zenoh, each run by `test_zenoh` in a process of its own:  python zenoh_scenes.py NAME"""

# ruff: noqa: SIM117 (the network outlives what is in it)

from __future__ import annotations

import asyncio
import logging
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest
import zenoh
import zenoh.ext
from zenoh.handlers import Callback

from statemachines.drivers.missed_samples import (
    Beats,
    History,
    LoopThread,
    Recovery,
    declare_reliability_cache,
    declare_reliable_publisher,
    declare_reliable_subscriber,
    session_config,
    zenoh_session,
)
from statemachines.drivers.missed_samples.attachment import Beat, End, Stamp, encode
from statemachines.drivers.missed_samples.layout import layout_of
from statemachines.drivers.missed_samples.session import is_matched
from statemachines.kernel import ConfigurationError
from statemachines.testing.missed_samples.lossy_link import LossyLink
from statemachines.testing.process_harness import free_port

WAIT_S = 40.0
"""On a busy machine what is certain to come comes late."""
SCENES: dict[str, Callable[[], Awaitable[None]]] = {}
SURE: dict[str, Any] = {"congestion_control": zenoh.CongestionControl.BLOCK}
"""zenoh loses nothing of its own accord, as it does where its few batches are full for a millisecond."""
APART: dict[str, Any] = {"priority": zenoh.Priority.DATA_HIGH, "express": True, **SURE}
"""Samples share no batch with replies, nor with each other."""
PATIENT = Recovery(retries=50, backoff_ms=20, backoff_max_ms=200)
"""For those who ask before the way to a cache is known again."""
BEATS: dict[str, Any] = {"heartbeat": Beats.PERIODIC, "heartbeat_period_s": 0.05}


def scene(function: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    SCENES[function.__name__] = function
    return function


# -- what scenes have in common -------------------------------------------------------------------------------------


async def until(holds: Callable[[], Any], what: str = "") -> None:
    """Wait for it, or fail."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"never came: {what or holds.__code__.co_consts}"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def two_sessions(lossy: bool = True) -> Any:
    """(near, far, link): two sessions with a link between that loses what it is told to."""
    port = free_port()
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(zenoh_session(listen=[f"tcp/127.0.0.1:{port}"]))
        thread = stack.enter_context(LoopThread())
        link = thread.enter(LossyLink(("127.0.0.1", port)))
        far = await stack.enter_async_context(zenoh_session(connect=[link.endpoint]))
        await until(lambda: far.info.transports(), "the link")
        link.call = thread.call
        yield near, far, link


def loses(*numbers: int) -> Callable[[bytes], bool]:
    words = [f"#{number};".encode() for number in numbers]
    return lambda batch: any(word in batch for word in words)


def say(number: int) -> str:
    return f"#{number};"


async def take(subscriber: Any, count: int) -> list[Any]:
    return [await asyncio.wait_for(anext(subscriber), WAIT_S) for _ in range(count)]


def numbers(samples: list[Any]) -> list[int]:
    return [one.number for one in samples]


async def put_until(publisher: zenoh.Publisher, number: int, heard: Callable[[], bool]) -> None:
    """Again and again: the first samples of a zenoh publisher may come before the way to its subscribers is known."""
    end = time.monotonic() + WAIT_S
    while not heard():
        assert time.monotonic() < end
        publisher.put(say(number), source_info=zenoh.SourceInfo(publisher.id, number))
        await asyncio.sleep(0.02)


def can_ask(session: zenoh.Session, key: str) -> Callable[[], bool]:
    """Whether a cache can be reached; the querier ends with its session."""
    querier = session.declare_querier(key)
    return lambda: is_matched(querier)


# -- ours with ours -------------------------------------------------------------------------------------------------


async def in_order(layout: str) -> None:
    async with two_sessions() as (near, far, link):
        options = {"layout": layout}
        async with (
            declare_reliable_subscriber(far, "k/*", **options) as subscriber,
            declare_reliable_publisher(near, "k/a", history=10, **options, **SURE) as publisher,
        ):
            await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            for number in range(200):
                assert publisher.put(say(number)) == number
            got = await take(subscriber, 200)
            assert [one.payload.to_string() for one in got] == [say(n) for n in range(200)]
            assert numbers(got) == list(range(200))
            assert {one.source for one in got} == {publisher.source}
            assert subscriber.statistics.queries == 0  # QUIET
            assert link.lost == 0
            assert publisher.cache_statistics.samples == 10


@scene
async def who_is_heard_is_known() -> None:
    """zenoh's own word for it is an object that is always true."""
    async with two_sessions() as (near, far, _), declare_reliable_publisher(near, "k/a", **SURE) as publisher:
        is_asked = can_ask(near, "z/a")
        assert (publisher.is_heard, is_asked()) == (False, False)
        async with declare_reliable_subscriber(far, "k/*"):
            await until(lambda: publisher.is_heard)
        await until(lambda: not publisher.is_heard)
        queryable = far.declare_queryable("z/*")
        await until(is_asked)
        queryable.undeclare()
        await until(lambda: not is_asked())


@scene
async def everything_in_order() -> None:
    await in_order("advanced")
    await in_order("plain")


async def one_gap(layout: str) -> None:
    async with (
        two_sessions() as (near, far, link),
        declare_reliable_subscriber(far, "k/*", layout=layout) as subscriber,
        declare_reliable_publisher(near, "k/a", layout=layout, history=100, **APART) as publisher,
    ):
        await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
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
        await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
        link.lose = loses(*lost)
        for number in range(600):
            publisher.put(say(number))
            if number % 20 == 0:
                await asyncio.sleep(0.002)
        got = await take(subscriber, 600)
        assert numbers(got) == list(range(600))
        assert link.lost > 100
        assert subscriber.statistics.recovered >= len(lost)
        assert subscriber.statistics.missed == 0
        assert subscriber.held == 0


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
            await until(lambda one=publisher, other=subscriber: one.is_heard and one.source in other.sources)
            publisher.put(say(0))
            assert numbers(await take(subscriber, 1)) == [0]
            link.lose = loses(1, 2)
            publisher.put(say(1))
            publisher.put(say(2))
            assert [(one.number, one.recovered) for one in await take(subscriber, 2)] == [(1, True), (2, True)]
        await until(lambda: by_query.statistics.queries > 2)  # it goes on asking
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
            await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            publisher.put(say(0))
            await take(subscriber, 1)
            link.lose = loses(1, 2)
            for number in (1, 2, 3):
                publisher.put(say(number))
            assert numbers(await take(subscriber, 1)) == [3]
            assert [(one.source, one.first, one.last) for one in missed] == [(publisher.source, 1, 2)]
            assert subscriber.statistics.missed == 2
            assert subscriber.statistics.queries == 1  # one reply convicts: the transport brings every reply


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
            await until(lambda: publisher.is_heard and all(publisher.source in one.sources for one in every))
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
                    await until(lambda one=publisher: one.is_heard and one.source in subscriber.sources)
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
                    await until(lambda one=publisher: one.is_heard and one.source in plain.sources)
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
            await until(lambda: cache.statistics.samples >= 5)


# -- kinds, caches, sessions ----------------------------------------------------------------------------------------


async def everything_is_kept(layout: str) -> None:
    """By the publisher's own cache, and by one elsewhere that answers when the publisher is dead."""
    async with two_sessions() as (near, far, link):
        async with declare_reliability_cache(near, "k/**", history=50, layout=layout) as cache:
            async with declare_reliable_publisher(near, "k/a", layout=layout, history=50, **APART) as publisher:
                async with declare_reliable_subscriber(far, "k/*", layout=layout) as subscriber:
                    await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
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
                await until(lambda: cache.statistics.samples == 5)
            await until(can_ask(far, layout_of(layout).query_key(publisher.source, "k/a")), "the way to the cache")
            async with declare_reliable_subscriber(far, "k/*", layout=layout, history=History()) as late:
                await until(lambda: late.statistics.queries == 1)
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
        await until(lambda: one.is_heard and other.is_heard and len(subscriber.sources) == 2)
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
        while not subscriber.sources:  # until the way is known
            known.put("here")
            await asyncio.sleep(0.02)
        while not subscriber.statistics.turned_away:
            stranger.put("me too")
            await asyncio.sleep(0.02)
        last = known.put("the last")
        got = await take(subscriber, 1)
        while got[-1].number != last:
            got += await take(subscriber, 1)
        assert {one.source for one in got} == {known.source}
        assert subscriber.sources == (known.source,)
        assert subscriber.held == 0


@scene
async def a_local_cache_keeps_what_its_session_publishes() -> None:
    async with two_sessions() as (near, far, _):
        local = zenoh.Locality.SESSION_LOCAL
        async with (
            declare_reliability_cache(near, "k/*", history=9, allowed_origin=local) as cache,
            declare_reliability_cache(near, "k/*", history=9) as any_,
            declare_reliable_publisher(near, "k/a", with_cache=False, **SURE) as here,
            declare_reliable_publisher(far, "k/a", with_cache=False) as there,
        ):
            await until(lambda: here.is_heard and there.is_heard)
            here.put("1")
            near.put("k/a", "nobody's", **SURE)
            while any_.statistics.kept < 2:
                there.put("2")
                await asyncio.sleep(0.02)
            await until(lambda: cache.statistics.unnumbered == 1)
            assert cache.statistics.kept == 1


@scene
async def a_thread_of_its_own() -> None:
    """For applications without a loop; and the process ends though nobody undeclares by hand."""

    def application() -> None:
        with zenoh.open(session_config()) as session, LoopThread() as thread:
            came = threading.Event()
            got: list[Any] = []

            def take_one(sample: Any) -> None:
                got.append((sample.number, threading.current_thread().name))
                came.set()

            thread.enter(declare_reliable_subscriber(session, "k/a", take_one))
            publisher = thread.enter(declare_reliable_publisher(session, "k/a"))
            assert thread.call(publisher.put, "x", encoding="text/plain") == 0
            assert came.wait(WAIT_S)
            assert got == [(0, "gapless-loop")]
            try:
                publisher.put("from another thread")
            except ConfigurationError as error:
                assert "LoopThread.call" in str(error)  # noqa: PT017
            else:
                raise AssertionError("it was taken")

    await asyncio.to_thread(application)


# -- faults ---------------------------------------------------------------------------------------------------------


@scene
async def the_link_is_cut() -> None:
    async with two_sessions() as (near, far, link):
        missed: list[Any] = []
        async with (
            declare_reliable_subscriber(far, "k/*", recovery=PATIENT, on_missed=missed.append) as subscriber,
            declare_reliable_publisher(near, "k/a", history=1_000, **BEATS) as publisher,
        ):
            await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            for number in range(10):
                publisher.put(say(number))
            assert numbers(await take(subscriber, 10)) == list(range(10))
            link.call(link.down)
            for number in range(10, 40):
                publisher.put(say(number))
                await asyncio.sleep(0.01)
            link.call(link.up)
            got = await take(subscriber, 30)
            assert numbers(got) == list(range(10, 40))
            assert not missed
            assert any(one.recovered for one in got)


@scene
async def the_link_is_cut_in_the_middle_of_an_answer() -> None:
    """zenoh ends the query without a word; that convicts nothing."""
    async with two_sessions() as (near, far, link):
        missed: list[Any] = []
        asked = threading.Event()
        held: list[zenoh.Query] = []

        def answer_one(query: zenoh.Query) -> None:
            held.append(query)
            asked.set()

        recovery = Recovery(retries=50, backoff_ms=20, backoff_max_ms=50)
        async with declare_reliable_subscriber(far, "k/*", recovery=recovery, on_missed=missed.append) as subscriber:
            entity = near.declare_publisher("k/a", **SURE)
            source = f"{entity.id.zid}/{entity.id.eid}"
            await until(lambda: is_matched(entity))
            queryable = near.declare_queryable(f"k/a/@adv/pub/{source}/_", Callback(answer_one, indirect=False))
            await until(can_ask(far, f"k/a/@adv/pub/{source}/_"))
            await put_until(entity, 0, lambda: subscriber.statistics.delivered == 1)
            entity.put(say(5), source_info=zenoh.SourceInfo(entity.id, 5))
            assert numbers(await take(subscriber, 1)) == [0]
            before = subscriber.statistics.duplicates
            await until(asked.is_set)
            held[0].reply("k/a", say(5), attachment=encode(Stamp(source, 5)))  # a reply of the source, and more to come
            await until(lambda: subscriber.statistics.duplicates > before)
            link.call(link.down)
            await until(lambda: subscriber.statistics.bad_ends == 1)
            assert not missed
            assert subscriber.held == 1
            queryable.undeclare()
            link.call(link.up)
            with held[0]:
                pass
            for query in held[1:]:
                with query:
                    pass


@contextmanager
def router(port: int) -> Any:
    """A router in a process of its own, which is killed."""
    command = [sys.executable, "-m", "statemachines", "node", "zenoh-router", "--listen", f"tcp/127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert b"listening" in process.stdout.readline()
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


@scene
async def the_router_is_killed_and_restarted() -> None:
    port = free_port()
    endpoint = f"tcp/127.0.0.1:{port}"
    missed: list[Any] = []
    async with AsyncExitStack() as stack:
        with router(port):
            near = await stack.enter_async_context(zenoh_session("client", connect=[endpoint]))
            far = await stack.enter_async_context(zenoh_session("client", connect=[endpoint]))
            publisher = await stack.enter_async_context(declare_reliable_publisher(near, "k/a", history=1_000, **BEATS))
            subscriber = await stack.enter_async_context(
                declare_reliable_subscriber(far, "k/*", recovery=PATIENT, on_missed=missed.append)
            )
            await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            for number in range(20):
                publisher.put(say(number))
            assert numbers(await take(subscriber, 20)) == list(range(20))
        for number in range(20, 40):
            publisher.put(say(number))
        with router(port):
            got = await take(subscriber, 20)
            assert numbers(got) == list(range(20, 40))
            assert all(one.recovered for one in got)
            assert not missed


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
                await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)

                def burst() -> None:
                    for number in range(count):
                        publisher.put(say(number))

                thread = threading.Thread(target=other.call, args=(burst,))
                thread.start()
                end = time.monotonic() + WAIT_S
                while not subscriber._mailbox.refused:  # the loop is blocked until something finds no room
                    assert time.monotonic() < end
                    time.sleep(0.01)
                await asyncio.to_thread(thread.join)
                await until(lambda: len(got) >= count)
            assert got == list(range(count))
            assert subscriber.statistics.missed == 0
            assert subscriber.statistics.overflowed > 0


@scene
async def a_slow_reader_loses_nothing_for_good() -> None:
    async with two_sessions() as (near, far, _):
        async with (
            declare_reliable_subscriber(far, "k/*", waiting_max=10, queue_max=400) as subscriber,
            declare_reliable_publisher(near, "k/a", history=5_000, **BEATS) as publisher,
        ):
            await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            count = 0
            while not subscriber._mailbox.refused:
                assert count < 5_000, "the mailbox is never full"
                publisher.put(say(count))
                count += 1
                await asyncio.sleep(0.001 if count % 50 == 0 else 0)
            assert numbers(await take(subscriber, count)) == list(range(count))
            assert subscriber.statistics.missed == 0


@scene
async def a_query_that_never_ends_delays_nobody() -> None:
    async with two_sessions() as (near, far, link):
        stuck: list[zenoh.Query] = []
        missed: list[Any] = []
        recovery = Recovery(retries=0, timeout_ms=60_000)
        async with (
            declare_reliable_subscriber(far, "k/*", recovery=recovery, on_missed=missed.append) as subscriber,
            declare_reliable_publisher(near, "k/b", history=9, **APART) as publisher,
        ):
            entity = near.declare_publisher("k/a", **SURE)
            source = f"{entity.id.zid}/{entity.id.eid}"
            queryable = near.declare_queryable(f"k/a/@adv/pub/{source}/_", Callback(stuck.append, indirect=False))
            await until(can_ask(far, f"k/a/@adv/pub/{source}/_"))
            await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            await put_until(entity, 0, lambda: subscriber.statistics.delivered == 1)
            entity.put(say(2), source_info=zenoh.SourceInfo(entity.id, 2))
            await until(lambda: stuck)
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
        recovery = Recovery(retries=1, timeout_ms=200, backoff_ms=1, backoff_max_ms=1)
        async with declare_reliable_subscriber(far, "k/*", recovery=recovery, on_missed=missed.append) as subscriber:
            entity = near.declare_publisher("k/a", **SURE)
            source = f"{entity.id.zid}/{entity.id.eid}"
            queryable = near.declare_queryable(f"k/a/@adv/pub/{source}/_", Callback(stuck.append, indirect=False))
            await until(can_ask(far, f"k/a/@adv/pub/{source}/_"))
            await put_until(entity, 0, lambda: subscriber.statistics.delivered == 1)
            entity.put(say(2), source_info=zenoh.SourceInfo(entity.id, 2))
            assert numbers(await take(subscriber, 2)) == [0, 2]
            assert [(one.source, one.first, one.last) for one in missed] == [(source, 1, 1)]
            assert subscriber.statistics.queries == subscriber.statistics.bad_ends == 2
            queryable.undeclare()
            for query in stuck:
                with query:
                    pass


def room_for(subscriber: Any, replies: int) -> None:
    """Of each answer, from now on, so many replies find room, and no more."""
    mailbox, put, seen = subscriber._mailbox, subscriber._mailbox.put, Counter[int]()
    room = mailbox._count_max

    def bounded(item: Any, size: int = 0, *, always: bool = False) -> bool:
        if item[0] == subscriber._hear_reply:
            seen[id(item[1][0])] += 1
            kept.append(item[1][0])  # so that its id is nobody else's
            mailbox._count_max = room if seen[id(item[1][0])] <= replies else 0
        taken: bool = put(item, size, always=always)
        mailbox._count_max = room
        return taken

    kept: list[Any] = []
    mailbox.put = bounded


@scene
async def answers_longer_than_the_mailbox_lose_nothing() -> None:
    """Though nothing is asked twice: what does not fit is asked for within the same query."""
    once = Recovery(retries=0, timeout_ms=60_000)
    async with two_sessions() as (near, far, link):
        for layout in ("advanced", "plain"):
            async with (
                declare_reliable_subscriber(far, "k/*", layout=layout, recovery=once) as subscriber,
                declare_reliable_publisher(near, "k/a", layout=layout, history=500, **APART) as publisher,
            ):
                await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
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
    few = Recovery(retries=2, timeout_ms=60_000, backoff_ms=1, backoff_max_ms=1)
    async with (
        two_sessions() as (near, far, _),
        declare_reliable_subscriber(
            far, "k/*", queue_bytes_max=1 << 20, recovery=few, on_missed=missed.append
        ) as subscriber,
        declare_reliable_publisher(near, "k/a", history=9, **APART) as publisher,
    ):
        await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
        for payload in (b"0", bytes(2 << 20), b"2"):
            publisher.put(payload)
        assert numbers(await take(subscriber, 2)) == [0, 2]
        assert [(one.first, one.last) for one in missed] == [(1, 1)]
        assert subscriber.statistics.queries == subscriber.statistics.bad_ends == 3


# -- strangers ------------------------------------------------------------------------------------------------------


async def ask(session: zenoh.Session, selector: str, **options: Any) -> list[Any]:
    """Every reply to a query of a stranger's: the payload, or the words of an error."""
    loop, over, found = asyncio.get_running_loop(), asyncio.Event(), []

    def replied(reply: zenoh.Reply) -> None:
        found.append(reply.ok.payload.to_string() if reply.ok is not None else reply.err.payload.to_string())

    def ended() -> None:
        loop.call_soon_threadsafe(over.set)

    anyone = {
        "accept_replies": zenoh.ReplyKeyExpr.ANY,
        "target": zenoh.QueryTarget.ALL,
        "timeout": 5.0,
        "consolidation": zenoh.ConsolidationMode.NONE,
    }
    session.get(selector, Callback(replied, ended, indirect=False), **(anyone | options))
    await asyncio.wait_for(over.wait(), WAIT_S)
    return found


async def until_answered(session: zenoh.Session, source: str) -> None:
    """A query may come before the way to a cache is known, and is answered by nobody then."""
    while await ask(session, f"k/a/@adv/*/{source}/**?_gapless=1") == []:
        await asyncio.sleep(0.02)


@scene
async def malformed_queries_are_refused() -> None:
    async with two_sessions() as (near, far, _), declare_reliable_publisher(near, "k/a", history=9) as publisher:
        key = f"k/a/@adv/*/{publisher.source}/**"
        publisher.put("x")
        await until_answered(far, publisher.source)
        for parameters in ("_sn=z", "_sn=3..1", "_sn=-1..", f"_sn={2**32}", "_max=many", "_max=-1", "_time=x",
                           "_time=[now(1x)..]", "_sn=1;_sn=2", "_sn=" + "9" * 5_000):  # fmt: skip
            replies = await ask(far, f"{key}?{parameters};_gapless=1")
            assert len(replies) == 1, (parameters, replies)
            assert "expected" in replies[0]
        assert publisher.cache_statistics.refused == 10
        assert "accept_replies" in (await ask(far, key, accept_replies=zenoh.ReplyKeyExpr.MATCHING_QUERY))[0]
        assert "expected" in (await ask(far, "**/@adv/**/_"))[0]
        assert (await ask(far, f"{key}?_sn=0..;_gapless=1"))[0] == "x"


@scene
async def what_strangers_say_does_no_harm() -> None:
    async with (
        two_sessions() as (near, far, _),
        declare_reliable_subscriber(far, "k/*") as subscriber,
        declare_reliable_subscriber(far, "k/*", layout="plain") as plain,
        declare_reliability_cache(far, "k/*", history=5, layout="plain") as cache,
        declare_reliable_publisher(near, "k/a", history=9, **APART) as publisher,
    ):
        await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
        beats = f"k/a/@adv/pub/{publisher.source}/_"
        while not subscriber.statistics.malformed:  # until the way is known
            near.put(beats, b"")
            await asyncio.sleep(0.02)
        before = subscriber.statistics.malformed
        for payload in (b"123", b"12345", bytes(100_000)):
            near.put(beats, payload, **SURE)  # heartbeats that are none
        near.put("k/a/@adv/pub/zz/1/_", b"1234", **SURE)
        near.put("k/a/@adv/pub/1/99999999999/_", b"1234", **SURE)
        token = near.liveliness().declare_token("k/a/@adv/pub/no/_")
        await until(lambda: subscriber.statistics.malformed >= before + 6)
        while not cache.statistics.unnumbered or not plain.statistics.unnumbered:
            near.put("k/b", "ways", attachment=b"")
            await asyncio.sleep(0.02)
        for attachment in (b"\xb6GL1", b"\xb6GL1\xff\xff", b"\xb6GL1" + bytes(2 << 20),
                           b"\xb6GL1\x93\xa5stamp\xa1x\xff",
                           encode(Stamp("a b", 1)), encode(Stamp("x", 2**64 - 1)) + b"more"):  # fmt: skip
            near.put("k/b", "strange", attachment=attachment, **SURE)
        near.put("x/k/a", "", attachment=encode(Beat("x/y", 1)), **SURE)
        await until(lambda: plain.statistics.malformed >= 7)
        await until(lambda: cache.statistics.malformed >= 6)
        near.put("k/c", "hello", attachment=encode(End(3)), **SURE)
        publisher.put(say(0))
        got: list[Any] = []
        while not {"hello", say(0)} <= {one.payload.to_string() for one in got}:  # the publisher's may overtake
            got += await take(subscriber, 1)
        assert {one.number for one in got} == {-1, 0}
        heard: list[str] = []
        while "hello" not in heard:
            heard += [one.payload.to_string() for one in await take(plain, 1)]
        assert "strange" not in heard
        token.undeclare()


@scene
async def nobody_takes_the_id_of_a_publisher_that_lives() -> None:
    """And who begins anew under its old id is not heard, which is said."""
    said: list[str] = []
    watch = logging.Handler()
    watch.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gapless").addHandler(watch)
    named: dict[str, Any] = {"layout": "plain", "source": "prices", **SURE}
    async with two_sessions() as (near, far, _), declare_reliable_subscriber(far, "k/*", layout="plain") as subscriber:
        async with declare_reliable_publisher(near, "k/a", **named) as first:
            await until(lambda: first.is_heard and subscriber.sources == ("prices",))
            for number in range(5):
                first.put(say(number))
            assert numbers(await take(subscriber, 5)) == [0, 1, 2, 3, 4]
            for session in (near, far):
                with pytest.raises(ConfigurationError, match="an id of its own"):
                    async with declare_reliable_publisher(session, "k/a", **named):
                        pass
            async with declare_reliable_publisher(near, "k/b", **{**named, "source": "others"}):
                pass
        async with declare_reliable_publisher(near, "k/a", **named) as again:
            await until(lambda: again.is_heard)
            for number in range(3):
                again.put(say(number))
            await until(lambda: subscriber.statistics.repeated == 3)
            assert 1 <= len(said) <= 2  # as they came, one by one or together
            assert all("begun anew under its own" in one for one in said)
        async with declare_reliable_publisher(near, "k/a", **named, next=5) as later:
            await until(lambda: later.is_heard)
            later.put(say(5))
            assert numbers(await take(subscriber, 1)) == [5]


@scene
async def a_callback_that_raises_each_time_does_not_fill_the_log() -> None:
    said: list[str] = []
    watch = logging.Handler()
    watch.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gapless").addHandler(watch)

    def fail(sample: Any) -> None:
        raise RuntimeError

    async with two_sessions() as (near, far, _), declare_reliable_subscriber(far, "k/*", fail) as subscriber:
        async with declare_reliable_publisher(near, "k/a", **SURE) as publisher:
            await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            for number in range(9):
                publisher.put(say(number))
            await until(lambda: subscriber.statistics.failed == 9)
    assert said == [f"a callback raised, {count} times so far" for count in (1, 2, 4, 8)]


@scene
async def replies_of_strangers_are_counted() -> None:
    async with two_sessions() as (near, far, link):
        missed: list[Any] = []

        async with (
            declare_reliable_publisher(near, "k/a", history=9, **APART) as publisher,
            declare_reliable_subscriber(far, "k/*", on_missed=missed.append) as subscriber,
        ):

            def lie(query: zenoh.Query) -> None:
                with query:
                    query.reply("k/a", "no attachment")
                    query.reply("k/a", "of another", attachment=encode(Stamp("abc/1", 1)))
                    query.reply("z/a", "under another key", attachment=encode(Stamp(publisher.source, 1)))
                    query.reply("k/a", "malformed", attachment=b"\xb6GL1\x00")
                    query.reply("k/a", "beyond the wire", attachment=encode(Stamp(publisher.source, 2**40)))

            queryable = near.declare_queryable("k/a/@adv/**", Callback(lie, indirect=False))
            await until(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            link.lose = loses(1)
            for number in range(3):
                publisher.put(say(number))
            got = await take(subscriber, 3)
            assert [(one.number, one.payload.to_string()) for one in got] == [(n, say(n)) for n in range(3)]
            await until(lambda: subscriber.statistics.strange >= 3)
            await until(lambda: subscriber.statistics.malformed >= 2)
            assert not missed
            queryable.undeclare()


@scene
async def ten_megabytes() -> None:
    async with two_sessions() as (near, far, _):
        block = {"congestion_control": zenoh.CongestionControl.BLOCK}
        async with (
            declare_reliable_subscriber(far, "k/*", queue_bytes_max=1 << 20) as small,
            declare_reliable_subscriber(far, "k/*") as large,
            declare_reliable_publisher(near, "k/a", history=9, bytes_max=25 << 20, **block) as publisher,
        ):
            await until(lambda: publisher.is_heard and publisher.source in large.sources)
            await until(lambda: publisher.source in small.sources)
            for _ in range(3):
                publisher.put(bytes(10 << 20))
            got = await take(large, 3)
            assert [(one.number, len(one.payload)) for one in got] == [(n, 10 << 20) for n in range(3)]
            await until(lambda: small._mailbox.refused == 3)
            assert publisher.cache_statistics.samples == 2  # no more bytes than it may
            assert publisher.cache_statistics.pushed_out == 1
            assert publisher.cache_statistics.bytes <= 25 << 20


# -- zenoh's own publishers and subscribers -------------------------------------------------------------------------


def real_publisher(session: zenoh.Session, key: str, depth: int) -> Any:
    return zenoh.ext.declare_advanced_publisher(
        session, key, cache=zenoh.ext.CacheConfig(depth), publisher_detection=True,
        sample_miss_detection=zenoh.ext.MissDetectionConfig(heartbeat=0.05, sporadic_heartbeat=None), **APART,
    )  # fmt: skip


@scene
async def ours_on_a_real_publisher() -> None:
    chance = random.Random(11)
    lost = {number for number in range(300) if chance.random() < 0.3} | {0, 299}
    async with two_sessions() as (near, far, link), declare_reliable_subscriber(far, "k/*") as subscriber:
        publisher = real_publisher(near, "k/a", 1_000)
        source = f"{publisher.id.zid}/{publisher.id.eid}"
        await until(lambda: source in subscriber.sources)
        link.lose = loses(*lost)
        for number in range(300):
            publisher.put(say(number), attachment=b"mine")
            if number % 20 == 0:
                await asyncio.sleep(0.002)
        got = await take(subscriber, 300)
        assert [one.payload.to_string() for one in got] == [say(n) for n in range(300)]
        assert {one.source for one in got} == {source}
        assert {one.attachment for one in got} == {b"mine"}
        assert subscriber.statistics.recovered >= len(lost)
        assert subscriber.statistics.missed == 0
        publisher.delete()
        (last,) = await take(subscriber, 1)
        assert last.kind == zenoh.SampleKind.DELETE
        async with declare_reliable_subscriber(far, "k/*", history=History(newest=5)) as late:
            assert numbers(await take(late, 5)) == list(range(296, 301))
        publisher.undeclare()


@scene
async def an_answer_of_a_real_publisher_that_finds_no_room_convicts_nothing() -> None:
    async with two_sessions() as (near, far, link):
        async with declare_reliable_subscriber(far, "k/*", waiting_max=10) as subscriber:
            publisher = real_publisher(near, "k/a", 1_000)
            source = f"{publisher.id.zid}/{publisher.id.eid}"
            await until(lambda: source in subscriber.sources)
            publisher.put(say(0))
            assert numbers(await take(subscriber, 1)) == [0]
            link.lose = lambda batch: b"#600;" not in batch
            room_for(subscriber, 100)
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
            await until(lambda: publisher.is_heard)
            publisher.put("x")
            await until(lambda: publisher.statistics.heartbeats > 2)
            publisher.put("y")
            assert numbers(await take(subscriber, 2)) == [0, 1]
            assert subscriber.statistics.unnumbered == 0


@scene
async def a_real_publisher_has_lost_what_its_cache_has_not() -> None:
    async with two_sessions() as (near, far, link):
        missed: list[Any] = []
        async with declare_reliable_subscriber(far, "k/*", on_missed=missed.append) as subscriber:
            publisher = real_publisher(near, "k/a", 2)
            source = f"{publisher.id.zid}/{publisher.id.eid}"
            await until(lambda: source in subscriber.sources)
            publisher.put(say(0))
            await take(subscriber, 1)
            link.lose = loses(*range(1, 9))
            for number in range(1, 10):
                publisher.put(say(number))
            assert numbers(await take(subscriber, 2)) == [8, 9]
            assert [(one.source, one.first, one.last) for one in missed] == [(source, 1, 7)]
            publisher.undeclare()


@scene
async def a_real_subscriber_on_ours() -> None:
    """What is put again arrives here, since nothing is lost but what the link is told to."""
    async with two_sessions() as (near, far, link):
        async with declare_reliable_publisher(near, "k/a", history=100, **APART, **BEATS) as publisher:
            for number in range(3):
                publisher.put(say(number))
            await until_answered(far, publisher.source)
            await until(lambda: publisher.cache_statistics.replies == 3)  # counted once they are sent
            got: list[Any] = []
            misses: list[int] = []
            subscriber = zenoh.ext.declare_advanced_subscriber(
                far, "k/*", got.append,
                history=zenoh.ext.HistoryConfig(detect_late_publishers=True),
                recovery=zenoh.ext.RecoveryConfig(heartbeat=True, periodic_queries=None),
            )  # fmt: skip
            listener = subscriber.sample_miss_listener(lambda miss: misses.append(miss.nb))
            await until(lambda: publisher.is_heard and len(got) == 3, "history")
            once = {5, 6, 9}

            def lose(batch: bytes) -> bool:
                for number in tuple(once):
                    if f"#{number};".encode() in batch:
                        once.discard(number)
                        return True
                return False

            link.lose = lose
            for number in range(3, 9):
                publisher.put(say(number), encoding="text/plain", attachment=b"a")
            publisher.delete(attachment="#9;")
            await until(lambda: len(got) == 10, "what was lost")
            assert [one.source_info.source_sn for one in got] == list(range(10))
            assert [one.payload.to_string() for one in got[:9]] == [say(n) for n in range(9)]
            assert {str(one.encoding) for one in got[3:9]} == {"text/plain"}
            assert {one.attachment.to_bytes() for one in got[3:9]} == {b"a"}
            assert got[9].kind == zenoh.SampleKind.DELETE
            assert link.lost == 3
            assert misses == []
            await until(lambda: publisher.cache_statistics.put_again >= 6)
            assert publisher.cache_statistics.replies == 3
            listener.undeclare()
            subscriber.undeclare()


@scene
async def a_real_subscriber_on_a_cache_of_ours() -> None:
    """The publisher is dead; the cache puts its samples again."""
    async with two_sessions() as (near, far, _), declare_reliability_cache(near, "k/**", history=9) as cache:
        async with declare_reliable_publisher(near, "k/a", with_cache=False, token=False, **SURE) as publisher:
            for number in range(3):
                publisher.put(say(number))
            await until(lambda: cache.statistics.kept == 3)
        await until(can_ask(far, "k/a/@adv/**"))
        got: list[Any] = []
        subscriber = zenoh.ext.declare_advanced_subscriber(
            far, "k/*", got.append, history=zenoh.ext.HistoryConfig(max_samples=2),
        )  # fmt: skip
        await until(lambda: len(got) == 2)
        assert [one.payload.to_string() for one in got] == [say(1), say(2)]
        subscriber.undeclare()


if __name__ == "__main__":
    try:
        asyncio.run(SCENES[sys.argv[1]]())
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    print("held")

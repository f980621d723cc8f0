"""The interface of gapless.zenoh, and many threads: handlers that do everything but return."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import ExitStack
from typing import Any

import zenoh
import zenoh.ext
from waiting import HANG_S, until, until_async
from zenoh.handlers import Callback

import gapless.zenoh
from gapless.zenoh import declare_publisher, declare_subscriber
from statemachines.drivers.missed_samples import declare_reliable_subscriber, session_config
from statemachines.kernel import ConfigurationError
from zenoh_scenes.scene import SURE, numbers, put_until, refuses, say, scene, take, two_sessions

SIZE = 1_000
KEEPS: dict[str, Any] = {
    "cache": gapless.zenoh.CacheConfig(10_000),
    "sample_miss_detection": gapless.zenoh.MissDetectionConfig(heartbeat=0.05),
}


def payloads(samples: Any) -> list[str]:
    return [one.payload.to_string() for one in samples]


@scene
async def a_program_without_a_loop() -> None:
    """It uses them as zenoh's own, and ends though nobody undeclares by hand."""
    await asyncio.to_thread(use_as_zenohs_own)
    session = zenoh.open(session_config())
    async with declare_subscriber(session, "k/a") as subscriber:
        waiting = asyncio.ensure_future(anext(subscriber))
        declare_publisher(session, "k/a", cache=None).put("1")
        assert (await waiting).payload.to_string() == "1"
    declare_subscriber(session, "k/b", print)


def use_as_zenohs_own() -> None:
    data = zenoh.Priority.DATA
    with zenoh.open(session_config()) as session, declare_publisher(session, "k/a", priority=data) as one:
        got: list[Any] = []
        dropped: list[bool] = []
        drop = Callback(got.append, lambda: dropped.append(True), indirect=False)
        with ExitStack() as stack:
            handlers = (None, gapless.zenoh.RingChannel(2), got.append, drop, (got.append, "kept"))
            fifo, ring, *_, pair = (
                stack.enter_context(declare_subscriber(session, "k/*", handler)) for handler in handlers
            )
            assert (pair.handler, one.priority, one.matching_status.matching) == ("kept", data, True)
            tokens = fifo.detect_publishers(history=True)
            assert str(tokens.recv().key_expr).endswith(f"{one.id.zid}/{one.id.eid}/_")
            tokens.undeclare()
            for number in range(3):
                one.put(say(number), encoding="text/plain")
            one.delete()
            until(lambda: len(got) == 12, lambda: got)
            assert [sample.number for _, sample in zip(range(4), fifo, strict=False)] == [0, 1, 2, 3]
            assert (fifo.try_recv(), payloads([ring.recv(), ring.recv()])) == (None, [say(2), ""])
            assert sorted(sample.number for sample in got) == [number for number in range(4) for _ in range(3)]
        assert dropped == [True]
        with refuses(zenoh.ZError, "undeclared"):
            fifo.recv()
        for name, declare in (
            ("recovery", lambda own: declare_subscriber(session, "k", recovery=own.RecoveryConfig(heartbeat=True))),
            ("history", lambda own: declare_subscriber(session, "k", history=own.HistoryConfig(max_samples=1))),
            ("cache", lambda own: declare_publisher(session, "k", cache=own.CacheConfig(1))),
        ):
            with refuses(ConfigurationError, f"{name} = "):
                declare(zenoh.ext)
            declare(gapless.zenoh).undeclare()


@scene
async def what_is_missed_is_heard_by_listeners() -> None:
    async with two_sessions() as (near, far, _):
        with declare_subscriber(far, "k/*") as subscriber, subscriber.sample_miss_listener() as listener:
            entity = near.declare_publisher("k/a", **SURE)
            await put_until(entity, 0, lambda: subscriber.statistics.delivered == 1)
            entity.put(say(4), source_info=zenoh.SourceInfo(entity.id, 4))
            miss = await anext(listener)
            assert (miss.source, miss.first, miss.last, miss.nb) == (f"{entity.id.zid}/{entity.id.eid}", 1, 3, 3)
        assert [sample.number for sample in subscriber] == [0, 4]


@scene
async def handlers_do_everything_but_return() -> None:
    """One blocks, one raises, one undeclares itself, one asks, one closes its session: others miss nothing."""
    async with two_sessions() as (near, far, _):
        own = zenoh.open(session_config())
        go, asked, got, again = threading.Event(), [], [], []

        def undeclare_itself(sample: Any) -> None:
            again.append(sample.number)
            subscribers["undeclares"].undeclare()

        def ask(sample: Any) -> None:
            asked.append(payloads(reply.ok for reply in far.get("z", timeout=HANG_S)))

        far.declare_queryable("z", lambda query: query.reply("z", "answer"))
        kinds = {
            "undeclares": undeclare_itself, "raises": lambda sample: 1 / 0, "asks": ask,
            "blocks": lambda sample: go.wait(HANG_S),
        }  # fmt: skip
        subscribers = {name: declare_subscriber(far, "k/*", handler) for name, handler in kinds.items()}
        direct = declare_subscriber(far, "k/*", Callback(lambda sample: got.append(sample.number), indirect=False))
        one = declare_publisher(near, "k/a", **SURE)
        await until_async(lambda: one.matching_status.matching and len(direct.sources) == 1)
        for number in range(SIZE):
            one.put(say(number))
        await until_async(lambda: len(got) == SIZE)
        go.set()
        await until_async(lambda: len(asked) == SIZE and subscribers["raises"].statistics.failed == SIZE)
        assert (got, again, asked[0]) == (list(range(SIZE)), [0], ["answer"])
        closing = declare_subscriber(own, "k/*", lambda sample: own.close())
        declare_publisher(own, "k/a", cache=None).put("x")
        await until_async(own.is_closed)
        for subscriber in (*subscribers.values(), direct, closing):
            subscriber.undeclare()


@scene
async def what_is_recovered_and_what_comes_meanwhile_keep_their_order() -> None:
    """Zenoh's thread delivers the one, the loop the other; several publishers put from threads of their own."""
    chance = random.Random(3)
    async with two_sessions() as (near, far, link):
        got: dict[str, list[int]] = {}
        hear = Callback(lambda sample: got.setdefault(sample.source, []).append(sample.number), indirect=False)
        recovery = gapless.zenoh.RecoveryConfig(heartbeat=True)
        with declare_subscriber(far, "k/*", hear, recovery=recovery), declare_subscriber(far, "k/*") as other:
            ours = [declare_publisher(near, f"k/{n}", **KEEPS, express=True, **SURE) for n in range(3)]
            await until_async(lambda: len(other.sources) == 3)
            link.lose = lambda batch: chance.random() < 0.1
            threads = [threading.Thread(target=lambda one=one: [one.put("x") for _ in range(SIZE)]) for one in ours]
            for thread in threads:
                thread.start()
            await until_async(
                lambda: sorted(map(len, got.values())) == [SIZE] * 3,
                lambda: {one: (len(all_), len(set(all_)), other.statistics, link.lost) for one, all_ in got.items()},
            )
            assert list(got.values()) == [list(range(SIZE))] * 3
            assert len(await take(other, 3 * SIZE)) == 3 * SIZE
            assert link.lost > 50
            for one in ours:
                one.undeclare()


@scene
async def flat_out_into_a_small_mailbox() -> None:
    async with (
        two_sessions() as (near, far, _),
        declare_reliable_subscriber(far, "k/*", queue_max=100, waiting_max=50) as subscriber,
        declare_publisher(near, "k/a", **KEEPS) as one,
    ):
        await until_async(lambda: subscriber.sources)
        for _ in range(3_000):
            one.put("x")
        assert numbers(await take(subscriber, 3_000)) == list(range(3_000))
        assert subscriber.statistics.missed == 0

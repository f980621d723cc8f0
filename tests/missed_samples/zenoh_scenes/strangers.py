"""What strangers say."""

# ruff: noqa: SIM117 (the network outlives what is in it)

from __future__ import annotations

import logging
from typing import Any

import zenoh
import zenoh.ext
from waiting import until_async
from zenoh.handlers import Callback

from statemachines.drivers.missed_samples import (
    declare_reliability_cache,
    declare_reliable_publisher,
    declare_reliable_subscriber,
)
from statemachines.drivers.missed_samples.attachment import BeatAttachment, EndAttachment, SampleAttachment, encode
from statemachines.kernel import ConfigurationError
from zenoh_scenes.scene import (
    APART,
    SURE,
    ask,
    loses,
    numbers,
    refuses,
    say,
    scene,
    take,
    two_sessions,
    until_answered,
)


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
        await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
        beats = f"k/a/@adv/pub/{publisher.source}/_"
        await until_async(lambda: subscriber.statistics.malformed, "the way", meanwhile=lambda: near.put(beats, b""))
        before = subscriber.statistics.malformed
        for payload in (b"123", b"12345", bytes(100_000)):
            near.put(beats, payload, **SURE)  # heartbeats that are none
        near.put("k/a/@adv/pub/zz/1/_", b"1234", **SURE)
        near.put("k/a/@adv/pub/1/99999999999/_", b"1234", **SURE)
        token = near.liveliness().declare_token("k/a/@adv/pub/no/_")
        await until_async(lambda: subscriber.statistics.malformed >= before + 6)
        await until_async(
            lambda: cache.statistics.unnumbered and plain.statistics.unnumbered,
            meanwhile=lambda: near.put("k/b", "ways", attachment=b""),
        )
        for attachment in (
            b"\xb6GL1",
            b"\xb6GL1\xff\xff",
            b"\xb6GL1" + bytes(2 << 20),
            b"\xb6GL1\x93\xa5stamp\xa1x\xff",
            encode(SampleAttachment("a b", 1)),
            encode(SampleAttachment("x", 2**64 - 1)) + b"more",
        ):
            near.put("k/b", "strange", attachment=attachment, **SURE)
        near.put("x/k/a", "", attachment=encode(BeatAttachment("x/y", 1)), **SURE)
        await until_async(lambda: plain.statistics.malformed >= 7)
        await until_async(lambda: cache.statistics.malformed >= 6)
        near.put("k/c", "hello", attachment=encode(EndAttachment(3)), **SURE)
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
async def nobody_takes_the_id_of_a_publisher_that_lives_and_one_that_begins_anew_is_heard() -> None:
    named: dict[str, Any] = {"layout": "plain", "source": "prices", **SURE}
    async with two_sessions() as (near, far, _), declare_reliable_subscriber(far, "k/*", layout="plain") as subscriber:
        lives = []
        for options in ({}, {}, {"next": 7}, {"next": 9}):  # two lives, and one of an application that counts
            async with declare_reliable_publisher(near, "k/a", **named, **options) as publisher:
                await until_async(lambda one=publisher: one.is_heard and one.source in subscriber.sources)
                token = f"{publisher.source}/k/a"
                await until_async(lambda key=token: any(one.ok for one in far.liveliness().get(key, timeout=1)))
                for session in (near, far):
                    with refuses(ConfigurationError, "an id of its own"):
                        declare_reliable_publisher(session, "k/a", **named, **options).open()
                async with declare_reliable_publisher(near, "k/a", **{**named, "source": "prices2"}):
                    pass
                began = publisher.put(say(0))
                publisher.put(say(1))
                got = await take(subscriber, 2)
                assert {one.source for one in got} == {publisher.source}
                assert numbers(got) == [began, began + 1]
            lives.append((publisher.source, began))
        assert len({one for one, _ in lives}) == 3
        assert lives[2:] == [("prices", 7), ("prices", 9)]


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
            await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            for number in range(9):
                publisher.put(say(number))
            await until_async(lambda: subscriber.statistics.failed == 9)
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
                    query.reply("k/a", "of another", attachment=encode(SampleAttachment("abc/1", 1)))
                    query.reply("z/a", "under another key", attachment=encode(SampleAttachment(publisher.source, 1)))
                    query.reply("k/a", "malformed", attachment=b"\xb6GL1\x00")
                    query.reply("k/a", "beyond the wire", attachment=encode(SampleAttachment(publisher.source, 2**40)))

            queryable = near.declare_queryable("k/a/@adv/**", Callback(lie, indirect=False))
            await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            link.lose = loses(1)
            for number in range(3):
                publisher.put(say(number))
            got = await take(subscriber, 3)
            assert [(one.number, one.payload.to_string()) for one in got] == [(n, say(n)) for n in range(3)]
            await until_async(lambda: subscriber.statistics.strange >= 3)
            await until_async(lambda: subscriber.statistics.malformed >= 2)
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
            await until_async(lambda: publisher.is_heard and publisher.source in large.sources)
            await until_async(lambda: publisher.source in small.sources)
            for _ in range(3):
                publisher.put(bytes(10 << 20))
            got = await take(large, 3)
            assert [(one.number, len(one.payload)) for one in got] == [(n, 10 << 20) for n in range(3)]
            await until_async(lambda: small._mailbox.refused >= 3)  # an answer to its first query may bring some, too
            assert publisher.cache_statistics.samples == 2  # no more bytes than it may
            assert publisher.cache_statistics.pushed_out == 1
            assert publisher.cache_statistics.bytes <= 25 << 20

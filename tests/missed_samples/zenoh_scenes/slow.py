"""Links that come back slow, publishers that number nothing or say nothing, sessions that are closed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import zenoh
import zenoh.ext
from waiting import turns, until_async

from statemachines.drivers.missed_samples import (
    History,
    Recovery,
    declare_reliable_publisher,
    declare_reliable_subscriber,
    session_config,
    zenoh_session,
)
from statemachines.drivers.missed_samples.attachment import SampleAttachment, encode
from statemachines.missed_samples.recovery import make_recovery
from statemachines.testing.fault_proxy import BOTH, DOWN, run_in_thread
from statemachines.testing.process_harness import free_port
from zenoh_scenes.scene import BEATS, SURE, can_ask, numbers, say, scene, take, two_sessions

PAYLOAD = "x" * 1_000
RATE = 100_000
HASTY = make_recovery(timeout_ms=500, retries=5)
"""An answer takes several times as long as a silence may last."""


@scene
async def a_link_that_was_cut_and_comes_back_slow_loses_nothing() -> None:
    port = free_port()
    async with zenoh_session(listen=[f"tcp/127.0.0.1:{port}"]) as near:
        with run_in_thread(("127.0.0.1", port)) as proxy:
            async with zenoh_session(connect=[f"tcp/127.0.0.1:{proxy.address[1]}"]) as far:
                missed: list[Any] = []
                receive = declare_reliable_subscriber(far, "k/*", recovery=HASTY, on_missed=missed.append)
                async with (
                    receive as subscriber,
                    declare_reliable_publisher(near, "k/a", history=1_000, **SURE, **BEATS) as publisher,
                ):
                    await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
                    publisher.put(PAYLOAD)
                    assert numbers(await take(subscriber, 1)) == [0]
                    proxy.block(BOTH)
                    proxy.cut()
                    await until_async(lambda: not near.info.transports())
                    for _ in range(200):
                        publisher.put(PAYLOAD)
                    proxy.throttle(DOWN, RATE)
                    proxy.unblock(BOTH)
                    got = await take(subscriber, 200)
                    assert numbers(got) == list(range(1, 201))
                    assert all(one.recovered for one in got)
                    assert not missed
                    receive = declare_reliable_subscriber(far, "k/*", recovery=HASTY, history=History(newest=100))
                    async with receive as late:
                        assert numbers(await take(late, 100)) == list(range(101, 201))


@scene
async def the_history_of_a_cache_that_numbers_nothing() -> None:
    """zenoh's advanced publishers with a cache alone; what has come by itself does not come again."""
    config = session_config()
    config.insert_json5("timestamping/enabled", "true")
    session = zenoh.open(config)
    publisher = zenoh.ext.declare_advanced_publisher(session, "k/a", cache=zenoh.ext.CacheConfig(10), **SURE)
    for number in range(3):
        publisher.put(say(number))
    async with declare_reliable_subscriber(session, "k/*", history=History()) as subscriber:
        got = await take(subscriber, 3)
        assert [one.payload.to_string() for one in got] == [say(number) for number in range(3)]
        assert {(one.source, one.number, one.recovered) for one in got} == {("", -1, True)}
        publisher.put(say(3))
        assert (await take(subscriber, 1))[0].payload.to_string() == say(3)
        assert (subscriber.statistics.strange, subscriber.statistics.unnumbered) == (0, 4)
        waiting = asyncio.ensure_future(anext(subscriber, None))
        await turns()
        publisher.undeclare()
        await asyncio.to_thread(session.close)
        assert await waiting is None, "nothing more comes, and nobody waits for it"


class Lines(logging.Handler):
    """What was logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        logging.getLogger("gapless").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@scene
async def who_is_known_by_its_token_alone_is_asked_and_one_forged_number_silences_nobody() -> None:
    log = Lines()
    async with two_sessions(lossy=False) as (near, far, _):
        plain: dict[str, Any] = {"layout": "plain", **SURE}
        receive = declare_reliable_subscriber(far, "k/*", layout="plain", recovery=Recovery(retries=1))
        async with receive as subscriber:
            unheard = declare_reliable_publisher(near, "k/a", source="p", next=0, history=10, token=False, **plain)
            async with unheard as publisher:
                await until_async(can_ask(far, "p/k/a"))
                far_key = "p/k/a"
                before = subscriber.statistics.delivered
                publisher._publisher.undeclare()  # what it puts from now on reaches nobody
                publisher._publisher = near.declare_publisher("elsewhere", **SURE)
                for number in range(3):
                    publisher.put(say(number))
                assert subscriber.statistics.delivered == before == 0
                token = near.liveliness().declare_token(far_key)
                assert numbers(await take(subscriber, 3)) == [0, 1, 2]
                assert subscriber.statistics.missed == 0
                near.put("k/a", "forged", attachment=encode(SampleAttachment("p", 1 << 62)), **SURE)
                for number in (3, 4, 6):
                    near.put("k/a", say(number), attachment=encode(SampleAttachment("p", number)), **SURE)
                assert numbers(await take(subscriber, 3)) == [3, 4, 6]
                assert (subscriber.statistics.missed, subscriber.statistics.doubted) == (1, 1)
                assert any("1 samples were missed so far" in line for line in log.lines), log.lines
                token.undeclare()

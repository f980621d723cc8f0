"""Links that are cut, routers that die."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import zenoh
import zenoh.ext
from waiting import pause_async, until_async
from zenoh.handlers import Callback

from statemachines.drivers.missed_samples import (
    History,
    declare_reliable_publisher,
    declare_reliable_subscriber,
    zenoh_session,
)
from statemachines.drivers.missed_samples.attachment import SampleAttachment, encode
from statemachines.drivers.missed_samples.session import is_matched
from statemachines.missed_samples.recovery import make_recovery
from statemachines.testing.process_harness import free_port
from zenoh_scenes.scene import (
    BEATS,
    PATIENT,
    SURE,
    can_ask,
    numbers,
    put_until,
    refuses,
    say,
    scene,
    take,
    two_sessions,
)


@scene
async def the_link_is_cut() -> None:
    async with two_sessions() as (near, far, link):
        missed: list[Any] = []
        async with (
            declare_reliable_subscriber(far, "k/*", recovery=PATIENT, on_missed=missed.append) as subscriber,
            declare_reliable_publisher(near, "k/a", history=1_000, **BEATS) as publisher,
        ):
            await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            for number in range(10):
                publisher.put(say(number))
            assert numbers(await take(subscriber, 10)) == list(range(10))
            link.call(link.down)
            for number in range(10, 40):
                publisher.put(say(number))
                await pause_async(0.01, "some go while the link is down, some later")
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

        recovery = make_recovery(retries=50, backoff_ms=20, backoff_max_ms=50)
        async with declare_reliable_subscriber(far, "k/*", recovery=recovery, on_missed=missed.append) as subscriber:
            entity = near.declare_publisher("k/a", **SURE)
            source = f"{entity.id.zid}/{entity.id.eid}"
            await until_async(lambda: is_matched(entity))
            queryable = near.declare_queryable(f"k/a/@adv/pub/{source}/_", Callback(answer_one, indirect=False))
            await until_async(can_ask(far, f"k/a/@adv/pub/{source}/_"))
            await put_until(entity, 0, lambda: subscriber.statistics.delivered == 1)
            entity.put(say(5), source_info=zenoh.SourceInfo(entity.id, 5))
            assert numbers(await take(subscriber, 1)) == [0]
            before = subscriber.statistics.duplicates
            await until_async(asked.is_set)
            held[0].reply(
                "k/a", say(5), attachment=encode(SampleAttachment(source, 5))
            )  # a reply of the source, and more to come
            await until_async(lambda: subscriber.statistics.duplicates > before)
            link.call(link.down)
            await until_async(lambda: subscriber.statistics.bad_ends >= 1)
            assert not missed
            assert subscriber.held_samples == 1
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
            await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
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


class Askless:
    """A session that cannot be asked anything, for a reason that zenoh does not have."""

    def __init__(self, session: zenoh.Session) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get(self, *_: Any, **__: Any) -> None:
        raise ValueError("no such option")


@scene
async def a_query_that_fails_for_an_unknown_reason_is_not_swallowed() -> None:
    """Whoever waits for samples learns why there will be none."""
    async with two_sessions(lossy=False) as (_, far, _link):
        receive = declare_reliable_subscriber(Askless(far), "k/*", history=History(newest=5))  # type: ignore[arg-type]
        async with receive as subscriber:
            for waiting in (anext(subscriber), subscriber.wait_for_failure()):
                with refuses(ValueError, "no such option"):
                    await waiting
            assert subscriber.statistics.malformed == 0

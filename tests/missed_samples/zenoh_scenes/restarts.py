"""A router that is restarted every second, and a process that is suspended."""

# ruff: noqa: SIM117 (the session outlives what is declared in it)

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Any

from waiting import pause_async, turns, until_async

from statemachines.drivers.missed_samples import (
    declare_reliable_publisher,
    declare_reliable_subscriber,
    zenoh_session,
)
from statemachines.testing.process_harness import free_port
from zenoh_scenes.links import router
from zenoh_scenes.scene import BEATS, PATIENT, numbers, say, scene, take

RESTARTS = 2
EACH = 25
"""So many samples are published while a router lives, and so many while there is none."""
MANY = 1_500


@scene
async def a_router_that_is_restarted_every_second_loses_nothing() -> None:
    port = free_port()
    missed: list[Any] = []
    async with AsyncExitStack() as stack:
        with router(port):
            ends = [
                await stack.enter_async_context(zenoh_session("client", connect=[f"tcp/127.0.0.1:{port}"]))
                for _ in range(2)
            ]
            publisher = await stack.enter_async_context(
                declare_reliable_publisher(ends[0], "k/a", history=1_000, **BEATS)
            )
            subscriber = await stack.enter_async_context(
                declare_reliable_subscriber(ends[1], "k/*", recovery=PATIENT, on_missed=missed.append)
            )
            await until_async(lambda: publisher.is_heard and publisher.source in subscriber.sources)
            await publish(publisher, EACH, over_s=0)
            assert numbers(await take(subscriber, EACH)) == list(range(EACH))
        for _ in range(RESTARTS):
            with router(port):
                await publish(publisher, EACH, over_s=1)
            await publish(publisher, EACH, over_s=0)
        with router(port):
            count = 2 * RESTARTS * EACH
            assert numbers(await take(subscriber, count)) == list(range(EACH, EACH + count))
            assert not missed


async def publish(publisher: Any, count: int, *, over_s: float) -> None:
    for _ in range(count):
        publisher.put(say(publisher.next_number))
        await pause_async(over_s / count, "the pace of the publisher")


@asynccontextmanager
async def reading(port: int) -> AsyncIterator[Process]:
    """A subscriber in a process of its own, which is there when it says so."""
    command = ("-m", "statemachines", "node", "zenoh-subscriber", "--key", "k/*", "--retries", "50")
    where = ("--mode", "peer", "--connect", f"tcp/127.0.0.1:{port}")
    with TemporaryDirectory() as folder:  # of its life
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, *where, stdout=PIPE, stderr=PIPE, cwd=folder
        )
        try:
            assert await line_of(process) == {"subscribed": "k/*"}
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            await process.communicate()


async def line_of(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(await process.stdout.readline())
    return found


@scene
async def who_is_suspended_gets_all_that_came_meanwhile() -> None:
    port = free_port()
    async with zenoh_session(listen=[f"tcp/127.0.0.1:{port}"]) as session:
        async with (
            declare_reliable_publisher(session, "k/a", history=5_000, **BEATS) as publisher,
            reading(port) as far,
        ):
            await until_async(lambda: publisher.is_heard)
            publisher.put(say(0))
            assert (await line_of(far))["number"] == 0
            far.send_signal(signal.SIGSTOP)
            for _ in range(MANY):  # more than fits on the way to who does not read: zenoh drops the rest
                publisher.put("x" * 10_000)
                await turns()
            far.send_signal(signal.SIGCONT)
            publisher.put(say(MANY + 1))
            for number in range(1, MANY + 2):
                line = await line_of(far)
                assert line.get("number") == number, line
            assert line["payload"] == say(MANY + 1)

"""Scenes of sequence windows over real zenoh: `test_sequenced_zenoh` plays each in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import zenoh
from scene_server import serve_scenes

from statemachines.drivers.missed_samples import LoopThread, zenoh_session
from statemachines.drivers.sequence_windows import Loss, Verdict
from statemachines.drivers.sequence_windows.datagram import encode
from statemachines.drivers.sequence_windows.zenoh import declare_sequenced_publisher, declare_sequenced_subscriber
from statemachines.kernel import ConfigurationError
from statemachines.missed_samples.keys import BadKey
from statemachines.testing.missed_samples.lossy_link import LossyLink
from statemachines.testing.process_harness import free_port

WAIT_S = 60.0
"""On a busy machine what is certain to come comes late."""
SCENES: dict[str, Callable[[], Awaitable[None]]] = {}
APART: dict[str, Any] = {
    "congestion_control": zenoh.CongestionControl.BLOCK,
    "priority": zenoh.Priority.DATA_HIGH,
    "express": True,
}
"""Messages share no batch, none overtakes another, and zenoh loses none of its own accord."""
FIRST, NEXT, SKIP = Verdict.FIRST, Verdict.NEXT, Verdict.SKIP


def scene(function: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    SCENES[function.__name__] = function
    return function


async def until(holds: Callable[[], Any], what: str = "") -> None:
    """Wait for it, or fail."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"never came: {what or holds.__code__.co_consts}"
        await asyncio.sleep(0.005)


def say(number: int) -> bytes:
    return b"#%d;" % number


def loses(*numbers: int) -> Callable[[bytes], bool]:
    words = [say(number) for number in numbers]
    return lambda batch: any(word in batch for word in words)


async def take(subscriber: Any, count: int) -> list[Any]:
    return [await asyncio.wait_for(anext(subscriber), WAIT_S) for _ in range(count)]


def told(messages: list[Any]) -> list[tuple[int, Verdict, int]]:
    return [(int(one.payload[1:-1]), one.verdict, one.lost) for one in messages]


class Logged(logging.Handler):
    """What is said while it is entered."""

    def __enter__(self) -> list[str]:
        self.lines: list[str] = []
        logging.getLogger("gapless").addHandler(self)
        return self.lines

    def __exit__(self, *_: object) -> None:
        logging.getLogger("gapless").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Stage:
    """Two sessions with a link between that loses what it is told to, a publisher and a subscriber."""

    def __init__(self, link: Any, publisher: Any, subscriber: Any, near: Any) -> None:
        self.link, self.publisher, self.subscriber, self.near = link, publisher, subscriber, near

    async def begin(self) -> None:
        """Message 0 comes."""
        await until(lambda: self.publisher.is_heard, "somebody who listens")
        self.publisher.put(say(0))
        assert told(await take(self.subscriber, 1)) == [(0, FIRST, 0)]

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.publisher.put(say(number))


@asynccontextmanager
async def staged(**options: Any) -> Any:
    port = free_port()
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(zenoh_session(listen=[f"tcp/127.0.0.1:{port}"]))
        thread = stack.enter_context(LoopThread())
        link = thread.enter(LossyLink(("127.0.0.1", port)))
        far = await stack.enter_async_context(zenoh_session(connect=[link.endpoint]))
        await until(lambda: far.info.transports(), "the link")
        subscriber = await stack.enter_async_context(declare_sequenced_subscriber(far, "k/*", **options))
        publisher = await stack.enter_async_context(declare_sequenced_publisher(near, "k/a", **APART))
        stage = Stage(link, publisher, subscriber, near)
        await stage.begin()
        yield stage


@scene
async def everything_comes_in_order() -> None:
    async with staged() as stage:
        stage.put(*range(1, 200))
        got = await take(stage.subscriber, 199)
        assert told(got) == [(n, NEXT, 0) for n in range(1, 200)]
        assert {(one.publisher, one.subject) for one in got} == {(stage.publisher.source, "k/a")}
        assert stage.link.lost == 0


@scene
async def what_is_lost_is_reported_once() -> None:
    losses: list[Loss] = []
    advised: list[Any] = []
    async with staged(on_loss=losses.append, on_advisory=advised.append) as stage:
        stage.link.lose = loses(1, 2, 3)
        stage.put(1, 2, 3, 4, 5)
        assert told(await take(stage.subscriber, 2)) == [(4, SKIP, 3), (5, NEXT, 0)]
        assert [(one.lost, one.unknown) for one in losses] == [(3, False)]
        assert [fields["lost"] for fields in advised] == [3]
        assert stage.subscriber.sequenced.losses().lost_messages == 3


@scene
async def an_unknown_loss_is_called_unknown() -> None:
    async with staged() as stage:
        frame = stage.publisher.sequenced.table.record("k/a").last >> 35
        later = (frame - 5) << 35
        # Of another publisher: its first came, and then another stream's third.
        for number, place in ((50, later + 3), (51, later + (1 << 35) + 4)):
            stage.near.put("k/b", encode("other", "k/b", place, 0, 0, say(number)), **APART)
        got = await take(stage.subscriber, 2)
        assert told(got) == [(50, FIRST, 0), (51, SKIP, 1)]
        assert got[1].unknown
        assert stage.subscriber.sequenced.losses().lost_messages == 1


@scene
async def what_is_no_message_is_counted() -> None:
    async with staged() as stage:
        number = stage.publisher.sequenced.table.record("k/a").last
        stage.near.put("k/a", b"no message", **APART)
        stage.near.put("k/a", encode("x", "k/b", number, 0, 0, say(1)), **APART)
        stage.put(4)
        assert told(await take(stage.subscriber, 1)) == [(4, NEXT, 0)]
        await until(lambda: (stage.subscriber.sequenced.malformed, stage.subscriber.misplaced) == (1, 1))


@scene
async def a_handler_that_raises_stops_nobody_and_options_are_checked() -> None:
    got: list[Any] = []

    def handle(one: Any) -> None:
        got.append(one)
        raise OSError("no")

    async with zenoh_session() as session:
        async with (
            declare_sequenced_subscriber(session, "k/*", handle) as subscriber,
            declare_sequenced_publisher(session, "k/a", source="me") as publisher,
        ):
            with Logged() as lines:
                for number in range(5):
                    publisher.put(say(number))
                await until(lambda: len(got) == 5)
            assert told(got) == [(0, FIRST, 0), *((number, NEXT, 0) for number in range(1, 5))]
            assert (subscriber.failed, publisher.source) == (5, "me")
            assert [line for line in lines if "raised" in line] == [
                f"a callback raised, {times} times so far" for times in (1, 2, 4)
            ]
            with pytest.raises(ConfigurationError, match="event loop"):
                await asyncio.to_thread(publisher.put, say(2))
            with pytest.raises(ConfigurationError, match="handler"):
                await anext(subscriber)
        for declare in (declare_sequenced_publisher, declare_sequenced_subscriber):
            with pytest.raises(ConfigurationError, match="nonsense"):
                declare(session, "k/a", nonsense=1)
        with pytest.raises(BadKey, match="without"):
            declare_sequenced_publisher(session, "k/*")
        with pytest.raises(ConfigurationError, match="queue_max"):
            declare_sequenced_subscriber(session, "k/*", queue_max=0)


if __name__ == "__main__":
    serve_scenes(SCENES)

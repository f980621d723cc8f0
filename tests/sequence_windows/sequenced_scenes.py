"""Scenes of sequence windows over real zenoh: `test_sequenced_zenoh` plays each in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import zenoh
from scene_server import serve_scenes

from statemachines.drivers.missed_samples import LoopThread, declare_reliability_cache, zenoh_session
from statemachines.drivers.sequence_windows import Loss, Recovery, Verdict
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
"""Messages share no batch with replies, nor with each other, and zenoh loses none of its own accord."""
PATIENT = Recovery(retries=50, backoff_ms=20, backoff_max_ms=200)
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


def told(messages: list[Any]) -> list[tuple[int, Verdict, int, bool]]:
    return [(int(one.payload[1:-1]), one.verdict, one.lost, one.recovered) for one in messages]


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
        """Message 0 comes, and the way back is known."""
        await until(lambda: self.publisher.is_heard, "somebody who listens")
        self.publisher.put(say(0))
        assert told(await take(self.subscriber, 1)) == [(0, FIRST, 0, False)]

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.publisher.put(say(number))


@asynccontextmanager
async def staged(history: int, **options: Any) -> Any:
    port = free_port()
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(zenoh_session(listen=[f"tcp/127.0.0.1:{port}"]))
        thread = stack.enter_context(LoopThread())
        link = thread.enter(LossyLink(("127.0.0.1", port)))
        far = await stack.enter_async_context(zenoh_session(connect=[link.endpoint]))
        await until(lambda: far.info.transports(), "the link")
        given = {"recovery": PATIENT, **options}
        subscriber = await stack.enter_async_context(declare_sequenced_subscriber(far, "k/*", **given))
        publisher = await stack.enter_async_context(declare_sequenced_publisher(near, "k/a", history=history, **APART))
        stage = Stage(link, publisher, subscriber, near)
        await stage.begin()
        yield stage


@scene
async def everything_in_order_and_nothing_is_asked() -> None:
    async with staged(10) as stage:
        stage.put(*range(1, 200))
        got = await take(stage.subscriber, 199)
        assert told(got) == [(n, NEXT, 0, False) for n in range(1, 200)]
        assert {(one.publisher, one.subject) for one in got} == {(stage.publisher.source, "k/a")}
        assert (stage.subscriber.queries, stage.link.lost, len(stage.publisher.sequenced.sent)) == (0, 0, 10)


@scene
async def one_gap_is_filled() -> None:
    losses: list[Loss] = []
    async with staged(100, on_loss=losses.append) as stage:
        stage.link.lose = loses(4, 5)
        stage.put(*range(1, 10))
        got = await take(stage.subscriber, 9)
        assert told(got) == [(n, NEXT, 0, n in (4, 5)) for n in range(1, 10)]
        assert (stage.link.lost, losses, stage.subscriber.sequenced.losses().lost_messages) == (2, [], 0)
        assert (
            stage.subscriber.sequenced.recovery_counts.recovered,
            stage.subscriber.sequenced.incomplete_streams,
        ) == (2, 0)


@scene
async def thirty_percent_are_lost_and_all_of_it_comes() -> None:
    chance = random.Random(7)
    lost = {number for number in range(1, 600) if chance.random() < 0.3} - {599}
    async with staged(1_000) as stage:
        stage.link.lose = loses(*lost)
        for number in range(1, 600):
            stage.put(number)
            if number % 20 == 0:
                await asyncio.sleep(0.002)
        got = await take(stage.subscriber, 599)
        assert told(got) == [(n, NEXT, 0, n in lost) for n in range(1, 600)]
        assert stage.link.lost == len(lost) > 100
        counts = stage.subscriber.sequenced.recovery_counts
        assert (counts.recovered, counts.lost, stage.subscriber.sequenced.losses().lost_messages) == (len(lost), 0, 0)
        assert stage.subscriber.sequenced.incomplete_streams == 0


@scene
async def what_nobody_has_is_reported_once() -> None:
    losses: list[Loss] = []
    advised: list[Any] = []
    async with staged(1, on_loss=losses.append, on_advisory=advised.append) as stage:
        stage.link.lose = loses(1, 2, 3)
        stage.put(1, 2, 3, 4, 5)
        assert told(await take(stage.subscriber, 2)) == [(4, SKIP, 3, False), (5, NEXT, 0, False)]
        assert [(one.lost, one.unknown) for one in losses] == [(3, False)]
        assert [fields["lost"] for fields in advised] == [3]
        assert stage.subscriber.sequenced.losses().lost_messages == 3
        assert stage.publisher.statistics.replies <= 1


@scene
async def an_answer_that_is_whole_convicts_what_it_has_not() -> None:
    async with staged(2) as stage:
        stage.link.lose = loses(1, 2, 3)
        stage.put(1, 2, 3, 4)  # in one turn of the loop that answers: 3 and 4 are kept then
        assert told(await take(stage.subscriber, 2)) == [(3, SKIP, 2, True), (4, NEXT, 0, False)]
        assert (stage.subscriber.queries, stage.subscriber.bad_ends) == (1, 0)


@scene
async def an_answer_that_is_not_whole_convicts_nobody() -> None:
    """A reply is lost on the way: its query has not ended well, and is asked again."""
    async with staged(100) as stage:
        stage.link.lose = loses(2, 3)
        stage.link.lose_reply = lambda batch: stage.link.lost_replies < 1 and b"#2;" in batch
        stage.put(1, 2, 3, 4)
        got = await take(stage.subscriber, 4)
        assert told(got) == [(n, NEXT, 0, n in (2, 3)) for n in range(1, 5)]
        assert stage.link.lost_replies == 1
        assert stage.subscriber.bad_ends >= 1


@scene
async def unknown_loss_is_not_asked_for() -> None:
    async with staged(100) as stage:
        frame = stage.publisher.sequenced.table.record("k/a").last >> 35
        later = (frame - 5) << 35
        for number, base in ((50, 3), (51, 4)):  # of another publisher: its first came, and then another stream's third
            stage.near.put("k/b", encode("other", "k/b", (later + ((number - 50) << 35)) + base, 0, 0, say(number)))
        got = await take(stage.subscriber, 2)
        assert told(got) == [(50, FIRST, 0, False), (51, SKIP, 1, False)]
        assert got[1].unknown
        assert (stage.subscriber.queries, stage.subscriber.sequenced.losses().lost_messages) == (0, 1)


@scene
async def a_publisher_that_is_gone_is_asked_in_vain_and_the_loss_is_told() -> None:
    quick = Recovery(retries=2, backoff_ms=10, backoff_max_ms=20)
    async with staged(100, recovery=quick) as stage:
        last = stage.publisher.sequenced.table.record("k/a").last
        stage.near.put("k/a", encode("gone", "k/a", last, 0, 0, say(7)))
        stage.near.put("k/a", encode("gone", "k/a", last + 3, 0, 0, say(8)))
        assert told(await take(stage.subscriber, 2)) == [(7, FIRST, 0, False), (8, SKIP, 2, False)]
        assert (stage.subscriber.queries, stage.subscriber.bad_ends) == (3, 3)


@scene
async def a_cache_of_others_that_answers_convicts_nobody() -> None:
    """A cache of missed samples under the same layout has nothing of it, and says so; its publisher says nothing."""
    quick = Recovery(retries=2, backoff_ms=10, backoff_max_ms=20)
    cache_of_others = declare_reliability_cache
    async with staged(100, recovery=quick) as stage, cache_of_others(stage.near, "**", layout="plain") as cache:
        last = stage.publisher.sequenced.table.record("k/a").last
        stage.near.put("k/a", encode("gone", "k/a", last, 0, 0, say(7)))
        assert told(await take(stage.subscriber, 1)) == [(7, FIRST, 0, False)]
        stage.near.put("k/a", encode("gone", "k/a", last + 3, 0, 0, say(8)))
        assert told(await take(stage.subscriber, 1)) == [(8, SKIP, 2, False)]
        assert (stage.subscriber.queries, stage.subscriber.bad_ends) == (3, 3)
        assert cache.statistics.queries >= 1


@scene
async def what_is_no_message_is_counted() -> None:
    async with staged(3, recovery=Recovery(retries=1_000_000)) as stage:
        number = stage.publisher.sequenced.table.record("k/a").last
        stage.near.put("k/a", b"no message")
        stage.near.put("k/a", encode("x", "k/b", number, 0, 0, say(1)))
        stage.near.put("k/a", encode("not/a/source", "k/a", number, 0, 0, say(2)))
        stage.near.put("k/a", encode("not/a/source", "k/a", number + 2, 0, 0, say(3)))
        await until(lambda: stage.subscriber.bad_ends)  # nobody can be asked for that one
        assert (stage.subscriber.sequenced.malformed, stage.subscriber.misplaced) == (1, 1)
        stage.put(4)
        assert told(await take(stage.subscriber, 2)) == [(2, FIRST, 0, False), (4, NEXT, 0, False)]


@scene
async def a_malformed_question_is_refused() -> None:
    async with staged(3) as stage:
        key = f"{stage.publisher.source}/k/a"

        async def ask(parameters: str) -> list[zenoh.Reply]:
            """In a thread: the loop has to answer."""
            given = {"accept_replies": zenoh.ReplyKeyExpr.ANY}
            return await asyncio.to_thread(lambda: list(stage.near.get(f"{key}?{parameters}", **given)))

        for parameters in ("_sn=5..1", "_sn=x", "_sn=1..99999999999999999999999"):
            assert [one.err is not None for one in await ask(parameters)] == [True]
        assert stage.publisher.statistics.refused == 3
        assert len(await ask("_sn=1..2")) == 1  # its end alone
        number = stage.publisher.sequenced.table.record("k/a").last
        assert len(await ask(f"_sn={number}..{number + 9}")) == 2


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
            assert told(got) == [(0, FIRST, 0, False), *((number, NEXT, 0, False) for number in range(1, 5))]
            assert (subscriber.failed, publisher.source, publisher.sequenced.sent) == (5, "me", None)
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

"""What the scenes have in common: where they are listed, two sessions, and words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import zenoh
import zenoh.ext
from waiting import until_async
from zenoh.handlers import Callback

from statemachines.drivers.missed_samples import (
    Beats,
    LoopThread,
    zenoh_session,
)
from statemachines.drivers.missed_samples.session import is_matched
from statemachines.missed_samples.recovery import make_recovery
from statemachines.testing.missed_samples.lossy_link import LossyLink
from statemachines.testing.process_harness import free_port

WAIT_S = 40.0
"""On a busy machine what is certain to come comes late."""
SCENES: dict[str, Callable[[], Awaitable[None]]] = {}
SURE: dict[str, Any] = {"congestion_control": zenoh.CongestionControl.BLOCK}
"""zenoh loses nothing of its own accord, as it does where its few batches are full for a millisecond."""
APART: dict[str, Any] = {"priority": zenoh.Priority.DATA_HIGH, "express": True, **SURE}
"""Samples share no batch with replies, nor with each other."""
PATIENT = make_recovery(retries=50, backoff_ms=20, backoff_max_ms=200)
"""For those who ask before the way to a cache is known again."""
BEATS: dict[str, Any] = {"heartbeat": Beats.PERIODIC, "heartbeat_period_s": 0.05}


@contextmanager
def refuses(kind: type[Exception], words: str) -> Iterator[None]:
    """What is in it raises such an error with these words.  To import pytest takes longer than many a scene."""
    said = "nothing was raised"
    try:
        yield
    except kind as error:
        said = str(error)
    assert words in said, said


def scene(function: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    SCENES[function.__name__] = function
    return function


@asynccontextmanager
async def two_sessions(lossy: bool = True) -> Any:
    """(near, far, link): two sessions with a link between that loses what it is told to."""
    port = free_port()
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(zenoh_session(listen=[f"tcp/127.0.0.1:{port}"]))
        thread = stack.enter_context(LoopThread())
        link = thread.enter(LossyLink(("127.0.0.1", port)))
        far = await stack.enter_async_context(zenoh_session(connect=[link.endpoint]))
        await until_async(lambda: far.info.transports(), "the link")
        link.call = thread.call
        yield near, far, link


def loses(*numbers: int) -> Callable[[bytes], bool]:
    words = [f"#{number};".encode() for number in numbers]
    return lambda batch: any(word in batch for word in words)


def say(number: int) -> str:
    return f"#{number};"


async def take(subscriber: Any, count: int) -> list[Any]:
    return [await anext(subscriber) for _ in range(count)]


def numbers(samples: list[Any]) -> list[int]:
    return [one.number for one in samples]


async def put_until(publisher: zenoh.Publisher, number: int, heard: Callable[[], bool]) -> None:
    """Again and again: the first samples of a zenoh publisher may come before the way to its subscribers is known."""
    source_info = zenoh.SourceInfo(publisher.id, number)
    await until_async(heard, meanwhile=lambda: publisher.put(say(number), source_info=source_info))


def can_ask(session: zenoh.Session, key: str) -> Callable[[], bool]:
    """Whether a cache can be reached; the querier ends with its session."""
    querier = session.declare_querier(key)
    return lambda: is_matched(querier)


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
    await over.wait()
    return found


async def until_answered(session: zenoh.Session, source: str) -> None:
    """A query may come before the way to a cache is known, and is answered by nobody then."""
    await until_async(lambda: ask(session, f"k/a/@adv/*/{source}/**?_gapless=1"))

"""The roles of `gapless node` over zenoh: a router, a cache, a publisher that reads lines, a subscriber that prints.

A role imports its machines and zenoh when it runs: its help needs neither.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statemachines.drivers import missed_samples, options
from statemachines.kernel import LocalProtocolError
from statemachines.missed_samples.keys import BadKey, check_expression, check_key
from statemachines.missed_samples.publisher import Beats
from statemachines.plain_text import plain_json

if TYPE_CHECKING:
    from statemachines.drivers.lives import Life
    from statemachines.drivers.missed_samples.received_sample import ReceivedSample

ROUTER = "tcp/127.0.0.1:7447"


class SessionMode(StrEnum):
    """What a session is."""

    PEER = "peer"
    CLIENT = "client"


class LayoutName(StrEnum):
    """See `layout`."""

    ADVANCED = "advanced"
    PLAIN = "plain"


def _checked(check: Callable[[str], str]) -> Callable[[str], str]:
    """Before a session is opened."""

    def call(key: str) -> str:
        try:
            return check(key)
        except BadKey as error:
            raise typer.BadParameter(str(error)) from None

    return call


def _readable(path: Path) -> Path:
    if str(path) != "-" and not (path.is_file() and os.access(path, os.R_OK)):
        raise typer.BadParameter(f"{path}: expected a file that can be read, or - for the standard input")
    return path


Key = Annotated[str, typer.Option(metavar="KEY", callback=_checked(check_expression), help="The key expression.")]
OneKey = Annotated[
    str,
    typer.Option(
        metavar="KEY", callback=_checked(check_key), help="What the samples are published under; no wild cards."
    ),
]
ListenAt = Annotated[
    list[str] | None, typer.Option("--listen", metavar="ENDPOINT", help="Where sessions may connect: tcp/HOST:PORT.")
]
ConnectTo = Annotated[
    list[str] | None,
    typer.Option("--connect", metavar="ENDPOINT", help=f"Whom to connect to; default: {ROUTER} without --listen."),
]
ModeOption = Annotated[
    SessionMode | None,
    typer.Option(help="A client has a router; a peer speaks with whom it is connected to, and is what listens."),
]
LayoutOption = Annotated[
    LayoutName,
    typer.Option(help="advanced: as zenoh's own advanced publishers; plain: 64-bit numbers, ours alone."),
]
Input = Annotated[
    Path, typer.Option(metavar="FILE", callback=_readable, help="Each line is a sample; -: the standard input.")
]
Depth = Annotated[int, typer.Option(min=1, help="So many samples are kept of each key and source.")]


def router(listen: ListenAt = None, connect: ConnectTo = None) -> None:
    """Run a router of zenoh, until a signal: other sessions connect to it, and it passes on what they say."""
    import asyncio

    async def work() -> None:
        where = listen or [ROUTER]
        async with missed_samples.zenoh_session("router", listen=where, connect=connect or []):
            _print({"listening": where})
            await asyncio.Event().wait()

    _run(work())


def cache(
    key: Key,
    history: Depth = 1_000,
    layout: LayoutOption = LayoutName.ADVANCED,
    listen: ListenAt = None,
    connect: ConnectTo = None,
    mode: ModeOption = None,
    name: options.Name = "cache-1",
    state: options.State = Path(),
    trace: options.Trace = None,
    number: options.Number = None,
) -> None:
    """Keep samples of every publisher under a key expression, and answer subscribers that missed some; until a signal.

    It answers for publishers that are dead or out of reach, too.  Its counts are printed at the end.
    """

    async def work() -> None:
        async with _open(mode, listen, connect, name, state, trace, number) as (session, life):
            made = missed_samples.declare_reliability_cache(
                session, key, history=history, layout=layout.value, life=life
            )
            async with made as one:
                _print({"cache": key})
                await _until_stopped(lambda: one.statistics)

    _run(work())


def publisher(
    key: OneKey,
    input: Input = Path("-"),
    every: Annotated[float, typer.Option(min=0, help="Seconds from one line to the next.")] = 0.0,
    linger: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds to answer when the input has ended; default: until a signal."),
    ] = None,
    history: Depth = 1_000,
    heartbeat: Annotated[
        Beats, typer.Option(help="Say the last number now and then, so that a loss at the end is noticed.")
    ] = Beats.SPORADIC,
    heartbeat_period: Annotated[float, typer.Option(min=0.001, help="Seconds between heartbeats.")] = 1.0,
    layout: LayoutOption = LayoutName.ADVANCED,
    source: Annotated[str, typer.Option(help="Its id (plain layout); default: made by the session.")] = "",
    next: Annotated[
        int | None, typer.Option(min=0, help="Number of its first sample, where you count; default: 0, of a new life.")
    ] = None,
    listen: ListenAt = None,
    connect: ConnectTo = None,
    mode: ModeOption = None,
    name: options.Name = "zenoh-publisher-1",
    state: options.State = Path(),
    trace: options.Trace = None,
    number: options.Number = None,
) -> None:
    """Publish lines, keep them in a cache beside the publisher, and answer subscribers that missed some.

    Each start is another source, unless --source and --next say which it goes on as.  A signal before the input has
    ended ends it with the exit code 130; how many lines were published is printed.
    """
    import asyncio

    counts, ended = None, False

    async def work() -> None:
        nonlocal counts, ended
        async with _open(mode, listen, connect, name, state, trace, number) as (session, life):
            made = missed_samples.declare_reliable_publisher(
                session, key, history=history, heartbeat=heartbeat, heartbeat_period_s=heartbeat_period,
                layout=layout.value, source=source, next=next, life=life,
            )  # fmt: skip
            counts = made.statistics
            async with made as one:
                _print({"publisher": one.source, "next": one.next_number})
                await _read_lines(input, one.put, every)
                ended = True
                _print({"published": one.statistics.published, "next": one.next_number})
                if linger is None:
                    await _until_stopped(lambda: one.cache_statistics)
                await asyncio.sleep(linger or 0)

    _run(
        work(),
        lambda: (
            "" if ended else f"ended by a signal: {(counts and counts.published) or 0} lines of the input are published"
        ),
    )


def subscriber(
    key: Key,
    history: Annotated[
        int | None, typer.Option(min=0, help="Ask first for so many of each publisher's last samples; 0: for all.")
    ] = None,
    period: Annotated[float, typer.Option(min=0, help="Seconds between unprompted queries; 0: none.")] = 0.0,
    retries: Annotated[int, typer.Option(min=0, help="How often to ask again before a sample is given up.")] = 5,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds of silence before a query is given up.")] = 2.0,
    layout: LayoutOption = LayoutName.ADVANCED,
    listen: ListenAt = None,
    connect: ConnectTo = None,
    mode: ModeOption = None,
    name: options.Name = "zenoh-subscriber-1",
    state: options.State = Path(),
    trace: options.Trace = None,
    number: options.Number = None,
) -> None:
    """Print each sample once and in order, and what is missed, as lines of JSON; until a signal.

    It asks the caches for what it has missed: those of publishers of ours or of zenoh's, and caches of their own.
    """

    from statemachines.missed_samples.recovery import make_recovery

    async def work() -> None:
        async with _open(mode, listen, connect, name, state, trace, number) as (session, life):
            made = missed_samples.declare_reliable_subscriber(
                session, key, _print_sample, on_missed=_print_missed, layout=layout.value, period_s=period,
                life=life,
                history=None if history is None else missed_samples.History(history),
                recovery=make_recovery(retries=retries, timeout_ms=round(timeout * 1_000)),
            )  # fmt: skip
            async with made as one:
                _print({"subscribed": key})
                await _until_stopped(lambda: one.statistics, one.wait_for_failure)

    _run(work())


def _run(work: Coroutine[Any, Any, None], unfinished: Callable[[], str] = lambda: "") -> None:
    from statemachines.drivers.signals import run_until_signal

    async def refused() -> None:
        try:
            await work
        except BadKey as error:  # an id that cannot be part of a key
            raise typer.BadParameter(str(error)) from None

    run_until_signal(refused(), unfinished)


@asynccontextmanager
async def _open(
    mode: SessionMode | None,
    listen: list[str] | None,
    connect: list[str] | None,
    name: str,
    state: Path,
    trace: Path | None,
    number: int | None,
) -> AsyncIterator[tuple[Any, Life]]:
    """(session, life)"""
    from statemachines.drivers.lives import begin_life

    mode = mode or (SessionMode.PEER if listen else SessionMode.CLIENT)
    where = connect or ([] if listen else [ROUTER])
    with closing(begin_life(name, state, trace, number, "missed_samples")) as life:
        async with missed_samples.zenoh_session(mode.value, listen=listen or [], connect=where) as session:
            yield session, life


async def _until_stopped(counts: Callable[[], Any], failed: Callable[[], Any] | None = None) -> None:
    """Or until it cannot go on; then print the counts."""
    import asyncio

    try:
        await (asyncio.Event().wait() if failed is None else failed())
    finally:
        print(plain_json(counts()), file=sys.stderr)


async def _read_lines(path: Path, take: Callable[[bytes], object], every_s: float) -> None:
    """Of a file, or of the standard input; in a thread, which a terminal may block for ever."""
    import asyncio

    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def read() -> None:
        with open(0 if str(path) == "-" else path, "rb") as file, suppress(LocalProtocolError):  # a signal came
            for line in file:
                take(line.rstrip(b"\r\n"))
                time.sleep(every_s)
            loop.call_soon_threadsafe(ended.set_result, None)

    threading.Thread(target=read, name="lines", daemon=True).start()
    await ended


def _print_sample(sample: ReceivedSample) -> None:
    import zenoh

    line: dict[str, Any] = {"key": sample.key_expr, "from": sample.source, "number": sample.number}
    if sample.kind == zenoh.SampleKind.DELETE:
        line["deleted"] = True
    else:
        line["payload"] = sample.payload.to_bytes().decode(errors="replace")
    _print(line | ({"recovered": True} if sample.recovered else {}))


def _print_missed(missed: Any) -> None:
    _print({"missed": missed.source, "first": missed.first, "last": missed.last})


def _print(line: dict[str, Any]) -> None:
    print(plain_json(line), flush=True)

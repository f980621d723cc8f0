"""The roles of `gapless node`: a leader host, a consumer, a publisher, each as a process of its own."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from statemachines.drivers.options import (
    MS_MAX,
    DiallingCa,
    Listen,
    ListeningCa,
    NameOrChance,
    Number,
    SecretFile,
    TlsCert,
    TlsKey,
    Trace,
    read_credentials,
)
from statemachines.input_file import read_toml
from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.plain_text import plain_line

if TYPE_CHECKING:
    from statemachines.drivers.shared_subscriptions.consumer_file import ConsumerFile
    from statemachines.drivers.shared_subscriptions.deliveries import Delivered, Deliveries

Store = Annotated[
    str,
    typer.Option(
        metavar="FILE|URL",
        help="Database with the stores: a file (SQLite, made where missing), sqlite:///PATH, or "
        "postgresql://USER@HOST:PORT/DATABASE (extra 'postgres'; the password from ~/.pgpass or PGPASSWORD).",
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where the number of each start is kept; default: beside the store's file, else the current directory.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="TOML with times of the group, in milliseconds; all must agree."),
]
Start = Annotated[
    str,
    typer.Option(metavar="now|beginning", help="Where the group begins to read what is stored, if this declares it."),
]

LeaderSecretFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The secret that only leader hosts share, asked of who says to be one; or in the environment as "
        "GAPLESS_LEADER_SECRET. Two lines as in --secret-file.",
    ),
]

PATIENCE_S = 30.0
"""How long a publisher waits for a store that is busy or restarted."""


def leader(
    store: Store,
    listen: Listen = "127.0.0.1:7411",
    peers: Annotated[
        str, typer.Option(metavar="HOST:PORT,...", help="The other leader hosts over the same store, if there are any.")
    ] = "",
    name: NameOrChance = None,
    state: State = None,
    trace: Trace = None,
    config: Config = None,
    secret_file: SecretFile = None,
    leader_secret_file: LeaderSecretFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: ListeningCa = None,
    number: Number = None,
) -> None:
    """Lead consumer groups: share streams among their members and keep their progress.

    Prints `listening on HOST:PORT`, and stops in good order on SIGTERM or SIGINT.  Without a secret or TLS whoever
    reaches the port may take part.
    """
    from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
    from statemachines.drivers.shared_subscriptions.roles import LEADER
    from statemachines.drivers.signals import run_until_signal
    from statemachines.drivers.tcp import parse_address

    configuration = read_configuration(config)
    credentials = read_credentials(
        secret_file, tls_cert, tls_key, tls_ca, role_secret_file=leader_secret_file, role=LEADER.name
    )

    async def work() -> None:
        node = LeaderNode(
            listen=parse_address(listen),
            store=store,
            node=name,
            state=state,
            trace=trace,
            configuration=configuration,
            number=number,
            peers=[parse_address(peer.strip()) for peer in peers.split(",") if peer.strip()],
            credentials=credentials,
        )
        async with node:
            host, port = node.address
            print(f"listening on {host}:{port}", flush=True)
            await node.wait_for_failure()

    run_until_signal(work())


def consumer(
    subscription: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="$shared/GROUP/FILTER")],
    store: Store,
    leader: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The leader host; several: with commas.")
    ] = "127.0.0.1:7411",
    name: NameOrChance = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Append what was got and acknowledged; default: print it, escaped."),
    ] = None,
    start: Start = "now",
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Messages taken at a time.")] = 20,
    work_ms: Annotated[float, typer.Option(min=0, max=MS_MAX, help="Time spent on each batch.")] = 0.0,
    drain: Annotated[
        bool, typer.Option("--drain", help="On SIGTERM first finish what is in hand; a second one ends it at once.")
    ] = False,
    heads: Annotated[
        bool, typer.Option("--heads", help="Print key, headers and timestamp of each message too, as JSON.")
    ] = False,
    state: State = None,
    trace: Trace = None,
    config: Config = None,
    secret_file: SecretFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: DiallingCa = None,
    number: Number = None,
) -> None:
    """Take part in a group: get messages, print or note them, acknowledge them.

    Leaves in good order on SIGTERM or SIGINT; killed, it loses nothing: others get what it had not acknowledged.
    """
    import asyncio

    from statemachines.drivers.shared_subscriptions.consumer_file import ConsumerFile
    from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription
    from statemachines.drivers.signals import on_first_signal, run_until_signal

    configuration = read_configuration(config)
    credentials = read_credentials(secret_file, tls_cert, tls_key, tls_ca)
    file = None if out is None else ConsumerFile(out)

    async def work() -> None:
        joined = SharedSubscription(
            subscription,
            leader=leader,
            store=store,
            node=name,
            state=state,
            trace=trace,
            configuration=configuration,
            start=start,
            number=number,
            credentials=credentials,
        )
        async with joined as messages:
            if drain:
                on_first_signal(lambda: asyncio.ensure_future(messages.unsubscribe()))
            async for some in messages.batches(batch):
                await deal_with(some, file, work_ms, heads)

    run_until_signal(work())


def publisher(
    store: Store,
    path: Annotated[
        Path | None,
        typer.Option("--input", metavar="PATH", help="Text file or folder; default: our own source."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Messages at most; default: all lines.")] = None,
    name: NameOrChance = None,
    rate: Annotated[int, typer.Option(min=1, max=10_000_000, help="Messages a second.")] = 2_000,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Messages in one append.")] = 50,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header of every message; may be given often.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key of every message.")] = None,
    state: State = None,
    trace: Trace = None,
    number: Number = None,
) -> None:
    """Publish a text file or folder: each file a topic, each line a message; ends when all are stored.

    SIGTERM or SIGINT ends it before, after the append that it is at; it says how many messages are stored, and the exit
    code is 130.
    """
    import asyncio

    from statemachines.drivers.shared_subscriptions import text_lines as lines
    from statemachines.drivers.shared_subscriptions.publisher import Publisher
    from statemachines.drivers.signals import on_first_signal, run_until_signal

    headers = parse_headers(header or [])
    topics = lines.read(path)
    done, lengths = 0, sum(map(len, topics.values()))
    total, reached = lengths if count is None else min(count, lengths), set[str]()

    async def work() -> None:
        nonlocal done
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        begin = loop.time()
        given: dict[str, Any] = {"node": name, "state": state, "trace": trace, "number": number}
        async with Publisher(store, **given, patience_s=PATIENCE_S) as publishing:
            if path is None:
                source = "lines of the source of gapless; --input PATH publishes yours"
                print(f"no --input: publishing {total} {source}", file=sys.stderr, flush=True)
            on_first_signal(told.set)
            try:
                for topic, part in lines.in_turn(topics, batch):
                    part = part[: total - done]
                    reached.add(topic)
                    await publishing.publish(topic, part, headers=headers, key=encode_text(key))
                    done += len(part)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(told.wait(), max(0.0, begin + done / rate - loop.time()))
                    if done == total:
                        break
                    if told.is_set():
                        return
            except GaplessError as error:
                raise GaplessError(f"{error}; {done} messages were published before that, and are stored") from error
        print(f"published {done} messages to {len(reached)} topics", flush=True)

    def unfinished() -> str:
        return "" if done == total else f"ended by a signal: {done} of {total} messages are known to be stored"

    run_until_signal(work(), unfinished)


async def deal_with(messages: Deliveries, file: ConsumerFile | None, work_ms: float, heads: bool = False) -> None:
    """Note or print what came, work on it, acknowledge it."""
    import asyncio

    stream, grant = messages[0].stream, messages[0].grant
    contents = [(message.offset, message.payload) for message in messages]
    if file is None:
        for message in messages:
            text = plain_line(message.payload.decode(errors="replace"))
            head = f"\t{plain_line(describe_head(message))}" if heads else ""
            print(f"{plain_line(message.topic)}\t{message.offset}\t{text}{head}", flush=True)
    else:
        file.got(stream, grant, contents, messages[0].owner)
    if work_ms:
        await asyncio.sleep(work_ms / 1000)
    for message in messages:
        await message.ack()
    if file is not None:
        file.write_acknowledged(stream, grant, contents)


def describe_head(message: Delivered) -> str:
    """Key, headers and timestamp of a message, as a JSON object; bytes as text, as far as they are."""
    headers = [(name, value.decode(errors="replace")) for name, value in message.headers]
    return msgspec.json.encode(
        {"key": decode_bytes(message.key), "headers": headers, "timestamp": message.timestamp}
    ).decode()


def decode_bytes(data: bytes | None) -> str | None:
    """As text, as far as it is some."""
    return None if data is None else data.decode(errors="replace")


def encode_text(text: str | None) -> bytes | None:
    """The text in UTF-8, where there is one."""
    return None if text is None else text.encode()


def parse_headers(texts: list[str]) -> list[tuple[str, bytes]]:
    """Names and values of NAME=VALUE.

    Raises `ConfigurationError` for a text that is none.
    """
    for text in texts:
        if "=" not in text:
            raise ConfigurationError("--header", text, "must be NAME=VALUE")
    return [(name, value.encode()) for name, _, value in (text.partition("=") for text in texts)]


def read_configuration(path: Path | None, option: str = "--config") -> Any:
    """The configuration in a TOML file that this option names, checked; the defaults without one."""
    from statemachines.shared_subscriptions.configuration import Configuration

    if path is None:
        return Configuration().check()
    return read_toml(path, option, "a configuration", Configuration).check()

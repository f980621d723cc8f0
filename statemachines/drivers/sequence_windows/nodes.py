"""The roles of `gapless node`: a publisher that reads lines, and a subscriber that prints what comes, and losses."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from statemachines.drivers import options
from statemachines.drivers.lives import Life, begin_life
from statemachines.drivers.plain_text import plain_json
from statemachines.drivers.sequence_windows.loss_source import MACHINE
from statemachines.drivers.sequence_windows.multicast import LOOPBACK, MulticastReceiver, MulticastSender, parse_group
from statemachines.drivers.sequence_windows.publisher import SequencedPublisher
from statemachines.drivers.sequence_windows.subscriber import Delivery, SequencedSubscriber
from statemachines.drivers.sequence_windows.yaml_file import read_windows
from statemachines.drivers.signals import run_until_signal
from statemachines.interrupts import INTERRUPTED, begin_work, end_on_sigterm
from statemachines.kernel import GaplessError, node_of
from statemachines.sequence_windows.message import Judged
from statemachines.sequence_windows.publisher_window import Stamped
from statemachines.sequence_windows.subject_publishers import PLACES
from statemachines.sequence_windows.windows import Windows
from statemachines.trace.row import event_row

PROTOCOL = "sequence_windows"
POLL_S = 0.1
log = logging.getLogger(__name__)

GroupOption = Annotated[str, typer.Option(metavar="ADDRESS:PORT", help="The multicast group.")]
Interface = Annotated[str, typer.Option(metavar="ADDRESS", help="Of the interface; default: the loopback.")]
Config = Annotated[Path | None, typer.Option(metavar="FILE", help="YAML with a block `parameters` (the windows).")]
Converged = Annotated[
    bool, typer.Option("--converged", help="The network has converged by now: joins after this can be verified.")
]
GROUP = "239.86.0.1:7600"


def publisher(
    subject: Annotated[str, typer.Option(help="What the messages are about.")],
    input: Annotated[Path, typer.Option(metavar="FILE", help="Each line is a message; -: the standard input.")] = Path(
        "-"
    ),
    group: GroupOption = GROUP,
    interface: Interface = LOOPBACK,
    name: options.Name = "publisher-1",
    state: options.State = Path(),
    trace: options.Trace = None,
    number: options.Number = None,
    config: Config = None,
    converged: Converged = False,
) -> None:
    """Publish lines on a multicast group, with sequence numbers; each start is another publisher.

    A signal before the input has ended ends it with the exit code 130; how many lines were published is printed.
    """
    windows = _windows(config)
    life = begin_life(name, state, trace, number, PROTOCOL)
    with closing(life), MulticastSender(parse_group(group, interface)) as sender:
        one = publisher_of(life, sender.send, windows)
        if converged:
            one.start_new_streams()
        published = 0
        end_on_sigterm()
        begin_work()
        try:
            with open(0 if str(input) == "-" else input, "rb") as lines:
                for line in lines:
                    try:
                        one.publish(subject, line.rstrip(b"\r\n"))
                        published += 1
                    except GaplessError as error:
                        log.error("%s", error)
        except KeyboardInterrupt:
            print(f"ended by a signal: {published} lines of the input are published", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


def publisher_of(life: Life, send: Callable[[bytes], object], windows: Windows) -> SequencedPublisher:
    """The publisher of a life, which logs every number that it gives."""

    def observe(about: str, told: Stamped, t_ns: int) -> None:
        if life.log is not None:
            node, machine = node_of(life.name), f"{PROTOCOL}/publisher_window"
            life.log.write([event_row(t_ns, node, f"{life.name}:{about}", "tell", told, machine=machine, data=True)])

    return SequencedPublisher(send, publisher=life.name, window=windows.publisher, observe=observe)


def subscriber(
    subjects: Annotated[list[str] | None, typer.Argument(metavar="SUBJECT...", help="None: everything.")] = None,
    group: GroupOption = GROUP,
    interface: Interface = LOOPBACK,
    name: options.Name = "subscriber-1",
    state: options.State = Path(),
    trace: options.Trace = None,
    number: options.Number = None,
    config: Config = None,
    converged: Converged = False,
    publishers_max: Annotated[
        int,
        typer.Option(
            metavar="N", help="So many publishers of a subject are remembered; then who was silent longest goes."
        ),
    ] = PLACES,
    losses: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A socket to make there, for `gapless show-loss PATH`.")
    ] = None,
) -> None:
    """Print what comes over a multicast group, what was lost before it, and an advisory a second, as lines of JSON."""
    windows = _windows(config)
    life = begin_life(name, state, trace, number, PROTOCOL)
    with closing(life), MulticastReceiver(parse_group(group, interface)) as receiver:
        node = SubscriberNode(receiver, life, name, windows, tuple(subjects or ()), publishers_max)
        if converged:
            node.subscriber.note_convergence()
        run_until_signal(node.run(losses))
    print(node.subscriber.losses().text(time.localtime().tm_gmtoff), file=sys.stderr)


def _windows(config: Path | None) -> Windows:
    return Windows() if config is None else read_windows(config)


class SubscriberNode:
    """A subscriber on the event loop: it reads what has arrived, prints it, and answers `show-loss`."""

    def __init__(
        self,
        receiver: MulticastReceiver,
        life: Life,
        name: str,
        windows: Windows,
        subjects: tuple[str, ...],
        publishers_max: int = PLACES,
    ) -> None:
        self.receiver = receiver
        self.subscriber = SequencedSubscriber(
            self._print_delivery,
            on_advisory=lambda fields: _print({"advisory": fields}),
            client=life.number,
            everything=not subjects,
            window=windows.subscriber,
            publishers_max=publishers_max,
            observe=self._note,
        )
        for subject in subjects:
            self.subscriber.subscribe(subject)
        self._life = life
        self._name = name

    async def run(self, losses: Path | None) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        server = None if losses is None else await asyncio.start_unix_server(self._answer, losses)
        loop.add_reader(self.receiver.socket, self._read)
        _print({"joined": f"{self.receiver.group.address}:{self.receiver.group.port}"})
        try:
            while True:
                await asyncio.sleep(POLL_S)
                self._guard(self.subscriber.poll)
        finally:
            loop.remove_reader(self.receiver.socket)
            if server is not None and losses is not None:
                server.close()
                losses.unlink(missing_ok=True)

    def _read(self) -> None:
        for data in self.receiver.receive_ready():
            self._guard(self.subscriber.receive, data)

    def _guard(self, act: Any, *given: Any) -> None:
        """What a callback raises is said and counted, and stops nobody."""
        try:
            act(*given)
        except Exception:
            log.exception("a callback raised")

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(msgspec.json.encode(self.subscriber.losses()))
        try:
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _print_delivery(self, one: Delivery) -> None:
        line: dict[str, Any] = {"subject": one.subject, "from": one.publisher, "number": f"{one.number:#x}"}
        line |= {"verdict": one.verdict.value, "payload": one.payload.decode(errors="replace")}
        line |= {"lost": one.lost} if one.lost and not one.unknown else {}
        line |= {"lost": "unknown"} if one.unknown else {}
        line |= {"join": one.join.value} if one.join is not None else {}
        _print(line)

    def _note(self, publisher: str, subject: str, told: Judged, t_ns: int) -> None:
        if self._life.log is not None:
            instance = f"{self._life.name}:{subject}"
            self._life.log.write(
                [event_row(t_ns, self._name, instance, "tell", told, peer=publisher, machine=MACHINE, data=True)]
            )


def _print(line: dict[str, Any]) -> None:
    print(plain_json(line), flush=True)

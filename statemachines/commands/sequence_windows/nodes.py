"""The roles of `gapless node`: a publisher that reads lines, and a subscriber that prints what comes, and losses.

A role imports its machines when it runs: its help needs none.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statemachines.drivers import options
from statemachines.interrupts import INTERRUPTED, begin_work, end_on_sigterm
from statemachines.kernel import GaplessError
from statemachines.sequence_windows.subject_publishers import PLACES

if TYPE_CHECKING:
    from statemachines.sequence_windows.windows import Windows

PROTOCOL = "sequence_windows"
log = logging.getLogger(__name__)

GroupOption = Annotated[str, typer.Option(metavar="ADDRESS:PORT", help="The multicast group.")]
Interface = Annotated[str, typer.Option(metavar="ADDRESS", help="Of the interface; default: the loopback.")]
Config = Annotated[Path | None, typer.Option(metavar="FILE", help="YAML with a block `parameters` (the windows).")]
Converged = Annotated[
    bool, typer.Option("--converged", help="The network has converged by now: joins after this can be verified.")
]
GROUP = "239.86.0.1:7600"
LOOPBACK = "127.0.0.1"


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
    from statemachines.commands.sequence_windows.node_parts import publisher_of
    from statemachines.drivers.lives import begin_life
    from statemachines.drivers.sequence_windows.multicast import MulticastSender, parse_group

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
    reorder_max: Annotated[
        int, typer.Option(metavar="N", help="A message waits 50 ms for at most so many that it may have overtaken.")
    ] = 8,
    advise: Annotated[bool, typer.Option("--advise", help="Publish each advisory to the group, too.")] = False,
    losses: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A socket to make there, for `gapless show-loss PATH`.")
    ] = None,
) -> None:
    """Print what comes over a multicast group, what was lost before it, and an advisory a second, as lines of JSON."""
    from statemachines.commands.sequence_windows.node_parts import SubscriberNode, publisher_of
    from statemachines.drivers.lives import begin_life
    from statemachines.drivers.sequence_windows.multicast import MulticastReceiver, MulticastSender, parse_group
    from statemachines.drivers.signals import run_until_signal

    windows = _windows(config)
    life = begin_life(name, state, trace, number, PROTOCOL)
    place = parse_group(group, interface)
    with closing(life), MulticastReceiver(place) as receiver, MulticastSender(place) as sender:
        publish = publisher_of(life, sender.send, windows).publish if advise else None
        node = SubscriberNode(
            receiver, life, name, windows, tuple(subjects or ()), publishers_max, publish, reorder_max
        )
        if converged:
            node.subscriber.note_convergence()
        run_until_signal(node.run(losses))
    print(node.subscriber.losses().text(time.localtime().tm_gmtoff), file=sys.stderr)


def _windows(config: Path | None) -> Windows:
    from statemachines.drivers.sequence_windows.yaml_file import read_windows
    from statemachines.sequence_windows.windows import Windows

    return Windows() if config is None else read_windows(config)

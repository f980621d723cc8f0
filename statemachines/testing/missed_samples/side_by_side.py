"""side_by_side: our subscriber and zenoh's own AdvancedSubscriber on zenoh's own AdvancedPublisher, and on ours, over
lossy links.

python -m statemachines.testing.missed_samples.side_by_side
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from statemachines.interrupts import end_on_sigterm
from statemachines.kernel import ConfigurationError
from statemachines.testing.missed_samples.own_process import run_apart
from statemachines.testing.missed_samples.side_by_side_case import Figures, SideBySideCase
from statemachines.testing.missed_samples.tally import DeliveryOutcome

SAMPLES: Final = 600
PATIENCE_S: Final = 12.0
"""Longer than zenoh waits for a query, 10 s."""
AT_MOST_S: Final = 120.0
"""Besides a hundredth of a second a sample: a case that takes longer hangs."""

WIDTH: Final = 140
"""Of the table, in characters, wherever it goes to."""

HELP: Final = """\
Compares two subscribers of zenoh over links that lose: ours, and zenoh's own AdvancedSubscriber.

Both are on one session and hear one publisher, zenoh's own AdvancedPublisher (last, ours), whose cache keeps every
sample; a proxy between the two sessions drops samples, so that both meet the same losses.  Each case runs in a process
of its own.

columns:
  undelivered   samples that never came
  reported      samples called missed; all are in the cache, so that each is one too many
  silent        neither delivered nor reported
  disorder      delivered behind a sample with a higher number
  duplicates    delivered again
  lost          first transmissions that were lost; median and p99: from their put to their delivery

exit code: 1 if ours leaves anything undelivered where only first transmissions are lost, leaves anything silent where
replies are lost too, or ever delivers out of order or twice.  What zenoh's own does is shown, and decides nothing.
"""


def list_cases(samples: int) -> tuple[SideBySideCase, ...]:
    """All of them."""
    lossy = [
        SideBySideCase(
            f"{loss:.0%} of {'samples and replies' if replies else 'samples'}, {delay} ms",
            samples, loss, loss if replies else 0.0, delay,
        )
        for replies in (False, True)
        for loss in (0.05, 0.3)
        for delay in (0.0, 10.0)
    ]  # fmt: skip
    return (
        *(msgspec.structs.replace(case, name=case.name.replace(".0 ms", " ms")) for case in lossy),
        SideBySideCase("the last 10, heartbeats", samples, 0.05, tail=min(10, samples)),
        SideBySideCase("link cut, heartbeats", samples, cut=True),
        SideBySideCase("router restarted, heartbeats", samples, restart=True),
        SideBySideCase("30% of samples, our publisher", samples, 0.3, by_ours=True),
        SideBySideCase("5% of datagrams, UDP", samples, 0.05, 0.05, transport="udp"),
        SideBySideCase("30% of datagrams, UDP", samples, 0.3, 0.3, transport="udp"),
    )


def run_case(case: SideBySideCase, patience_s: float) -> Figures:
    """In a process of its own, which is killed where it hangs; raises `GaplessError` where it fails."""
    command = [sys.executable, "-m", "statemachines.testing.missed_samples.side_by_side_case"]
    given = [msgspec.json.encode(case).decode(), str(patience_s)]
    at_most_s = AT_MOST_S + case.samples / 100 + patience_s
    return msgspec.json.decode(run_apart([*command, *given], case.name, at_most_s), type=Figures)


def list_broken(figures: Figures) -> list[str]:
    """What ours promises in such a case and has not kept; and whether the case was one at all."""
    case, ours = figures.case, figures.ours
    wrong = {
        "undelivered": ours.undelivered if case.is_promised else 0,
        "silent": ours.silent,
        "out of order": ours.disorder,
        "duplicates": ours.duplicates,
    }
    found = [f"{case.name}: ours: {count} {what}" for what, count in wrong.items() if count]
    if not ours.lost:
        found.append(f"{case.name}: nothing was lost, so that nothing is shown")
    if case.reply_loss and not figures.lost_replies:
        found.append(f"{case.name}: no reply was lost, so that nothing is shown")
    return found


def make_table(all_figures: Sequence[Figures]) -> Table:
    """A line for each subscriber of each case."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("link", no_wrap=True)
    shown.add_column("whose", no_wrap=True)
    for head in ("undelivered", "reported", "silent", "disorder", "duplicates", "lost", "median ms", "p99 ms"):
        shown.add_column(head, justify="right", no_wrap=True)
    for figures in all_figures:
        shown.add_row(figures.case.name, "ours", *list_cells(figures.ours))
        shown.add_row("", "zenoh's", *list_cells(figures.theirs))
    return shown


def list_cells(one: DeliveryOutcome) -> list[str]:
    """The figures of one subscriber."""
    counts = (one.undelivered, one.reported, one.silent, one.disorder, one.duplicates, one.lost)
    times = ("-" if value is None else f"{value:,.1f}" for value in (one.median_ms, one.p99_ms))
    return [*map(str, counts), *times]


def measure_cases(
    wanted: Sequence[SideBySideCase], patience_s: float, progress: Callable[[str], None]
) -> list[Figures]:
    """One after the other."""
    found = []
    for number, case in enumerate(wanted, 1):
        progress(f"{number}/{len(wanted)}: {case.name}")
        found.append(run_case(case, patience_s))
    return found


def choose_cases(samples: int, pattern: str) -> list[SideBySideCase]:
    """The cases whose names contain `pattern`; raises `ConfigurationError` if there are none, or too few samples."""
    if samples < 10:
        raise ConfigurationError("samples", samples, "at least 10")
    found = [case for case in list_cases(samples) if pattern in case.name]
    if not found:
        raise ConfigurationError(
            "case", pattern, f"part of one of: {'; '.join(case.name for case in list_cases(samples))}"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    end_on_sigterm()  # a case is in a session of its own, and would go on
    parser = argparse.ArgumentParser(
        prog="side_by_side", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help=f"of each case, default {SAMPLES}")
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases whose names contain it")
    text = f"a case waits so long after zenoh's subscriber has last said anything; default {PATIENCE_S:g}"
    parser.add_argument("--patience", type=float, default=PATIENCE_S, metavar="SECONDS", help=text)
    parser.add_argument("--json", action="store_true", help="a list of objects instead of the table")
    given = parser.parse_args(arguments)
    try:
        wanted = choose_cases(given.samples, given.case)
    except ConfigurationError as error:
        parser.error(str(error))
    say = Console(stderr=True)
    figures = measure_cases(wanted, given.patience, lambda text: say.print(text) if say.is_terminal else None)
    if given.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    else:
        Console(width=WIDTH).print(make_table(figures))
    wrong = [text for one in figures for text in list_broken(one)]
    for text in wrong:
        print(text, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

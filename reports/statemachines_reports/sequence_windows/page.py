"""Page: what the page shows of sequence windows besides what it shows of any protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from statemachines_reports.columns import Columns
from statemachines_reports.protocol import PageDrawing, Parameters, Records, Section, Tables
from statemachines_reports.sequence_windows.draw_losses import draw_losses
from statemachines_reports.sequence_windows.outcomes import OUTCOMES, S, losses_of

SAID = ("missing", "missing, unknown", "nothing missing", "no claim")
HEADS = (
    "scenario", "the network had lost", "messages that came", "“missing”, the right number", "“missing”, a wrong one",
    "“missing, unknown”", "“nothing missing”", "no claim (FIRST, CYCLE)", "of these wrong",
)  # fmt: skip
MOST = 12
"""So many lines of publishers and subjects are shown: those that lost most."""


def show_losses(tables: Tables) -> Iterator[Section]:
    """The confusion table of runs that keep order, that of those that do not, and what became of what was lost."""
    for ordered, title, caption in (
        (True, "Losses found against losses that happened", "On paths that keep order. Every message that came to an "
         "application, by whether the network had lost some on the way to it since the last one of its publisher and "
         "subject, and what the receiver said of that."),
        (False, "The same where messages overtake each other", "Nothing is delivered twice; EXACT, NOFALSE and DETECT "
         "are not promised: what comes late was taken for lost."),
    ):  # fmt: skip
        lines = [line for line in tables["confusion"] if line["ordered"] is ordered]
        if lines:
            yield Section(title, HEADS, list(list_confusion(lines)), caption)
    if tables["losses"]:
        yield Section(
            "What became of lost messages",
            ("scenario", *(name.replace("-", " ") for name in OUTCOMES)),
            list(_by_scenario(tables["losses"])),
            "Each message counts for each receiver that it did not reach. The three limits hide losses; what was lost "
            "before anything of its publisher and subject had been heard is a late join.",
        )
        yield Section(
            "Who lost most",
            ("publisher and subject", "lost", "told exactly", "unknown", "hidden"),
            list(_by_line(tables["losses"])),
        )


def list_confusion(lines: Records) -> Iterator[tuple[str, ...]]:
    """A line for what was lost, and one for what was not, of each scenario."""
    for scenario in sorted({line["scenario"] for line in lines}):
        for lost in (True, False):
            some = [line for line in lines if line["scenario"] == scenario and line["lost"] is lost]

            def count(said: str, right: bool | None = None, some: Records = some) -> int:
                found = [line for line in some if line["said"] == said and right in (None, line["right"])]
                return sum(line["messages"] for line in found)

            wrong = sum(line["messages"] for line in some if not line["right"])
            known = (count("missing", True), count("missing", False), *(count(said) for said in SAID[1:]))
            total = sum(line["messages"] for line in some)
            yield scenario, "some" if lost else "nothing", *(f"{one:,}" for one in (total, *known, wrong))


def _by_scenario(lines: Records) -> Iterator[tuple[str, ...]]:
    for scenario in sorted({line["scenario"] for line in lines}):
        sums = [_sum(lines, scenario=scenario, outcome=outcome) for outcome in OUTCOMES]
        yield scenario, *(f"{one:,}" for one in sums)


def _by_line(lines: Records) -> Iterator[tuple[str, ...]]:
    places = {(line["publisher"], line["subject"]) for line in lines}
    totals = {place: _sum(lines, publisher=place[0], subject=place[1]) for place in places}
    for publisher, subject in sorted(places, key=lambda place: (-totals[place], place))[:MOST]:
        told = [_sum(lines, publisher=publisher, subject=subject, outcome=outcome) for outcome in ("told", "unknown")]
        total = totals[publisher, subject]
        yield f"{publisher} {subject}", *(f"{one:,}" for one in (total, *told, total - sum(told)))


def _sum(lines: Iterable[dict[str, Any]], **wanted: str) -> int:
    return sum(line["messages"] for line in lines if all(line[key] == value for key, value in wanted.items()))


def draw_run(columns: Columns, parameters: Parameters, seq: int | None) -> Iterator[PageDrawing]:
    """Loss over time, by publisher and subject, of the run that the page tells of."""
    losses = list(losses_of(columns))
    if losses:
        begin = int(columns["t_ns"].min()) // S
        seconds = int(columns["t_ns"].max()) // S + 1 - begin
        caption = "A cell is a second; the stronger its colour, the more was lost on the way to all receivers."
        yield PageDrawing("Losses over time, by publisher and subject", caption, draw_losses(losses, seconds))

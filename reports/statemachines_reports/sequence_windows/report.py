"""Report: everything that sequence windows have for reports, as one value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import numpy as np

from statemachines_reports.protocol import Amount, Check, Parameters, ReportProtocol, Segment, Story, Tally
from statemachines_reports.sequence_windows.advisories import judge_advisories
from statemachines_reports.sequence_windows.outcomes import (
    TOLD,
    UNKNOWN,
    Case,
    Loss,
    find_cases,
    find_losses,
)
from statemachines_reports.sequence_windows.page import draw_run, show_losses
from statemachines_reports.sequence_windows.verdicts import (
    judge_alarms,
    judge_crowds,
    judge_detected,
    judge_exact,
    judge_joins,
    judge_limits,
    judge_numbers,
    judge_once,
)
from statemachines_reports.trace_roles import Companion, TraceRoles


class Order(msgspec.Struct, frozen=True):
    """Whether the paths of a run keep order."""

    run: int
    ordered: bool


def keeps_order(parameters: Parameters) -> bool:
    """What the scenario says; a real run over one interface does."""
    settings = parameters.get("settings", {})
    network = settings.get("network", {}) if isinstance(settings, dict) else {}
    return bool(network.get("fifo", True)) if isinstance(network, dict) else True


def find(segment: Segment) -> Iterator[msgspec.Struct]:
    """All that is measured."""
    for run, _ in segment.columns.runs():
        yield Order(run, keeps_order(segment.parameters(run)))
    sums: Counter[tuple[int, str]] = Counter()
    for loss in find_losses(segment):
        sums[loss.run, "lost"] += loss.count
        sums[loss.run, "told" if loss.outcome in (TOLD, UNKNOWN) else "not_told"] += loss.count
        yield loss
    for case in find_cases(segment):
        sums[case.run, "came"] += case.count
        yield case
    for (run, name), count in sorted(sums.items()):
        yield Tally(run, name, count)


def find_absent(segment: Segment) -> Iterable[tuple[int, str]]:
    """Of a real run: nobody on the way says what the network loses."""
    columns = segment.columns
    logged = np.unique(columns["run"][columns.rows_of("tell", event=("forwarding",))]).tolist()
    real = [run for run, _ in columns.runs() if "nodes" in segment.parameters(run)]
    return [(run, "the network") for run in real if run not in logged]


REPORTS: Final = ReportProtocol(
    checks=(
        Check("numbers", "the numbers of a publisher and subject increase (MONO)", judge_numbers),
        Check("once", "nothing is delivered twice, or dropped that is new (ONCE)", judge_once),
        Check(
            "exact", "a known loss is how many the network lost (EXACT)", judge_exact, promised=keeps_order, whole=True
        ),
        Check(
            "alarms",
            "where a loss is told something was lost (NOFALSE)",
            judge_alarms,
            promised=keeps_order,
            whole=True,
        ),
        Check(
            "detected",
            "where nothing is told nothing was lost (DETECT)",
            judge_detected,
            promised=keeps_order,
            whole=True,
        ),
        Check("limits", "a loss is hidden only where somebody can have forgotten (DETECT)", judge_limits, whole=True),
        Check("crowds", "nobody is taken for forgotten for others without others (CROWD)", judge_crowds, whole=True),
        Check("joins", "nothing of a verified stream was lost (JOIN)", judge_joins, promised=keeps_order, whole=True),
        Check(
            "advisories", "advisories are a second apart, and their sum is what was told (THROTTLE)", judge_advisories
        ),
    ),
    amounts=(
        Amount("came", card="messages delivered", compared="messages delivered"),
        Amount("lost", card="losses, by receiver", faults="lost, a run", compared="losses, by receiver"),
        Amount("told", card="of them told", compared="losses told"),
        Amount("not_told", card="hidden, or not listened for", compared="losses not told"),
    ),
    find=find,
    results=(Loss, Case, Order),
    absent=find_absent,
    tables={
        "confusion": """
            SELECT setting.scenario, "order".ordered, "case".lost, "case".said, "case"."right",
                   sum("case".count) AS messages
            FROM "case" JOIN setting ON setting.run = "case".run JOIN "order" ON "order".run = "case".run
            GROUP BY setting.scenario, "order".ordered, "case".lost, "case".said, "case"."right"
            ORDER BY setting.scenario, "order".ordered, "case".lost, "case".said, "case"."right" """,
        "losses": """
            SELECT setting.scenario, publisher, subject, outcome, sum(count) AS messages
            FROM loss JOIN setting ON setting.run = loss.run
            GROUP BY setting.scenario, publisher, subject, outcome
            ORDER BY setting.scenario, publisher, subject, outcome""",
        "loss_over_time": """
            SELECT setting.scenario, second, publisher, subject, outcome, sum(count) AS messages
            FROM loss JOIN setting ON setting.run = loss.run
            GROUP BY setting.scenario, second, publisher, subject, outcome
            ORDER BY setting.scenario, second, publisher, subject, outcome""",
    },
    short=("confusion", "losses"),
    sections=show_losses,
    pictures=draw_run,
    story=Story(quiet=("carried",), told={"advisory": "is advised"}, title="What was lost of {key}"),
    roles=TraceRoles(
        deliveries=(("tell", "judged"),),
        publications=(("tell", "stamped"),),
        key="",
        grant="",
        repeats=("tick", "converged"),
        companions=(
            Companion(("tell", "judged"), (("deliver", "carried"),), ("peer", "term", "first", "last")),
            Companion(("send", "carried"), (("tell", "stamped"),), ("term", "first", "last")),
        ),
        left_out={
            "tell-never": "no application acknowledges a message",
            "ack-early": "no application acknowledges a message",
            "tell-key": "the key of what is told is its verdict; its stream is in the name of the instance",
        },
    ),
)

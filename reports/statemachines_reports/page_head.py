"""Page head: the verdict in a sentence, and what somebody needs who wants to see it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from statemachines import __version__
from statemachines_reports.comparison import settings_of
from statemachines_reports.pipeline import VIOLATED, Analysis

MOST_NAMES: Final = 6
"""Scenarios, nodes or versions that are named."""

MOST_VIOLATIONS: Final = 30
"""Of a run, so many are listed in their order."""


class PageHead(msgspec.Struct, frozen=True):
    """`verdict`: HELD, VIOLATED or INCONCLUSIVE; `sentence`: of what; `facts`: (what, value); `settings` by key."""

    verdict: str
    sentence: str
    facts: list[tuple[str, str]]
    command: str
    settings: dict[str, str]


def head_of(analysis: Analysis) -> PageHead:
    """What stands first of an analysis."""
    verdict, sentence = _verdict(analysis)
    runs = list(analysis.trace.runs.values())
    made_by = {f"{name} {number}" for run in runs for name, number in _decode(run.versions).items()}
    seeds = sorted({run.seed for run in runs if run.scenario != "real"})
    nodes = [str(one) for facts in analysis.trace.parameters.values() for one in facts.get("nodes") or ()]
    facts = [
        ("scenario", _names(sorted({run.scenario for run in runs if run.scenario != "real"}))),
        ("seed" if len(seeds) == 1 else "seeds", _range(seeds)),
        ("nodes", _names(nodes)),
        ("made by", _names(sorted(made_by))),
        ("judged by", f"gapless {__version__}, {analysis.engine.name}"),
    ]
    return PageHead(
        verdict,
        sentence,
        [(what, value) for what, value in facts if value],
        _command(analysis),
        settings_of(analysis.trace),
    )


def _verdict(analysis: Analysis) -> tuple[str, str]:
    runs = f"{analysis.runs:,} run{'s' if analysis.runs != 1 else ''}, {analysis.rows:,} rows"
    broken = [check.name for check in analysis.checks if check.verdict == VIOLATED]
    if broken:
        bad = {line["run"] for line in analysis.tables["findings"] if line["promised"]}
        bad |= {number for number, run in analysis.trace.runs.items() if run.outcome != "held"}
        where = f"in {len(bad):,} of {runs}" if analysis.runs > 1 else f"in {runs}"
        return "VIOLATED", f"{_names(broken)} {where}"
    lacking = [*(f"{name} is not installed" for name in analysis.unjudged_steps), *analysis.absent]
    if lacking:
        return "INCONCLUSIVE", f"missing: {_names(lacking)}; {runs}"
    held = sum(check.checked > 0 for check in analysis.checks)
    return "HELD", f"{held} checks over {runs}"


def _command(analysis: Analysis) -> str:
    """What makes these runs again; "" for runs of real nodes, and of several scenarios."""
    runs = list(analysis.trace.runs.values())
    if len({run.scenario for run in runs}) != 1 or runs[0].scenario == "real":
        return ""
    given = analysis.trace.parameters[runs[0].run]
    if "set" not in given:
        return ""
    name = f"{given['protocol']}/{runs[0].scenario}" if given.get("protocol") else runs[0].scenario
    sets: Sequence[Any] = given.get("set") or ()
    words = [word for one in sets for word in ("--set", str(one))]
    seeds = sorted(run.seed for run in runs)
    if len(seeds) == 1:
        return shlex.join(["gapless", "simulate", name, "--seed", str(seeds[0]), *words, "--trace", "DIR"])
    counted = ["--from", str(seeds[0]), "--seeds", str(seeds[-1] - seeds[0] + 1)]
    return shlex.join(["gapless", "campaign", name, *counted, *words, "--trace", "DIR"])


def list_violations(analysis: Analysis, run: int) -> list[dict[str, Any]]:
    """What is wrong in a run, in the order in which it happened: a cause stands before its consequences.  The rows of a
    trace keep the order of each node, and a message stands before what it brought.  What has no row, since it is about
    the end of a run, comes last; so does what the monitors said while the run was made."""
    found = [line for line in analysis.tables["findings"] if line["run"] == run and line["promised"]]
    found.sort(key=lambda line: (line["seq"] < 0, line["seq"], line["check"]))
    lines = [{name: line[name] for name in ("check", "seq", "detail")} for line in found[:MOST_VIOLATIONS]]
    outcome = analysis.trace.runs[run].outcome
    if outcome != "held":
        lines.append({"check": "monitor, while it ran", "seq": -1, "detail": outcome})
    return lines


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _range(seeds: list[int]) -> str:
    if len(seeds) < 3 or seeds != list(range(seeds[0], seeds[-1] + 1)):
        return _names([str(seed) for seed in seeds])
    return f"{seeds[0]} to {seeds[-1]}"


def _decode(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}

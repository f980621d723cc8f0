"""`gapless damage`: a right trace made wrong in one place, and which checks see it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statemachines.commands.exits import Exit, end_if
from statemachines.commands.progress import bar
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json, plain_line

if TYPE_CHECKING:
    from statemachines_reports.damage.damage_kind import DamageTally
    from statemachines_reports.damage.damage_matrix import DamageTrial

LIST = "list"
"""In place of a trace: say which kinds there are."""


def damage(
    trace: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A trace (Parquet), or the logs of a real run; `list` lists the kinds."),
    ],
    kind: Annotated[
        str, typer.Option(metavar="NAME", help="What to do to it, such as send-removed; `list` lists the kinds.")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Draws the place; the first one of --all.")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the damaged trace goes.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Do every kind, and print which checks see it.")] = False,
    tries: Annotated[int, typer.Option(min=1, max=10_000, help="So often --all does each kind.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Damage a right trace in one place that a seed draws, to see whether the judges notice.

        gapless damage out/sim --kind deliver-removed --seed 7 --out out/damaged

        gapless damage out/sim --all

    --all judges the trace after each damage. A check sees a damage if it held before, and afterwards is violated or not
    judged. Exit code 1: some kind was never seen.
    """
    from statemachines_reports.damage.damage_list import KINDS, WITHOUT_DATA

    if str(trace) == LIST:
        for name, what in KINDS.items():
            print(f"{name:22} {what}{' (in traces with data)' if name in WITHOUT_DATA else ''}")
        return
    if every == bool(kind):
        raise ConfigurationError(
            "--kind", kind, "one of --kind NAME and --all is needed: gapless damage list lists kinds"
        )
    begin_work()
    if every:
        _show_all(trace, range(seed, seed + tries), json)
        return
    if kind not in KINDS:
        raise ConfigurationError("--kind", kind, "is no kind of damage: gapless damage list lists them")
    if out is None:
        raise ConfigurationError("--out", "", "is missing: name a folder for the damaged trace")
    print(plain_line(_damage_one(trace, kind, seed, out)))


def _damage_one(trace: Path, kind: str, seed: int, out: Path) -> str:
    """Where it is damaged, in words."""
    from statemachines.whole_file import check_folder
    from statemachines_reports.damage.damage_matrix import write_damaged
    from statemachines_reports.damage.log_damage import ACTS, damage_logs

    check_folder(out, "--out")
    if out.exists() and any(out.iterdir()):
        raise ConfigurationError("--out", str(out), "holds files already: name an empty folder")
    return damage_logs(trace, kind, seed, out) if kind in ACTS else write_damaged(trace, kind, seed, out)


def _show_all(directory: Path, seeds: range, json: bool) -> None:
    from statemachines_reports.damage.damage_matrix import ALL_KINDS, list_left_out, open_trial, try_all

    with open_trial(directory) as trial, bar("kinds") as advance:
        found = []
        for one in try_all(trial, seeds):
            found.append(one)
            advance(len(found), len(ALL_KINDS))
        wrong = _list_unheld(trial)
    if json:
        print(plain_json({"kinds": found, "left_out": list_left_out(trial), "before": wrong}))
    else:
        _print(found, list_left_out(trial), wrong)
    end_if((any(not one.seen for one in found), Exit.VIOLATED))


def _list_unheld(trial: DamageTrial) -> list[str]:
    """Checks that do not hold before any damage: they can see none in that run."""
    said = {number: trial.judge_undamaged(number) for number in trial.runs}
    return sorted(
        {f"{check}: {verdict}" for one in said.values() for check, verdict in one.items() if verdict != "held"}
    )


def _print(found: list[DamageTally], left_out: dict[str, str], wrong: list[str]) -> None:
    for check in wrong:
        print(f"not held before any damage: {check}")
    for one in found:
        checks = ", ".join(f"{check} {count}" for check, count in sorted(one.checks.items(), key=lambda pair: -pair[1]))
        print(f"{one.kind:22} {one.seen:>4} / {one.tried:<4} {checks or '-'}")
    for name, why in sorted(left_out.items()):
        print(f"{name:22}  left out: {why}")
    whole, most = (sum(one.seen * by >= one.tried + (by - 1) for one in found) for by in (1, 2))
    tries, seen = sum(one.tried for one in found), sum(one.seen for one in found)
    print(f"{len(found)} kinds: {whole} always seen, {most} mostly; {seen} of {tries} damages seen")

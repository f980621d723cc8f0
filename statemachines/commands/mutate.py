"""`gapless mutate`: small mistakes in the shipped machines, one at a time, and what exploration notices of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statemachines import catalogue
from statemachines.commands.exits import Exit, end_if
from statemachines.commands.progress import bar, say_progress
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json
from statemachines.whole_file import check_folder

if TYPE_CHECKING:
    from statemachines.testing.mutant_queue import JudgeRequest
    from statemachines_spec.mutants.account import MutantAccount
    from statemachines_spec.mutants.campaign import CampaignHead, CampaignResults, CampaignScope
    from statemachines_spec.mutants.judging import MutantVerdict
    from statemachines_spec.mutants.mutant import Mutant
    from statemachines_spec.mutants.notice import Notices

OUT = Path("out/mutants")


def mutate(
    protocol: Annotated[str, typer.Argument(metavar="PROTOCOL", help="Its name, or module:ATTRIBUTE of one.")],
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these mutants, names or patterns with *.")
    ] = None,
    group: Annotated[list[str] | None, typer.Option(metavar="GROUP", help="Only row, guard, timer or code.")] = None,
    systems: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only in this system or directed system; may be repeated.")
    ] = None,
    states_max: Annotated[int, typer.Option(min=100, help="Leave out larger systems.")] = 100_000,
    sample: Annotated[int, typer.Option(min=0, help="Only so many, drawn by --seed (0: all).")] = 0,
    seed: Annotated[int, typer.Option(help="What draws the sample.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Mutants looked at at a time, each in a process of its own.")] = 1,
    again: Annotated[bool, typer.Option("--again", help="Forget what was judged before.")] = False,
    survivors: Annotated[
        bool, typer.Option("--survivors", help="Whatever has changed since, judge only those that lived.")
    ] = False,
    report: Annotated[bool, typer.Option("--report", help="Explore nothing; say what was judged before.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List them; judge nothing.")] = False,
    others: Annotated[
        bool,
        typer.Option("--others", help="Show survivors to other judges too, until one of them notices."),
    ] = False,
    tests: Annotated[list[Path] | None, typer.Option(metavar="PATH", help="Tests, for --others.")] = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="Of processor time, for each of the others and each mutant.")
    ] = 20.0,
    beside: Annotated[
        int, typer.Option(min=0, help="Of all, this many are shown to every one of the others (the same each time).")
    ] = 0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where verdicts are kept.")] = OUT,
    write: Annotated[bool, typer.Option("--write", help="Write mutants.md beside the protocol's clauses.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Put small mistakes into a protocol's machines, one at a time, and see what exploration notices.

    Rows are deleted, redirected, swapped; guards dropped or negated; timers dropped or set to other times; in what the
    machines call, a comparison is turned, a number is off by one, a field, an effect or an argument is wrong.

    Verdicts are kept: a run that was stopped goes on where it was.

    Exit code 0: every mutant was killed, or a clause allows it. 1: some live; they are listed. 3: stopped, or some
    could not be judged.
    """
    from statemachines_spec.mutants import account, campaign
    from statemachines_spec.mutants.mutant import GROUPS

    begin_work(compiles=True)
    check_folder(out, "--out")
    unknown = [one for one in group or () if one not in GROUPS]
    if unknown:
        raise ConfigurationError("group", unknown[0], f"unknown; there are: {', '.join(GROUPS)}")
    field = campaign.CampaignScope(campaign.CampaignShape(protocol, tuple(systems or ()), states_max))
    mutants = campaign.pick_mutants(field.mutants, tuple(only or ()), tuple(group or ()), sample, seed)
    if listed:
        _list(mutants, json)
        return
    _count(field, mutants)
    names = {one.name: one for one in mutants}
    head = campaign.CampaignHead(field.protocol.name, field.print())
    path = out / f"{field.protocol.name}.jsonl"
    if again:
        path.unlink(missing_ok=True)
        path.with_suffix(".others.jsonl").unlink(missing_ok=True)
    results = campaign.CampaignResults(path, head, names if survivors else () if report else None)
    stopped = False if report else _judge(field, mutants, results, jobs)
    found = [results.verdicts[name] for name in names if name in results.verdicts]
    drawn = campaign.pick_mutants(mutants, (), (), beside, 0) if beside else []
    asked = _ask_judges(tuple(tests or ()), seconds, drawn, jobs) if others else None
    notices = _notices(path, head, asked, kept=survivors or report)
    if asked is not None and not stopped:
        said = account.account_of(found, field.part.allowed)
        stopped = _ask_others(protocol, mutants, {one.name for one in said.alive}, notices, asked)
    noticed = [one for one in notices.found.values() if one.name in names]
    said = account.account_of(found, field.part.allowed, noticed, drawn)
    if json:
        shown = {
            "protocol": field.protocol.name,
            "lines": said.lines,
            "verdicts": found,
            "others": noticed,
            "sample": said.sample,
        }
        print(plain_json(shown))
    else:
        print(account.text(said))
    if write:
        _write(field, said, found, results.head.systems)
    is_judged = not stopped and all(one.verdict != "not judged" for one in said.alive)
    end_if((not is_judged, Exit.INCONCLUSIVE), (said.alive, Exit.VIOLATED))


def _judge(field: CampaignScope, mutants: list[Mutant], results: CampaignResults, jobs: int) -> bool:
    """Judge what has no verdict yet; whether it was stopped."""
    from statemachines_spec.mutants import campaign

    with bar("mutants") as advance:
        done = sum(one.name in results.verdicts for one in mutants)
        try:
            for _ in campaign.judge_mutants(field, mutants, results, jobs, say_progress):
                done += 1
                advance(done, len(mutants))
        except KeyboardInterrupt:
            return True
    return False


def _ask_judges(tests: tuple[Path, ...], seconds: float, drawn: Iterable[Mutant], jobs: int) -> JudgeRequest:
    from statemachines.testing.mutant_queue import JudgeRequest

    return JudgeRequest(tests, seconds, frozenset(one.name for one in drawn), jobs)


def _notices(path: Path, head: CampaignHead, asked: JudgeRequest | None, *, kept: bool) -> Notices:
    """What other judges noticed before, beside the verdicts of exploration; `asked`: what they are asked now."""
    from statemachines_spec.mutants.notice import Notices, Rests

    rests = Rests(head.print, asked.print() if asked else "")
    return Notices(path.with_suffix(".others.jsonl"), rests, kept=kept)


def _ask_others(name: str, mutants: list[Mutant], alive: set[str], notices: Notices, asked: JudgeRequest) -> bool:
    """Show those alive to the other judges until one notices; whether it was stopped."""
    notices.begin()
    try:
        with bar("other judges") as advance:
            for done, some in asked.each(name, mutants, alive, notices):
                advance(done, some)
    except KeyboardInterrupt:
        return True
    return False


def _count(field: CampaignScope, mutants: list[Mutant]) -> None:
    """Before anything is judged: how many there are."""
    counts = field.counts(mutants)
    kinds = "; ".join(
        f"{group} {sum(kinds.values()):,} ({', '.join(f'{kind} {n:,}' for kind, n in kinds.items())})"
        for group, kinds in counts.items()
    )
    print(f"{field.protocol.name}: {len(mutants):,} mutants: {kinds}", file=sys.stderr)


def _list(mutants: list[Mutant], json: bool) -> None:
    if json:
        shown = [{"name": one.name, "group": one.group, "kind": one.kind, "what": one.what} for one in mutants]
        print(plain_json(shown))
        return
    for one in mutants:
        print(f"{one.name}  {one.what}")


def _write(field: CampaignScope, said: MutantAccount, found: list[MutantVerdict], judged_in: tuple[str, ...]) -> None:
    from statemachines_spec.mutants import account

    path = catalogue.page(field.protocol.name).with_name("mutants.md")
    names = {one.name: one for one in field.mutants}
    account.write(path, account.page(field.protocol.name, said, names, found, judged_in))
    print(f"written: {path}", file=sys.stderr)

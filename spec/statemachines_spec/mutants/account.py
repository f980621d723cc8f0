"""Account: what came of the mutants of a protocol: how many of each kind were killed, and each that lives.

The numbers rest on mutants that a declaration would accept; those that its checks refuse are a class of their own.  One
that exploration did not notice may be *allowed* where the protocol says by which clause, or noticed by others: tests,
simulation, Hypothesis.  What is left is alive.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from statemachines_spec.mutants import strength
from statemachines_spec.mutants.judging import (
    EQUAL,
    ERROR,
    LIVED,
    NEVER,
    OBLIGATION,
    PROPERTY,
    UNJUDGED,
    UNSEEN,
    MutantVerdict,
)
from statemachines_spec.mutants.mutant import CODE, GROUPS, Mutant
from statemachines_spec.mutants.notice import Notice
from statemachines_spec.protocol import AllowedMutants

HEADS = (
    "mutants", "made", "property", "obligation", "never happens", "raises", "killed",
    "lived", "equal", "never executed", "not judged", "allowed", "others",
)  # fmt: skip
COLUMNS = (PROPERTY, OBLIGATION, NEVER, ERROR)


class MutantCount(msgspec.Struct, frozen=True):
    """Of mutants of one sort, how many there are and what became of them; of those that exploration left alive, how
    many are `allowed`, and how many of the rest `others` noticed."""

    sort: str
    made: int
    by: dict[str, int]
    allowed: int
    others: int = 0

    @property
    def killed_count(self) -> int:
        """Whatever broke."""
        return sum(self.by.get(one, 0) for one in COLUMNS)

    @property
    def rate(self) -> float:
        """Of all that are not allowed, the part that was killed."""
        return self.killed_count / max(1, self.made - self.allowed)

    @property
    def settled_count(self) -> int:
        """Killed by something, or allowed."""
        return self.killed_count + self.others + self.allowed


class MutantAccount(msgspec.Struct, frozen=True):
    """`lines` by group and kind, then all; `refused`: those that the checks of a declaration refuse; of what
    exploration left alive: `allowed`, `noticed` by others, and `alive`: the rest."""

    lines: tuple[MutantCount, ...]
    refused: tuple[MutantCount, ...]
    alive: tuple[MutantVerdict, ...]
    allowed: tuple[tuple[MutantVerdict, AllowedMutants], ...]
    noticed: tuple[Notice, ...] = ()
    sample: strength.MutantSample | None = None


def account_of(
    verdicts: Iterable[MutantVerdict], allowed: Sequence[AllowedMutants], notices: Sequence[Notice] = (),
    drawn: Iterable[Mutant] = (),
) -> MutantAccount:  # fmt: skip
    """The account of these verdicts, and of what others noticed; `drawn`: the sample that everybody was shown."""
    found = list(verdicts)
    seen = {one.name: one for one in reversed(notices) if one.what}
    taken = [one for one in found if not one.refused]
    refused = [one for one in found if one.refused]
    excused = {one.name: clause for one in taken if not one.is_killed and (clause := excuse(one.name, allowed))}
    left = [one for one in taken if not one.is_killed and one.name not in excused]
    noticed = {one.name: seen[one.name] for one in left if one.name in seen}
    aside = (excused, noticed)
    lines = [*_by_kind(taken, *aside), _line("row and guard", [o for o in taken if o.group != CODE], *aside)]
    lines += [_line("code", [one for one in taken if one.group == CODE], *aside), _line("all", taken, *aside)]
    alive = tuple(one for one in left if one.name not in noticed)
    pairs = tuple((one, excused[one.name]) for one in taken if one.name in excused)
    made = tuple(line for line in lines if line.made)
    sample = strength.sample_of({one.name for one in drawn}, taken, excused, notices)
    return MutantAccount(made, tuple(_by_kind(refused, {}, {})), alive, pairs, tuple(noticed.values()), sample)


def excuse(name: str, allowed: Sequence[AllowedMutants]) -> AllowedMutants | None:
    """What allows the mutant of this name (None: nothing)."""
    return next((one for one in allowed if any(fnmatchcase(name, mutant) for mutant in one.mutants)), None)


def _by_kind(
    verdicts: list[MutantVerdict], excused: dict[str, AllowedMutants], noticed: dict[str, Notice]
) -> list[MutantCount]:
    kinds = dict.fromkeys((group, one.kind) for group in GROUPS for one in verdicts if one.group == group)
    return [_line(kind, [one for one in verdicts if (one.group, one.kind) == (group, kind)], excused, noticed)
            for group, kind in kinds]  # fmt: skip


def _line(
    sort: str, verdicts: list[MutantVerdict], excused: dict[str, AllowedMutants], noticed: dict[str, Notice]
) -> MutantCount:
    by: dict[str, int] = {}
    for one in verdicts:
        by[one.verdict] = by.get(one.verdict, 0) + 1
    apart = (sum(one.name in some for one in verdicts) for some in (excused, noticed))
    return MutantCount(sort, len(verdicts), by, *apart)


# -- as text --------------------------------------------------------------------------------------------------------


def table(lines: Iterable[MutantCount]) -> list[str]:
    """In Markdown."""
    rows = [f"| {' | '.join(HEADS)} |", "|---|" + "---:|" * (len(HEADS) - 1)]
    for one in lines:
        by = [_number(one.by.get(name, 0)) for name in (*COLUMNS,)]
        left = [_number(one.by.get(name, 0)) for name in (LIVED, EQUAL, UNSEEN, UNJUDGED)]
        left += [_number(one.allowed), _number(one.others)]
        rows.append(f"| {' | '.join((one.sort, _number(one.made), *by, f'{100 * one.rate:.1f} %', *left))} |")
    return rows


def text(found: MutantAccount) -> str:
    """For people, on a terminal."""
    lines = table(found.lines)
    if found.refused:
        lines += ["", "refused by the checks of a declaration, and judged all the same:", "", *table(found.refused)]
    if found.sample:
        lines += [
            "",
            f"of {found.sample.all} drawn by chance, shown to every judge:",
            "",
            *strength.table(found.sample),
        ]
    lines += [f"allowed: {one.name}: {one.verdict} [{clause.clause}]" for one, clause in found.allowed]
    lines += [f"noticed by {one.judge}: {one.name}: {one.what}" for one in found.noticed]
    lines += [f"ALIVE {one.name}: {one.verdict}{f' in {one.where}' if one.where else ''}" for one in found.alive]
    return "\n".join([*lines, render_settled(found)])


def render_settled(found: MutantAccount) -> str:
    """How many are killed by something, or allowed; the line that counts all is the last."""
    whole = found.lines[-1] if found.lines else MutantCount("all", 0, {}, 0)
    part = f"{100 * whole.settled_count / max(1, whole.made):.1f} %"
    return f"Killed by something, or allowed: {_number(whole.settled_count)} of {_number(whole.made)} ({part})."


def page(
    name: str,
    found: MutantAccount,
    mutants: dict[str, Mutant],
    judged: Sequence[MutantVerdict],
    judged_in: Sequence[str],
) -> str:
    """The page of a protocol: of all its `mutants` those that are `judged`, in these systems."""
    part = [
        f"{group} {_number(sum(one.group == group for one in judged))} of {_number(made)}"
        for group in GROUPS
        if (made := sum(one.group == group for one in mutants.values()))
    ]
    lines = [
        f"# {name.replace('_', ' ').capitalize()}: mutants",
        "",
        "What exploration notices of small mistakes in the shipped machines, one at a time:",
        f"`gapless mutate {name}`. How they are made, and what the columns mean, is said in docs/mutants.md.",
        "",
        f"Judged are {', '.join(part)}. In: {', '.join(judged_in)}.",
        "",
        f"By machine, or module of code: {', '.join(_by_place(mutants, judged))}.",
        "",
        *table(found.lines),
        "",
        "*Killed* is the part of all that are made, less those that a clause allows. *Allowed* and *others*",
        "are of those that exploration leaves alive: what a clause allows; of the rest, what tests, simulation or",
        "Hypothesis notice.",
        render_settled(found),
    ]
    if found.sample:
        lines += ["", "## How strong each judge is", "", *_about(found.sample), "", *strength.table(found.sample)]
    if found.refused:
        lines += ["", "## Refused by the checks of a declaration", "", *table(found.refused)]
    lines += ["", "## Allowed", ""]
    by_clause: dict[AllowedMutants, list[MutantVerdict]] = {}
    for one, clause in found.allowed:
        by_clause.setdefault(clause, []).append(one)
    lines += [f"- {clause.clause}: {clause.why}: {_names(each)}" for clause, each in by_clause.items()] or ["None."]
    for judge in dict.fromkeys(one.judge for one in found.noticed):
        some_of = [one for one in found.noticed if one.judge == judge]
        lines += ["", f"## Noticed by {judge}", "", *(f"- `{one.name}`: {one.what}" for one in some_of)]
    for verdict, title in (
        (LIVED, "Lived: entries differ, and nothing breaks"),
        (EQUAL, "Indistinguishable in these systems: executed, with equal entries"),
        (UNSEEN, "Survivors that are never executed"),
        (UNJUDGED, "Not judged"),
    ):
        some = [one for one in found.alive if one.verdict == verdict]
        if some:
            lines += ["", f"## {title}", "", *_listed(some, mutants)]
    return "\n".join(lines) + "\n"


def _about(sample: strength.MutantSample) -> tuple[str, ...]:
    return (
        f"The same {sample.all} mutants, drawn by chance from all that the checks take and no clause allows, shown to",
        "every judge, whatever the others said of them. *Nobody else*: no other judge noticed these.",
    )


def _by_place(mutants: dict[str, Mutant], judged: Sequence[MutantVerdict]) -> list[str]:
    """How many are judged of those of each machine or module: a sample may lie anywhere."""
    made, seen = (Counter(re.split("[/.]", one)[0] for one in names) for names in (mutants, [o.name for o in judged]))
    return [f"{place} {_number(seen[place])} of {_number(count)}" for place, count in made.items()]


def _listed(verdicts: list[MutantVerdict], mutants: dict[str, Mutant]) -> list[str]:
    """Code one by one; of a row in one line all that live."""
    lines = []
    by_row: dict[str, list[MutantVerdict]] = {}
    for one in verdicts:
        if one.group == CODE:
            lines.append(f"- `{one.name}`: {mutants[one.name].what}")
        else:
            by_row.setdefault(one.name.rpartition("/")[0], []).append(one)
    rows = []
    for row, some in by_row.items():
        what = mutants[some[0].name].what
        which = ", ".join(one.name.rpartition("/")[2] for one in some)
        rows.append(f"- `{row}` {what[what.find('(') : what.find(')') + 1]}: {which}")
    return rows + lines


def _names(verdicts: list[MutantVerdict]) -> str:
    return ", ".join(f"`{one.name}`" for one in verdicts)


def _number(value: int) -> str:
    return f"{value:,}".replace(",", " ")


def write(path: Path, said: str) -> None:
    """The page anew."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(said)

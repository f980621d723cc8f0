"""Sources: each clause cites a heading of its source or a decision, and each requirement of a source has its answer.

    python tools/sources.py        what is wrong, a line each; exit code 1 if anything is

`spec/<protocol>/source.md` lists the requirements of a source under its headings.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from statemachines import catalogue, registry
from statemachines.pages import parse_decisions

ROOT = Path(__file__).parents[1]
REQUIREMENT = re.compile(r"^\| (\d+) \| (.+) \| (.+) \|$")
NAMED = re.compile(r"\b(?:[A-Z]{2}-)?D-?\d+\b|\b[A-Z]{2}-\d+\b")


def read_requirements(page: str) -> dict[str, list[tuple[str, ...]]]:
    """Heading of the source -> (number, what it asks for, what is here) of each requirement."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for line in page.splitlines():
        if line.startswith("## "):
            rows = found[line[3:]] = []
        elif match := REQUIREMENT.match(line):
            rows.append(match.groups())
    return found


def find_faults(protocol: str, known: set[str]) -> Iterator[str]:
    """What is wrong with the citations of a protocol; `known`: the names of all clauses and decisions."""
    page = catalogue.page(protocol).with_name("source.md")
    asked = read_requirements(page.read_text(encoding="utf-8")) if page.exists() else {}
    for clause in catalogue.clauses(protocol).values():
        cited, named = re.findall(r'"([^"]+)"', clause.source), NAMED.findall(clause.source)
        strange = [one for one in cited if asked and one not in asked] + [one for one in named if one not in known]
        if strange or (asked and not cited and not named):
            what = ", ".join(strange) or clause.source
            yield f"{clause.id} cites {what}: no heading of {page}, clause or decision"
    numbers = [row[0] for rows in asked.values() for row in rows]
    if numbers != [str(number) for number in range(1, len(numbers) + 1)]:
        yield f"{protocol}: the requirements are not numbered from 1 on"
    for heading, rows in asked.items():
        for number, _, here in rows:
            strange = [one for one in NAMED.findall(here) if one not in known]
            if strange or not ("here" in here or NAMED.search(here)):
                yield f"{protocol}, {heading}, {number}: names {', '.join(strange) or 'no clause, and says not why'}"


def list_protocols() -> list[str]:
    """Those with clauses."""
    return [one.name for one in registry.protocols() if one.page]


def list_names() -> set[str]:
    """The names of all clauses and decisions."""
    texts = [(ROOT / "spec/DECISIONS.md"), *ROOT.glob("spec/*/decisions.md")]
    decisions = {one.id for path in texts for one in parse_decisions(path.read_text(encoding="utf-8"))}
    return decisions.union(*map(catalogue.clauses, list_protocols()))


def main() -> int:
    """Print what is wrong."""
    known = list_names()
    faults = [fault for protocol in list_protocols() for fault in find_faults(protocol, known)]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

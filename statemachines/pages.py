"""Pages: the texts of a protocol, read: clauses, properties, decisions, terms.

`spec/<protocol>/` has one form for all protocols.  An item begins a line with `- **ID` and goes on in indented lines:

    - **SS-01** A sentence, over as many lines as it takes. ("section of the source"; D-01)         clauses.md
    - **S5 A short title.** What is promised.                                                       properties.md
      - terms: `lease`, `session`
      - carried by: SS-10, SS-64
      - checked: explored, simulated
      - also called: `exclusivity`
    - **D-04 a short title.** The rule, and why.                                                    decisions.md
    - **`lease`** What is meant by it.                                 under "## Terms" of clauses.md or properties.md

Nothing here knows a protocol; `catalogue` finds the pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec


class Clause(msgspec.Struct, frozen=True):
    """One numbered sentence of a protocol's page: `id` "SS-01", the `part` of the page, our `text`, its `source`."""

    id: str
    part: str
    text: str
    source: str

    @property
    def is_modelled(self) -> bool:
        """False where the clause itself says "not modelled: why"."""
        return "not modelled:" not in self.text


class Property(msgspec.Struct, frozen=True):
    """One promise: `id` "S5", its `part` (Safety, Liveness), `title`, `text`, the `terms` it needs, the `clauses` that
    carry it, where it is `checked`, and what else tools call it (`names`)."""

    id: str
    part: str
    title: str
    text: str
    terms: tuple[str, ...]
    clauses: tuple[str, ...]
    checked: str
    names: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """One decision: `id` "D-04" (or "MS-D2"), its `title`, the rule and its reason."""

    id: str
    title: str
    text: str


class Term(msgspec.Struct, frozen=True):
    """A word with one meaning: its `name`, and the `text` of the item that defines it."""

    name: str
    text: str


Item = tuple[str, tuple[str, ...]]
"""Heading that an item stands under, and its lines without their indentation."""

_CLAUSE = re.compile(r"- \*\*([A-Z]{2,}-[0-9]+)\*\*\s+(.*)")
_SOURCE = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)$")
_PROPERTY = re.compile(r"- \*\*([A-Z][A-Z0-9]*) ([^*]+)\.\*\*\s+(.*)")
_DECISION = re.compile(r"- \*\*((?:[A-Z]{2,}-)?D-?[0-9]+) ([^*]+?)\.?\*\*\s+(.*)")
_TERM = re.compile(r"\*\*`([^`]+)`\*\*")
_FIELD: Final = re.compile(r"- (terms|carried by|checked|also called): (.*)")


def parse_clauses(text: str) -> Iterator[Clause]:
    """The items `- **SS-01** text (source)` of a page, each under the heading that it stands below."""
    for part, lines in _items(text):
        if matched := _CLAUSE.match(" ".join(lines)):
            said = matched[2].strip()
            source = _SOURCE.search(said)
            if source is None:
                yield Clause(matched[1], part, said, "")
            else:
                yield Clause(matched[1], part, said[: source.start()].strip(), source[1])


def parse_properties(text: str) -> Iterator[Property]:
    """The items `- **S5 Title.** text`, with the lines below them that say terms, clauses, checks and names."""
    for part, lines in _items(text):
        said, fields = _fields(lines)
        if matched := _PROPERTY.match(said):
            yield Property(
                matched[1],
                part,
                matched[2],
                matched[3].strip(),
                tuple(re.findall(r"`([^`]+)`", fields.get("terms", ""))),
                tuple(re.findall(r"[A-Z]{2,}-[0-9]+", fields.get("carried by", ""))),
                fields.get("checked", ""),
                tuple(re.findall(r"`([^`]+)`", fields.get("also called", ""))),
            )


def parse_decisions(text: str) -> Iterator[Decision]:
    """The items `- **D-04 title.** text`."""
    for _, lines in _items(text):
        if matched := _DECISION.match(" ".join(lines)):
            yield Decision(matched[1], matched[2], matched[3].strip())


def parse_terms(text: str) -> Iterator[Term]:
    """What the items under "Terms" define, in their order; an item may define several."""
    begin = re.search(r"^## Terms$", text, re.MULTILINE)
    if begin is None:
        return
    end = re.search(r"^## ", text[begin.end() :], re.MULTILINE)
    section = text[begin.end() : begin.end() + end.start()] if end else text[begin.end() :]
    for _, lines in _items(section):
        said = " ".join(lines)
        for name in _TERM.findall(said):
            yield Term(name, said.removeprefix("- "))


def _items(text: str) -> Iterator[Item]:
    part = ""
    item: list[str] = []
    for line in [*text.splitlines(), ""]:
        if item and line.startswith("  "):
            item.append(line.strip())
            continue
        if item:
            yield part, tuple(item)
            item = []
        if line.startswith("#"):
            part = line.lstrip("#").strip()
        elif line.startswith("- **"):
            item = [line]


def _fields(lines: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """The text of an item, and what the lines `- key: value` below it say."""
    said: list[str] = []
    fields: dict[str, str] = {}
    last = ""
    for line in lines:
        if matched := _FIELD.match(line):
            last = matched[1]
            fields[last] = matched[2]
        elif last:
            fields[last] += f" {line}"
        else:
            said.append(line)
    return " ".join(said), fields

"""Catalogue: which machines there are, of which protocol, and the clauses that their rows carry out.

A machine is imported when it is asked for, so that listing names costs nothing.  The clauses are read from the
protocol's page `spec/<protocol>.md`, which is shipped with the package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from statemachines.kernel import ConfigurationError, Fsm


class Entry(msgspec.Struct, frozen=True):
    """Where a machine is declared: `attribute` of `module`."""

    name: str
    module: str
    attribute: str


class Protocol(msgspec.Struct, frozen=True):
    """One published design: its machines, parents before children, and the clauses of its page."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def machines(self) -> tuple[str, ...]:
        """The names of its machines."""
        return tuple(entry.name for entry in self.entries)


class Clause(msgspec.Struct, frozen=True):
    """One numbered sentence of a protocol's page: `id` "SS-01", the `part` of the page, our `text`, its `source`."""

    id: str
    part: str
    text: str
    source: str


def _protocol(name: str, **modules: str) -> Protocol:
    """A protocol whose machine `x` is declared in `statemachines.<name>.<module>` as `X`."""
    entries = (Entry(machine, f"statemachines.{name}.{module}", machine.upper()) for machine, module in modules.items())
    return Protocol(name, tuple(entries))


PROTOCOLS: Final = (
    _protocol(
        "shared_subscriptions",
        borrower="borrower",
        stream="stream",
        session="session",
        private="private",
        leader="leader",
        member="member",
        assignment="assignment",
        group="group",
    ),
    _protocol("missed_samples", source="source"),
    _protocol("cursor_recovery", writer="writer"),
)

CLAUSE_FOLDERS: Final = (Path(__file__).parent / "clauses", Path(__file__).parent.parent / "spec")
"""Where pages are looked for: in an installed package, then in the repository."""

_ITEM = re.compile(r"- \*\*([A-Z]{2,}-[0-9]+)\*\*\s+(.*)")
_SOURCE = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)$")


def names() -> tuple[str, ...]:
    """The names of all machines, by protocol."""
    return tuple(name for protocol in PROTOCOLS for name in protocol.machines)


def protocol(name: str) -> Protocol:
    """The protocol called `name`; raises `ConfigurationError` with the known names."""
    for known in PROTOCOLS:
        if known.name == name:
            return known
    raise unknown("protocol", name, tuple(known.name for known in PROTOCOLS))


def protocol_of(machine_name: str) -> Protocol:
    """The protocol that the machine belongs to; raises `ConfigurationError` with the known names."""
    for known in PROTOCOLS:
        if machine_name in known.machines:
            return known
    raise unknown("machine", machine_name, names())


def machine(name: str) -> Fsm[Any]:
    """The machine called `name`; raises `ConfigurationError` with the known names."""
    entry = _entry(name)
    found: Fsm[Any] = getattr(import_module(entry.module), entry.attribute)
    return found


def machines(protocol_name: str) -> tuple[Fsm[Any], ...]:
    """All machines of a protocol; raises `ConfigurationError` with the known names."""
    return tuple(machine(name) for name in protocol(protocol_name).machines)


def summary(name: str) -> str:
    """What the machine is for: the first sentence of its module, without its source."""
    document = import_module(_entry(name).module).__doc__ or ""
    paragraph = " ".join(document.split("\n\n", 1)[0].split())
    sentence = re.split(r"\.(?: |$)", paragraph, maxsplit=1)[0]
    without_name = re.sub(r"^\w+: ", "", sentence)
    return re.sub(r" \(source: .*?\)(?=$| )", "", without_name)


@cache
def clauses(protocol_name: str) -> dict[str, Clause]:
    """The clauses of a protocol's page by id, in the order of the page; raises `ConfigurationError` without one."""
    return {clause.id: clause for clause in parse_clauses(page(protocol_name).read_text(encoding="utf-8"))}


def page(protocol_name: str) -> Path:
    """The protocol's page; raises `ConfigurationError` with the places where it was looked for."""
    name = protocol(protocol_name).name
    places = [folder / f"{name}.md" for folder in CLAUSE_FOLDERS]
    for place in places:
        if place.is_file():
            return place
    raise ConfigurationError("protocol", name, f"its page of clauses is missing: neither {places[0]} nor {places[1]}")


def parse_clauses(text: str) -> Iterator[Clause]:
    """The items `- **SS-01** text (source)` of a page, each under the heading that it stands below."""
    part = ""
    item: list[str] = []
    for line in [*text.splitlines(), ""]:
        if item and line.startswith("  "):
            item.append(line.strip())
            continue
        if item:
            yield _clause(part, " ".join(item))
            item = []
        if line.startswith("#"):
            part = line.lstrip("#").strip()
        elif _ITEM.match(line):
            item = [line]


def unknown(kind: str, name: str, known: tuple[str, ...]) -> ConfigurationError:
    """The error for a name that is not there: what was meant perhaps, and what there is."""
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ConfigurationError(kind, name, f"unknown; {hint}there are: {', '.join(known)}")


def _entry(name: str) -> Entry:
    return next(entry for entry in protocol_of(name).entries if entry.name == name)


def _clause(part: str, item: str) -> Clause:
    matched = _ITEM.match(item)
    assert matched is not None
    text = matched[2].strip()
    source = _SOURCE.search(text)
    if source is None:
        return Clause(matched[1], part, text, "")
    return Clause(matched[1], part, text[: source.start()].strip(), source[1])

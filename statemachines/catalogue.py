"""Catalogue: which machines there are, of which protocol, and the clauses and properties that they carry out.

A machine is imported when it is asked for, so that listing names costs nothing.  It is called `protocol/machine`, by
its short name where no other protocol has one of that name, or by `module:ATTRIBUTE`.  The texts are read from the
pages of the protocol (`pages` says their form), which are shipped with its package.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from statemachines import registry
from statemachines.kernel import ConfigurationError, Fsm, Process, Protocol
from statemachines.pages import Clause as Clause
from statemachines.pages import Decision, Property, Term, parse_decisions, parse_properties, parse_terms
from statemachines.pages import parse_clauses as parse_clauses
from statemachines.registry import make_unknown_error


def names() -> tuple[str, ...]:
    """The full names of all machines, by protocol; none is loaded."""
    return tuple(one.full_name(machine) for one in registry.protocols() for machine in one.machines)


def full_name(name: str) -> str:
    """`protocol/machine` for a full name, or for a short one that one protocol has.

    Raises `ConfigurationError` for an unknown name, and for a short one that several have, naming them.
    """
    known = names()
    if name in known:
        return name
    found = [one for one in known if one.partition("/")[2] == name]
    if len(found) > 1:
        raise ConfigurationError("machine", name, f"several protocols have one: say {' or '.join(found)}")
    if found:
        return found[0]
    lost = "".join(f"; protocol {one} does not load" for one in registry.find_broken())
    short = tuple(one.partition("/")[2] for one in known)
    raise make_unknown_error("machine", name, known if "/" in name else short, f"or give module:ATTRIBUTE{lost}")


def protocol_of(machine_name: str) -> Protocol:
    """The protocol that the machine belongs to; raises `ConfigurationError` with the known names."""
    return registry.protocol(full_name(machine_name).partition("/")[0])


def place_of(name: str) -> str:
    """`module:ATTRIBUTE` of a machine by any of its names."""
    if ":" in name:
        return name
    owner, _, short = full_name(name).partition("/")
    return registry.protocol(owner).machines[short]


def machine(name: str) -> Fsm[Any]:
    """The machine called `name`; raises `ConfigurationError` with the known names, or where it is not what it says."""
    place = place_of(name)
    found: Fsm[Any] = registry.load(place, Fsm, "machine")
    if ":" not in name and found.full_name != full_name(name):
        rule = f"stands at {place}, where a machine calls itself {found.full_name!r}: both must be the same"
        raise ConfigurationError("machine", full_name(name), rule)
    return found


def find_process(name: str) -> Process[Any] | None:
    """The process called so (`protocol/process`, or its short name where one protocol has it); None: none is.

    Raises `ConfigurationError` where it is not what it says, and where several protocols have one of that short name.
    """
    places = {f"{one.name}/{short}": place for one in registry.protocols() for short, place in one.processes.items()}
    found = [full for full in places if name in (full, full.partition("/")[2])]
    if len(found) > 1:
        raise ConfigurationError("process", name, f"several protocols have one: say {' or '.join(found)}")
    if not found:
        return None
    process: Process[Any] = registry.load(places[found[0]], Process, "process")
    if process.full_name != found[0]:
        rule = (
            f"stands at {places[found[0]]}, where a process calls itself {process.full_name!r}: both must be the same"
        )
        raise ConfigurationError("process", found[0], rule)
    return process


def processes(protocol_name: str) -> tuple[Process[Any], ...]:
    """All declared processes of a protocol; raises `ConfigurationError` as `machines` and `find_process` do."""
    one = registry.protocol(protocol_name)
    return tuple(found for name in one.processes if (found := find_process(one.full_name(name))) is not None)


def machines(protocol_name: str) -> tuple[Fsm[Any], ...]:
    """All machines of a protocol; raises `ConfigurationError` with the known names."""
    one = registry.protocol(protocol_name)
    return tuple(machine(one.full_name(name)) for name in one.machines)


def process_machines(protocol_name: str) -> tuple[Fsm[Any], ...]:
    """The machines by which the processes of a protocol decide."""
    one = registry.protocol(protocol_name)
    found = (find_process(f"{one.name}/{short}") for short in one.processes)
    return tuple(process.fsm for process in found if process is not None)


def use_engine(engine: str) -> None:
    """Have all registered machines step by "compiled" or "transitions" in this process (`Fsm.use_engine`)."""
    for one in registry.protocols():
        for fsm in (*machines(one.name), *process_machines(one.name)):
            fsm.use_engine(engine)


def summary(name: str) -> str:
    """What the machine is for: the first sentence of its module, without its source."""
    document = import_module(place_of(name).partition(":")[0]).__doc__ or ""
    paragraph = " ".join(document.split("\n\n", 1)[0].split())
    sentence = re.split(r"\.(?: |$)", paragraph, maxsplit=1)[0]
    without_name = re.sub(r"^\w+: ", "", sentence)
    return re.sub(r" \(source: .*?\)(?=$| )", "", without_name)


@cache
def clauses(protocol_name: str) -> dict[str, Clause]:
    """The clauses of a protocol's page by id, in the order of the page; raises `ConfigurationError` without one."""
    return {clause.id: clause for clause in parse_clauses(_text(protocol_name, ""))}


@cache
def properties(protocol_name: str) -> dict[str, Property]:
    """What a protocol promises, by id, in the order of its `properties.md`; raises `ConfigurationError` without one."""
    return {one.id: one for one in parse_properties(_text(protocol_name, "properties.md"))}


@cache
def decisions(protocol_name: str) -> dict[str, Decision]:
    """The protocol's own decisions by id; raises `ConfigurationError` where it has no `decisions.md`."""
    return {one.id: one for one in parse_decisions(_text(protocol_name, "decisions.md"))}


@cache
def terms(protocol_name: str) -> dict[str, Term]:
    """The words that the protocol's clauses and properties define, by name."""
    texts = (_text(protocol_name, ""), _text(protocol_name, "properties.md"))
    return {one.name: one for text in texts for one in parse_terms(text)}


def _text(protocol_name: str, beside: str) -> str:
    return page(protocol_name, beside).read_text(encoding="utf-8")


def page(protocol_name: str, beside: str = "") -> Path:
    """The protocol's page of clauses, or what stands beside it (`properties.md`, `decisions.md`, `scenarios.md`).

    It is looked for in the package that the registration names and, where that is a checkout, in `spec/<protocol>/` at
    its root.  Raises `ConfigurationError` for a protocol without a page, and with the places where it was looked for.
    """
    one = registry.protocol(protocol_name)
    if not one.page:
        raise ConfigurationError(
            "protocol", one.name, "has no page of clauses; its registration may name one as `page`"
        )
    package, _, path = one.page.partition(":")
    inside = Path(str(files(package))) / path
    top = Path(str(files(package.partition(".")[0])))
    places = [inside, top.parent / "spec" / one.name / inside.name]
    for place in places:
        place = place.with_name(beside) if beside else place
        if place.is_file():
            return place
    rule = f"its page {beside or inside.name} is missing: neither {places[0].parent} nor {places[1].parent} has it"
    raise ConfigurationError("protocol", one.name, rule)

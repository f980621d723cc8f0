"""Pages of the specification: the machines of a protocol with diagram and table, and a matrix of its clauses."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

from configuration_reference import link_clauses, make_table

from statemachines import catalogue, diagrams, registry
from statemachines.kernel import Fsm, Process, name_of
from statemachines_reports.draw_machine import draw

LABEL_MAX = 18
TIPS = (
    '<svg width="0" height="0" style="position:absolute" class="machine" aria-hidden="true"><defs>'
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs></svg>'
)
"""The tip of arrows, once a page."""


def list_protocols() -> list[str]:
    """The protocols whose clauses are in this repository."""
    return [one.name for one in registry.protocols() if one.page]


def write_machines(protocol: str) -> str:
    """The page of the machines and processes of a protocol."""
    one = registry.protocol(protocol)
    parts = [
        f"# Machines\n\n{one.about[:1].upper()}{one.about[1:]}.\n",
        "Numbers at arrows are rows of the table below. A bold box is the initial state, a dashed one is final. "
        "`stay` rows stand in the box of their state.\n",
        f"<div>{TIPS}</div>\n",
    ]
    for name in one.machines:
        fsm = catalogue.machine(one.full_name(name))
        parts.append(f"## {name}\n\n{_sentence(catalogue.summary(one.full_name(name)))}\n")
        parts.append(_describe_machine(protocol, fsm))
    for process in catalogue.processes(protocol):
        parts.append(f"## Process {process.full_name.partition('/')[2]}\n\nIts own machine, and its routes.\n")
        parts.append(_describe_machine(protocol, process.fsm))
        parts.append(_describe_routes(process))
    return "\n".join(parts)


def write_matrix(protocol: str) -> str:
    """The page with clauses, the rows that carry them, and the properties that rest on them, side by side."""
    rows, properties = defaultdict(list), defaultdict(list)
    for fsm in (*catalogue.machines(protocol), *catalogue.process_machines(protocol)):
        for line in diagrams.cells(fsm):
            rows[line.clause].append(f"{fsm.name} {line.number}")
    for process in catalogue.processes(protocol):
        for route in process.routes:
            rows[route.clause].append(f"route of {process.full_name.partition('/')[2]}")
    for promise in catalogue.properties(protocol).values():
        for clause in promise.clauses:
            properties[clause].append(f"[{promise.id}](properties.md#{promise.id.lower()})")
    parts = ["# Clauses, rows and properties\n\nA clause is carried by rows of tables; properties rest on clauses.\n"]
    grouped: dict[str, list[tuple[str, ...]]] = {}
    for clause in catalogue.clauses(protocol).values():
        carriers = ", ".join(dict.fromkeys(rows[clause.id])) or ("" if clause.is_modelled else "not modelled")
        cells = (_link(clause.id), clause.text, carriers, ", ".join(properties[clause.id]))
        grouped.setdefault(clause.part, []).append(cells)
    for part, lines in grouped.items():
        parts.append(f"## {part}\n\n" + make_table(("clause", "text", "rows", "properties"), lines))
    parts.append("## Properties\n")
    promises = [
        (f"[{one.id}](properties.md#{one.id.lower()})", f"**{one.title}.** {one.text}",
         link_clauses(", ".join(one.clauses), ".."), one.checked)
        for one in catalogue.properties(protocol).values()
    ]  # fmt: skip
    parts.append(make_table(("property", "promise", "clauses", "checked"), promises))
    return "\n".join(parts)


def write_sources() -> str:
    """The page of all sources, requirement by requirement, and the clauses that cite each heading."""
    parts = ["# Sources, requirement by requirement\n"]
    for protocol in list_protocols():
        page = catalogue.page(protocol).with_name("source.md")
        citing = defaultdict(list)
        for clause in catalogue.clauses(protocol).values():
            for heading in re.findall(r'"([^"]+)"', clause.source):
                citing[heading].append(clause.id)
        for line in page.read_text(encoding="utf-8").splitlines() if page.exists() else ():
            if line.startswith("# "):
                line = f"#{line.removesuffix(': the source, requirement by requirement')}"
            elif line.startswith("## "):
                cited = ", ".join(citing[line[3:]])
                line = f"#{line}\n" + f"\nCited by {cited}.\n" * bool(cited)
            parts.append(line.replace("](", f"](spec/{protocol}/") if "](c" in line or "](d" in line else line)
    return link_clauses("\n".join(parts).replace("](../../", "]("), "spec") + "\n"


def _describe_machine(protocol: str, fsm: Fsm[Any]) -> str:
    clauses = catalogue.clauses(protocol)
    rows = [
        (str(one.number), f"`{one.event}`", f"{', '.join(one.sources)} → {diagrams.target(one)}",
         " ".join([f"[{one.guard}]" * bool(one.guard), one.action]).strip(),
         f"{_link(one.clause)} {clauses[one.clause].text if one.clause in clauses else ''}")
        for one in diagrams.cells(fsm)
    ]  # fmt: skip
    head = ("#", "event", "states", "[guard] action", "clause")
    picture = draw(fsm, {}, _labels(fsm)).replace("max-width:", "width:", 1)  # one that is wider than the page scrolls
    return f'<div class="diagram">{picture}</div>\n\n' + make_table(head, rows)


def _labels(fsm: Fsm[Any]) -> dict[tuple[str, str], str]:
    """The numbers of the rows at each arrow."""
    return {edge: _shorten([str(one.number) for one in rows]) for edge, rows in diagrams.arrows(fsm).items()}


def _shorten(numbers: list[str]) -> str:
    text = " ".join(numbers)
    return text if len(text) <= LABEL_MAX else text[:LABEL_MAX].rpartition(" ")[0] + " ..."


def _describe_routes(process: Process[Any]) -> str:
    rows = [
        (", ".join(f"`{name_of(event)}`" for event in one.on), ", ".join(one.of), diagrams.route_end(one),
         diagrams.route_guard(one), _link(one.clause))
        for one in process.routes
    ]  # fmt: skip
    return "\n" + make_table(("route of", "from", "to", "guard", "clause"), rows)


def _link(clause: str) -> str:
    return link_clauses(clause, "..")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def list_writers() -> Iterator[tuple[str, Any]]:
    """(address, what writes the page) of every page here."""
    yield "sources.md", write_sources
    for one in list_protocols():
        yield f"spec/{one}/machines.md", partial(write_machines, one)
        yield f"spec/{one}/matrix.md", partial(write_matrix, one)

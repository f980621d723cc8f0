"""Show: a machine's table and its clauses as text, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import IO, Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from statemachines import catalogue, diagrams, registry
from statemachines.catalogue import Clause
from statemachines.kernel import ADDRESSEE, Fsm, Process, name_of

WIDTH_WITHOUT_TERMINAL = 200
"""Columns where nobody is looking: wide enough for a table, so that a line of it stays a line."""


def write(shown: RenderableType, file: IO[str] | None = None) -> None:
    """Print as wide as the terminal; plain, wide and without trailing blanks where there is none."""
    stream = file or sys.stdout
    if stream.isatty():
        Console(file=stream, highlight=False).print(shown)
        return
    plain = Console(file=StringIO(), highlight=False, width=WIDTH_WITHOUT_TERMINAL, no_color=True)
    with plain.capture() as captured:
        plain.print(shown)
    stream.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def render_listing() -> RenderableType:
    """The machines by protocol, from the registrations alone: none of them is imported."""
    parts: list[RenderableType] = []
    for one in registry.protocols():
        parts.append(Text.assemble((one.name, "bold"), f": {one.about}" if one.about else ""))
        named = ", ".join(one.machines)
        named += f"\nprocesses: {', '.join(one.processes)}" if one.processes else ""
        parts.append(Padding(Text(named), (0, 0, 1, 2)))
    for name, error in registry.find_broken().items():
        parts += [Text.assemble((name, "bold"), " cannot be loaded"), Padding(Text(str(error)), (0, 0, 1, 2))]
    parts.append(Text("gapless show PROTOCOL sums its machines up; gapless show MACHINE shows a table and its clauses"))
    return Group(*parts)


def listing_json() -> bytes:
    """The machines as a list of objects: name, protocol, declared (where)."""
    return _json(
        {"name": name, "protocol": one.name, "declared": place}
        for one in registry.protocols()
        for name, place in one.machines.items()
    )


def render_overview(protocol: str) -> RenderableType:
    """The machines of a protocol, and its processes, a line each."""
    one = registry.protocol(protocol)
    table = Table.grid(padding=(0, 3))
    for name in one.machines:
        fsm = catalogue.machine(one.full_name(name))
        size = f"{len(fsm.states)} states, {len(fsm.lines)} rows"
        table.add_row(Text(name, style="bold"), size, catalogue.summary(one.full_name(name)))
    for process in catalogue.processes(protocol):
        size = f"{len(process.fsm.lines)} rows, {len(process.routes)} routes"
        table.add_row(Text(process.name, style="bold"), size, f"a process of {', '.join(process.kinds)}")
    return Group(Text(f"{one.name}: {one.about}"), Padding(table, (0, 0, 1, 2)))


def overview_json(protocol: str) -> bytes:
    """The machines of a protocol as a list of objects: name, protocol, summary, states, rows."""
    one = registry.protocol(protocol)
    return _json(
        {
            "name": name,
            "protocol": one.name,
            "summary": catalogue.summary(one.full_name(name)),
            "states": diagrams.state_names(catalogue.machine(one.full_name(name))),
            "rows": len(catalogue.machine(one.full_name(name)).lines),
        }
        for name in one.machines
    )


def render_description(name: str) -> RenderableType:
    """One machine: what it is, its table, its timers, and the text of every clause that it carries out."""
    fsm = catalogue.machine(name)
    clauses = _clauses_of(fsm, _page_of(fsm))
    parts: list[RenderableType] = [
        Text.assemble((fsm.full_name, "bold"), f": {catalogue.summary(name)}"),
        Text(_states(fsm)),
    ]
    if fsm.children:
        parts.append(Text(f"child machines: {', '.join(child.name for child in fsm.children)}"))
    parts.append(_table(fsm))
    if fsm.timers:
        parts += [_timers(fsm), Text()]
    return Group(*parts, _clause_list(clauses))


def description_json(name: str) -> bytes:
    """One machine as an object: name, protocol, states, initial, final, children, timers, lines, clauses."""
    fsm = catalogue.machine(name)
    return _json(
        {
            "name": fsm.name,
            "protocol": fsm.protocol,
            "states": diagrams.state_names(fsm),
            "initial": fsm.initial.value,
            "final": [state.value for state in fsm.final],
            "children": [child.name for child in fsm.children],
            "timers": [
                {"name": timer.name, "states": [state.value for state in timer.states], "on_entry": timer.on_entry}
                for timer in fsm.timers
            ],
            "lines": diagrams.cells(fsm),
            "clauses": _clauses_of(fsm, _page_of(fsm)),
        }
    )


def describe_process(process: Process[Any]) -> RenderableType:
    """A process: its own table, the kinds of its parties, its routes, and the text of every clause that they carry."""
    clauses = _page_of(process.fsm)
    routed = {route.clause for route in process.routes}
    carried = [*_clauses_of(process.fsm, clauses), *(one for one in clauses.values() if one.id in routed)]
    return Group(
        Text.assemble((process.full_name, "bold"), f": a process; its own machine is {process.fsm.full_name}"),
        Text(_states(process.fsm)),
        _table(process.fsm),
        _kinds(process),
        _routes(process),
        Text(),
        _unrouted(process),
        Text(),
        _clause_list({clause.id: clause for clause in carried}.values()),
    )


def describe_process_json(process: Process[Any]) -> bytes:
    """A process as an object: name, machine, lines, kinds, routes."""
    kinds = [
        {
            "name": kind.name,
            "machine": kind.fsm.full_name,
            "most": kind.most,
            "id": kind.id_of("LIFE", kind.number or 1),
        }
        for kind in process.kinds.values()
    ]
    routes = [
        {"events": [name_of(event) for event in one.on], "from": one.of, "to": diagrams.route_end(one), "guard": guard,
         "clause": one.clause, "copied": one.copied}
        for one in process.routes
        for guard in [diagrams.route_guard(one)]
    ]  # fmt: skip
    lines = diagrams.cells(process.fsm)
    return _json(
        {"name": process.full_name, "machine": process.fsm.full_name, "lines": lines, "kinds": kinds, "routes": routes}
    )


def _kinds(process: Process[Any]) -> Table:
    table = Table.grid(padding=(0, 3))
    for kind in process.kinds.values():
        most = f"at most {kind.most}, such as {kind.id_of('LIFE', kind.number or 1)}"
        table.add_row(Text("party"), Text(kind.name, style="bold"), Text(kind.fsm.full_name), Text(most))
    return table


def _unrouted(process: Process[Any]) -> Table:
    """What no route brings to a kind of parties, or takes from it: the process feeds it, or a service answers."""
    table = Table.grid(padding=(0, 3))
    for name, events in diagrams.find_unrouted(process).items():
        is_led_to = any(route.to in (name, ADDRESSEE) for route in process.routes)
        found = f"no route brings {', '.join(events)}" if is_led_to and events else ""
        found = found if is_led_to else "no route leads here"
        is_heard = any(name in route.of for route in process.routes)
        words = [one for one in (found, "" if is_heard else "nothing that it tells has a route") if one]
        if words:
            table.add_row(Text("party"), Text(name, style="bold"), Text("; ".join(words)))
    return table


def _routes(process: Process[Any]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in ("route of", "from", "to", "guard", "clause"):
        table.add_column(head, overflow="fold")
    for one in process.routes:
        events = ", ".join(name_of(event) for event in one.on)
        cells = (events, ", ".join(one.of), diagrams.route_end(one), diagrams.route_guard(one), one.clause)
        table.add_row(*map(Text, cells))
    return table


def _states(fsm: Fsm[Any]) -> str:
    """The states in a line, first the one it starts in."""
    final = [str(state.value) for state in fsm.final]
    ends = f"; ends in {', '.join(final)}" if final else "; never ends"
    return f"states: {', '.join(diagrams.state_names(fsm))}; starts in {fsm.initial.value}{ends}"


def _table(fsm: Fsm[Any]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("#", justify="right")
    for head in ("event", "from", "to", "guard", "action", "clause"):
        table.add_column(head, overflow="fold")
    for one in diagrams.cells(fsm):
        style = None if one.kind == "row" else "dim"
        cells = (one.event, ", ".join(one.sources), diagrams.target(one), one.guard, one.action, one.clause)
        table.add_row(str(one.number), *(Text(cell) for cell in cells), style=style)
    return table


def _timers(fsm: Fsm[Any]) -> Table:
    table = Table.grid(padding=(0, 3))
    for timer in fsm.timers:
        armed = "armed on entering" if timer.on_entry else "armed by a row, in"
        states = ", ".join(str(state.value) for state in timer.states)
        table.add_row(Text("timer"), Text(timer.name, style="bold"), Text(f"{armed} {states}"))
    return table


def _page_of(fsm: Fsm[Any]) -> Mapping[str, Clause]:
    """The clauses of its protocol; none where that is not registered, or has no page."""
    if fsm.protocol not in registry.names() or not registry.protocol(fsm.protocol).page:
        return {}
    return catalogue.clauses(fsm.protocol)


def _clauses_of(fsm: Fsm[Any], clauses: Mapping[str, Clause]) -> list[Clause]:
    """The clauses that the rows and invariants of the machine name, in the order of the page."""
    named = {line.clause for line in fsm.lines} | {invariant.clause for invariant in fsm.invariants}
    return [clause for clause in clauses.values() if clause.id in named]


def _clause_list(clauses: Iterable[Clause]) -> Table:
    table = Table.grid(padding=(0, 2))
    for clause in clauses:
        source = f" ({clause.source})" if clause.source else ""
        table.add_row(Text(clause.id, style="bold"), Text.assemble(clause.text, (source, "dim")))
    return table


def _json(value: Any) -> bytes:
    """Indented, so that it can be read and compared line by line."""
    plain = msgspec.to_builtins(list(value) if isinstance(value, Iterable) and not isinstance(value, dict) else value)
    return msgspec.json.format(msgspec.json.encode(plain), indent=2)

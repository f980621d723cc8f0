"""Diagrams: a machine as Mermaid, Graphviz, GraphML, Markdown and a networkx graph, all from the lines of its table.

Every rendering is deterministic: states in the order of their enum, lines in the order of the table.  Arrows are the
rows; what is ignored or refused stands in the tables only.  The label of an arrow is `number event [guard] / action`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from statemachines.kernel import (
    ADDRESSEE,
    APPLICATION,
    OUTSIDE,
    PROCESS,
    Answer,
    EventRoute,
    Fsm,
    Line,
    Process,
    TimerFired,
    name_of,
)

if TYPE_CHECKING:
    import networkx as nx


class Cells(msgspec.Struct, frozen=True):
    """One line of a table in words: `dest` is "" where the state is not left; `kind`: row, ignore or refuse."""

    number: int
    event: str
    sources: tuple[str, ...]
    dest: str
    kind: str
    guard: str
    action: str
    clause: str

    @property
    def label(self) -> str:
        """What stands at the arrow of a diagram."""
        guard = f" [{self.guard}]" if self.guard else ""
        action = f" / {self.action}" if self.action else ""
        return f"{self.number} {self.event}{guard}{action}"


def cells(fsm: Fsm[Any]) -> tuple[Cells, ...]:
    """The table of the machine in words, in its order."""
    return tuple(_cells(line) for line in fsm.lines)


def arrows(fsm: Fsm[Any]) -> dict[tuple[str, str], list[Cells]]:
    """(source, dest) -> the rows that lead there; a row that stays leads from each source to itself."""
    found: dict[tuple[str, str], list[Cells]] = {}
    rows = [one for one in cells(fsm) if one.kind == "row"]
    for source in state_names(fsm):
        for one in rows:
            if source in one.sources:
                found.setdefault((source, one.dest or source), []).append(one)
    return found


def state_names(fsm: Fsm[Any]) -> tuple[str, ...]:
    """The states as traces and diagrams call them."""
    return tuple(_name(state) for state in fsm.states)


def mermaid(fsm: Fsm[Any]) -> str:
    """A Mermaid `stateDiagram-v2`; one arrow for each pair of states, with all its rows."""
    ids = {name: re.sub(r"\W", "_", name) for name in state_names(fsm)}
    lines = ["stateDiagram-v2", "    direction LR"]
    lines += [f'    state "{name}" as {short}' for name, short in ids.items() if name != short]
    lines.append(f"    [*] --> {ids[_name(fsm.initial)]}")
    for (source, dest), rows in arrows(fsm).items():
        label = "<br/>".join(_plain(one.label) for one in rows)
        lines.append(f"    {ids[source]} --> {ids[dest]}: {label}")
    lines += [f"    {ids[_name(state)]} --> [*]" for state in fsm.final]
    return "\n".join(lines) + "\n"


def graphviz(fsm: Fsm[Any]) -> str:
    """A Graphviz digraph: the initial state has an arrow from a dot, final states a double border."""
    final = {_name(state) for state in fsm.final}
    lines = [
        f"digraph {_quoted(fsm.name)} {{",
        "    rankdir=LR;",
        '    node [shape=box, style=rounded, fontname="sans-serif"];',
        '    edge [fontname="sans-serif", fontsize=10];',
        '    "" [shape=point];',
    ]
    for name in state_names(fsm):
        lines.append(f"    {_quoted(name)}{' [peripheries=2]' if name in final else ''};")
    lines.append(f'    "" -> {_quoted(_name(fsm.initial))};')
    for (source, dest), rows in arrows(fsm).items():
        label = "\\l".join(_escaped(one.label) for one in rows) + "\\l"
        lines.append(f'    {_quoted(source)} -> {_quoted(dest)} [label="{label}"];')
    lines.append("}")
    return "\n".join(lines) + "\n"


def markdown(fsm: Fsm[Any]) -> str:
    """The table as Markdown, ignored and refused cells included."""
    head = ("#", "event", "from", "to", "guard", "action", "clause")
    lines = [_markdown_row(head), _markdown_row(("---:", *("---",) * 6))]
    for one in cells(fsm):
        values = (str(one.number), one.event, ", ".join(one.sources), target(one), one.guard, one.action, one.clause)
        lines.append(_markdown_row(values))
    return "\n".join(lines) + "\n"


def target(one: Cells) -> str:
    """The `to` column: a state, "stay", "(ignore)" or "(refuse)"."""
    return one.dest or ("stay" if one.kind == "row" else f"({one.kind})")


def graph(fsm: Fsm[Any]) -> nx.MultiDiGraph[str]:
    """A networkx graph: a node a state (`initial`, `final`), an edge a row and source, its key the row's number.

    An edge has `event`, `guard`, `action`, `clause`, and `internal`: the row does not leave its state.
    """
    import networkx as nx  # of the extra 'spec': everything else here works without

    found: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=fsm.name)
    final = {_name(state) for state in fsm.final}
    for name in state_names(fsm):
        found.add_node(name, initial=name == _name(fsm.initial), final=name in final)
    for (source, dest), rows in arrows(fsm).items():
        for one in rows:
            words = {"event": one.event, "guard": one.guard, "action": one.action, "clause": one.clause}
            found.add_edge(source, dest, key=one.number, internal=not one.dest, **words)
    return found


def graphml(fsm: Fsm[Any]) -> str:
    """The graph of `graph` as GraphML."""
    import networkx as nx

    return "\n".join(nx.generate_graphml(graph(fsm))) + "\n"


def _cells(line: Line) -> Cells:
    return Cells(
        line.number,
        name_of(line.event),
        tuple(_name(state) for state in line.sources),
        "" if line.dest is None else _name(line.dest),
        line.kind,
        line.guard_name,
        line.action_name,
        line.clause,
    )


def route_end(route: EventRoute) -> str:
    """Where a route leads, as people read it."""
    end = f"{route.to} (its {route.by})" if route.by else route.to
    return f"{end}, {APPLICATION} too" if route.copied else end


def route_guard(route: EventRoute) -> str:
    """The guard of a route as the table shows it."""
    return "" if route.when is None else str(route.when.__name__)


def find_unrouted(process: Process[Any]) -> dict[str, list[str]]:
    """Kind of parties -> the events that its machine takes and that no route of the process brings; timers, answers of
    services, and messages where there is a route to the addressee are left out."""
    from_outside = {event for one in process.routes if one.to == ADDRESSEE for event in one.on}
    found: dict[str, list[str]] = {}
    for kind in process.kinds.values():
        routed = {one.as_type or event for one in process.routes if one.to == kind.name for event in one.on}
        brought = routed | from_outside
        others = (TimerFired, Answer)
        found[kind.name] = [
            name_of(event) for event in kind.fsm.alphabet if event not in brought and not issubclass(event, others)
        ]
    return found


def mermaid_process(process: Process[Any]) -> str:
    """A Mermaid flowchart: the process and the kinds of its parties as boxes, routes as arrows."""
    ends = (PROCESS, *process.kinds)
    lines = ["flowchart LR", f'    {PROCESS}["{process.full_name}"]']
    lines += [f'    {kind.name}["{kind.name}: {kind.fsm.name}"]' for kind in process.kinds.values()]
    for route in process.routes:
        named = [name_of(event) for event in route.on]
        label = ", ".join(named if len(named) <= 3 else [*named[:2], f"{len(named) - 2} more"])
        targets = tuple(process.kinds) if route.to == ADDRESSEE else (route.to,)
        lines += [f'    {source} -- "{label} {route.clause}" --> {to}' for source in route.of for to in targets]
        lines += [f'    {source} -- "{label}" --> {APPLICATION}' for source in route.of if route.copied]
    outer = (end for end in (OUTSIDE, APPLICATION) if any(f"{end} --" in line or line.endswith(end) for line in lines))
    return "\n".join([*lines, *(f"    {end}([{end}])" for end in outer if end not in ends)]) + "\n"


def _name(state: Enum) -> str:
    return str(state.value)


def _plain(text: str) -> str:
    """Without what Mermaid reads as the end of a statement, an entity or a tag."""
    return re.sub(r"[;:#<>]", "_", text)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _markdown_row(values: tuple[str, ...]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"

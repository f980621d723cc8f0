"""Diagrams, and what the graph of a table must be like."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import networkx as nx
import pytest

from statemachines import catalogue, diagrams
from statemachines.kernel import STAY, Call, Fsm, Ignore, Refuse, Row, Status

DRAWINGS = {"mermaid": diagrams.mermaid, "graphviz": diagrams.graphviz, "markdown": diagrams.markdown}


class Lamp(Status):
    OFF = "off"
    ON = "on"
    BURNT_OUT = "burnt-out"


class Press(Call, frozen=True):
    pass


class Surge(Call, frozen=True):
    pass


class Dim(Call, frozen=True):
    pass


class LampRecord(msgspec.Struct, frozen=True):
    status: Lamp = Lamp.OFF


def glow(record, event, now_ns):
    return record, ()


def is_strong(record, event):
    return True


LAMP = Fsm(
    "lamp",
    record=LampRecord,
    states=Lamp,
    initial=Lamp.OFF,
    final=(Lamp.BURNT_OUT,),
    rows=(
        Row(Press, Lamp.OFF, Lamp.ON, glow, None, "L-1"),
        Row(Press, Lamp.ON, Lamp.OFF, None, None, "L-2"),
        Row(Surge, (Lamp.OFF, Lamp.ON), Lamp.BURNT_OUT, glow, is_strong, "L-3"),
        Row(Surge, Lamp.ON, STAY, glow, None, "L-4"),
        Ignore((Surge,), Lamp.OFF, "L-5"),
        Refuse((Dim,), (Lamp.OFF, Lamp.ON), "L-6"),
    ),
)

MERMAID = """\
stateDiagram-v2
    direction LR
    state "burnt-out" as burnt_out
    [*] --> off
    off --> on: 0 press / glow
    off --> burnt_out: 2 surge [is_strong] / glow
    on --> off: 1 press
    on --> burnt_out: 2 surge [is_strong] / glow
    on --> on: 3 surge / glow
    burnt_out --> [*]
"""

GRAPHVIZ = """\
digraph "lamp" {
    rankdir=LR;
    node [shape=box, style=rounded, fontname="sans-serif"];
    edge [fontname="sans-serif", fontsize=10];
    "" [shape=point];
    "off";
    "on";
    "burnt-out" [peripheries=2];
    "" -> "off";
    "off" -> "on" [label="0 press / glow\\l"];
    "off" -> "burnt-out" [label="2 surge [is_strong] / glow\\l"];
    "on" -> "off" [label="1 press\\l"];
    "on" -> "burnt-out" [label="2 surge [is_strong] / glow\\l"];
    "on" -> "on" [label="3 surge / glow\\l"];
}
"""

MARKDOWN = """\
| # | event | from | to | guard | action | clause |
| ---: | --- | --- | --- | --- | --- | --- |
| 0 | press | off | on |  | glow | L-1 |
| 1 | press | on | off |  |  | L-2 |
| 2 | surge | off, on | burnt-out | is_strong | glow | L-3 |
| 3 | surge | on | stay |  | glow | L-4 |
| 4 | surge | off | (ignore) |  |  | L-5 |
| 5 | dim | off, on | (refuse) |  |  | L-6 |
"""


@pytest.mark.parametrize(("draw", "drawn"), [("mermaid", MERMAID), ("graphviz", GRAPHVIZ), ("markdown", MARKDOWN)])
def test_a_lamp_is_drawn(draw, drawn):
    assert DRAWINGS[draw](LAMP) == drawn


def test_a_graph_has_an_edge_for_each_row_and_source():
    graph = diagrams.graph(LAMP)
    assert sorted(graph.edges(keys=True)) == [
        ("off", "burnt-out", 2),
        ("off", "on", 0),
        ("on", "burnt-out", 2),
        ("on", "off", 1),
        ("on", "on", 3),
    ]
    assert graph.edges["on", "on", 3] == {
        "event": "surge",
        "guard": "",
        "action": "glow",
        "clause": "L-4",
        "internal": True,
    }
    assert [name for name, final in graph.nodes(data="final") if final] == ["burnt-out"]
    assert [name for name, initial in graph.nodes(data="initial") if initial] == ["off"]


@pytest.mark.parametrize("draw", DRAWINGS)
@pytest.mark.parametrize("name", catalogue.names())
def test_every_row_is_in_every_drawing(name, draw):
    fsm = catalogue.machine(name)
    drawn = DRAWINGS[draw](fsm)
    for one in diagrams.cells(fsm):
        if one.kind == "row":
            assert (f"| {one.number} | {one.event} |" if draw == "markdown" else f"{one.number} {one.event}") in drawn


def test_drawings_do_not_depend_on_the_hash_seed():
    shows = [["show", "leader", f"--{how}"] for how in ("mermaid", "graphviz", "json")]
    program = f"from statemachines import cli\nassert [cli.run(one) for one in {shows}] == [0, 0, 0]"

    def drawn(seed):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environment, check=True, capture_output=True).stdout

    assert drawn("1") == drawn("2") != b""


@pytest.mark.parametrize("name", catalogue.names())
def test_every_state_can_be_reached(name):
    fsm = catalogue.machine(name)
    graph = diagrams.graph(fsm)
    reached = nx.descendants(graph, fsm.initial.value) | {fsm.initial.value}
    assert reached == set(graph)


@pytest.mark.parametrize("name", [name for name in catalogue.names() if catalogue.machine(name).final])
def test_an_end_can_be_reached_from_everywhere_and_is_not_left(name):
    fsm = catalogue.machine(name)
    graph = diagrams.graph(fsm)
    final = {state.value for state in fsm.final}
    for state in set(graph) - final:
        assert nx.descendants(graph, state) & final, state
    assert all(graph.out_degree(state) == 0 for state in final)


def statuses(name, without=()):
    """The graph of states without self-loops and without the way back into `without`."""
    graph = nx.DiGraph(diagrams.graph(catalogue.machine(name)))
    graph.remove_edges_from([(a, b) for a, b in graph.edges if a == b or b in without])
    return graph


@pytest.mark.parametrize(("name", "again"), [("borrower", ()), ("leader", ("candidate",)), ("member", ())])
def test_what_ended_never_comes_back(name, again):
    """A follower becomes a candidate again; nothing else goes back."""
    assert nx.is_directed_acyclic_graph(statuses(name, without=again))


@pytest.mark.parametrize(("name", "rest"), [("stream", "absent"), ("assignment", "none")])
def test_an_instance_goes_through_its_states_once(name, rest):
    """The state of rest stands for before and after; between them nothing goes back."""
    assert not nx.is_directed_acyclic_graph(statuses(name))
    assert nx.is_directed_acyclic_graph(statuses(name, without=(rest,)))

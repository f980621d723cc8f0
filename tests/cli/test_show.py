"""Diagrams, and what the graph of a table must be like.

`gapless show mine:COORDINATOR`: a machine of a file in the working directory, registered nowhere, in every form.

The catalogue: every machine is in it, and every clause that a table names stands on a page.

`gapless show` of a process: its table, the kinds of its parties and its routes.
"""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import msgspec
import networkx as nx
import pytest
from typer.testing import CliRunner

import statemachines
from statemachines import catalogue, diagrams, registry
from statemachines.catalogue import Clause, parse_clauses
from statemachines.cli import app
from statemachines.kernel import STAY, Call, ConfigurationError, Fsm, Ignore, Protocol, Refuse, Row, Status

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


@pytest.mark.long
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


MINE = '''"""Mine: a coordinator of two-phase commits, and nobody's protocol."""

import msgspec
from statemachines.kernel import STAY, Call, Fsm, Ignore, Message, Row, Status, Timer, TimerFired

class Phase(Status):
    IDLE = "idle"
    ASKING = "asking"
    DONE = "done"

class Begin(Call, frozen=True):
    pass

class Vote(Message, frozen=True):
    yes: bool

class GiveUp(TimerFired, frozen=True):
    pass

class Record(msgspec.Struct, frozen=True):
    status: Phase = Phase.IDLE
    votes: int = 0

def count(record, event, now_ns):
    return msgspec.structs.replace(record, votes=record.votes + 1), ()

def is_last(record, event):
    return event.yes and record.votes == 2

COORDINATOR = Fsm(
    "coordinator", record=Record, states=Phase, initial=Phase.IDLE, final=(Phase.DONE,),
    rows=(
        Row(Begin, Phase.IDLE, Phase.ASKING, None, None, "TC-01"),
        Row(Vote, Phase.ASKING, Phase.DONE, count, is_last, "TC-02"),
        Row(Vote, Phase.ASKING, STAY, count, None, "TC-03"),
        Row(GiveUp, Phase.ASKING, Phase.DONE, None, None, "TC-04"),
        Ignore((Begin,), Phase.ASKING, "TC-05"),
        Ignore((Vote, GiveUp), Phase.IDLE, "TC-05"),
    ),
    timers=(Timer("give_up", GiveUp, (Phase.ASKING,), lambda record: 10, once=True),),
)
NUMBER = 7
'''


@pytest.fixture
def show(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)

    def run(*arguments):
        command = [sys.executable, "-m", "statemachines", "show", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


ARROW = {
    "--mermaid": ("stateDiagram-v2", "asking --> done: 1 vote [is_last] / count<br/>3 give_up"),
    "--graphviz": ('digraph "coordinator" {', r'"asking" -> "done" [label="1 vote [is_last] / count\l3 give_up\l"];'),
    "--markdown": ("| # | event", "| 1 | vote | asking | done | is_last | count | TC-02 |"),
}


@pytest.mark.parametrize("form", ARROW)
def test_it_is_drawn(show, form):
    came = show("mine:COORDINATOR", form)
    begin, line = ARROW[form]
    assert (came.returncode, came.stderr) == (0, "")
    assert came.stdout.startswith(begin)
    assert line in came.stdout


def test_its_table_is_printed(show):
    came = show("mine:COORDINATOR")
    assert (came.returncode, came.stderr) == (0, "")
    assert came.stdout.startswith("coordinator: a coordinator of two-phase commits, and nobody's protocol\n")
    assert "states: idle, asking, done; starts in idle; ends in done" in came.stdout
    assert "give_up   armed on entering asking" in came.stdout


def test_as_json_it_has_its_lines_and_no_clauses_without_a_page(show):
    shown = msgspec.json.decode(show("mine:COORDINATOR", "--json").stdout)
    assert (shown["name"], shown["protocol"], shown["clauses"]) == ("coordinator", "", [])
    assert [line["clause"] for line in shown["lines"]] == [
        "TC-01",
        "TC-02",
        "TC-03",
        "TC-04",
        "TC-05",
        "TC-05",
        "TC-05",
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mine:NOBODY", "the module has no 'NOBODY'"),
        ("mine:NUMBER", "is no Fsm, but a int"),
        ("yours:COORDINATOR", "there is no module 'yours'"),
        ("coordinator", "or give module:ATTRIBUTE"),
    ],
)
def test_what_is_not_there_is_named(show, name, says):
    came = show(name)
    assert (came.returncode, came.stdout) == (2, "")
    assert says in came.stderr
    assert len(came.stderr.splitlines()) <= 2


ROOT = Path(__file__).parents[2]
FOLDERS = (
    "shared_subscriptions",
    "persistent_sessions",
    "missed_samples",
    "sequence_windows",
    "cursor_recovery",
    "mqtt_connections",
)

OURS = tuple(one for one in registry.protocols() if (ROOT / "spec" / one.name).is_dir())
"""Others may be installed beside them."""

PAGE = """# A page

Prose with **bold** and - dashes.

## Door (of a house)

- **DR-01** A door that is pushed
  opens (or breaks). ("The door", part 2; D-01)
- **DR-02** A late push changes nothing. (as DR-01)
- **DR-03** Nobody knows where this comes from.

After the list.
"""


def test_each_clause_cites_a_heading_or_a_decision_and_each_requirement_of_a_source_is_answered(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    sources = import_module("sources")
    assert sources.main() == 0
    known = sources.list_names() - {"MS-D1", "MS-33"}
    assert [fault.split()[0] for fault in sources.find_faults("missed_samples", known)][:2] == ["MS-01", "MS-02"]
    assert len(list(sources.find_faults("missed_samples", known))) > 5


@pytest.mark.parametrize("name", catalogue.names())
def test_a_machine_is_found_by_the_name_it_has(name):
    fsm = catalogue.machine(name)
    assert fsm.full_name == name
    assert fsm.name in catalogue.protocol_of(name).machines
    assert catalogue.machine(catalogue.place_of(name)) is fsm
    if [one.partition("/")[2] for one in catalogue.names()].count(fsm.name) == 1:
        assert catalogue.machine(fsm.name) is fsm


def test_names_are_unique_since_traces_go_by_them():
    assert len(set(catalogue.names())) == len(catalogue.names())


def test_no_machine_is_missing():
    """Every machine that a module of a protocol declares, by itself or in a process."""
    declared = set()
    for folder in FOLDERS:
        path = Path(statemachines.__file__).parent / folder
        for found in pkgutil.iter_modules([str(path)]):
            module = import_module(f"statemachines.{folder}.{found.name}")
            declared |= {(value.protocol, value.name) for value in vars(module).values() if isinstance(value, Fsm)}
    listed = {(protocol.name, name) for protocol in OURS for name in (*protocol.machines, *protocol.processes)}
    assert declared == listed
    assert ("shared_subscriptions", "leader") in declared


@pytest.mark.parametrize("name", catalogue.names())
def test_every_clause_that_a_table_names_is_on_the_page(name):
    fsm = catalogue.machine(name)
    named = {line.clause for line in fsm.lines} | {invariant.clause for invariant in fsm.invariants}
    assert named <= set(catalogue.clauses(catalogue.protocol_of(name).name))


@pytest.mark.parametrize("protocol", OURS, ids=lambda protocol: protocol.name)
def test_every_clause_has_a_text_and_a_source(protocol):
    clauses = catalogue.clauses(protocol.name)
    assert clauses
    assert [clause.id for clause in clauses.values() if not (clause.text and clause.source and clause.part)] == []


@pytest.mark.parametrize("protocol", OURS, ids=lambda protocol: protocol.name)
def test_no_clause_has_two_texts(protocol):
    parsed = list(parse_clauses(catalogue.page(protocol.name).read_text(encoding="utf-8")))
    assert len(parsed) == len({clause.id for clause in parsed})


@pytest.mark.parametrize("protocol", OURS, ids=lambda protocol: protocol.name)
def test_the_page_is_shipped_in_the_package(protocol):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included[f"spec/{protocol.name}"] == f"statemachines/{protocol.name}"


def test_a_page_in_the_package_comes_first(tmp_path, monkeypatch):
    (tmp_path / "clauses.md").write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(catalogue, "files", lambda package: tmp_path)
    assert catalogue.page("shared_subscriptions") == tmp_path / "clauses.md"


def test_a_page_that_is_nowhere_is_an_error_that_names_the_places(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "files", lambda package: tmp_path / "a")
    with pytest.raises(ConfigurationError, match=r"is missing: neither .*a nor .*spec/shared_subscriptions has it"):
        catalogue.page("shared_subscriptions")
    with pytest.raises(ConfigurationError, match=r"its page properties\.md is missing"):
        catalogue.page("shared_subscriptions", "properties.md")


def test_clauses_may_take_several_lines_and_hold_brackets():
    assert list(parse_clauses(PAGE)) == [
        Clause("DR-01", "Door (of a house)", "A door that is pushed opens (or breaks).", '"The door", part 2; D-01'),
        Clause("DR-02", "Door (of a house)", "A late push changes nothing.", "as DR-01"),
        Clause("DR-03", "Door (of a house)", "Nobody knows where this comes from.", ""),
    ]


def test_an_unknown_machine_is_an_error_that_says_what_was_meant_perhaps():
    with pytest.raises(ConfigurationError, match=r"machine = 'borower': unknown; did you mean 'borrower'\? there are:"):
        catalogue.machine("borower")
    with pytest.raises(ConfigurationError, match=r"protocol = 'x': unknown; there are: .*cursor_recovery, .*or give m"):
        registry.protocol("x")


@pytest.mark.parametrize("name", catalogue.names())
def test_a_summary_is_one_line_about_the_machine(name):
    summary = catalogue.summary(name)
    assert summary
    assert "source:" not in summary
    assert "\n" not in summary
    assert not summary.lower().startswith(name.partition("/")[2] + ":")


def test_children_are_in_the_catalogue_too():
    for name in catalogue.names():
        for member in catalogue.machine(name).family():
            assert catalogue.machine(member.full_name) is member


def test_the_machines_of_a_protocol_come_in_its_order():
    assert [fsm.name for fsm in catalogue.machines("shared_subscriptions")][:2] == ["borrower", "stream"]


RUNNER = CliRunner(env={"COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1"})


def show_of_show_process(*arguments):
    done = RUNNER.invoke(app, ["show", *arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize("name", ["registry", "shared_subscriptions/registry"])
def test_a_process_is_shown_with_its_table_its_parties_and_its_routes(name):
    code, output = show_of_show_process(name)
    assert code == 0
    assert "start_leader" in output
    assert "at most 10000, such as LIFE/1" in output
    assert "is_for_leader_itself" in output
    assert "SS-281" in output


def test_a_process_is_drawn_as_boxes_and_arrows():
    code, output = show_of_show_process("handler", "--mermaid")
    assert code == 0
    assert output.startswith("flowchart LR\n")
    assert '    session -- "progressed SS-180" --> borrower\n' in output
    assert output.endswith("    application([application])\n")


def test_a_process_as_json_has_its_routes():
    code, output = show_of_show_process("agent", "--json")
    found = msgspec.json.decode(output)
    assert code == 0
    assert {one["name"] for one in found["kinds"]} == {"declarer", "borrower", "witness"}
    assert {"claim_read"} in [set(one["events"]) for one in found["routes"]]


def test_a_process_has_one_kind_of_diagram():
    code, output = show_of_show_process("agent", "--graphviz")
    assert code == 2
    assert "a process has a Mermaid diagram" in output


def test_a_process_and_a_machine_of_one_name_are_refused():
    with pytest.raises(ConfigurationError, match="is the name of a machine of it; rename one"):
        Protocol("p", "PP", {"m": "a:B"}, processes={"m": "a:C"})
    with pytest.raises(ConfigurationError, match="must be module:ATTRIBUTE"):
        Protocol("p", "PP", {"m": "a:B"}, processes={"n": "nowhere"})


def test_two_processes_of_one_name_are_refused(monkeypatch):
    place = catalogue.find_process("registry").protocol + ".registry:REGISTRY"
    two = tuple(Protocol(name, "PP", {}, processes={"registry": f"statemachines.{place}"}) for name in ("one", "two"))
    monkeypatch.setattr(registry, "protocols", lambda: two)
    with pytest.raises(ConfigurationError, match="several protocols have one: say one/registry or two/registry"):
        catalogue.find_process("registry")
    with pytest.raises(ConfigurationError, match="calls itself 'shared_subscriptions/registry': both must be the same"):
        catalogue.find_process("one/registry")


def test_a_process_is_listed_with_the_machines_of_its_protocol():
    code, output = show_of_show_process("shared_subscriptions")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines() if "a process of" in line] == [
        "registry",
        "agent",
        "handler",
    ]
    assert "a process of session, declarer, borrower, witness, private, standby" in output
    code, output = show_of_show_process()
    assert "processes: session_host" in output


def test_what_no_route_brings_to_a_party_is_said():
    code, output = show_of_show_process("session_host")
    assert code == 0
    assert (
        "party   writer      no route brings start, hand, hand_range, marker_wanted, live_known, live_gone\n" in output
    )
    assert "party   collector   no route brings collect; nothing that it tells has a route\n" in output
    code, output = show_of_show_process("agent")
    assert "party   witness    no route leads here\n" in output

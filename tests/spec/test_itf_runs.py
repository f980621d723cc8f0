"""Runs of the explorer as ITF, traces followed in a system or judged by a table, and state graphs."""

from __future__ import annotations

import json
from enum import Enum

import pytest
from toy_system import Count, never_takes, toy

from statemachines import cli
from statemachines.kernel import STAY, ConfigurationError, Event, Fsm, Ignore, Row
from statemachines.trace.itf import ItfTrace, make_canonical, read_itf
from statemachines_spec import explore
from statemachines_spec import state_graph as state_graphs
from statemachines_spec.itf import matching
from statemachines_spec.itf.export import export_run
from statemachines_spec.itf.machine_rows import judge_rows
from statemachines_spec.itf.matching import match_run
from statemachines_spec.state_graph import state_graph

SYSTEM = toy({"in_flight": 2}, properties=(never_takes(20),))


def trace_of(*states, loop=None):
    return ItfTrace(
        tuple(states[0]), tuple({name: make_canonical(one) for name, one in state.items()} for state in states), loop
    )


@pytest.fixture
def exported(tmp_path):
    result = explore(SYSTEM, engine="plain")
    export_run(tmp_path / "run.itf.json", SYSTEM, result.path)
    return read_itf(tmp_path / "run.itf.json")


def test_a_counterexample_that_was_written_is_a_run_of_the_system(exported):
    assert exported.vars == ("talker", "listener", "network")
    assert exported.states[0]["talker"] == {"n": {"#bigint": "0"}, "took": {"#bigint": "0"}}
    match = match_run(SYSTEM, exported)
    assert (match.steps, match.of, match.why) == (len(exported.states), len(exported.states), "")
    assert len(match.run.legs) == len(exported.states) - 1
    assert match.run.broken == "never 20"


def test_the_first_state_that_is_impossible_is_named_with_what_is_possible(exported):
    states = [dict(one) for one in exported.states]
    states[1]["talker"] = {"n": {"#bigint": "7"}, "took": {"#bigint": "0"}}
    match = match_run(SYSTEM, ItfTrace(exported.vars, tuple(states)))
    assert (match.steps, match.run) == (1, None)
    assert 'talker.n is {"#bigint":"1"}, not {"#bigint":"7"}' in match.why


def test_a_trace_may_say_less_and_stand_still():
    match = match_run(SYSTEM, trace_of({"n": 0}, {"n": 1}, {"n": 1}, {"n": 2}), {"n": "talker.n"})
    assert match.run is not None
    assert len(match.run.legs) == 2


def test_two_transitions_between_states_are_no_run():
    match = match_run(SYSTEM, trace_of({"n": 0}, {"n": 2}), {"n": "talker.n"})
    assert (match.steps, match.of) == (1, 2)


def test_a_map_by_component_stands_at_a_field_of_each():
    states = ({"took": {"#map": [["talker", 0], ["listener", n]]}} for n in (0, 0, 1))
    assert match_run(SYSTEM, trace_of(*states), {"took": "*.took"}).run is not None


def test_values_that_are_possible_by_themselves_and_not_together():
    match = match_run(
        SYSTEM, trace_of({"n": 0, "m": 0}, {"n": 1, "m": 0}, {"n": 2, "m": 10}), {"n": "talker.n", "m": "listener.n"}
    )
    assert match.why == "no single transition leads there, though each value by itself is possible"


def test_a_loop_must_lead_back():
    places = {"n": "talker.n"}
    assert match_run(SYSTEM, trace_of({"n": 0}, {"n": 1}, loop=1), places).run is not None
    assert match_run(SYSTEM, trace_of({"n": 0}, {"n": 1}, loop=0), places).steps == 2


def test_more_states_than_are_carried_along_are_not_judged(monkeypatch):
    monkeypatch.setattr(matching, "STATES_MAX", 3)
    match = match_run(SYSTEM, trace_of(*({"x": 0} for _ in range(9))), {"x": "talker.took"})
    assert match.bounded
    assert match.run is None


@pytest.mark.parametrize(
    ("places", "ignored", "wrong"),
    [
        ({}, (), "'n': is no component; there are: talker, listener, network"),
        ({"n": "*"}, (), "is no component"),
        ({"n": "*.n"}, (), "is no map by component in state 0"),
        ({"n": "talker.n", "m": "talker"}, (), "'m': is not in the trace; it has: n"),
        ({"n": "talker.n"}, ("k",), "'k': is not in the trace"),
    ],
)
def test_a_variable_that_stands_nowhere_is_refused(places, ignored, wrong):
    with pytest.raises(ConfigurationError) as raised:
        match_run(SYSTEM, trace_of({"n": 0}), places, ignored)
    assert wrong in str(raised.value)


def test_a_field_that_is_not_there_is_said():
    assert match_run(SYSTEM, trace_of({"n": 0}), {"n": "talker.size"}).why == "talker.size is not there"


class Door(Enum):
    OPEN = "open"
    SHUT = "shut"


class Push(Event, frozen=True):
    pass


class Pull(Event, frozen=True):
    pass


DOOR = Fsm(
    "door",
    protocol="doors",
    record=type("DoorRecord", (Count,), {"__annotations__": {"status": Door}, "status": Door.OPEN}, frozen=True),
    states=Door,
    initial=Door.OPEN,
    rows=(
        Row(Push, Door.OPEN, Door.SHUT, None, None, "DO-01"),
        Row(Push, Door.SHUT, STAY, None, None, "DO-02"),
        Ignore((Pull,), tuple(Door), "DO-03"),
    ),
)


def test_steps_are_rows_of_the_table():
    verdict = judge_rows(DOOR, trace_of({"d": "open"}, {"d": "shut"}, {"d": "shut"}))
    assert (verdict.steps, verdict.rows, verdict.wrong) == (1, (0,), "")


def test_an_event_that_is_named_must_be_that_of_the_row():
    states = (
        {"d": "open", "e": "init"},
        {"d": "open", "e": "pull"},
        {"d": "shut", "e": "push"},
        {"d": "shut", "e": "push"},
    )
    assert judge_rows(DOOR, trace_of(*states), "d", "e").rows == (0, 1, 2)
    wrong = judge_rows(DOOR, trace_of(states[0], {"d": "shut", "e": "pull"}), "d", "e").wrong
    assert wrong == "state 1: open -> shut by pull: no row of the table; from open there are: push -> shut [DO-01]"


def test_a_step_that_is_no_row_is_named_by_its_instance():
    verdict = judge_rows(DOOR, trace_of({"d": {"front": "open"}}, {"d": {"front": "shut"}}, {"d": {"front": "open"}}))
    assert verdict.wrong.startswith(
        "state 2 of front: shut -> open: no row of the table; from shut there are: push -> shut"
    )


def test_the_machine_may_be_made_by_a_factory_of_transitions(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend("examples")
    path = tmp_path / "order.itf.json"
    for states, code in ((("new", "paying", "shipped"), 0), (("new", "shipped"), 1)):
        path.write_text(json.dumps({"vars": ["s"], "states": [{"s": state} for state in states]}))
        assert cli.run(["itf", str(path), "shop:make_order", "--state", "s"]) == code, capsys.readouterr()


def test_a_trace_begins_where_the_machine_begins():
    assert judge_rows(DOOR, trace_of({"d": "shut"})).wrong == "state 0: shut, and the machine begins in open"


@pytest.mark.parametrize(
    ("state", "names", "wrong"),
    [
        ({"d": "ajar"}, ("",), "0 variables have states of the machine alone; there are: d"),
        ({"d": "open", "e": "open"}, ("",), "2 variables have states of the machine alone; there are: d, e"),
        ({"d": "ajar"}, ("d",), "'ajar': is no state of the machine; there are: open, shut"),
        ({"d": 3}, ("d",), "is neither text nor a map of texts"),
        ({"d": "open"}, ("x",), "'x': is not in the trace; it has: d"),
        ({"d": "open"}, ("d", "d"), "names no event of the machine in any state; there are: pull, push"),
    ],
)
def test_a_variable_without_states_of_the_machine_is_refused(state, names, wrong):
    with pytest.raises(ConfigurationError) as raised:
        judge_rows(DOOR, trace_of(state), *names)
    assert wrong in str(raised.value)


def test_the_graph_of_a_system_has_its_states_and_transitions():
    system = toy({"in_flight": 2})
    graph, result = state_graph(system), explore(system, engine="plain")
    assert (len(graph), graph.number_of_edges()) == (result.states, result.transitions)
    assert max(depth for _, depth in graph.nodes(data="depth")) == len(result.levels) - 1


def test_a_graph_of_too_many_states_is_refused(monkeypatch):
    monkeypatch.setattr(state_graphs, "STATES_MAX", 50)
    with pytest.raises(ConfigurationError, match="has more than 50 states; a smaller size of it"):
        state_graph(toy({"in_flight": 4}, last=60))

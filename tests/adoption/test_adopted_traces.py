"""What an adopted machine ran, simulated or in production, is judged by the table of its factory.

Every kind of machine that `transitions` offers is adopted as it is, and searched to its end.
"""

import threading

import adopted_machines
import pytest
from adopted_machines import EXPECTED, asynchronous, basic, nested, parallel, quickstart, timeout

from statemachines import diagrams
from statemachines.adoption import adopt, logged
from statemachines.adoption.declared_table import build_fsm, protocol_of
from statemachines.adoption.live_machine import read_subject
from statemachines.adoption.production_log import write_runs
from statemachines.adoption.random_simulation import simulate
from statemachines.adoption.verdict_text import describe_verdict
from statemachines.kernel import ConfigurationError
from statemachines_reports.pipeline import analyze_all

TABLES = [factory for factory in EXPECTED if factory is not parallel]


def verdicts_of(directory, out, place):
    (found,) = analyze_all([(directory, out)], spark=False, named=[protocol_of(place).name])
    return {check.name: (check.verdict, check.checked, check.wrong) for check in found.checks}


@pytest.mark.parametrize("factory", TABLES, ids=lambda factory: factory.__name__)
def test_every_machine_has_a_table_with_its_rows(factory):
    subject = read_subject(factory())
    rows = adopt(factory).stepper.rows
    for place in range(len(subject.machines)):
        fsm = build_fsm(subject, place)
        own = [row for row in rows if row.machine == place]
        assert [line.kind for line in fsm.lines[: len(own)]] == ["row"] * len(own)
        assert "stateDiagram" in diagrams.mermaid(fsm)


@pytest.mark.parametrize(
    "factory",
    [
        *(quickstart, nested, timeout, adopted_machines.nested_enum),
        *(adopted_machines.two_machines, adopted_machines.queued),
    ],
)
def test_a_simulated_trace_is_judged_like_any_other(factory, tmp_path):
    place = f"adopted_machines:{factory.__name__}"
    found = simulate(adopt(factory), 5, seed=2, triggers=15, traced=True)
    rows = write_runs(tmp_path / "trace", "simulated", place, [("held", 2, {}, found.rows)])
    verdicts = verdicts_of(tmp_path / "trace", tmp_path / "out", place)
    assert rows > 4
    assert verdicts["rows"][::2] == ("held", 0)
    assert verdicts["continuity"][::2] == ("held", 0)


def test_the_log_of_a_live_machine_is_judged(tmp_path):
    place = "adopted_machines:triggers_within_callbacks"
    for _ in range(2):
        chain = adopted_machines.triggers_within_callbacks()
        with logged(chain, place, tmp_path / "logs", node="web-1") as log:
            chain.go()
            assert chain.state == "c"
    assert log.path.name == "web-1~2.ndjson"
    verdicts = verdicts_of(tmp_path / "logs", tmp_path / "out", place)
    assert verdicts["rows"] == ("held", 4, 0)
    assert verdicts["continuity"] == ("held", 4, 0)
    written = log.path.read_bytes()
    chain.state = "a"
    chain.go()
    assert log.path.read_bytes() == written


def test_the_log_of_coroutines_is_written(tmp_path):
    import asyncio

    worker = adopted_machines.asynchronous()
    adopted_machines.Worker.work, kept = adopted_machines.Worker.is_ready, adopted_machines.Worker.work
    try:
        with logged(worker, "adopted_machines:asynchronous", tmp_path / "logs") as log:
            asyncio.run(worker.go())
    finally:
        adopted_machines.Worker.work = kept
    assert b'"event":"go"' in log.path.read_bytes()


def test_a_log_needs_the_factory_of_its_machine_and_its_beginning(tmp_path):
    with pytest.raises(ConfigurationError, match="makes another machine than this one"):
        logged(basic(), "adopted_machines:nested", tmp_path)
    lump = basic()
    lump.melt()
    with pytest.raises(ConfigurationError, match="is in this state, and a log begins in solid"):
        logged(lump, "adopted_machines:basic", tmp_path)


def make_camel():
    lump = adopted_machines.Lump()
    transitions = [["meltDown", "solid", "liquid"], ["freeze", "liquid", "solid"]]
    adopted_machines.Machine(lump, states=["solid", "liquid"], initial="solid", transitions=transitions)
    return lump


def make_clash():
    lump = make_camel()
    lump.machine = adopted_machines.Machine(
        lump, states=["a"], initial="a", model_attribute="other", transitions=[["goOn", "a", "a"], ["go_on", "a", "a"]]
    )
    return lump


def test_triggers_are_named_as_events_are(tmp_path):
    found = simulate(adopt(make_camel), 2, seed=1, triggers=4, faults=False, traced=True)
    write_runs(tmp_path / "trace", "simulated", "test_adopted_traces:make_camel", [("held", 1, {}, found.rows)])
    verdicts = verdicts_of(tmp_path / "trace", tmp_path / "out", "test_adopted_traces:make_camel")
    assert verdicts["rows"][::2] == ("held", 0)
    with pytest.raises(ConfigurationError, match="trigger = 'go_on': is named like 'goOn' in a table"):
        build_fsm(read_subject(make_clash()), 1)


def make_fragile():
    class Fragile:
        def fail(self):
            raise ValueError("broken")

    fragile = Fragile()
    machine = adopted_machines.Machine(fragile, states=["a", "b"], initial="a", auto_transitions=False)
    machine.add_transition("go", "a", "b", before="fail")
    machine.add_transition("walk", "a", "b")
    fragile.machine = machine
    return fragile


def test_a_row_that_a_callback_cut_is_not_logged(tmp_path):
    fragile = make_fragile()
    with logged(fragile, "test_adopted_traces:make_fragile", tmp_path) as log:
        with pytest.raises(ValueError, match="broken"):
            fragile.go()
        fragile.machine.set_state("a")
        fragile.walk()
    lines = log.path.read_text().splitlines()
    assert [line for line in lines if '"event"' in line] == lines[1:-1]
    (end,) = lines[2:]
    assert end.startswith('{"end":1,')
    assert '"event":"walk"' in lines[1]


@pytest.mark.parametrize("factory", EXPECTED, ids=lambda factory: factory.__name__)
def test_every_machine_of_the_readme_is_adopted(factory):
    adopted = adopt(factory)
    verdict = adopted.search(elsewhere=False)
    found = verdict.found
    declared = {number for number, row in enumerate(adopted.stepper.rows) if not row.automatic}
    assert verdict.is_held
    assert verdict.is_complete
    assert verdict.repeated == found.steps > 0
    assert (found.states, len(declared - found.taken)) == EXPECTED[factory]
    assert threading.active_count() == 1 or all("Timer" not in one.name for one in threading.enumerate())


def test_what_bounds_asynchronous_machines_and_timers_is_said():
    adopted = adopt(asynchronous)
    assert "one trigger at a time" in describe_verdict(adopted, adopted.search(elsewhere=False))
    adopted = adopt(timeout)
    assert "may fire at any moment" in describe_verdict(adopted, adopted.search(elsewhere=False))


NOTEBOOK = """
from transitions import Machine

class Cell:
    def __init__(self):
        self.runs = 0
    def run_once(self):
        self.runs = (self.runs + 1) % 3

def make_cell():
    cell = Cell()
    Machine(cell, ["idle", "busy"], initial="idle", transitions=[["start", "idle", "busy"], ["stop", "busy", "idle"]],
            after_state_change="run_once")
    return cell
"""


def test_classes_of_a_notebook_are_searched_in_this_process_and_the_verdict_says_so():
    names = {"__name__": "__main__"}
    exec(NOTEBOOK, names)
    adopted = adopt(names["make_cell"], invariants=["runs < 2"])
    verdict = adopted.search()
    said = describe_verdict(adopted, verdict)
    assert (verdict.found.states, verdict.elsewhere) == (6, False)
    assert "in this process alone, so under one hash seed" in said
    assert "__main__:make_cell cannot be imported by a test; put the factory into a module" in said

"""Run rules: a scripted run is judged by its variant's tables, which come from the registration of its protocol."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statemachines import catalogue, registry
from statemachines.kernel import name_of
from statemachines.trace.parquet import SCHEMA
from statemachines_reports.columns import Columns, Segment
from statemachines_reports.lookup import Lookup
from statemachines_reports.pipeline import analyze
from statemachines_reports.run_rules import find_rules, is_by_known_rules, lookup_of_run, make_system
from statemachines_sim.persistent_sessions.script_world import simulate
from statemachines_sim.script_trace import write_trace
from statemachines_spec.explorer.explore import explore
from statemachines_spec.protocol import choose_systems, of_protocol
from statemachines_spec.script.path_to_script import script_of

VARIANTS = [
    (name, variant) for name in registry.names() if "spec" in registry.protocol(name).areas
    for variant in of_protocol(name).variants
]  # fmt: skip
STEP_CHECKS = ("rows", "continuity")


@pytest.fixture(scope="module")
def path_broken():
    """A counterexample of the source's session."""
    (made,) = choose_systems("persistent_sessions", ("path-broken",), variant="as_written").systems
    path = explore(made, engine="plain", hashing=False).path
    return script_of(made, path, protocol="persistent_sessions", variant="as_written")


def judged(script, variant, folder, change=None):
    """What the step checks say: check -> (verdict, how much is wrong)."""
    write_trace(folder / "trace", script, simulate(script, variant))
    if change is not None:
        (path,) = (folder / "trace").glob("trace-*.parquet")
        table = pq.read_table(path)
        pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), path)
    found = analyze(folder / "trace", folder / "out", spark=False)
    return {one.name: (one.verdict, one.wrong) for one in found.checks if one.name in STEP_CHECKS}


def wrong_row(rows):
    """A step of the variant's own machine takes another row."""
    place = next(place for place, one in enumerate(rows) if one["event"] == "session_loaded")
    rows[place]["row"] = 5
    return rows


def wrong_begin(rows):
    """It begins where no machine of the system does."""
    place = next(place for place, one in enumerate(rows) if one["event"] == "resume_session")
    rows[place]["source"] = "reading"
    return rows


@pytest.mark.parametrize(("change", "check"), [(wrong_row, "rows"), (wrong_begin, "continuity")])
def test_a_wrong_step_of_a_variant_is_accused(path_broken, change, check, tmp_path):
    assert judged(path_broken, "", tmp_path, change)[check] == ("VIOLATED", 1)


@pytest.mark.parametrize(("protocol", "variant"), VARIANTS)
def test_each_variant_has_its_tables_by_its_name(protocol, variant):
    """Every line of every machine that runs in its systems is a step that the lookup of such a run takes."""
    name = next(iter(of_protocol(protocol).systems))
    said = {"script": {"protocol": protocol, "system": name}, "variant": variant, "other_rules": True}
    system = make_system(find_rules(said))
    segment = Segment(Columns(SCHEMA.empty_table()), Lookup(catalogue.machines(protocol)), lambda run: said)
    lookup = lookup_of_run(segment, 0)
    for fsm in system.machines:
        assert fsm.full_name in lookup.machines
        for line in fsm.lines:
            for state in line.sources if line.kind != "refuse" else ():
                dest = state if line.dest is None else line.dest
                codes = (
                    lookup.machines[fsm.full_name], lookup.events[name_of(line.event)], lookup.states[state.value],
                    line.number, lookup.states[dest.value],
                )  # fmt: skip
                assert lookup.legal(*(np.array([code]) for code in codes)).all(), (fsm.full_name, line)


@pytest.mark.parametrize(
    "said",
    [
        {"script": {"protocol": "os:system", "system": "two-writers"}},
        {"script": {"protocol": "persistent_sessions", "system": "none-such"}},
        {"script": {"protocol": "persistent_sessions", "system": "two-writers"}, "variant": "none-such"},
        {"script": {"protocol": "persistent_sessions", "system": "x" * 10_000}},
        {"script": {"protocol": ["persistent_sessions"], "system": 3}},
        {"script": "persistent_sessions"},
        {"script": {"protocol": "persistent_sessions", "system": "two-writers", "origin": {"arguments": {"size": 7}}}},
        {},
    ],
)
def test_a_trace_brings_no_rules_of_its_own(said):
    """What a trace names and nobody here has is not judged by other tables, nor loaded."""
    assert find_rules(said) is None
    assert not is_by_known_rules(said | {"other_rules": True})
    assert is_by_known_rules(said)

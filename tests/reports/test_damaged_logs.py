"""Logs of a run that are damaged accuse nobody: what cannot be judged is not judged, and whose log it is is said.

A small real run of each protocol is damaged in every way, log by log; all that comes of it is judged as runs of one
trace.

Run rules: a scripted run is judged by its variant's tables, which come from the registration of its protocol.

One answer: the monitors of a run and the judge of its trace agree on every scenario of every protocol.

Runs are short in `make test`; `make soak` takes whole ones with three seeds, and `tools/soak.py` others.  Logs of real
runs, each of which is missing, cut or there twice: `test_damaged_logs.py`.
"""

import asyncio
import math
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import real_logs
from long_cases import mark_long
from msgspec.structs import replace

from statemachines import catalogue, cli, registry
from statemachines.drivers.lives import begin_log
from statemachines.kernel import ConfigurationError, name_of
from statemachines.testing.two_judges import list_disagreements
from statemachines.trace import fault_row
from statemachines.trace.log import read_log
from statemachines.trace.parquet import SCHEMA, TraceWriter
from statemachines_reports.columns import Columns, Segment
from statemachines_reports.damage.log_damage import ACTS, damage_logs
from statemachines_reports.lookup import Lookup
from statemachines_reports.pipeline import analyze
from statemachines_reports.run_rules import find_rules, is_by_known_rules, lookup_of_run, make_system
from statemachines_reports.trace_set import read_real_run
from statemachines_sim.override import override
from statemachines_sim.persistent_sessions.script_world import simulate
from statemachines_sim.scenario import check_scenario, find_scenario, list_shipped_with
from statemachines_sim.script_trace import write_trace
from statemachines_spec.explorer.explore import explore
from statemachines_spec.protocol import choose_systems, of_protocol
from statemachines_spec.script.path_to_script import script_of

PROTOCOLS = ("cursor_recovery", "missed_samples", "persistent_sessions", "sequence_windows", "shared_subscriptions")

UNMISSED = {
    "cursor_recovery": {"nemesis~1", "reader-1~1"},
    "missed_samples": {"cache-1~1", "publisher-2~1", "subscriber-1~1"},
    "persistent_sessions": {"nemesis~1", "a~2"},
    "sequence_windows": {"subscriber-1~1"},
    "shared_subscriptions": set(),
}
"""Logs that no other log speaks of: without them the answer is the one that they would not have changed."""


def record(protocol, folder):
    """The logs of a real run; those over zenoh in a process of their own, whose threads end with it."""
    if protocol == "missed_samples":
        subprocess.run([sys.executable, real_logs.__file__, protocol, str(folder)], check=True, timeout=180)
    else:
        asyncio.run(getattr(real_logs, protocol)(folder))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """protocol -> the logs of its run, recorded once: name of a log without what chance gave it -> its path."""

    @cache
    def logs_of(protocol):
        folder = tmp_path_factory.mktemp(protocol) / "trace"
        record(protocol, folder)
        return {read_log(path).head.life.partition(".")[0]: path for path in sorted(folder.glob("*.ndjson"))}

    return logs_of


def halved(lines):
    return lines[: 1 + len(lines) // 2]


def torn(lines):
    return [*lines[: len(lines) // 2], lines[len(lines) // 2][:-9]]


def without_end(lines):
    return lines[:-1] if b'{"end":' in lines[-1] else lines


def holed(at):
    """Twenty lines out of the middle of a log that nobody has sealed."""

    def cut(lines):
        place = 1 + (len(lines) - 1) * at // 7
        return [*lines[:place], *without_end(lines)[place + 20 :]]

    return cut


DAMAGES = {
    **{f"holed {at}": holed(at) for at in range(1, 7)},
    "missing": lambda lines: [],
    "halved": halved,
    "torn": torn,
    "without its end": without_end,
    "a row short": lambda lines: lines[: -2 if b'{"end":' in lines[-1] else -1],
}


def damaged(logs, folder):
    """(damage, log) -> the folder of the logs of the run, of which this one is damaged so."""
    found = {}
    for place, (name, path) in enumerate(logs.items()):
        lines = path.read_bytes().splitlines(keepends=True)
        for damage, act in DAMAGES.items():
            kept = act(lines)
            if kept == lines or (not kept and damage != "missing"):
                continue
            to = found[damage, name] = folder / f"{damage} {place}"
            shutil.copytree(path.parent, to)
            (to / path.name).write_bytes(b"".join(kept))
            if not kept:
                (to / path.name).unlink()
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_D_212_damaged_logs_of_a_real_run_accuse_nobody_and_are_named(tmp_path, recorded, protocol):
    """Each log in turn is missing, cut in half, within a line, before its end, or a row before it."""
    logs = recorded(protocol)
    cases = {("whole", ""): next(iter(logs.values())).parent, **damaged(logs, tmp_path)}
    (tmp_path / "merged").mkdir()
    with TraceWriter(tmp_path / "merged", "damaged") as writer:
        for number, folder in enumerate(cases.values()):
            writer.add(*read_real_run(folder, number))
    found = analyze(tmp_path / "merged", tmp_path / "report", spark=False)
    places = list(cases)
    accused = {(*places[one["run"]], one["check"], one["detail"]) for one in found.tables["findings"]}
    assert accused == set()
    lacking = {}
    for line in found.tables["absent"]:
        lacking.setdefault(places[line["run"]], []).append(line["log"])
    assert lacking.pop(("whole", ""), []) == []
    silent = {case for case in cases if case[0] != "whole"} - lacking.keys()
    assert silent == {("missing", name) for name in UNMISSED[protocol]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_log_that_is_there_twice_and_rows_that_are_twice_in_one_are_refused(tmp_path, recorded, protocol):
    path = next(path for name, path in recorded(protocol).items() if not name.startswith(("nemesis", "forwarder")))
    shutil.copytree(path.parent, tmp_path / "trace")
    copy = shutil.copy(path, tmp_path / "trace" / "copy.ndjson")
    with pytest.raises(ConfigurationError, match=f"are both the log of {path.stem}: keep the one that is whole"):
        read_real_run(tmp_path / "trace")
    Path(copy).unlink()
    (tmp_path / "trace" / path.name).write_bytes(path.read_bytes() * 2)
    with pytest.raises(ConfigurationError, match=rf"{path.name}.*line \d+"):
        read_real_run(tmp_path / "trace")


@pytest.mark.parametrize("kind", sorted(ACTS))
@pytest.mark.parametrize("protocol", ["cursor_recovery", "shared_subscriptions"])
def test_D_310_logs_that_are_damaged_are_refused_or_not_judged(tmp_path, recorded, protocol, kind):
    folder = next(iter(recorded(protocol).values())).parent
    for seed in range(3):
        out = tmp_path / str(seed)
        damage_logs(folder, kind, seed, out)
        try:
            found = analyze(out, tmp_path / "report", spark=False)
        except ConfigurationError:
            assert kind in ("log-twice", "log-of-another-run", "two-stores")
            continue
        assert kind in ("log-missing", "log-halved", "log-torn")
        assert found.is_held, found.tables["findings"]
        missed = found.absent or {
            path.stem.partition(".")[0] for path in folder.glob("*") if not (out / path.name).exists()
        }
        assert found.absent or missed <= UNMISSED[protocol]


@pytest.mark.parametrize(("lines", "rows"), [((0, 1, 1, 2, 3), 3), ((0, 2, 3), 1)])
def test_a_row_that_is_twice_in_a_log_or_left_out_is_refused(tmp_path, lines, rows):
    """Read on, the rows would say that a node did twice, or never, what it did once."""
    with begin_log(tmp_path, "a~1") as log:
        log.write([fault_row(1, "a", "pause"), fault_row(2, "a", "resume")])
    written = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(written[line] for line in lines))
    with pytest.raises(ConfigurationError, match=rf"has {rows} rows, and 2 by its end: restore it"):
        read_log(log.path)


def test_what_was_cut_off_is_not_judged_and_the_exit_code_says_so(tmp_path, recorded, capsys):
    path = recorded("shared_subscriptions")["consumer-1~1"]
    shutil.copytree(path.parent, tmp_path / "trace")
    lines = path.read_bytes().splitlines(keepends=True)
    (tmp_path / "trace" / path.name).write_bytes(b"".join(lines[:-1]))
    code = cli.run(["analyze", str(tmp_path / "trace"), "--out", str(tmp_path / "out"), "--engine=local"])
    said = capsys.readouterr()
    assert code == cli.Exit.INCONCLUSIVE
    assert f"inconclusive: there is no log of the end of {path.stem}" in said.err
    verdicts = {line.split()[0]: line for line in said.out.splitlines() if " looked at " in line}
    assert verdicts["duplicates"].endswith(f": not judged: no log of the end of {path.stem}")
    assert verdicts["assignments"].split()[2] == "held"


def test_logs_beside_a_trace_are_refused_with_both_names(tmp_path, recorded):
    path = recorded("sequence_windows")["forwarder~1"]
    analyze(path.parent, tmp_path / "report", spark=False)
    merged = tmp_path / "report" / "merged"
    shutil.copy(path, merged)
    with pytest.raises(
        ConfigurationError, match=r"holds logs \(forwarder~1\.ndjson\) beside a trace \(trace-.*give each a folder"
    ):
        analyze(merged, tmp_path / "again", spark=False)


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


ONE_ANSWER_PROTOCOLS = tuple(name for name in registry.names() if "sim" in registry.protocol(name).areas)
SHORT_S = 1.0
FEW = {
    "cursor_recovery": ["cursor_recovery.messages=40"],
    "shared_subscriptions": ["shared_subscriptions.load.messages=400"],
}
"""What short runs of a protocol carry: its messages would take longer than its faults."""
SEEDS = (7, 31, 32, 33)
"""The first with short runs, of every third scenario."""
WHOLE = {"sequence_windows": {"cycled", "forgotten", "nothing_follows"}}
"""Scenarios that must come to what they are to show, and windows turn but slowly."""


FINDS = [
    ("sequence_windows/many_publishers", 20),  # copies of what was sent before a death reach the next life
    ("sequence_windows/many_publishers", 23),  # a publisher that was forgotten for others begins anew
    ("sequence_windows/reborn", 22),  # what came to a node that stood still died with it
    ("sequence_windows/reborn", 28),  # so did what was overtaken on its way there
    ("persistent_sessions/takeovers", 23),  # an owner is told that it is none where its node asked
    ("shared_subscriptions/freezes", 21),  # a grant that was kept comes beside the same by another way
    ("shared_subscriptions/stores", 20),  # a store restarts after it died within a batch
    ("shared_subscriptions/power", 20),  # and after it lost its power
    ("cursor_recovery/odd_clocks", 24),  # an owner dies while an operation looks for a cursor
    ("mqtt_connections/kept_publishers", 3),  # two messages of QoS 2 are released at once when a session goes on
]
"""Scenarios of four seconds and seeds on which the two disagreed."""


def scenario_of(protocol, name, safety_s, settings=()):
    scenario = override(find_scenario(f"{protocol}/{name}"), settings)
    if name in WHOLE.get(protocol, ()):
        return scenario
    phases = replace(scenario.phases, safety_s=min(safety_s, scenario.phases.safety_s))
    return replace(scenario, phases=phases)


@pytest.mark.parametrize("seed", mark_long(SEEDS, *map(str, SEEDS[1:])))
@pytest.mark.parametrize("protocol", ONE_ANSWER_PROTOCOLS)
def test_D_362_monitors_and_judge_give_one_answer(tmp_path, protocol, seed):
    safety_s = SHORT_S if seed == SEEDS[0] else math.inf
    few = FEW.get(protocol, []) if seed == SEEDS[0] else []
    names = list(list_shipped_with(protocol))[:: 3 if seed == SEEDS[0] else 1]
    assert list_disagreements([scenario_of(protocol, name, safety_s, few) for name in names], (seed,), tmp_path) == []


@pytest.mark.parametrize(
    ("name", "seed"), [pytest.param(*one, marks=[pytest.mark.long] * (at % 2)) for at, one in enumerate(FINDS)]
)
def test_where_they_disagreed_they_agree(tmp_path, name, seed):
    assert list_disagreements([scenario_of(*name.split("/"), safety_s=4.0)], (seed,), tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS[:3])
@pytest.mark.parametrize("protocol", ONE_ANSWER_PROTOCOLS)
def test_of_each_kind_of_fault_alone_there_is_one_answer(tmp_path, protocol, seed):
    """With many kinds at once one hides what another does.  What a kind may break its own scenario leaves out of
    scope."""
    shipped = list_shipped_with(protocol)
    base = find_scenario(f"{protocol}/{'storm' if 'storm' in shipped else next(iter(shipped))}")
    found = [find_scenario(f"{protocol}/{name}") for name in shipped]
    breaks = {kind: one.out_of_scope for one in found if len(one.faults) == 1 for kind in one.faults}
    alone = [
        replace(base, name=kind.replace("_", "-"), faults={kind: (2, 2)}, swarm=None, out_of_scope=breaks.get(kind, ()))
        for kind in base.kinds
    ]
    assert list_disagreements([one for one in alone if hits_somebody(one)], (seed,), tmp_path) == []


def hits_somebody(scenario):
    """Other errors of the scenario are errors of the test."""
    try:
        check_scenario(scenario)
    except ConfigurationError as error:
        if not error.rule.startswith(("hits nobody", "needs recovery")):
            raise
        return False
    return True


@pytest.mark.long
def test_a_run_has_time_for_all_deaths_of_messages_that_kill(tmp_path):
    """A monitor said that a stream is granted to nobody, when its third member had just died of the message."""
    scenario = scenario_of("shared_subscriptions", "relaxed", SHORT_S, ["shared_subscriptions.load.messages=300"])
    assert list_disagreements([scenario], (7,), tmp_path) == []


@pytest.mark.long
def test_an_owner_that_stands_still_for_an_expiry_has_lost_its_session(tmp_path):
    """A collector forgets the session; the client hangs up before it has noticed, and is given another."""
    assert list_disagreements([find_scenario("persistent_sessions/short_expiries")], (33,), tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize(("seed", "safety_s"), [(1, 8.0), pytest.param(32, 30.0, marks=pytest.mark.long)])
def test_what_a_commit_took_out_of_which_its_owner_never_heard_is_no_gap(tmp_path, seed, safety_s):
    """The store dies under the commit that finds the message over; its owner has stopped when it comes back.  What
    others publish later does not wait for the message."""
    scenario = scenario_of("persistent_sessions", "aging_messages", safety_s)
    scenario = replace(scenario, faults={"store_crash": (2, 2)})
    assert list_disagreements([scenario], (seed,), tmp_path) == []


@pytest.mark.long
def test_of_two_rows_of_a_message_the_one_that_was_lost_is_not_the_one_that_is_sent(tmp_path):
    """The session has two filters that match it; retention deletes its first row before an owner has taken that."""
    assert list_disagreements([find_scenario("persistent_sessions/retained_briefly")], (30,), tmp_path) == []

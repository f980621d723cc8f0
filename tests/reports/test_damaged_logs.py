"""Logs of a run that are damaged accuse nobody: what cannot be judged is not judged, and whose log it is is said."""

from __future__ import annotations

import shutil
from functools import cache

import pytest

from statemachines import cli
from statemachines.kernel import ConfigurationError
from statemachines.testing.two_judges import disagreements
from statemachines.trace import COLUMNS
from statemachines.trace.log import FORMAT, Head, TraceLog
from statemachines_reports.pipeline import analyze
from statemachines_sim.runfile import tables
from statemachines_sim.scenario import named
from statemachines_sim.world import World

NODE, KIND, MSG = (COLUMNS.index(name) - 2 for name in ("node", "kind", "msg"))
FAULTS = "faults"
RUNS = ("missed_samples/only_tokens", "shared_subscriptions/quiet")


@cache
def logs_of(scenario):
    """Node -> its rows, in a simulated run; what was done to nodes is in a log of its own."""
    world = World(named(scenario), 1)
    assert world.run().held
    logs = {}
    for row in world.rows:
        logs.setdefault(FAULTS if row[KIND] == "fault" else row[NODE], []).append(row)
    return logs


def write(folder, scenario, logs):
    """As real nodes do; a node that sent nothing has a number that nobody else has."""
    for place, (node, rows) in enumerate(logs.items()):
        number = next((row[MSG] >> 40 for row in rows if row[KIND] == "send"), 1_000 + place)
        log = TraceLog(folder, Head(FORMAT, node, f"{node}~1", number, tables(scenario.partition("/")[0]), {}))
        log.write(rows)
        log.close()
    return folder


def judged(tmp_path, scenario, logs):
    shutil.rmtree(tmp_path / "logs", ignore_errors=True)
    return analyze(write(tmp_path / "logs", scenario, logs), tmp_path / "report", spark=False)


def spoken(rows):
    """Whether the node sent something that is in its log."""
    return any(row[KIND] == "send" for row in rows)


@pytest.mark.parametrize("scenario", RUNS)
def test_a_run_whose_logs_are_whole_holds_and_lacks_nothing(tmp_path, scenario):
    found = judged(tmp_path, scenario, logs_of(scenario))
    assert (found.held, found.absent) == (True, [])


@pytest.mark.parametrize("scenario", RUNS)
def test_a_log_that_is_missing_is_named_though_the_log_of_faults_speaks_of_its_node(tmp_path, scenario):
    logs, named_nodes = logs_of(scenario), 0
    for node in logs:
        found = judged(tmp_path, scenario, {name: rows for name, rows in logs.items() if name != node})
        assert found.held, node
        named_nodes += node in found.absent
    assert named_nodes or not any(map(spoken, logs.values()))


@pytest.mark.parametrize("scenario", RUNS)
def test_a_log_that_is_cut_at_the_end_of_a_line_accuses_nobody(tmp_path, scenario):
    logs, cut = logs_of(scenario), 0
    for node, rows in logs.items():
        found = judged(tmp_path, scenario, {**logs, node: rows[: len(rows) // 2]})
        assert found.held, node
        cut += any(node in log for log in found.absent)
    assert cut or not any(map(spoken, logs.values()))


def test_what_was_cut_off_is_not_judged_and_the_exit_code_says_so(tmp_path, capsys):
    scenario = "shared_subscriptions/quiet"
    logs = logs_of(scenario)
    node = next(name for name in logs if name.startswith("consumer"))
    folder = write(tmp_path / "logs", scenario, {**logs, node: logs[node][: len(logs[node]) // 2]})
    code = cli.run(["analyze", str(folder), "--out", str(tmp_path / "out"), "--no-spark"])
    said = capsys.readouterr()
    assert code == cli.Exit.INCONCLUSIVE
    assert f"part of {node}~1" in said.err
    assert f"not judged: no log of part of {node}~1" in said.out


def test_a_log_that_is_there_twice_is_refused_with_both_names(tmp_path):
    folder = write(tmp_path / "logs", RUNS[0], logs_of(RUNS[0]))
    shutil.copy(folder / "publisher-1~1.ndjson", folder / "copy.ndjson")
    with pytest.raises(
        ConfigurationError, match=r"copy\.ndjson are both the log of publisher-1~1|publisher-1~1\.ndjson"
    ):
        analyze(folder, tmp_path / "report", spark=False)


def test_logs_beside_a_trace_are_refused_with_both_names(tmp_path):
    folder = write(tmp_path / "logs", RUNS[0], logs_of(RUNS[0]))
    shutil.copy(next((tmp_path / "logs").glob("*.ndjson")), tmp_path / "x.ndjson")
    analyze(folder, tmp_path / "report", spark=False)
    merged = tmp_path / "report" / "merged"
    shutil.copy(tmp_path / "x.ndjson", merged)
    with pytest.raises(
        ConfigurationError, match=r"holds logs \(x\.ndjson\) beside a trace \(trace-.*give each a folder"
    ):
        analyze(merged, tmp_path / "again", spark=False)


@pytest.mark.parametrize("scenario", ["missed_samples/only_tokens", "sequence_windows/fair"])
def test_the_judge_of_a_trace_and_the_monitors_of_its_run_agree(tmp_path, scenario):
    """All scenarios of all protocols: `tools/soak.py`."""
    assert disagreements(named(scenario), (1, 3), tmp_path) == []

"""The log of what a process does at a queue: each step, each access before it is made; judged like any node's."""

from __future__ import annotations

import pytest

from statemachines.cursor_recovery.memory import content
from statemachines.drivers.cursor_recovery import CircularQueue, Instruments
from statemachines.drivers.cursor_recovery.operation_log import OperationLog
from statemachines.kernel import ConfigurationError
from statemachines.testing.cursor_recovery.crash_run import run_seed
from statemachines.trace import COLUMNS
from statemachines.trace.log import read_logs
from statemachines.trace.parquet import TraceWriter

NAMES = COLUMNS[2:]


def rows_in(folder, life):
    (log,) = [log for log in read_logs(folder) if log.head.life == life]
    return [dict(zip(NAMES, row, strict=True)) for row in log.rows]


def columns_of(rows, *names):
    return [tuple(row[name] for name in names) for row in rows]


@pytest.fixture
def logged(name, tmp_path):
    """A queue with two messages put, and got, each way; the rows of it."""
    log = OperationLog(tmp_path, "shipper-1", 3)
    with CircularQueue.create(name, capacity=128, instruments=Instruments(observe=log.observe)) as queue:
        queue.put(b"AAAA")
        queue.put_many([b"B", b"CC"])
        assert queue.get_many() == [b"AAAA"]
        assert queue.get_many() == [b"B", b"CC"]
    log.close()
    return rows_in(tmp_path, "shipper-1~3")


def test_heads_contents_and_outcomes_stand_in_columns(logged):
    first, second = content(b"AAAA"), content(b"\2\0\0\0\x92\xc4\1B\xc4\2CC")
    swaps = [row for row in logged if row["event"] == "compare_and_swap"]
    heads = [row for row in swaps if row["key"].endswith("_head")]
    assert columns_of(heads, "key", "first", "last", "grant", "term") == [
        ("write_head", 0, 20, None, None),
        ("write_head", 20, 48, None, None),
        ("read_head", 0, 20, None, None),
        ("read_head", 20, 48, None, None),
    ]
    taken = [row for row in swaps if row["key"].endswith("/state")]
    assert {(row["grant"], row["term"]) for row in taken} == {(0, 1)}
    assert [row["first"] == 0 for row in taken] == [True, False] * 4
    assert all((row["first"] or row["last"]) >> 55 & 255 == 0 for row in taken)
    writes = [row for row in logged if row["event"] == "write"]
    assert columns_of(writes, "key", "grant") == [(first, 1), (second, 2)]
    copies = [row for row in logged if row["event"] in ("copied", "copy_in")]
    assert [row["key"] for row in copies] == [first, second, first, second]
    told = [row for row in logged if row["kind"] == "tell"][1:]
    assert columns_of(told, "event", "key", "grant", "first", "last") == [
        ("reserved", None, None, 0, 19),
        ("write_done", "written", None, 0, None),
        ("reserved", None, None, 20, 47),
        ("write_done", "written", None, 20, None),
        ("taken", None, None, 0, 19),
        ("read_done", "delivered", 1, 0, 19),
        ("taken", None, None, 20, 47),
        ("read_done", "delivered", 2, 20, 47),
    ]


def test_a_life_has_one_log(tmp_path):
    OperationLog(tmp_path, "writer", 2).close()
    with pytest.raises(ConfigurationError, match="number of its own"):
        OperationLog(tmp_path, "writer", 2)


def test_traces_of_crash_runs_are_judged_by_the_tables(tmp_path):
    from statemachines_reports.pipeline import analyze_all

    with TraceWriter(tmp_path / "trace", "crash") as trace:
        assert [run_seed(seed, trace) for seed in (3, 4)] == [[], []]
    (analysis,) = analyze_all([(tmp_path / "trace", tmp_path / "out")], spark=False)
    assert analysis.runs == 2
    checks = {check.name: check for check in analysis.checks}
    assert all(checks[name].verdict == "held" and checks[name].checked for name in ("rows", "continuity", "monitors"))

"""A trace is judged in pieces: cut at every row group or at any row, its tables are the same.

Traces of protocols that are not ours: judged by what they register, and as far as may be where they are missing.

What registers a protocol registers it no more in the end: processes and Spark start slowly, so all tests share one.

The page tells one run: its verdict, how to make it again, and what broke first, before what came of it.
"""

import contextlib
import io
import json
import random
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from lock_protocol import LOCK, Leave, LockRecord, Take, Written
from long_cases import mark_long
from msgspec.structs import replace

from statemachines import cli, registry
from statemachines.kernel import ConfigurationError, Node
from statemachines.trace import event_row, fault_row, fingerprint, step_rows
from statemachines.trace.parquet import DELTA, TEXTS, Run, TraceWriter
from statemachines_reports import columns, piece_judge, pipeline
from statemachines_reports import columns as columns_module
from statemachines_reports.columns import Segment, columns_of_run, read_columns
from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.draw_timeline import NO_FAULT, DeliveredRange, FaultMark, _repeated
from statemachines_reports.judge import Judges
from statemachines_reports.piece_judge import finish, judge_piece, merge, summarize
from statemachines_reports.pipeline import duckdb_tables, join_results
from statemachines_reports.session import Session
from statemachines_reports.tables import Results
from statemachines_reports.trace_set import RunParameters, TracePiece, TraceSet
from statemachines_sim.campaign import campaign, run_row
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

SCENARIOS = ("quiet", "deaths", "breaks", "rarely", "random_loss")
"""One of each protocol."""
SAFETY_S = {"deaths": 1.0}
FEW = {
    "quiet": ["shared_subscriptions.load.messages=500"],
    "deaths": ["cursor_recovery.messages=40"],
}
"""What the runs carry, where their messages would take longest: one that is judged in many pieces has few rows."""


def find_short(name):
    """The scenario, cut short."""
    scenario = override(find_scenario(name), FEW.get(name, []))
    return replace(scenario, phases=replace(scenario.phases, safety_s=SAFETY_S.get(name, 2.0)))


def rewrite(path, change=lambda table: table, groups=40, statistics=True):
    """The file with many row groups, none of which need end with a run."""
    table = change(pq.read_table(path, read_dictionary=TEXTS))
    size = max(table.num_rows // groups, 1)
    encoded = {"use_dictionary": TEXTS, "column_encoding": DELTA, "write_statistics": statistics}
    pq.write_table(table, path, row_group_size=size, **encoded)


@pytest.fixture(scope="module", params=SCENARIOS)
def trace(request, tmp_path_factory):
    """Two runs in a file of many row groups."""
    folder = tmp_path_factory.mktemp("trace")
    campaign(find_short(request.param), range(2), out=folder, processes=1)
    (path,) = folder.glob("trace-*")
    rewrite(path)
    return TraceSet(folder, folder / "out")


def judge_pieces(trace, pieces):
    judges = Judges(trace.protocols, trace.missing)
    results, waived = Results(judges), judges.list_waived_runs(trace)
    batches = [results.batch(judge_piece(judges, piece, waived)) for piece in pieces]
    return join_results(trace, judges, batches)


def judge_parts(trace, cuts_of, chance):
    """The tables by summaries of parts of each run, which neighbours merge in a random tree."""
    judges = Judges(trace.protocols, trace.missing)
    results, waived = Results(judges), judges.list_waived_runs(trace)
    parameters = trace.parameters.__getitem__
    (path,) = trace.files
    batches = []
    for run in sorted(trace.runs):
        columns = columns_of_run(path, run)
        parts = [
            summarize(judges, Segment(columns.select(np.arange(begin, end)), judges.lookup, parameters))
            for begin, end in pairwise(cuts_of(columns.rows))
        ]
        while len(parts) > 1:
            place = chance.randrange(len(parts) - 1)
            parts[place : place + 2] = [merge(judges, *parts[place : place + 2], parameters)]
        batches.append(results.batch(finish(judges, parts[0], waived, parameters, lambda columns=columns: columns)))
    return join_results(trace, judges, batches)


def draw_cuts(chance, count, rows):
    return sorted({0, rows, *(chance.randrange(rows) for _ in range(count))})


def judge_whole(trace):
    return duckdb_tables(trace, Judges(trace.protocols, trace.missing))


def cut_at(path, cuts):
    return [TracePiece(path, begin, end) for begin, end in pairwise(cuts)]


def cut_amid(pieces):
    """The same pieces, each of which has its rows and no others."""
    last = len(pieces) - 1
    return [piece._replace(begins_amid=n > 0, ends_amid=n < last) for n, piece in enumerate(pieces)]


@pytest.mark.long
def test_cut_at_every_second_row_group_and_at_random_rows_the_tables_are_the_same(trace):
    (path,) = trace.files
    whole = judge_whole(trace)
    ends = [sum(trace.groups[path][:n]) for n in range(len(trace.groups[path]) + 1)]
    assert len(ends) > 30
    assert judge_pieces(trace, cut_at(path, [*ends[:-1:2], ends[-1]])) == whole
    assert judge_pieces(trace, cut_amid(cut_at(path, [*ends[:-1:6], ends[-1]]))) == whole
    chance = random.Random(1)
    cuts = sorted({0, trace.rows, *(chance.randrange(trace.rows) for _ in range(6))})
    pieces = cut_at(path, cuts)
    chance.shuffle(pieces)
    assert judge_pieces(trace, pieces) == whole
    assert len(whole["runs"]) == 2


@pytest.mark.long
@pytest.mark.parametrize("trace", SCENARIOS, indirect=True)
def test_summaries_of_parts_of_a_run_make_the_same_tables_in_any_tree(trace):
    """The trace is wrong, so that much is found."""
    (path,) = trace.files
    chance = random.Random(2)
    right = pq.read_table(path)
    try:
        for kind in ("row-removed", "row-repeated", "rows-swapped"):
            rewrite(path, lambda table, kind=kind: spoil(table, kind, chance))
        whole = judge_whole(trace)
        for count in (1, 6):
            assert judge_parts(trace, lambda rows, count=count: draw_cuts(chance, count, rows), chance) == whole
        wrong = {line["check"] for line in whole["verdicts"] if line["wrong"]}
        assert {"continuity", "turns", "clocks"} <= wrong
    finally:
        rewrite(path, lambda _: right)


@pytest.mark.parametrize("trace", mark_long(SCENARIOS, "quiet", "rarely", "random_loss"), indirect=True)
def test_missing_rows_are_told_by_the_numbers_of_the_others(trace):
    """The first row of a run, and one amid it."""
    (path,) = trace.files
    chance = random.Random(3)
    right = pq.read_table(path)
    try:
        gone = (0, chance.randrange(2, int(np.argmax(right["run"].to_numpy())) - 1))
        rewrite(path, lambda table: table.take(np.setdiff1d(np.arange(table.num_rows), gone)))
        whole = judge_whole(trace)
        assert [line["wrong"] for line in whole["verdicts"] if line["check"] == "clocks"] == [2]
        assert judge_parts(trace, lambda rows: draw_cuts(chance, 6, rows), chance) == whole
    finally:
        rewrite(path, lambda _: right)


def spoil(table, kind, chance):
    """The trace, wrong in five places of each kind of row."""
    rows = [*range(table.num_rows)]
    kinds = table["kind"].to_pylist()
    places = [
        place for one in sorted({*kinds}) for place in chance.choices([*filter(lambda n: kinds[n] == one, rows)], k=5)
    ]
    numbers = table["seq"], table["run"]
    for place in places:
        if kind == "row-removed":
            rows[place] = None
        elif kind == "row-repeated":
            rows[min(place + 3, table.num_rows - 1)] = place
        elif place and numbers[1][place - 1] == numbers[1][place]:
            rows[place - 1], rows[place] = rows[place], rows[place - 1]
    kept = [place for place, row in enumerate(rows) if row is not None]
    spoiled = table.take([row for row in rows if row is not None])
    for name, column in zip(("seq", "run"), numbers, strict=True):
        spoiled = spoiled.set_column(spoiled.column_names.index(name), table.schema.field(name), column.take(kept))
    return spoiled


@pytest.fixture(scope="module")
def quiet_runs(tmp_path_factory):
    """The files of two runs."""
    folder = tmp_path_factory.mktemp("quiet")
    campaign(find_short("quiet"), range(2), out=folder, processes=1)
    return folder


@pytest.fixture
def quiet(quiet_runs, tmp_path):
    """Two runs, of which every step took a wrong row."""

    def spoil(table):
        place = table.column_names.index("row")
        return table.set_column(place, "row", [[99] * table.num_rows])

    shutil.copytree(quiet_runs, tmp_path, dirs_exist_ok=True)
    (path,) = tmp_path.glob("trace-*")
    rewrite(path, lambda table: spoil(table).cast(table.schema), statistics=["run"])
    return TraceSet(tmp_path, tmp_path / "out")


@pytest.mark.long
def test_a_long_run_is_judged_by_parts_in_one_process_and_in_several(quiet, monkeypatch):
    """Here a part has 500 rows, and each piece 2 500 of a run of 6 000."""
    whole = judge_whole(quiet)
    read = []
    for module, name, value in (
        (columns, "SMALL", 0),
        (columns_module, "SEGMENT", 500),
        (piece_judge, "SEGMENT", 500),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(piece_judge, "summarize", lambda *given: read.append(given) or summarize(*given))
    assert judge_whole(quiet) == whole
    assert len(read) > quiet.rows // 500 // 2
    cut = TraceSet(quiet.files[0].parent, quiet.files[0].parent / "out")
    monkeypatch.setattr(pipeline, "PARALLEL_ROWS", 0)
    monkeypatch.setattr(pipeline, "count_task_rows", lambda *_: 2_500)
    monkeypatch.setattr(pipeline.os, "cpu_count", lambda: 2)
    assert len([piece for piece in pipeline.list_pieces(cut, 2) if piece.begins_amid]) > 2
    assert judge_whole(cut) == whole


def test_a_piece_within_a_run_has_no_run(trace):
    (path,) = trace.files
    (first, *_) = (len(columns["run"]) for columns in read_columns(path, begin=0, end=1))
    assert list(read_columns(path, begin=1, end=first)) == []
    (columns,) = read_columns(path, begin=1, end=first + 1)
    assert columns.runs()[0][0] == 1


def test_a_piece_that_begins_with_an_earlier_run_is_refused(quiet):
    (path,) = quiet.files
    middle = next(iter(read_columns(path, begin=0, end=1))).rows
    rewrite(path, lambda table: table.take([*range(middle, table.num_rows), *range(middle)]))
    with pytest.raises(ConfigurationError, match=r"is not sorted by \(run, seq\) at run 0 seq 0"):
        list(read_columns(path, begin=quiet.rows - middle, end=quiet.rows))


def test_parameters_are_read_from_the_table_beside_the_file(tmp_path):
    scenario = find_short("deaths")
    campaign(scenario, range(1), out=tmp_path, processes=1)
    campaign(scenario, range(1), out=tmp_path, processes=1, first_run=7)
    files = sorted(tmp_path.glob("trace-*"))
    (tmp_path / "runs-deaths-000000.parquet").write_bytes(b"damaged")
    assert RunParameters(files[1])(7)["seed"] == 0
    with pytest.raises(ConfigurationError, match="runs-deaths-000000"):
        RunParameters(files[1])(0)


HERE = Path(__file__).parent


def made(out, wrong="nothing", fenced="fenced"):
    """A trace of the other protocol: three holders, one after another."""
    rows = []
    node = Node(LOCK, LockRecord("a~1"), name="a~1", now_ns=0, observe=lambda *step: rows.extend(step_rows(*step)))
    for now, token in enumerate((1, 2, 1 if wrong == "token" else 3)):
        node.feed(Take("door", token), now)
        rows.append(event_row(now, "a", "a~1", "tell", Written("door", token), machine=LOCK.full_name))
        node.feed(Leave(), now)
    rows.append(fault_row(9, "a", "crash"))
    if wrong == "row":
        rows[0] = (*rows[0][:8], 1, *rows[0][9:])
    tables = {"mine": fingerprint((LOCK,))}
    with TraceWriter(out, "mine") as writer:
        writer.add(
            Run(500, "locks", 0, json.dumps({"fenced": fenced == "fenced"}), "held", "{}", json.dumps(tables)), rows
        )
    return out


def analyzed(trace, out, *options):
    """Exit code, what was said, and the summary; the protocol is registered for this one."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            code = cli.run(["analyze", str(trace), "--out", str(out), *options])
    finally:
        registry._REGISTERED.pop("mine", None)
    summary = json.loads((out / "summary.json").read_text()) if (out / "summary.json").exists() else None
    return code, said.getvalue(), summary


def checks(summary):
    return {check["name"]: check for check in summary["checks"]}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A directory with runs of two protocols."""
    directory = tmp_path_factory.mktemp("both")
    world = World(override(find_scenario("quiet"), ["shared_subscriptions.load.messages=200"]), 1)
    outcome = world.run()
    with TraceWriter(directory, "ours") as writer:
        writer.add(run_row(world.scenario, outcome, 0), world.rows)
    return made(directory)


@pytest.fixture(scope="module")
def on_spark(both, tmp_path_factory):
    """Whether the other protocol is installed -> exit code, what was said, folder.  Spark is that of this process:
    first nothing of the other protocol is registered, then it is, here and in the tasks."""
    found = {}
    try:
        with Session() as session:
            session._spark.sparkContext.addPyFile(str(HERE / "lock_protocol.py"))
            for at, more in enumerate([(), ("--protocol", "lock_protocol:PROTOCOL")]):
                out, said = tmp_path_factory.mktemp("spark"), io.StringIO()
                with contextlib.redirect_stderr(said):
                    code = cli.run(["analyze", str(both), "--out", str(out), "--engine=spark", *more])
                found[bool(at)] = code, said.getvalue(), out
    finally:
        registry._REGISTERED.pop("mine", None)
    return found


@pytest.fixture(scope="module")
def without_spark(both, tmp_path_factory):
    """The same."""
    found = {}
    for at, more in enumerate([(), ("--protocol", "lock_protocol:PROTOCOL")]):
        out = tmp_path_factory.mktemp("plain")
        code, said, _ = analyzed(both, out, "--engine=local", *more)
        found[bool(at)] = code, said, out
    return found


@pytest.fixture
def judged(request, spark):
    return request.getfixturevalue("on_spark" if spark == "--engine=spark" else "without_spark")


@pytest.mark.long
@pytest.mark.parametrize("spark", ["--engine=spark", "--engine=local"])
def test_two_protocols_in_one_directory_are_judged_side_by_side(judged, spark):
    code, said, out = judged[True]
    summary = json.loads((out / "summary.json").read_text())
    assert code == cli.Exit.HELD, said
    found = checks(summary)
    assert found["fencing"]["checked"] == 3
    assert (found["fencing"]["protocol"], found["rows"]["protocol"]) == ("mine", "")
    assert {"mine/exclusivity", "shared_subscriptions/exclusivity"} <= found.keys(), (
        "a name that both use is said whole"
    )
    assert {line["machine"] for line in summary["coverage"]} >= {"mine/lock", "shared_subscriptions/borrower"}
    lock = next(line for line in summary["coverage"] if line["machine"] == "mine/lock")
    assert (lock["taken"], lock["rows"]) == (2, 4)
    scenarios = {line["scenario"]: line for line in summary["scenarios"]}
    assert scenarios["locks"]["mine/delivered"] == 3
    assert scenarios["locks"]["shared_subscriptions/delivered"] == 0
    assert scenarios["quiet"]["shared_subscriptions/delivered"] == 200
    measured = {(line["scenario"], line["measure"]): line for line in summary["latencies"]}
    assert measured["locks", "mine/grant"]["measured"] == 3
    assert measured["locks", "mine/grant"]["p50_units"] is None, "the other protocol's unit is not this one's"
    assert measured["quiet", "shared_subscriptions/grant"]["p50_units"] > 0
    holds = pq.read_table(out / "tables" / "holds.parquet").to_pylist()
    assert holds == [{"lock": "door", "fenced": "True", "held": 3}]
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "<b>Wait</b>" in page
    assert "from asking to holding" in page
    assert "shared_subscriptions: What was sent again" in page
    mine, theirs = (page.index(f'<h4 id="checks-1-{name}">') for name in ("mine", "shared_subscriptions"))
    assert page.index('<h4 id="checks-1-all">') < min(mine, theirs)
    assert max(mine, theirs) > page.index("<td>fencing</td>", mine) > mine, "each protocol's checks stand under it"
    assert '<a href="#checks-1-mine">mine</a>' in page


def test_what_a_run_does_not_promise_is_no_failure(tmp_path):
    trace = made(tmp_path / "trace", "token", "unfenced")
    code, said, summary = analyzed(trace, tmp_path / "out", "--engine=local", "--protocol", "lock_protocol:PROTOCOL")
    assert code == cli.Exit.HELD, said
    found = checks(summary)["fencing"]
    assert (found["wrong"], found["waived"], found["verdict"]) == (0, 1, "not promised by this configuration")


def test_what_is_wrong_besides_counts_more_than_what_is_missing(tmp_path):
    trace = made(tmp_path / "trace")
    table = pq.read_table(trace / "runs-mine.parquet")
    outcome = table.column_names.index("outcome")
    pq.write_table(table.set_column(outcome, "outcome", [["fencing: broken"]]), trace / "runs-mine.parquet")
    code, _, summary = analyzed(trace, tmp_path / "out", "--engine=local")
    assert code == cli.Exit.VIOLATED
    assert checks(summary)["monitors"]["wrong"] == 1


SET = ("shared_subscriptions.load.messages=60",)


@pytest.fixture(scope="module")
def world():
    scenario = override(find_scenario("quiet"), SET)
    world = World(scenario, 7)
    return world, world.run()


def test_what_comes_again_is_counted_under_the_last_fault_between():
    faults = [FaultMark(10, 10, "kill", "a"), FaultMark(20, 20, "pause", "b"), FaultMark(40, 40, "loss", "")]
    rows = [(5, "s", 0, 4), (7, "s", 4, 4), (15, "s", 0, 1), (30, "s", 1, 3), (35, "t", 0, 4), (50, "t", 4, 5)]
    deliveries = [DeliveredRange(row, row, stream, "n", first, last) for row, stream, first, last in rows]
    assert _repeated(deliveries, faults) == {"pause of b": 3, "kill of a": 2, NO_FAULT: 1, "loss": 1}
    assert _repeated([deliveries[0]._replace(last=10**9)], faults) is None
    assert np.sum([one.messages for one in deliveries]) == 5 + 1 + 2 + 3 + 5 + 2


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [(0, "0 s"), (7, "7 ns"), (1.5e9, "1.5 s"), (999.4e9, "999 s"), (999.7e9, "1,000 s"), (3.6e12, "3,600 s")],
)
def test_durations_read_as_people_write_them(value_ns, text):
    assert format_ns(value_ns) == text

"""A trace is judged in pieces: cut at every row group or at any row, its tables are the same."""

from __future__ import annotations

import random
import shutil
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines.trace.parquet import DELTA, TEXTS
from statemachines_reports import columns, piece_judge, pipeline
from statemachines_reports import columns as columns_module
from statemachines_reports.columns import Segment, columns_of_run, read_columns
from statemachines_reports.judge import Judges
from statemachines_reports.piece_judge import finish, judge_piece, merge, summarize
from statemachines_reports.pipeline import duckdb_tables, join_results
from statemachines_reports.tables import Results
from statemachines_reports.trace_set import RunParameters, TracePiece, TraceSet
from statemachines_sim.campaign import campaign
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario

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
@pytest.mark.parametrize("trace", mark_long(SCENARIOS, "deaths", "breaks"), indirect=True)
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

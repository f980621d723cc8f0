"""Traces of sessions are judged, in `make soak` on Spark, too: a simulated run and a story hold; copies have faults."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long_cases import mark_long
from session_story import told, told_of_a_move, told_of_age
from test_session_reports import AGED, MOVED, OWN, PS, TAMPERED

from statemachines_reports.page import part_of, write_page
from statemachines_reports.pipeline import VIOLATED, analyze
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario

SIMULATED, GOOD = 0, 100
"""Runs in which nothing is wrong."""

PLANTED = {
    "a row that nobody takes": "gap",
    "an owner leaves out a row": "gap",
    "what is taken and not sent": "gap",
    "what is committed is taken again": "twice",
    "what was sent is sent as new": "twice",
    "a repetition under another packet": "twice",
    "two change places": "order",
    "two epochs change places": "order",
    "overtakes what its publisher had heard of": "order",
    "from the marker on from the database": "cut",
    "not all below the marker": "cut",
    "what was kept is forgotten": "cut",
    "who has yielded sends": "owner",
    "stored under an epoch that was raised": "epochs",
    "sent though it was over": "aged",
    "passed over too early": "aged",
}
"""What is planted (`test_session_reports.TAMPERED`, `MOVED` or `AGED`), and the check that finds it."""

RUNS = {what: GOOD + place for place, what in enumerate(PLANTED, 1)}


def story_of(run, what=""):
    """The rows of this run, with that planted in them ("": nothing)."""
    rows = (told_of_age if what in AGED else told_of_a_move if what in MOVED else told)()
    if what:
        tamper = TAMPERED[what][1] if what in TAMPERED else (AGED | MOVED)[what][0]
        tamper(rows)
    return [row | {"run": run, "seq": seq} for seq, row in enumerate(rows)]


def write_stories(folder):
    """The story, and one with each fault, beside a simulated run: as runs of the same kind."""
    (trace,), (runs,) = folder.glob("trace-*.parquet"), folder.glob("runs-*.parquet")
    stories = story_of(GOOD)
    for what, run in RUNS.items():
        stories += story_of(run, what)
    (simulated,) = pq.read_table(runs).to_pylist()
    table = pa.Table.from_pylist(stories, schema=pq.read_schema(trace))
    pq.write_table(table, folder / "trace-stories.parquet")
    heads = [simulated | {"run": run} for run in (GOOD, *RUNS.values())]
    pq.write_table(pa.Table.from_pylist(heads, schema=pq.read_schema(runs)), folder / "runs-stories.parquet")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """All of them in one folder."""
    folder = tmp_path_factory.mktemp("trace")
    scenario = find_scenario(f"{PS}/deaths_of_nodes")
    (outcome,) = campaign(scenario, range(1), out=folder, processes=1, first_run=SIMULATED)
    assert outcome.is_held
    write_stories(folder)
    return folder


@pytest.fixture(scope="module", params=mark_long(("local", "spark"), "spark"))
def analysis(request, trace, tmp_path_factory):
    """What an engine says of them."""
    return analyze(trace, tmp_path_factory.mktemp("out"), spark=request.param == "spark")


def found(analysis):
    """(check, run) of whatever is wrong, of the checks of sessions."""
    return {(line["check"], line["run"]) for line in analysis.tables["findings"] if line["check"] in OWN}


@pytest.mark.long
def test_each_planted_fault_is_found_in_its_run_by_its_check(analysis):
    assert {(check, RUNS[what]) for what, check in PLANTED.items()} <= found(analysis)
    checks = {one.name: one for one in analysis.checks if one.name in OWN}
    assert {name: one.verdict for name, one in checks.items()} == dict.fromkeys(OWN, VIOLATED)
    assert all(one.checked > one.wrong > 0 for one in checks.values())


def test_where_nothing_is_planted_nothing_is_found(analysis):
    assert {run for _, run in found(analysis)} == set(RUNS.values())


@pytest.mark.long
def test_without_spark_the_same_is_found(trace, tmp_path):
    plain, on_spark = (analyze(trace, tmp_path / str(spark), spark=spark) for spark in (False, True))
    assert found(plain) == found(on_spark)
    assert [(one.name, one.checked, one.wrong) for one in plain.checks] == [
        (one.name, one.checked, one.wrong) for one in on_spark.checks
    ]


def test_the_page_shows_resumes_and_stores(analysis, tmp_path):
    write_page(tmp_path / "index.html", "Sessions", "Runs.", [part_of("Runs", analysis)])
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "How long a resume takes" in page
    assert "How long a message takes to be stored" in page

"""Ctrl-C of an analysis: what is judged by then is said, and written, in whole files."""

import shutil

import pytest
from msgspec import json

from statemachines import cli
from statemachines.commands.exits import Exit
from statemachines.trace.parquet import TraceWriter
from statemachines_reports import pipeline, session
from statemachines_reports.piece_judge import judge_piece
from statemachines_reports.pipeline import analyze, analyze_all
from statemachines_reports.session import Session
from statemachines_sim.campaign import run_row
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

SEEDS = range(3)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Three runs, a file each."""
    directory = tmp_path_factory.mktemp("trace")
    scenario = override(find_scenario("quiet"), ("shared_subscriptions.load.messages=40",))
    for seed in SEEDS:
        world = World(scenario, seed)
        outcome = world.run()
        assert outcome.is_held
        with TraceWriter(directory, f"quiet-{seed}") as writer:
            writer.add(run_row(scenario, outcome, seed), world.rows)
    return directory


def stop_at(monkeypatch, number):
    """Ctrl-C comes while the file of this number is judged."""
    judged = []

    def judge(judges, piece, waived):
        judged.append(piece)
        if len(judged) > number:
            raise KeyboardInterrupt
        return judge_piece(judges, piece, waived)

    monkeypatch.setattr(pipeline, "judge_piece", judge)


def gapless(capsys, *arguments):
    code = cli.run(["analyze", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.long
def test_the_files_that_are_judged_by_then_count(monkeypatch, capsys, trace, tmp_path):
    whole = analyze(trace, tmp_path / "whole", spark=False)
    stop_at(monkeypatch, 2)
    code, out, errors = gapless(capsys, trace, "--engine=local", "--out", tmp_path / "out")
    assert code == Exit.INTERRUPTED == 130
    assert errors == "interrupted: 1 of 1 traces are judged, of the last 2 of 3 files\n"
    assert out.startswith("2 runs, ")
    summary = json.decode((tmp_path / "out" / "summary.json").read_bytes())
    assert (summary["runs"], summary["left"], summary["held"]) == (2, 1, True)
    assert 0 < summary["rows"] < whole.rows
    assert whole.unjudged_files == 0
    assert "acknowledged" in (tmp_path / "out" / "index.html").read_text()
    assert not [path for path in (tmp_path / "out").rglob("*") if path.name.endswith(".partial")]


@pytest.mark.long
def test_of_several_traces_those_that_are_done_count(monkeypatch, capsys, trace, tmp_path):
    stop_at(monkeypatch, 3)
    copy = tmp_path / "copy"
    shutil.copytree(trace, copy)
    code, out, errors = gapless(capsys, trace, copy, "--engine=local", "--out", tmp_path / "out")
    assert (code, errors) == (130, "interrupted: 1 of 2 traces are judged\n")
    assert out.startswith("\n3 runs, ") or out.startswith("3 runs, ")
    assert len([*(tmp_path / "out").glob("*/summary.json")]) == 1
    assert (tmp_path / "out" / "index.html").is_file()


def test_who_does_not_ask_for_a_part_gets_none(monkeypatch, trace, tmp_path):
    stop_at(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        analyze(trace, tmp_path, spark=False)


def test_on_spark_the_jobs_that_have_ended_count(monkeypatch, trace, tmp_path):
    """A job a file; Ctrl-C comes when two have ended and the third has not."""
    whole = Session.run_jobs

    def run_jobs(self, jobs):
        yield from whole(self, jobs[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "count_task_rows", lambda *_: 1)
    monkeypatch.setattr(Session, "run_jobs", run_jobs)
    (found,) = analyze_all([(trace, tmp_path / "spark")], spark=True, partly=True)
    assert (found.runs, found.unjudged_files) == (2, 1)
    assert found.is_held
    assert [line["run"] for line in found.tables["runs"]] == sorted(found.trace.runs) == [0, 1]

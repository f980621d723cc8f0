"""The bench harness: turns, rounds, ratios, targets, and how results are written down.  No test here is timed."""

from __future__ import annotations

import re

import msgspec
import pytest
from msgspec.structs import replace

import statemachines_bench as bench
from statemachines import cli
from statemachines_bench import BenchRow, RatioKind, TurnPair, table
from statemachines_bench.measure import rounds_for


def row(name="fast", ours=(2.0,), baseline=(20.0,), **target):
    """A row whose values are given; it keeps who was run in `turns`."""
    turns = []

    def giving(who, values):
        left = list(values)

        def run():
            turns.append(who)
            return left.pop(0) if len(left) > 1 else left[0]

        return run

    made = BenchRow(
        name=name,
        about="as fast as can be",
        unit="ns",
        baseline_name="slow thing",
        prepare=lambda size: TurnPair(giving("ours", ours), giving("baseline", baseline)),
        ratio=target.pop("ratio", RatioKind.BASELINE_OVER_OURS),
        **target,
    )
    return made, turns


class Clock:
    """Seconds that pass with every look at it."""

    def __init__(self, step):
        self.now = 0.0
        self.step = step

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.mark.parametrize(("seconds", "rounds"), [(0, 5), (9.9, 5), (10, 3), (29.9, 3), (30, 1), (600, 1)])
def test_what_takes_longer_runs_fewer_rounds(seconds, rounds):
    assert rounds_for(seconds) == rounds


@pytest.mark.parametrize(("seconds", "rounds"), [(1, 5), (20, 3), (100, 1)])
def test_ours_and_the_baseline_take_turns(seconds, rounds):
    one, turns = row(ours=(2.0, 1.0, 2.0), at_least=15)
    result = bench.measure(one, clock=Clock(seconds))
    assert turns == ["ours", "baseline"] * rounds
    assert len(result.ours_rounds) == len(result.baseline_rounds) == rounds


@pytest.mark.parametrize("target", [{}, {"at_least": 5}, {"at_least": 30}])
@pytest.mark.parametrize(("last", "rounds"), [(2.0, 2), (1.9, 2), (1.5, 3)])
def test_D_1200_three_rounds_that_agree_are_enough_or_two_with_a_small_spread(target, last, rounds):
    one, turns = row(ours=(2.0, last), **target)
    result = bench.measure(one, clock=Clock(1))
    assert turns == ["ours", "baseline"] * rounds
    assert result.seconds == 3  # of this clock: it is looked at before, when all is ready, behind a round, and last


@pytest.fixture
def rows(monkeypatch):
    def use(*made):
        monkeypatch.setattr(table, "all_rows", lambda: tuple(one for one, _ in made))

    return use


def test_a_missed_target_is_exit_code_1(rows, capsys):
    rows(row(at_least=11))
    assert cli.run(["bench"]) == 1
    assert "NO" in capsys.readouterr().out


def test_a_row_that_fails_does_not_stop_the_others(rows, capsys):
    def broken(size):
        raise RuntimeError("no such engine")

    rows((replace(row("before")[0], prepare=broken), []), row("after", at_least=5))
    assert cli.run(["bench", "--json"]) == 1
    first, second = msgspec.json.decode(capsys.readouterr().out)
    assert (first["name"], first["holds"], first["rounds"]) == ("before", False, 0)
    assert (first["ours"], first["baseline"], first["ratio"]) == (None, None, None)
    assert re.fullmatch(r"RuntimeError: no such engine \(test_harness.py:\d+\)", first["error"])
    assert (second["name"], second["holds"], "error" in second) == ("after", True, False)
    assert cli.run(["bench"]) == 1
    shown = capsys.readouterr().out
    assert "FAILED" in shown
    assert "before failed: RuntimeError: no such engine" in shown


def test_only_the_rows_that_are_named_are_measured(rows, capsys):
    one, other = row(at_least=11), row("told")
    rows(one, other)
    assert cli.run(["bench", "told", "--json"]) == 0
    assert [found["name"] for found in msgspec.json.decode(capsys.readouterr().out)] == ["told"]
    assert one[1] == []


def interrupted(size):
    raise KeyboardInterrupt


def test_D_450_an_interrupted_bench_prints_what_it_has_and_goes_on(rows, capsys, tmp_path):
    one, other = row(at_least=5), row("told")
    saved = ["--save", str(tmp_path / "results.json")]
    rows(one, (replace(other[0], prepare=interrupted), []))
    assert cli.run(["bench", *saved]) == 3
    captured = capsys.readouterr()
    assert captured.out.startswith("fast: 10.00 (at least 5: holds)\n")
    assert "slow thing" in captured.out
    assert captured.err.endswith("\ninterrupted after 1 of 2 rows\n")
    measured = len(one[1])
    rows(one, other)
    assert cli.run(["bench", *saved, "--resume", "--json"]) == 0
    assert [found["name"] for found in msgspec.json.decode(capsys.readouterr().out)] == ["fast", "told"]
    assert (len(one[1]), len(other[1])) == (measured, 4)


def test_D_450_rows_of_another_commit_are_measured_again(rows, capsys, tmp_path):
    one = row(at_least=5)
    rows(one)
    path = tmp_path / "results.json"
    assert cli.run(["bench", "--save", str(path)]) == 0
    path.write_bytes(path.read_bytes().replace(b'"commit": "', b'"commit": "not'))
    measured = len(one[1])
    assert cli.run(["bench", "--save", str(path), "--resume"]) == 0
    assert len(one[1]) == 2 * measured
    path.write_bytes(b'{"name": "fast"}')
    assert cli.run(["bench", "--save", str(path), "--resume"]) == 2
    assert "is no file of results" in capsys.readouterr().err
    assert cli.run(["bench", "--resume"]) == 2


def test_the_list_measures_nothing(rows, capsys):
    one = row(at_least=5)
    rows(one)
    assert cli.run(["bench", "--list"]) == 0
    assert "at least 5" in capsys.readouterr().out
    assert cli.run(["bench", "--list", "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out) == [
        {"name": "fast", "about": "as fast as can be", "unit": "ns", "baseline_name": "slow thing", "target": 5.0}
    ]
    assert one[1] == []

"""The bench harness: turns, rounds, ratios, targets, and how results are written down.  No test here is timed."""

from __future__ import annotations

import re

import msgspec
import pytest
from msgspec.structs import replace

import statemachines_bench as bench
from statemachines import cli
from statemachines_bench import BenchRow, RatioKind, TurnPair, table
from statemachines_bench.harness import SharedRuns
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


def test_D_1200_rows_that_share_runs_read_the_same_ones():
    made = []
    shared = SharedRuns(lambda: made.append(len(made)) or (2.0 + len(made), 10.0 * len(made)))
    first, second, third = (shared.read(lambda values, at=at: values[at]) for at in (0, 1, 0))
    assert [first(), second(), first(), second(), first()] == [3.0, 10.0, 4.0, 20.0, 5.0]
    assert [third() for _ in range(4)] == [3.0, 4.0, 5.0, 6.0]
    assert len(made) == 4


def test_values_are_medians_and_the_ratio_is_theirs():
    one, _ = row(ours=(1.0, 2.0, 3.0, 90.0, 2.5), baseline=(10.0, 10.0, 25.0, 1.0, 30.0), at_least=8)
    result = bench.measure(one, clock=Clock(0))
    assert (result.ours, result.baseline, result.ratio) == (2.5, 10.0, 4.0)
    assert not result.holds


@pytest.mark.parametrize(
    ("target", "holds"),
    [
        ({"at_least": 10}, True),
        ({"at_least": 10.1}, False),
        ({"at_most": 10}, True),
        ({"at_most": 9.9}, False),
        ({}, True),
        ({"ratio": RatioKind.OURS_OVER_BASELINE, "at_most": 0.1}, True),
        ({"ratio": RatioKind.OURS_OVER_BASELINE, "at_least": 0.2}, False),
    ],
)
def test_a_target_is_a_bound_of_the_ratio(target, holds):
    one, _ = row(**target)
    assert bench.measure(one, clock=Clock(0)).holds is holds


@pytest.fixture
def rows(monkeypatch):
    def use(*made):
        monkeypatch.setattr(table, "all_rows", lambda: tuple(one for one, _ in made))

    return use


def test_bench_prints_a_list_of_objects(rows, capsys):
    rows(row(at_least=5), row("told", ours=(3.0,), baseline=(1.0,)))
    assert cli.run(["bench", "--json"]) == 0
    said = capsys.readouterr()
    found = msgspec.json.decode(said.out)
    assert [line.partition(":")[0] for line in said.err.splitlines()] == ["fast", "told"]
    assert all(one.pop("seconds") >= 0 for one in found)
    assert found == [
        {
            "name": "fast",
            "unit": "ns",
            "ours": 2.0,
            "baseline_name": "slow thing",
            "baseline": 20.0,
            "ratio": 10.0,
            "target": 5.0,
            "holds": True,
            "rounds": 2,
        },
        {
            "name": "told",
            "unit": "ns",
            "ours": 3.0,
            "baseline_name": "slow thing",
            "baseline": 1.0,
            "ratio": 0.3333,
            "target": None,
            "holds": True,
            "rounds": 2,
        },
    ]


def test_bench_prints_a_table_with_the_spread(rows, capsys):
    rows(row(ours=(1.0, 3.0, 2.0), at_least=5, aim="12"), row("told"))
    assert cli.run(["bench"]) == 0
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if line.lstrip().startswith("fast "))
    for word in ("2 (1 - 3)", "20 (20 - 20)", "10.00", "at least 5", "yes", "slow thing", "12"):
        assert word in line
    assert "report only" in shown


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


def test_D_1295_a_long_row_is_listed_and_measured_only_by_its_name(rows, capsys):
    one, (long, turns) = row(at_least=5), row("long")
    rows(one, (replace(long, is_long=True), turns))
    assert cli.run(["bench", "--json"]) == 0
    assert [found["name"] for found in msgspec.json.decode(capsys.readouterr().out)] == ["fast"]
    assert turns == []
    assert cli.run(["bench", "--list"]) == 0
    assert "report only; only by name" in capsys.readouterr().out
    assert cli.run(["bench", "long", "--json"]) == 0
    assert [found["name"] for found in msgspec.json.decode(capsys.readouterr().out)] == ["long"]


def test_results_are_saved_only_when_asked_for(rows, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows(row(at_least=5))
    assert cli.run(["bench"]) == 0
    assert list(tmp_path.iterdir()) == []
    assert cli.run(["bench", "--save", "results.json"]) == 0
    saved = msgspec.json.decode((tmp_path / "results.json").read_bytes())
    assert [found["ratio"] for found in saved] == [10.0]


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


def test_an_unknown_row_is_wrong_usage(rows, capsys):
    rows(row(), row("told"))
    assert cli.run(["bench", "tolt"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: bench row = 'tolt': unknown; did you mean 'told'? there are: fast, told\n"


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


def test_names_of_rows_are_unique_and_each_has_at_most_one_bound():
    rows = table.all_rows()
    assert len({one.name for one in rows}) == len(rows)
    assert [one.name for one in rows if one.at_least is not None and one.at_most is not None] == []

"""The bench harness: turns, rounds, ratios, targets, and how results are written down.  No test here is timed.

The rows about groups: both sides do the whole job, on a small scale, and the counting counts.

The rows about missed samples: what they measure happens, and whatever fails in their processes is said.

Every row runs, in little: that both sides do their work, not how fast.
"""

import re
import subprocess
import sys
from contextlib import contextmanager
from math import isfinite

import msgspec
import pytest
from long_cases import mark_long
from msgspec.structs import replace

import statemachines_bench as bench
from statemachines import cli
from statemachines.kernel import GaplessError
from statemachines_bench import BenchRow, RatioKind, Size, TurnPair, judging, missed_samples, table, throughput
from statemachines_bench.measure import rounds_for
from statemachines_bench.zenoh_child import RecoveredSamples, SampleCounter


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
    assert re.fullmatch(r"RuntimeError: no such engine \(test_bench.py:\d+\)", first["error"])
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


MESSAGES = 2_400


@contextmanager
def saying(*programs):
    children = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for program in programs
    ]
    try:
        yield children
    finally:
        for child in children:
            child.kill()
            child.communicate()


def says(*lines, then="input()"):
    return f"print({chr(10).join(lines)!r}, flush=True); {then}"


def test_a_consumer_that_ends_is_no_result():
    with (
        saying(says("0 1000", "40 2000"), says("0 1500", then="pass")) as children,
        pytest.raises(GaplessError, match=r"only \d+ of 100 messages"),
    ):
        throughput.per_second(children, wanted=100)


def test_a_redis_group_acknowledges_all_there_is():
    server = throughput.RedisServer()
    try:
        with server.client() as client:
            throughput.fill_redis(client, MESSAGES, 8)
            assert client.config_get("append*")["appendonly"] == "yes"
            for stream in range(8):
                client.xgroup_create(f"s{stream}", "bench", id="0")
            with throughput.start_consumers("redis", str(server.port), "8") as children:
                assert throughput.per_second(children, MESSAGES) > 0
            assert [client.xpending(f"s{stream}", "bench")["pending"] for stream in range(8)] == [0] * 8
    finally:
        server.stop()


def test_a_process_that_hangs_is_killed(monkeypatch):
    """And its publisher with it, which would go on for hours."""
    monkeypatch.setattr(missed_samples, "PATIENCE_S", 0.5)
    with pytest.raises(GaplessError, match=r"hung for 0\.5 s"):
        missed_samples.run_child("throughput", whose="ours", samples=100_000_000)


def test_samples_out_of_order_are_seen():
    heard = RecoveredSamples(None)
    for number in ("0", "1!lost!", "3", "2", "4"):
        heard.hear(number)
    assert heard.disorder == 1
    assert list(heard.came) == [0, 1, 3, 2, 4]
    counted = SampleCounter(3)
    with pytest.raises(GaplessError, match="sample 1 came as number 0"):
        counted._take(1)


LONG = {
    "analyze-24m", "analyze-24m-memory", "analyze-24m-slope", "analyze-24m-spark", "campaign-scale",
    "campaign-spark", "dispatch", "dispatch-hand", "explore-spin", "explore-two",
    "failover-leader", "idle", "judge-steps", "judge-steps-duckdb", "liveness-large", "mqtt-fan-out-absent",
    "mqtt-live-1-p50", "mqtt-live-1-p99", "mqtt-publish-one", "queue-single-iceoryx2", "queue-single-zeromq",
    "resume-cpu", "resume-million", "resume-postgres-100000", "resume-scale", "resume-scale-postgres",
    "session-failover-kill", "session-failover-kill-resume", "session-failover-stop",
    "session-failover-stop-postgres", "session-failover-stop-resume", "session-idle", "session-idle-memory",
    "session-latency-p99", "session-publish-postgres", "sim-message", "sim-monitored", "step-scale",
    "trace-cost", "trace-size", "zenoh-lossy-25-0ms", "zenoh-lossy-25-50ms", "zenoh-lossy-5-0ms",
    "zenoh-lossy-5-10ms", "zenoh-lossy-5-50ms",
}  # fmt: skip
"""What takes long even in little."""


@pytest.fixture
def _nothing_is_kept():
    """A process has one Spark, and other tests have claims about theirs."""
    yield
    judging.end_session()


@pytest.mark.usefixtures("_nothing_is_kept")
@pytest.mark.parametrize("row", mark_long(table.all_rows(), *LONG, name=lambda row: row.name))
def test_a_row_gives_values(row):
    pair = row.prepare(Size.SMALL)
    for value in (pair.ours(), pair.baseline()):
        assert isfinite(value)
        assert value > 0

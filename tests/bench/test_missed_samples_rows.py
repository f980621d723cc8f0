"""The rows about missed samples: what they measure happens, and whatever fails in their processes is said."""

from __future__ import annotations

import pytest

from statemachines.kernel import GaplessError
from statemachines_bench import missed_samples
from statemachines_bench.zenoh_child import RecoveredSamples, SampleCounter


def test_a_recovery_takes_three_delays_of_the_link():
    """The next sample, the query, the reply."""
    figures = missed_samples.run_child("recovery", pairs=2, delay_ms=20)
    assert min(figures["ours"], figures["theirs"]) >= 0.06
    assert figures["undelivered"] == 0


def test_both_values_are_of_one_run_and_each_is_its_own():
    runs = iter([{"ours": 1.0, "theirs": 2.0}, {"ours": 3.0, "theirs": 4.0}])
    turns = missed_samples.TurnValues(lambda: next(runs))
    assert [turns.ours(), turns.theirs(), turns.ours(), turns.theirs()] == [1_000, 2_000, 3_000, 4_000]
    with pytest.raises(IndexError):
        turns.theirs()


def test_a_process_that_fails_says_why():
    with pytest.raises(GaplessError, match=r"throughput over zenoh ended with 1: .* argument: 'samples'"):
        missed_samples.run_child("throughput", whose="theirs")


def test_a_process_that_hangs_is_killed(monkeypatch):
    """And its publisher with it, which would go on for hours."""
    monkeypatch.setattr(missed_samples, "PATIENCE_S", 0.5)
    with pytest.raises(GaplessError, match=r"hung for 0\.5 s"):
        missed_samples.run_child("throughput", whose="ours", samples=100_000_000)


def test_samples_out_of_order_are_seen():
    heard = RecoveredSamples(None, "ours")
    for number in ("0", "1!lost!", "3", "2", "4"):
        heard.hear(number)
    assert heard.disorder == 1
    assert list(heard.came) == [0, 1, 3, 2, 4]
    counted = SampleCounter(3)
    with pytest.raises(GaplessError, match="sample 1 came as number 0"):
        counted._take(1)

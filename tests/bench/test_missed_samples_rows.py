"""The rows about missed samples: what they measure happens, and whatever fails in their processes is said."""

from __future__ import annotations

import pytest

from statemachines.kernel import GaplessError
from statemachines_bench import missed_samples
from statemachines_bench.zenoh_child import RecoveredSamples, SampleCounter


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

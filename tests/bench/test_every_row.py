"""Every row runs, in little: that both sides do their work, not how fast."""

from __future__ import annotations

from math import isfinite

import pytest
from long_cases import mark_long

from statemachines_bench import Size, judging, table

LONG = {
    "analyze-24m", "analyze-24m-memory", "analyze-24m-slope", "analyze-24m-spark", "campaign-scale",
    "campaign-spark", "dispatch", "dispatch-hand", "explore-spin", "explore-two",
    "failover-leader", "idle", "judge-steps", "judge-steps-duckdb", "liveness-large", "mqtt-fan-out-absent",
    "mqtt-live-1-p50", "mqtt-live-1-p99", "mqtt-publish-one", "queue-single-iceoryx2", "queue-single-zeromq",
    "resume-cpu", "resume-million", "resume-postgres-100000", "resume-scale", "resume-scale-postgres",
    "session-failover-kill", "session-failover-kill-resume", "session-failover-stop",
    "session-failover-stop-postgres", "session-failover-stop-resume", "session-idle", "session-idle-memory",
    "session-latency-p99", "session-publish-postgres", "sim-message", "sim-monitored", "step-scale",
    "trace-cost", "trace-size",
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

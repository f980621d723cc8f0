"""Every row runs, in little: that both sides do their work, not how fast."""

from __future__ import annotations

from math import isfinite

import pytest
from long_cases import mark_long

from statemachines.kernel import Node
from statemachines_bench import Size, judging, stormy, table

LONG = {
    "analyze-24m", "analyze-24m-memory", "analyze-24m-slope", "analyze-24m-spark", "analyze-spark-start",
    "campaign-cursor-recovery", "campaign-missed-samples", "campaign-persistent-sessions", "campaign-scale",
    "campaign-sequence-windows", "campaign-shared-subscriptions", "campaign-spark", "conform-lockstep", "dispatch",
    "dispatch-hand", "explore-spin", "explore-two", "failover-leader", "failover-pause", "group-jetstream",
    "group-jetstream-failover", "hypothesis-steps", "idle", "judge-steps", "judge-steps-duckdb", "liveness-large",
    "mqtt-connections", "mqtt-fan-out-absent", "mqtt-live-1-p50", "mqtt-live-1-p99", "mqtt-live-1000-p50",
    "mqtt-live-1000-p99", "mqtt-publish-memory", "mqtt-publish-nats", "mqtt-publish-one", "mqtt-publish-rabbitmq",
    "mutants", "poison", "queue-many", "queue-pool", "queue-single-iceoryx2", "queue-single-zeromq",
    "replay", "resume-cpu", "resume-million",
    "resume-postgres-100000", "resume-scale", "resume-scale-postgres", "session-failover-kill",
    "session-failover-kill-resume", "session-failover-stop", "session-failover-stop-postgres",
    "session-failover-stop-resume", "session-fan-out", "session-idle", "session-idle-memory", "session-latency-p99",
    "session-publish-0", "session-publish-1", "session-publish-100", "session-publish-memory",
    "session-publish-nats", "session-publish-postgres", "session-publish-postgres-2", "session-publish-rabbitmq",
    "sim-message", "sim-monitored", "sim-naive", "sim-storm", "sources", "sources-memory", "step-scale",
    "step-scale-leader", "trace-cost", "trace-rows", "trace-size", "trace-write", "window-memory",
    "zenoh-recovery-50ms",
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


def test_what_nodes_are_asked_for_is_noted_and_does_the_same_again():
    """Steps and nodes are those of the run; afterwards nothing is noted any more."""
    methods = {name: getattr(Node, name) for name in ("__init__", *stormy.CALLS)}
    with stormy.note_lives() as life:
        world = stormy.stormy_run(0)
    assert {name: getattr(Node, name) for name in methods} == methods
    assert [node.record for node in life.replay()] == [node.record for node in life.nodes]
    steps = sum(row[4] in ("step", "timer") and row[6] != row[7] for row in world.rows)
    assert len(life.events) > steps > 1_000
    life.events.pop()
    assert [node.record for node in life.replay()] != [node.record for node in life.nodes]

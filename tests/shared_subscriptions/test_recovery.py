"""Fail-over and recovery: a run told by hand, and simulated runs."""

from __future__ import annotations

import pytest

from statemachines import catalogue
from statemachines.trace.parquet import TraceWriter
from statemachines_reports.columns import Segment, read_columns
from statemachines_reports.lookup import Lookup
from statemachines_reports.shared_subscriptions.recovery import Follow, ProcessLife, follow
from statemachines_sim.campaign import run_row
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

LEADER = "leader-1~1/1"
LIVES = {
    "consumer-1": [ProcessLife("consumer-1~1", 1, 90), ProcessLife("consumer-1~2", 900, 999)],
    "consumer-2": [ProcessLife("consumer-2~1", 2, 999)],
    "leader-1": [ProcessLife("leader-1~1", 0, 90), ProcessLife("leader-1~2", 800, 999)],
}


def instance(stream, grant, leader=LEADER):
    return f"{leader}:{stream}#{grant}"


class Run:
    """A run with two consumers, each with a stream of its own: `a` and `b`."""

    def __init__(self):
        self.follow = Follow(7, LIVES)
        self.give(0, "a", 1, "consumer-1~1/1")
        self.give(0, "b", 2, "consumer-2~1/1")

    def give(self, t_ns, stream, grant, borrower, leader=LEADER):
        self.follow.grant(instance(stream, grant, leader), borrower)
        self.change(t_ns, stream, grant, "assign", "granting", leader)
        self.change(t_ns, stream, grant, "update_progress", "granted", leader)

    def change(self, t_ns, stream, grant, event, dest, leader=LEADER):
        self.follow.change(t_ns, instance(stream, grant, leader), event, dest)

    def fault(self, t_ns, kind, node="", row=100, peer=""):
        self.follow.fault(t_ns, row, kind, node, peer)

    def found(self):
        self.follow.finish()
        return self.follow.recoveries, self.follow.fail_overs


@pytest.fixture(scope="module")
def stormy(tmp_path_factory):
    """Two stormy runs."""
    directory = tmp_path_factory.mktemp("trace")
    worlds = []
    with TraceWriter(directory, "storm") as writer:
        for seed in range(2):
            world = World(find_scenario("storm"), seed)
            writer.add(run_row(world.scenario, world.run(), seed), world.rows)
            worlds.append(world)
    return directory / "trace-storm.parquet", worlds


def followed(path, change=None):
    (columns,) = read_columns(path)
    lookup = Lookup(catalogue.machines("shared_subscriptions"))
    return list(follow(Segment(columns, lookup, lambda run: {})))


@pytest.mark.long
def test_every_fault_of_a_simulated_run_is_followed(stormy):
    path, worlds = stormy
    for one, world in zip(followed(path), worlds, strict=True):
        kinds = [recovery.fault for recovery in one.recoveries]
        assert {kind: kinds.count(kind) for kind in kinds} == world.nemesis.done
        assert one.fail_overs
        limit = world.env.now
        assert all(0 < over.value_ns < limit and over.cause in ("crash", "pause") for over in one.fail_overs)

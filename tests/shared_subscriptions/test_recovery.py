"""Fail-over and recovery: a run told by hand, and simulated runs."""

from __future__ import annotations

import pytest

from statemachines import catalogue
from statemachines.trace.parquet import TraceWriter
from statemachines_reports.columns import Segment, read_columns
from statemachines_reports.lookup import Lookup
from statemachines_reports.shared_subscriptions.recovery import FailOver, Follow, ProcessLife, Recovery, follow
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


@pytest.mark.parametrize("kind", ["crash", "kill", "unsubscribe", "silence"])
def test_a_stream_of_a_dead_consumer_is_granted_to_another(kind):
    run = Run()
    run.fault(10, kind, "consumer-1")
    run.change(40, "a", 1, "release", "none")
    run.give(50, "a", 3, "consumer-2~1/1")
    assert run.found() == ([Recovery(7, kind, True, 40)], [FailOver(7, kind, 40)])


def test_a_new_life_of_the_same_process_is_another_borrower():
    run = Run()
    run.fault(10, "crash", "consumer-1")
    run.change(40, "a", 1, "release", "none")
    run.give(60, "a", 3, "consumer-1~2/1")
    assert run.found() == ([Recovery(7, "crash", True, 50)], [FailOver(7, "crash", 50)])


def test_a_pause_that_nobody_noticed_is_no_fail_over():
    run = Run()
    run.fault(10, "pause", "consumer-1")
    run.fault(15, "resume", "consumer-1")
    run.change(20, "a", 1, "take_back", "revoking")
    run.change(25, "a", 1, "revoke_finished", "none")
    run.give(30, "a", 3, "consumer-2~1/1")
    assert run.found() == ([Recovery(7, "pause", True, 5)], [])


def test_a_pause_longer_than_the_validity_is_a_fail_over():
    run = Run()
    run.fault(10, "pause", "consumer-1")
    run.change(60, "a", 1, "release", "none")
    run.fault(65, "resume", "consumer-1")
    run.give(70, "a", 3, "consumer-2~1/1")
    assert run.found() == ([Recovery(7, "pause", True, 60)], [FailOver(7, "pause", 60)])


def test_after_the_death_of_a_leader_all_streams_must_be_given_again():
    run = Run()
    run.fault(10, "leader_crash", "leader-1")
    run.fault(20, "restart", "leader-1")
    run.give(80, "a", 1, "consumer-1~1/2", "leader-1~2/1")
    run.give(90, "b", 2, "consumer-2~1/2", "leader-1~2/1")
    assert run.found() == ([Recovery(7, "leader_crash", True, 80)], [])


def test_a_leader_that_resigns_serves_nobody():
    run = Run()
    run.fault(10, "store")
    run.follow.resign(20, LEADER)
    run.fault(30, "end_store")
    run.give(40, "a", 1, "consumer-1~1/1", "leader-1~1/2")
    run.give(50, "b", 2, "consumer-2~1/1", "leader-1~1/2")
    assert run.found() == ([Recovery(7, "store", True, 40)], [])


def test_a_fault_that_disturbs_nothing_is_told_apart_from_one_without_recovery():
    run = Run()
    run.fault(10, "loss")
    run.fault(20, "end_loss")
    run.fault(30, "crash", "consumer-2")
    assert run.found() == ([Recovery(7, "loss", False, None), Recovery(7, "crash", True, None)], [])


def test_a_cut_ends_by_its_own_end():
    run = Run()
    run.fault(10, "partition", "consumer-1", peer="leader-1")
    run.fault(11, "partition", "leader-1", peer="consumer-1")
    run.fault(20, "end_partition", "leader-1", peer="consumer-1")
    run.change(30, "a", 1, "release", "none")
    run.give(40, "a", 3, "consumer-2~1/1")
    assert run.found()[0] == [Recovery(7, "partition", False, None), Recovery(7, "partition", True, 30)]


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


def test_a_death_that_no_row_tells_of_is_found_by_the_silence(tmp_path):
    """The same run with the rows of its faults left out: consumers that died lapse, or come back."""
    world = World(find_scenario("kills"), 3)
    outcome = world.run()
    told = [row for row in world.rows if row[4] != "fault"]
    for name, rows in (("whole", world.rows), ("silent", told)):
        with TraceWriter(tmp_path, name) as writer:
            writer.add(run_row(world.scenario, outcome, 0), rows)
    (whole,) = followed(tmp_path / "trace-whole.parquet")
    (silent,) = followed(tmp_path / "trace-silent.parquet")
    died = [over for over in whole.fail_overs if over.cause == "crash"]
    found = [over for over in silent.fail_overs if over.cause == "silence"]
    assert len(found) >= len(died) / 2 > 1
    assert {recovery.fault for recovery in silent.recoveries} == {"silence"}

"""Messages that were given back, or set aside by the group, as the judge of traces sees them.

Fail-over and recovery: a run told by hand, and simulated runs.
"""

from collections import namedtuple

import pytest

from statemachines import catalogue
from statemachines.trace import COLUMNS
from statemachines.trace.parquet import TraceWriter
from statemachines_reports.columns import Segment, read_columns
from statemachines_reports.lookup import Lookup
from statemachines_reports.pipeline import analyze
from statemachines_reports.shared_subscriptions.recovery import Follow, ProcessLife, follow
from statemachines_reports.shared_subscriptions.report import _Reading, _RelaxedReading
from statemachines_sim.campaign import run_row
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

Row = namedtuple("Row", [one for one in COLUMNS if one not in ("run", "seq")])


@pytest.fixture(scope="module")
def poisoned():
    world = World(find_scenario("shared_subscriptions/poison"), 7)
    outcome = world.run()
    return world, outcome, [Row(*row) for row in world.rows]


def wrong(poisoned, folder, rows):
    """The checks that are violated by these rows of the run."""
    world, outcome, _ = poisoned
    with TraceWriter(folder / "trace", "poison") as writer:
        writer.add(run_row(world.scenario, outcome, 0), rows)
    found = analyze(folder / "trace", folder / "report", spark=False).tables["findings"]
    return {line["check"] for line in found if line["promised"]} & {"order", "duplicates", "acknowledged", "granted"}


@pytest.mark.parametrize(
    ("missing", "checks"),
    [("", set()), ("nack", {"order", "duplicates"}), ("message_dropped", {"acknowledged", "granted"})],
)
def test_what_is_given_back_or_dropped_is_what_explains_it(poisoned, tmp_path, missing, checks):
    rows = [row for row in poisoned[2] if row.event != missing]
    assert wrong(poisoned, tmp_path, rows) == checks


def test_a_stream_misses_nothing_behind_the_message_at_which_it_is_parked(poisoned, tmp_path):
    dropped = next(row for row in poisoned[2] if row.event == "message_dropped")
    after = ("acknowledged", "grant", "message_dropped", "deliver")

    def is_behind(row):
        return row.key == dropped.key and row.event in after and max(row.first, row.last or 0) >= dropped.first

    rows = [row for row in poisoned[2] if row is dropped or row.first is None or not is_behind(row)]
    parked = [row._replace(event="stream_parked") if row is dropped else row for row in rows]
    behind = [row._replace(first=row.first + 1) if row.event == "stream_parked" else row for row in parked]
    assert "acknowledged" not in wrong(poisoned, tmp_path / "parked", parked)
    assert "acknowledged" in wrong(poisoned, tmp_path / "behind", behind)


def test_a_session_that_goes_back_passes_over_what_is_acknowledged():
    reading = _Reading(1, 10)
    assert reading.deliver(10, 15)
    assert reading.acknowledge(12, 13)
    reading.next = 10
    assert reading.acknowledge(15, 15)
    assert reading.deliver(10, 11)
    assert reading.deliver(14, 14)
    assert reading.deliver(16, 17)
    assert not reading.acknowledge(18, 18)
    reading.next = 10
    assert not reading.deliver(11, 11)


def test_in_relaxed_order_a_message_that_was_given_back_comes_alone_and_nothing_else_does():
    reading = _RelaxedReading(1, 10, 14)
    assert reading.deliver(10, 11)
    assert reading.deliver(14, 15), "12 and 13 may be acknowledged"
    reading.give_back(11)
    assert reading.deliver(16, 17)
    assert reading.deliver(11, 11)
    assert reading.acknowledge(10, 11)
    assert reading.deliver(18, 18)
    for first, last in ((11, 11), (20, 20), (12, 13)):
        assert not reading.deliver(first, last)


@pytest.mark.long
@pytest.mark.parametrize("missing", ["", "nack"])
def test_a_relaxed_group_is_judged_by_its_own_order(tmp_path, missing):
    world = World(find_scenario("shared_subscriptions/relaxed"), 5)
    outcome = world.run()
    rows = [Row(*row) for row in world.rows if Row(*row).event != missing]
    found = wrong((world, outcome, rows), tmp_path, rows)
    assert found == ({"order", "duplicates"} if missing else set())


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

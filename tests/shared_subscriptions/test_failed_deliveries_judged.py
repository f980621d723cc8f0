"""Messages that were given back, or set aside by the group, as the judge of traces sees them."""

from __future__ import annotations

from collections import namedtuple

import pytest

from statemachines.trace import COLUMNS
from statemachines.trace.parquet import TraceWriter
from statemachines_reports.pipeline import analyze
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

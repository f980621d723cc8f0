"""The page tells one run: its verdict, how to make it again, and what broke first, before what came of it."""

from __future__ import annotations

import numpy as np
import pytest

from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.draw_timeline import NO_FAULT, DeliveredRange, FaultMark, _repeated
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

SET = ("shared_subscriptions.load.messages=60",)


@pytest.fixture(scope="module")
def world():
    scenario = override(find_scenario("quiet"), SET)
    world = World(scenario, 7)
    return world, world.run()


def test_what_comes_again_is_counted_under_the_last_fault_between():
    faults = [FaultMark(10, 10, "kill", "a"), FaultMark(20, 20, "pause", "b"), FaultMark(40, 40, "loss", "")]
    rows = [(5, "s", 0, 4), (7, "s", 4, 4), (15, "s", 0, 1), (30, "s", 1, 3), (35, "t", 0, 4), (50, "t", 4, 5)]
    deliveries = [DeliveredRange(row, row, stream, "n", first, last) for row, stream, first, last in rows]
    assert _repeated(deliveries, faults) == {"pause of b": 3, "kill of a": 2, NO_FAULT: 1, "loss": 1}
    assert _repeated([deliveries[0]._replace(last=10**9)], faults) is None
    assert np.sum([one.messages for one in deliveries]) == 5 + 1 + 2 + 3 + 5 + 2


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [(0, "0 s"), (7, "7 ns"), (1.5e9, "1.5 s"), (999.4e9, "999 s"), (999.7e9, "1,000 s"), (3.6e12, "3,600 s")],
)
def test_durations_read_as_people_write_them(value_ns, text):
    assert format_ns(value_ns) == text

"""Messages that kill whoever deals with them: they are set aside, no innocent is, and other streams go on."""

from __future__ import annotations

import pytest
from long_cases import mark_long

from statemachines.kernel import ConfigurationError
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

POISON = find_scenario("shared_subscriptions/poison")


def run(seed=0):
    world = World(POISON, seed)
    return world, world.run()


@pytest.mark.parametrize("seed", mark_long((0, 5), "5"))
def test_S20_what_kills_its_members_is_dropped_and_nothing_else_is(seed):
    world, outcome = run(seed)
    assert outcome.is_held, outcome
    stream = next(name for name in world.watch.progress.published if name.endswith("/t000"))
    published = world.watch.progress.published[stream]
    assert published > max(POISON.own.load.poison)
    assert world.watch.set_aside.count == len(POISON.own.load.poison)


def test_S20_breaks_where_a_suspect_is_handed_over_with_others():
    with plant_bug("shared_subscriptions/suspect-not-alone"):
        _, outcome = run()
    assert outcome.monitor == "S20", outcome


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("load.given_back", 1.0, "a share from 0 to 0.9"),
        ("load.poison", [-1], "offsets of the first topic"),
        ("configuration.max_deliver", 0, "must lie between 1"),
    ],
)
def test_what_a_scenario_says_of_failures_is_checked(key, value, rule):
    with pytest.raises(ConfigurationError, match=rule):
        override(POISON, [f"shared_subscriptions.{key}={value}"])

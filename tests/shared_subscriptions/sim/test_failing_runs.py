"""Runs in which messages fail: dead letters (S21), and handlers that keep a message for too long."""

from __future__ import annotations

import pytest
from long_cases import mark_long

from statemachines.kernel import ConfigurationError
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

LETTERS = find_scenario("shared_subscriptions/dead_letters")
LATE = find_scenario("shared_subscriptions/late_handlers")


def run(scenario, seed=0):
    world = World(scenario, seed)
    return world, world.run()


@pytest.mark.parametrize("seed", mark_long((0, 6), "6"))
def test_S21_what_is_set_aside_has_its_dead_letter(seed):
    world, outcome = run(LETTERS, seed)
    assert outcome.is_held, outcome
    stream = next(name for name in world.watch.progress.published if name.endswith("/t000"))
    poison = {(stream, offset) for offset in LETTERS.own.load.poison if offset < world.watch.progress.published[stream]}
    assert poison <= world.watch.letters.stored
    assert 0 < len(world.watch.letters.stored) <= world.watch.set_aside.count
    stored = world.devices["stream_store"].state.by_id
    assert sum(one.count for name, one in stored.items() if "$dead" in name) == len(world.watch.letters.stored)


@pytest.mark.parametrize(
    ("bug", "seed"), [("letter-after-progress", 0), ("letter-before-count", 2), ("letters-repeated", 2)]
)
def test_S21_breaks_where_a_mistake_is_planted(bug, seed):
    with plant_bug(f"shared_subscriptions/{bug}"):
        _, outcome = run(LETTERS, seed)
    assert outcome.monitor == "S21", outcome


def test_a_scenario_in_which_a_group_reads_its_own_letters_is_refused():
    with pytest.raises(ConfigurationError, match="is matched by the group's own filter"):
        override(LETTERS, ["shared_subscriptions.configuration.dead_letter_topic=dead"])


def test_L5_what_slow_applications_keep_is_dealt_with_by_others():
    world, outcome = run(LATE)
    assert outcome.is_held, outcome
    for event in ("give_back", "resume"):
        assert any(event in row for row in world.rows), "no application was late"

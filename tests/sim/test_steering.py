"""Steered campaigns: the seeds of a swarm are chosen by what its runs have covered."""

from __future__ import annotations

import json

import pytest

from statemachines import cli
from statemachines.kernel import ConfigurationError
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.steered_campaign import steered_parts
from statemachines_sim.steering import SeedSteering, list_covered, list_traits
from statemachines_sim.world import World

SWARM = "cursor_recovery/any_queue"


@pytest.fixture(scope="module")
def swarm():
    return override(find_scenario(SWARM), ("phases.safety_s=3",))


def test_D_601_seeds_that_draw_what_covers_rare_rows_come_first(swarm):
    """Of forty runs those with crashes and without cuts have covered rows that no other has."""
    steering, plain = SeedSteering(swarm), SeedSteering(swarm)
    first = steering.choose(40)
    assert first == plain.choose(40) == tuple(range(40))
    rare = ("crash", True), ("cut", False)
    for seed in first:
        is_rare = set(rare) <= set(list_traits(swarm, seed))
        common = {("machine", "0")}
        steering.note(seed, frozenset(common | {("machine", f"rare-{number}") for number in range(9 * is_rare)}))
    chosen, uniform = steering.choose(40), plain.choose(40)
    assert len(set(chosen)) == 40
    assert not set(chosen) & set(first)
    assert uniform == tuple(range(40, 80))

    def count(seeds):
        return sum(set(rare) <= set(list_traits(swarm, seed)) for seed in seeds)

    assert count(chosen[:20]) > 2 * count(uniform[:20])
    assert chosen[20:] == tuple(seed for seed in range(40, 200) if seed not in chosen[:20])[:20]


def test_D_601_a_run_covers_rows_pairs_and_faults_in_states(swarm):
    world = World(swarm, 1)
    world.run()
    covered = list_covered(world.rows)
    assert any(len(item) == 2 for item in covered)
    assert any(len(item) == 3 and item[0].startswith("cursor_recovery/") for item in covered)
    assert {item[0] for item in covered if not item[0].startswith("cursor_recovery/")} & {"long_pause"}


def test_D_601_a_steered_campaign_is_the_same_every_time(swarm, tmp_path, monkeypatch):
    monkeypatch.setattr("statemachines_sim.steered_campaign.ROUND", 2)
    again = [steered_parts(swarm, range(4), out=tmp_path / str(number), processes=1) for number in range(2)]
    first, second = ([one for part in parts for one in part] for parts in again)
    assert first == second
    assert len({one.seed for one in first}) == 4
    names = [sorted(path.name for path in (tmp_path / str(number)).iterdir()) for number in range(2)]
    assert names[0] == names[1] == sorted(f"{kind}-any_queue-{run:06}.parquet" for run in (0, 2)
                                          for kind in ("runs", "trace"))  # fmt: skip


def test_only_a_swarm_is_steered():
    with pytest.raises(ConfigurationError, match="is no swarm, so every seed draws the same mixture"):
        SeedSteering(find_scenario("storm"))


def test_the_command_steers_and_refuses_what_it_cannot(capsys, tmp_path):
    """Its runs end when faults begin."""
    arguments = ["campaign", SWARM, "--set", "phases.safety_s=1", "--seeds", "3", "--processes", "1", "--steer"]
    assert cli.run([*arguments, "--json"]) == cli.Exit.HELD
    assert [one["seed"] for one in json.loads(capsys.readouterr().out)] == [0, 1, 2]
    for other in (["--resume", "--trace", str(tmp_path)], ["--engine", "spark"]):
        assert cli.run([*arguments, *other]) == cli.Exit.USAGE
        assert f"has no {' '.join(other[: 1 + (other[0] == '--engine')])}: leave one out" in capsys.readouterr().err

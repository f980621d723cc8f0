"""Swarm: every seed its own mixture, always the same one, on record."""

from __future__ import annotations

import json

from statemachines import cli
from statemachines_sim.campaign import run_row
from statemachines_sim.scenario import find_scenario
from statemachines_sim.schedule import draw
from statemachines_sim.shared_subscriptions.section import count_affordable
from statemachines_sim.swarm import draw_values, settle
from statemachines_sim.world import World

SEEDS = range(60)


def test_a_seed_always_draws_the_same_and_seeds_differ():
    swarm = find_scenario("swarm")
    assert [settle(swarm, seed) for seed in SEEDS] == [settle(swarm, seed) for seed in SEEDS]
    assert len({repr(settle(swarm, seed)) for seed in SEEDS}) == len(SEEDS)


def test_what_is_settled_draws_nothing_more():
    settled = settle(find_scenario("swarm"), 7)
    assert settled.swarm is None
    assert settle(settled, 8) is settled
    assert draw_values(settled, 8) == {}


def test_each_kind_takes_part_in_some_runs_and_in_none_of_others():
    swarm = find_scenario("swarm")
    kinds = {kind for kind, (_, most) in swarm.faults.items() if most}
    assert len(kinds) == 20
    seen = [set(draw_values(swarm, seed)["kinds"]) for seed in SEEDS]
    assert set.union(*seen) == kinds
    assert set.intersection(*seen) == set()
    assert len({frozenset(one) for one in seen}) > 50


def test_what_is_drawn_stays_in_its_bounds_and_moves():
    settled = [settle(find_scenario("swarm"), seed) for seed in SEEDS]
    assert {one.own.members.consumers for one in settled} == set(range(1, 7))
    messages = [one.own.load.messages for one in settled]
    assert 100 < min(messages) < 1_500 < 3_000 < max(messages) <= 4_000
    assert all(one.own.load.messages <= count_affordable(one.own, one) for one in settled)
    assert all(0 <= one.network.tail <= 0.1 for one in settled)
    assert all(one.own.load.work_ms[0] == 10 and 20 <= one.own.load.work_ms[1] <= 200 for one in settled)
    assert len({one.rates for one in settled}) > 5


def test_only_the_kinds_and_rates_that_were_drawn_hit():
    swarm = find_scenario("swarm")
    for seed in SEEDS:
        settled = settle(swarm, seed)
        schedule = draw(swarm, seed)
        assert {fault.kind for fault in schedule} == set(draw_values(swarm, seed)["kinds"])
        assert {fault.rate for fault in schedule} - {0.0} <= set(settled.rates)


def test_the_run_has_on_record_what_was_drawn():
    swarm = find_scenario("swarm")
    parameters = json.loads(run_row(swarm, World(swarm, 5).run(), 0).parameters)
    assert parameters["swarm"] == json.loads(json.dumps(draw_values(swarm, 5)))
    assert parameters["swarm"]["members.consumers"] == settle(swarm, 5).own.members.consumers


def test_simulate_prints_what_was_drawn(capsys):
    assert cli.run(["simulate", "swarm", "--seed", "5"]) == cli.Exit.HELD
    said = capsys.readouterr().out
    found = draw_values(find_scenario("swarm"), 5)
    assert f"  kinds: {', '.join(found['kinds'])}\n" in said
    assert f"  members.consumers: {found['members.consumers']}\n" in said

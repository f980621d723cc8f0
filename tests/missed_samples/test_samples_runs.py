"""Simulated missed samples: runs hold, they repeat, limits bind, and faults do what they say."""

from __future__ import annotations

import math

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines_sim.campaign import campaign
from statemachines_sim.missed_samples import SIM
from statemachines_sim.missed_samples.section import SampleSection
from statemachines_sim.scenario import (
    Net,
    Phases,
    Scenario,
    check_scenario,
    find_scenario,
    from_plain,
    list_shipped_with,
)
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

NAMES = sorted(list_shipped_with(SIM.name))
CALM = Scenario(
    "calm", SIM.name, SampleSection(beats="periodic"), network=Net((1, 5), tail=0.0), phases=Phases(6.0, 60.0)
)
SHOWS = {
    "cache_of_one": "missed",
    "come_and_go": "forgotten",
    "crowded_caches": "let_go",
    "first_lost": "forgotten",
    "in_order": "unnumbered",
    "little_held": "missed",
    "made_up": "turned_away",
    "new_id": "forgotten",
    "nobody_kept_it": "missed",
    "one_stuck": "missed",
    "only_tokens": "forgotten",
}
"""What a scenario is there for happens."""
SHOWN_LATE = {"crowded_caches"}
"""It happens only after more than six seconds."""


def calm(*faults, seed=0, **keys):
    """A run with these faults and no others."""
    own = replace(CALM.own, **keys)
    world = World(replace(CALM, own=own), seed, schedule=faults)
    outcome = world.run()
    assert outcome.is_held, outcome
    return world, outcome.tally


@pytest.mark.parametrize("safety_s", mark_long((6.0, math.inf), "inf"))
@pytest.mark.parametrize("name", mark_long(NAMES, "many_parties"))
def test_every_scenario_of_missed_samples_holds(name, safety_s):
    """NOGAP, ORDER, ONCE, REPORT, INVENTED, HASTY, QUIET, ASKED, LIVE, ISOLATION, TAIL, BOUND, PLACES, FORGOTTEN,
    WHOLE, REPLIES, QUEUES, COUNT and TIMING are judged in each."""
    scenario = find_scenario(f"{SIM.name}/{name}")
    if name not in SHOWN_LATE:
        scenario = replace(scenario, phases=replace(scenario.phases, safety_s=min(safety_s, scenario.phases.safety_s)))
    for outcome in campaign(scenario, range(1), processes=1):
        assert outcome.is_held, outcome
        assert outcome.tally["delivered"] > 0
        assert outcome.tally[SHOWS.get(name, "queries")] > 0
        assert outcome.lasted_ns > 0


@pytest.mark.long
def test_monitors_and_silence_change_nothing_of_a_run():
    scenario = find_scenario(f"{SIM.name}/new_id")
    judged, bare, silent = (World(scenario, 2, **keys) for keys in ({}, {"monitors": False}, {"trace": False}))
    assert judged.run().is_held
    assert bare.run().is_held
    assert len(bare.rows) > 10_000
    assert [row[:4] for row in judged.rows[: len(bare.rows)]] == [row[:4] for row in bare.rows], (
        "nobody waits for goals that nobody judges"
    )
    assert silent.run().tally == judged.watch.tally()


HEAD = {"name": "x", "protocol": SIM.name}


@pytest.mark.parametrize(
    ("own", "faults", "said"),
    [
        ({"cache_retention_ms": 0}, {}, "cache_retention_ms"),
        ({"publish_ms": [0, 5]}, {}, "publish_ms"),
        ({"strangers_ms": [0, 5]}, {}, "strangers_ms"),
        ({"width": 1}, {}, "width"),
        ({"stuck": 9}, {}, "stuck"),
        ({"begin": 5, "recovery": {"past": True}}, {}, "begin"),
        ({"join_subscribers_s": [99.0]}, {}, "join_subscribers_s"),
        ({"recovery": {"sources": 0}}, {}, "sources"),
        ({}, {"lost_reply": [1, 2]}, "faults.lost_reply"),
        ({}, {"early_end": [0, 1]}, "faults.early_end"),
        ({"subscribers": 0}, {"slow_reader": [1, 1]}, "faults.slow_reader"),
    ],
)
def test_a_section_that_cannot_be_is_refused_by_the_name_of_the_key(own, faults, said):
    with pytest.raises((ConfigurationError, ValueError), match=said):
        check_scenario(from_plain({**HEAD, SIM.name: own, "faults": faults}))


@pytest.mark.parametrize(
    ("bug", "name", "broken"),
    [
        ("empty-end-convicts", "nothing_yet", "HASTY"),
        ("answer-convicts-all", "lost_meanwhile", "HASTY"),
        ("transport-is-believed", "lost_replies", "HASTY"),
        ("period-once", "tail_by_period", "TAIL"),
        ("reply-convicts-nothing", "cache_of_one", "ASKED"),
        ("turned-away-in-silence", "made_up", "PLACES"),
    ],
)
def test_a_planted_bug_is_found_in_the_scenario_that_is_about_it(bug, name, broken):
    with plant_bug(f"{SIM.name}/{bug}"):
        assert World(find_scenario(f"{SIM.name}/{name}"), 0, trace=False).run().monitor == broken

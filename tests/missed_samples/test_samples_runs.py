"""Simulated missed samples: runs hold, they repeat, limits bind, and faults do what they say."""

from __future__ import annotations

import math

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines.missed_samples.recovery import Recovery
from statemachines_sim.campaign import campaign
from statemachines_sim.fault import Fault
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
from statemachines_sim.units import S
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


def test_without_loss_everything_is_delivered_and_nobody_asks():
    _, tally = calm(publishers=3, subscribers=1, keys=1)
    assert tally["queries"] == tally["missed"] == 0
    assert tally["delivered"] == tally["published"]
    assert tally["met"] == 3


def test_what_is_lost_is_asked_for_and_delivered():
    world, tally = calm(Fault("loss", 2 * S, 2 * S, rate=0.5), publishers=2, subscribers=1, keys=1)
    assert world.network.dropped > 5
    assert tally["queries"] > 0
    assert (tally["missed"], tally["delivered"]) == (0, tally["published"])


def test_a_reader_that_is_slow_loses_what_it_does_not_read_and_recovers_it():
    world, tally = calm(Fault("slow_reader", S, 3 * S, "subscriber-1", amount=300), publishers=3, subscribers=1, keys=1)
    assert world.network.dropped > 5
    assert tally["delivered"] == tally["published"]


def test_a_reader_is_slow_no_longer_once_everything_has_healed():
    slow = Fault("slow_reader", 5 * S, 600 * S, "subscriber-1", amount=20_000)
    world, tally = calm(slow, publishers=3, subscribers=1, keys=1)
    assert world.processes["subscriber-1"].read_ms == 0
    assert tally["delivered"] == tally["published"]
    assert world.now < 20 * S


def test_heartbeats_that_are_always_on_their_way_put_nothing_off():
    own = replace(CALM.own, publishers=20, subscribers=20, keys=1, publish_ms=(500, 900))
    world = World(replace(CALM, own=own, network=Net((1, 5), tail=0.5)), 0, schedule=())
    assert world.run().is_held
    assert world.network.in_flight()
    assert world.now < 10 * S


def test_who_is_attached_to_a_dead_router_reaches_nobody():
    world, tally = calm(
        Fault("router_death", S, 3 * S, "router-2"), publishers=2, subscribers=2, routers=2, keys=1, caches=0
    )
    cut = {(row[1], row[3]) for row in world.rows if row[4] == "drop"}
    assert cut, "messages were lost"
    assert world.network.cuts == {}, "it is back"
    assert tally["missed"] == 0
    assert tally["queries"] > 0


def test_a_publisher_that_starts_again_has_another_id_or_goes_on_counting():
    crash = Fault("crash", 2 * S, S, "publisher-1")
    anew, _ = calm(crash, publishers=1, subscribers=1)
    assert sorted(anew.watch.sent) == ["publisher-1~1", "publisher-1~2"]
    same, tally = calm(crash, publishers=1, subscribers=1, continues=True)
    assert same.watch.sent == {"publisher-1": tally["published"]}
    assert tally["met"] == 1


def test_samples_of_one_key_go_to_those_that_are_interested_in_it():
    world, _ = calm(publishers=2, subscribers=2, keys=2, caches=1)
    to = {}
    for row in world.rows:
        if row[4] == "deliver":
            to.setdefault(row[1], set()).add(row[6].partition("~")[0])
    sources = {node: set(reader.sources) for node, reader in world.watch.readers.items()}
    assert sources == {"subscriber-1~1": {"publisher-1~1", "publisher-2~1"}, "subscriber-2~1": {"publisher-2~1"}}
    assert set(to) == {"subscriber-1", "subscriber-2", "cache-1"}


def test_a_source_that_is_known_keeps_its_place_in_a_flood_of_strangers():
    recovery = Recovery(sources=40, retention_ms=60_000)
    world, tally = calm(
        Fault("loss", 3 * S, S, rate=0.4),
        publishers=2, subscribers=1, keys=1, publish_ms=(5, 20), strangers_ms=(2, 4), cache_places=40,
        recovery=recovery,
    )  # fmt: skip
    assert tally["most_sources"] == 40
    assert tally["turned_away"] > 500
    assert tally["not_kept"] > 500
    (reader,) = world.watch.readers.values()
    assert {"publisher-1~1", "publisher-2~1"} <= set(reader.sources)
    assert tally["missed"] == 0


def test_in_the_end_nothing_is_kept_of_sources_that_came_and_went():
    world = World(find_scenario(f"{SIM.name}/come_and_go"), 1)
    assert world.run().is_held
    kept = [process.record.sources for node, process in world.processes.items() if node.startswith("subscriber-")]
    assert [dict(one) for one in kept] == [{}] * 4


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


def test_a_transport_that_may_lose_replies_may_have_such_faults():
    own = {"recovery": {"reliable": False}}
    assert check_scenario(from_plain({**HEAD, SIM.name: own, "faults": {"lost_reply": [1, 2]}}))


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

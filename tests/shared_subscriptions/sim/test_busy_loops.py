"""Loops that take 5 ms for an event; a thousand streams are there when members join (L11, SS-264 to SS-266)."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.shared_subscriptions.configuration import Configuration
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

BUSY = find_scenario("shared_subscriptions/busy_loops")


def with_window(window):
    """The same, and so many grants of a member may be unanswered."""
    own = BUSY.own
    return replace(BUSY, own=replace(own, configuration=replace(own.configuration, grant_window=window)))


def run(scenario=BUSY, **options):
    return World(scenario, 0, **options).run()


def test_L11_a_thousand_streams_start_and_are_shared_though_every_event_takes_5_ms():
    world = World(BUSY, 0)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert (outcome.tally["acknowledged"], outcome.tally["duplicates"]) == (2_000, 0)
    (leader,) = world.processes["leader-1"].host.nodes.values()
    assert min(member.count for member in leader.record.members.values()) > 400


def test_SS_127_a_leader_whose_loop_takes_3_ms_for_an_event_keeps_its_claim_at_the_default_times():
    scenario = find_scenario("shared_subscriptions/busy_defaults")
    assert scenario.own.configuration == Configuration()
    world = World(scenario, 0)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert (outcome.tally["acknowledged"], outcome.tally["duplicates"]) == (2_000, 0)
    (leader,) = world.processes["leader-1"].host.nodes.values()
    assert leader.record.epoch == 1


def test_L11_or_L2_breaks_where_a_thousand_grants_leave_at_once():
    """Hardly one is answered in time, since each waits for all before it: next to nothing is ever delivered."""
    outcome = run(with_window(1_000))
    assert outcome.monitor in ("L2", "L11"), outcome
    assert outcome.tally["delivered"] < 10, outcome


def test_L11_breaks_where_the_window_is_ignored():
    with plant_bug("shared_subscriptions/window-ignored"):
        outcome = run(trace=False)
    assert outcome.monitor == "L11", outcome
    assert "65 answers" in outcome.detail


def test_L11_breaks_where_a_validity_counts_from_the_first_grant():
    with plant_bug("shared_subscriptions/grants-wait-together"):
        outcome = run(trace=False)
    assert outcome.monitor == "L11", outcome
    assert "gives up grant" in outcome.detail

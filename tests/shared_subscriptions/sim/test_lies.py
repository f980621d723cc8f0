"""Consumers that lie in the simulator: nothing is lost, and with lies believed S16 breaks; S10 meanwhile.

Consumers that answer no grant, in the simulator: what they are granted goes to others, and where nobody gives up,
L11 breaks.

Loops that take 5 ms for an event; a thousand streams are there when members join (L11, SS-264 to SS-266).
"""

import pytest
from msgspec.structs import replace

from statemachines.shared_subscriptions.configuration import Configuration
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import find_scenario
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

LIES = tuple(Fault("lie", at * S, 0, f"consumer-{at % 3 + 1}") for at in range(5, 30, 5))


def run():
    return World(find_scenario("shared_subscriptions/lies"), 4, schedule=LIES).run()


@pytest.mark.long
def test_S16_lies_cost_a_reset_and_no_message():
    outcome = run()
    assert outcome.is_held, outcome
    assert outcome.faults["lie"] == len(LIES)


def test_S16_breaks_where_a_lie_is_believed():
    with plant_bug("shared_subscriptions/progress-believed"):
        outcome = run()
    assert outcome.monitor == "S16", outcome


@pytest.mark.long
def test_S10_what_is_held_until_the_store_has_said_is_no_disagreement():
    """The store takes twenty seconds to answer how far the stream goes; until then the leader counts nothing."""
    outcome = World(find_scenario("shared_subscriptions/lies"), 24).run()
    assert outcome.is_held, outcome


MUTES = (
    *(Fault("mute", 9 * S, 15 * S, f"consumer-{number}") for number in (1, 2, 3)),
    Fault("halt", 10 * S, 0, "leader-1"),
)
"""Three of the four are mute when the next leader grants everything anew."""


def run_of_mutes():
    return World(find_scenario("shared_subscriptions/mutes"), 4, schedule=MUTES).run()


@pytest.mark.long
def test_L11_who_answers_no_grant_costs_no_message():
    outcome = run_of_mutes()
    assert outcome.is_held, outcome
    assert outcome.faults == {"mute": 3, "halt": 1}


def test_L11_breaks_where_an_unanswered_grant_is_waited_for():
    with plant_bug("shared_subscriptions/unanswered-grant-kept"):
        outcome = run_of_mutes()
    assert outcome.monitor == "L11", outcome


BUSY = find_scenario("shared_subscriptions/busy_loops")


def with_window(window):
    """The same, and so many grants of a member may be unanswered."""
    own = BUSY.own
    return replace(BUSY, own=replace(own, configuration=replace(own.configuration, grant_window=window)))


def run_of_busy_loops(scenario=BUSY, **options):
    return World(scenario, 0, **options).run()


@pytest.mark.long
def test_L11_a_thousand_streams_start_and_are_shared_though_every_event_takes_5_ms():
    world = World(BUSY, 0)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert (outcome.tally["acknowledged"], outcome.tally["duplicates"]) == (2_000, 0)
    (leader,) = world.processes["leader-1"].host.nodes.values()
    assert min(member.count for member in leader.record.members.values()) > 400


@pytest.mark.long
def test_SS_127_a_leader_whose_loop_takes_3_ms_for_an_event_keeps_its_claim_at_the_default_times():
    scenario = find_scenario("shared_subscriptions/busy_defaults")
    assert scenario.own.configuration == Configuration()
    world = World(scenario, 0)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert (outcome.tally["acknowledged"], outcome.tally["duplicates"]) == (2_000, 0)
    (leader,) = world.processes["leader-1"].host.nodes.values()
    assert leader.record.epoch == 1


@pytest.mark.long
def test_L11_or_L2_breaks_where_a_thousand_grants_leave_at_once():
    """Hardly one is answered in time, since each waits for all before it: next to nothing is ever delivered."""
    outcome = run_of_busy_loops(with_window(1_000))
    assert outcome.monitor in ("L2", "L11"), outcome
    assert outcome.tally["delivered"] < 10, outcome


def test_L11_breaks_where_the_window_is_ignored():
    with plant_bug("shared_subscriptions/window-ignored"):
        outcome = run_of_busy_loops(trace=False)
    assert outcome.monitor == "L11", outcome
    assert "65 answers" in outcome.detail


@pytest.mark.long
def test_L11_breaks_where_a_validity_counts_from_the_first_grant():
    with plant_bug("shared_subscriptions/grants-wait-together"):
        outcome = run_of_busy_loops(trace=False)
    assert outcome.monitor == "L11", outcome
    assert "gives up grant" in outcome.detail

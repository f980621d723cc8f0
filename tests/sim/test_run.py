"""Simulated runs: they hold, they repeat byte for byte, and planted bugs are caught."""

import hashlib

import pytest
from long_cases import mark_long

from statemachines_sim.campaign import campaign
from statemachines_sim.fault import Fault
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario, list_shipped_with
from statemachines_sim.schedule import draw
from statemachines_sim.shared_subscriptions import SIM
from statemachines_sim.shrink import leave_out, weaken
from statemachines_sim.swarm import settle
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

FEW = override(find_scenario("storm"), ["shared_subscriptions.load.messages=200"])
ALL_ONCE = {"delivered": 2_500, "duplicates": 0, "acknowledged": 2_500}


def digest(world):
    return hashlib.sha256(repr(world.rows).encode()).hexdigest()


OURS = [f"{SIM.name}/{name}" for name in list_shipped_with(SIM.name)]


@pytest.mark.parametrize("seed", mark_long((0, 1), "1"))
@pytest.mark.parametrize("name", sorted(OURS))
def test_every_scenario_holds(name, seed):
    """`make soak` repeats each with all of its messages."""
    scenario = override(find_scenario(name), few := [] if seed else ["shared_subscriptions.load.messages=100"])
    (outcome,) = campaign(scenario, [seed], processes=1)
    assert outcome.is_held, (
        f"repeat it with: gapless simulate {name} --seed {seed}{' --set '.join(['', *few])}\n{outcome}"
    )
    assert outcome.tally["acknowledged"] == settle(scenario, outcome.seed).own.load.messages


@pytest.mark.long
def test_without_faults_every_message_is_delivered_exactly_once():
    outcome = World(find_scenario("quiet"), 5).run()
    assert (outcome.tally, outcome.faults) == (ALL_ONCE, {})


@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(2), range(6)])
def test_a_quick_resubscribe_loses_nothing_and_delivers_nothing_twice(seeds):
    """Ten times, 5 ms apart, under load: old borrowers finish while the next one of the same filter already reads."""
    seen = 0
    for seed in seeds:
        world = World(find_scenario("resubscribes"), seed)
        outcome = world.run()
        assert outcome.is_held, outcome
        assert outcome.tally == ALL_ONCE
        steps = [(row[3], row[5], row[7]) for row in world.rows if row[2].endswith("/borrower")]
        assert len({party for party, _, _ in steps}) >= 33, "three consumers, eleven borrowers each"
        seen += beside(steps)
    assert seen >= len(seeds)


def beside(steps):
    """How often a borrower of a consumer got a grant while an older one was still finishing."""
    finishing, count = {}, 0
    for party, event, after in steps:
        older = finishing.setdefault(party.partition("/")[0], set())
        if event == "grant" and after == "connected" and older - {party}:
            count += 1
        (older.add if after == "unsubscribing" else older.discard)(party)
    return count


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_storm_is_a_storm(seed):
    """What the demo promises of each of its runs."""
    (outcome,) = campaign(find_scenario("storm"), [seed], processes=1)
    assert outcome.tally["delivered"] >= 2_000
    assert sum(outcome.faults.values()) >= 10
    assert len(outcome.faults) >= 3


@pytest.mark.long
def test_the_same_seed_is_the_same_run():
    one, two = World(FEW, 3), World(FEW, 3)
    assert one.run() == two.run()
    assert one.rows == two.rows


@pytest.mark.long
def test_monitors_and_data_do_not_change_the_run():
    plain, bare = World(FEW, 2), World(FEW, 2, monitors=False)
    assert plain.run().is_held
    bare.run()
    assert plain.rows[: len(bare.rows)] == bare.rows  # with monitors it goes on until they have seen the end of resets


@pytest.mark.long
def test_a_schedule_is_drawn_from_its_seed_alone():
    assert draw(find_scenario("storm"), 9) == draw(find_scenario("storm"), 9)
    assert draw(find_scenario("storm"), 9) != draw(find_scenario("storm"), 10)
    drawn = {fault.kind for name in OURS for seed in range(3) for fault in draw(find_scenario(name), seed)}
    assert drawn == set(SIM.kinds)


# -- planted bugs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bug", "scenario", "caught"),
    [
        ("short-validity", "partitions", {"S5", "S13"}),
        ("lease-end-not-passed-on", "pauses", {"S5", "S13"}),
        ("gap-acknowledged", "quiet", {"S6", "S14", "InvariantViolated"}),
        ("grant-never-repeated", "network", {"L2", "L5"}),
        ("nothing-taken-back", "joins", {"L4"}),
        ("progress-not-loaded", "kills", {"S7", "S13"}),
        ("unlisted-assignments-kept", "kills", {"S2", "InvariantViolated"}),
    ],
)
def test_planted_bugs_are_caught(bug, scenario, caught):
    found = set()
    with plant_bug(bug):
        for seed in range(6):
            found |= {World(find_scenario(scenario), seed).run().monitor} - {""}
            if found & caught:
                break
    assert found & caught, found
    assert found <= caught | {"L5", "L2", "S10"}, found


# -- shrinking ------------------------------------------------------------------------------------------------------


def test_leaving_out_keeps_exactly_what_is_needed():
    assert leave_out(tuple(range(20)), lambda items: {3, 17} <= set(items)) == (3, 17)
    assert leave_out((1, 2, 3), lambda items: True) == ()


def test_what_remains_is_made_as_short_and_as_little_as_it_may_be():
    drift, skew = Fault("drift", S, 8 * S, "leader-1", amount=-64_000), Fault("skew", 0, 40 * S, "leader-1", amount=7)

    def fails(schedule):
        first, _ = schedule
        return first.for_ns >= S and first.amount <= -3_000

    weaker, always = weaken((drift, skew), fails, frozenset({"skew"}))
    assert (weaker.for_ns, weaker.amount) == (S, -4_000)
    assert (always.for_ns, always.amount) == (40 * S, 1)


@pytest.mark.long
def test_a_fault_on_a_node_that_is_down_is_no_fault():
    schedule = (Fault("crash", S, 5 * S, "consumer-1"), Fault("pause", 2 * S, S, "consumer-1"))
    assert World(find_scenario("quiet"), 1, schedule=schedule).run().faults == {"crash": 1}

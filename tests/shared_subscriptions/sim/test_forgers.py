"""Consumers that lie in any field of any message, in the simulator: what they say of their own is not held against the
protocol, and what becomes of others is."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest
from long_cases import mark_long

from statemachines.kernel import RemoteProtocolError
from statemachines.shared_subscriptions import agent_process, membership
from statemachines.shared_subscriptions.registry import REGISTRY_MACHINE
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import find_scenario
from statemachines_sim.shared_subscriptions import leader_host
from statemachines_sim.shared_subscriptions.monitors.progress import Progress
from statemachines_sim.shared_subscriptions.watch import GroupWatch
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import change_rows, plant_bug

SCENARIO = find_scenario("shared_subscriptions/forgers")
LIARS = tuple(Fault("forge", at * S, 9 * S, f"consumer-{at % 2 + 1}", rate=0.5) for at in range(3, 34, 5))
"""Consumers 1 and 2 lie, 3 and those who join do not."""


def run(seed=1, schedule=LIARS):
    return World(SCENARIO, seed, schedule=schedule).run()


@pytest.fixture
def lies(monkeypatch):
    """How many lies were told, by the kind of the message."""
    told, hit = Counter(), GroupWatch.hit

    def counted(watch, kind, node, sender, to, message, now_ns):
        told[type(message).__name__] += kind == "forge"
        hit(watch, kind, node, sender, to, message, now_ns)

    monkeypatch.setattr(GroupWatch, "hit", counted)
    return told


@pytest.mark.parametrize("seed", mark_long(range(3), "1", "2"))
def test_liars_cost_nobody_else_a_message(seed, lies):
    outcome = run(seed)
    assert outcome.is_held, outcome
    assert outcome.faults == {"forge": len(LIARS)}
    assert sum(lies.values()) > 100
    assert {"LeaderWanted", "Ping", "UpdateProgress"} <= set(lies)


def test_the_same_seed_lies_the_same():
    worlds = [World(SCENARIO, 2, schedule=LIARS[:3], data=True) for _ in range(2)]
    for world in worlds:
        world.run(until_ns=12 * S)
    assert worlds[0].rows == worlds[1].rows


def test_who_stops_lying_says_what_is_so(lies):
    world = World(SCENARIO, 3, schedule=(Fault("forge", 3 * S, 2 * S, "consumer-1", rate=1.0),))
    world.run(until_ns=5 * S + 1)
    told = sum(lies.values())
    world.run(until_ns=20 * S)
    assert sum(lies.values()) == told > 0
    assert world.watch.liars


def test_S16_breaks_where_the_progress_of_a_liar_is_believed():
    with plant_bug("shared_subscriptions/progress-believed"):
        assert run().monitor == "S16"


def test_who_speaks_for_others_is_not_heard_and_others_suffer_where_it_is(monkeypatch):
    monkeypatch.setattr(leader_host, "check_sender", lambda sender, to, message, is_leader_host: None)
    outcome = run(3)
    assert (outcome.monitor, "[SS-277]" in outcome.detail) == ("RemoteProtocolError", True)


def test_what_another_owns_is_not_a_liar_s_to_speak_of(monkeypatch):
    def owns(record, borrower, stream, grant):
        return stream in record.assignments

    monkeypatch.setattr(membership, "owns", owns)
    assert run().monitor


def test_a_message_that_is_none_of_an_honest_one_ends_the_run():
    """What the protocol does not take is dropped where a liar said it, and an error where somebody else did."""
    with ExitStack() as stack:
        change_rows(REGISTRY_MACHINE, "start_leader", do=refuse)(stack)
        assert run(schedule=()).monitor == "RemoteProtocolError"


def refuse(record, event, now_ns):
    raise RemoteProtocolError("registry", "-", "leader_wanted", "", "nobody")


@pytest.mark.long
def test_S6_is_judged_of_all_but_what_a_liar_was_granted():
    """Without its word a loss that a liar has brought about would be held against the protocol."""
    held = Progress.say
    try:
        Progress.say = lambda self, stream, progress: None
        found = {run(seed).monitor for seed in range(4)}
    finally:
        Progress.say = held
    assert "S6" in found


def test_S17_breaks_where_any_word_of_a_stranger_is_believed(monkeypatch):
    monkeypatch.setattr(
        agent_process, "is_believed", lambda record, sender, message: message.__class__.__name__ != "Grant"
    )
    pretends = tuple(Fault("pretend", at * S, 0, "consumer-1") for at in range(5, 30, 5))
    assert World(find_scenario("shared_subscriptions/pretenders"), 4, schedule=pretends).run().monitor == "S17"

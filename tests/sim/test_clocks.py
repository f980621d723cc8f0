"""Clocks: exact local time, and hand-over that holds as long as no clock is wrong by more than clock_drift."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines_sim.fault import Fault
from statemachines_sim.local_clock import PPM, LocalClock
from statemachines_sim.scenario import Net, Phases, find_scenario
from statemachines_sim.shared_subscriptions import GroupLoad, Members, scenario
from statemachines_sim.units import S
from statemachines_sim.world import World

D_PPM = round(Configuration().clock_drift * PPM)

CHANGES = st.lists(
    st.tuples(st.sampled_from(("jump", "drift")), st.integers(0, 10**12), st.integers(-900_000, 3_000_000)), max_size=6
)


def changed(changes):
    """A clock after some changes, and the true time of the last."""
    clock, now = LocalClock(), 0
    for kind, later, amount in changes:
        now += later
        if kind == "jump":
            clock.jump(now, abs(amount))
        else:
            clock.drift(now, amount)
    return clock, now


@given(CHANGES, st.integers(1, 10**12))
def test_a_deadline_is_met_at_the_first_moment_at_which_the_clock_shows_it(changes, ahead):
    clock, now = changed(changes)
    deadline = clock.local(now) + ahead
    when = clock.true(deadline)
    assert when >= now
    assert clock.local(when) >= deadline > clock.local(when - 1)


@given(CHANGES, st.lists(st.integers(0, 10**10), max_size=8))
def test_no_clock_ever_goes_back(changes, steps):
    clock, now = changed(changes)
    shown = [clock.local(now)]
    for step in steps:
        now += step
        shown.append(clock.local(now))
    assert shown == sorted(shown)


def test_a_clock_of_its_own_counts_in_millionths():
    clock = LocalClock()
    clock.jump(5 * S, 2 * S)
    clock.drift(5 * S, 10_000)
    assert clock.local(15 * S) == 7 * S + 10_100_000_000
    clock.drift(15 * S, 0)
    assert clock.local(16 * S) == 18_100_000_000


def test_the_trace_is_in_true_time_whatever_the_clocks_show():
    far = 10_000 * S
    nodes = ("leader-1", "consumer-1", "consumer-2", "group_store")
    schedule = tuple(Fault("skew", 0, S, node, amount=far) for node in nodes)
    world = World(find_scenario("quiet"), 1, schedule=schedule)
    outcome = world.run()
    assert outcome.is_held, outcome
    times = [row[0] for row in world.rows]
    assert times == sorted(times)
    assert times[-1] <= outcome.lasted_ns < 100 * S


@pytest.mark.long
def test_a_shift_of_all_clocks_of_a_node_changes_nothing_but_times_it_tells_nobody():
    plain = World(find_scenario("quiet"), 1, schedule=())
    shifted = World(find_scenario("quiet"), 1, schedule=(Fault("skew", 0, S, "consumer-1", amount=77 * S),))
    assert replace(plain.run(), faults={}, rows=0) == replace(shifted.run(), faults={}, rows=0)
    assert [row for row in shifted.rows if row[4] != "fault"] == [row for row in plain.rows if row[4] != "fault"]


# -- exclusive hand-over --------------------------------------------------------------------------------------------

KICKED = scenario(
    "kicked",
    load=GroupLoad(topics=3, messages=1_200, batch=10),
    members=Members(consumers=1, join_s=(5.0,)),
    network=Net(tail=0.0),
    phases=Phases(safety_s=20.0),
)
"""consumer-1 has everything, consumer-2 joins at 5 s; consumer-1 is too slow to finish what is revoked, and is kicked
about 10 s later, when nothing reaches it any more: from then on only its lease stops it."""


def kick(leader_ppm, consumer_ppm):
    kicked = 5 * S + 10 * S * PPM // (PPM + leader_ppm)
    return (
        Fault("drift", S, 60 * S, "leader-1", amount=leader_ppm),
        Fault("drift", S, 60 * S, "consumer-1", amount=consumer_ppm),
        Fault("slow_consumer", 4 * S, 30 * S, "consumer-1", amount=1_000),
        Fault("partition", kicked - 150 * MS, 8 * S, "leader-1", "consumer-1"),
    )


def broken(leader_ppm, consumer_ppm):
    """What broke in the runs in which consumer-1 was kicked: what it has in hand is not always what is revoked."""
    runs = [World(KICKED, seed, schedule=kick(leader_ppm, consumer_ppm)) for seed in (1, 8, 9)]
    outcomes = [world.run() for world in runs]
    kicked = [any(row[5] == "revoke_timeout" and row[4] == "timer" for row in world.rows) for world in runs]
    assert any(kicked)
    return {outcome.monitor for outcome, kick in zip(outcomes, kicked, strict=True) if kick}


@pytest.mark.parametrize(
    ("leader_ppm", "consumer_ppm"), [(D_PPM, -D_PPM), pytest.param(-D_PPM, D_PPM, marks=pytest.mark.long)]
)
def test_one_consumer_at_a_time_while_clocks_are_wrong_by_no_more_than_the_drift(leader_ppm, consumer_ppm):
    assert broken(leader_ppm, consumer_ppm) == {""}


@pytest.mark.long
def test_two_at_a_time_when_the_leader_does_not_reckon_with_the_drift(monkeypatch):
    monkeypatch.setattr(Configuration, "lease_by_other_clock_ns", lambda self: self.lease_ms * MS)
    assert "S5" in broken(D_PPM, -D_PPM)
    assert broken(0, 0) == {""}


@pytest.mark.parametrize(
    ("leader_ppm", "consumer_ppm"), [(10 * D_PPM, -10 * D_PPM), pytest.param(0, -30 * D_PPM, marks=pytest.mark.long)]
)
def test_two_at_a_time_when_clocks_are_wrong_by_far_more_than_the_drift(leader_ppm, consumer_ppm):
    assert broken(leader_ppm, consumer_ppm) == {"S5"}


def test_the_rule_of_the_source_lets_two_deliver_at_a_time_though_no_clock_is_wrong():
    """Hand-over at once: the kicked consumer may go on until its lease ends."""
    source = replace(KICKED, own=replace(KICKED.own, configuration=Configuration(exclusive=False)))
    found = set()
    for seed in (1, 4, 5):
        world = World(source, seed, schedule=kick(0, 0))
        world.watch.deliveries._exclusive = True  # judged by the rule that it does not follow
        found.add(world.run().monitor)
    assert "S5" in found

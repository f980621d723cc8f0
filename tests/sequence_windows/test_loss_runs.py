"""Simulated multicast: runs hold, they repeat, every lost message is accounted for, and faults do what they say."""

from __future__ import annotations

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.drivers.sequence_windows.loss_source import read_losses
from statemachines.kernel import ConfigurationError
from statemachines_sim.campaign import campaign
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import (
    Net,
    Phases,
    Scenario,
    check_scenario,
    find_scenario,
    from_plain,
    list_shipped_with,
)
from statemachines_sim.schedule import draw
from statemachines_sim.sequence_windows import SIM
from statemachines_sim.sequence_windows.section import LIMITS, OF_ORDER, WindowSection
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

NAMES = sorted(list_shipped_with(SIM.name))
SHOWN = {"forgotten": "limit-forgotten", "nothing_follows": "limit-last", "cycled": "limit-cycled"}
ACCOUNTS = ("told", "unknown", *LIMITS, "before_first", "unwanted")
SHORT = Scenario(
    "short", SIM.name, WindowSection(), network=Net(fifo=True), phases=Phases(safety_s=8.0, liveness_s=60.0)
)


def short(**keys):
    return replace(SHORT, own=replace(SHORT.own, **keys))


def told_rows(world, event, node=""):
    return [row for row in world.rows if row[4:6] == ("tell", event) and node in ("", row[1])]


@pytest.mark.parametrize("name", mark_long(NAMES, "thin_links"))
def test_every_scenario_of_losses_holds_and_every_loss_is_accounted_for(name):
    scenario = find_scenario(f"{SIM.name}/{name}")
    for outcome in campaign(scenario, range(2 if name in (*SHOWN, "any_weather") else 1), processes=1):
        assert outcome.is_held, outcome
        tally = outcome.tally
        assert tally["delivered"] > 0
        assert outcome.noted.keys() <= set(scenario.out_of_scope)
        if scenario.network.fifo:
            assert tally["lost"] == sum(tally[key] for key in ACCOUNTS), "each of them once"
        hiding = {limit for limit in LIMITS if tally[limit]}
        assert name not in SHOWN or hiding == {SHOWN[name]}


def test_where_messages_overtake_each_other_false_alarms_are_counted_and_nothing_else():
    (outcome,) = campaign(find_scenario(f"{SIM.name}/overtaken"), range(1), processes=1)
    assert {"EXACT", "NOFALSE"} <= outcome.noted.keys() <= set(OF_ORDER)
    assert outcome.tally["repeated"] > 100


def test_fair_weather_loses_nothing_turns_windows_and_verifies_joins():
    world = World(find_scenario(f"{SIM.name}/fair"), 3)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert (outcome.tally["lost"], outcome.tally["advisories"], outcome.dropped) == (0, 0, 0)
    assert outcome.tally["verified"] > 10
    flips = {row[1].partition("-")[0] for row in world.rows if row[2].endswith("_window") and row[5] == "flip"}
    assert flips == {"publisher", "receiver"}


def test_monitors_and_silence_change_nothing_of_a_run():
    scenario = find_scenario(f"{SIM.name}/reborn")
    judged, bare, silent = (World(scenario, 2, **keys) for keys in ({}, {"monitors": False}, {"trace": False}))
    assert judged.run().is_held
    bare.run()
    assert [row[:4] for row in judged.rows] == [row[:4] for row in bare.rows]
    assert silent.run().tally == judged.watch.tally()


def test_the_application_interface_says_what_the_machines_say():
    """Both lose the same messages, on paths of the same delay."""
    at_once = replace(short(publishers=2, receivers=1, applications=1), network=Net((1, 1), tail=0.0, fifo=True))
    for seed in range(3):
        schedule = tuple(Fault("loss", at * S, S, rate=0.4) for at in (1, 3, 5))
        world = World(at_once, seed, schedule=schedule)
        _same_fate_for_all(world.network)
        assert world.run().is_held
        said = {}
        for row in world.rows:
            if row[4] == "tell" and row[1] in ("receiver-1", "application-1"):
                said.setdefault(row[1], []).append((row[5], row[9], row[-1]))
        by_machines, by_application = (sorted(map(str, one)) for one in said.values())
        assert by_machines == by_application
        assert sum('"skip"' in one for one in by_machines) > 5


def _same_fate_for_all(network):
    """What is lost on the way to the one receiver is lost on the way to the other, too."""
    carry, fate = network._carry, {}

    def carry_alike(packet, rule):
        if packet[-1] == "receiver-1":
            before = network.dropped
            carry(packet, rule)
            fate["lost"] = network.dropped > before
        elif fate["lost"]:
            network.drop(packet)
        else:
            reach, network._reach = network._reach, 0
            carry(packet, rule)
            network._reach = reach

    network._carry = carry_alike


@pytest.mark.parametrize(
    ("bug", "scenario", "caught"),
    [
        ("floor-stays", "wrong_walls", "MONO"),
        ("old-is-kept", "fair", "ONCE"),
        ("one-less-lost", "crowded", "EXACT"),
        ("cycle-is-a-loss", "crowded", "NOFALSE"),
        ("newest-is-forgotten", "many_publishers", "DETECT"),
        ("displaced-uncounted", "many_publishers", "CROWD"),
        ("another-stream-is-next", "rarely", "DETECT"),
        ("joins-at-the-frame", "newcomers", "JOIN"),
        ("every-loss-at-once", "brimful", "THROTTLE"),
        ("second-not-set-again", "brimful", "NOTIFY"),
    ],
)
def test_a_planted_bug_breaks_its_property(bug, scenario, caught):
    with plant_bug(f"{SIM.name}/{bug}"):
        outcome = World(find_scenario(f"{SIM.name}/{scenario}"), 0, trace=False).run()
    assert outcome.monitor == caught, outcome


def test_losses_of_a_trace_are_shown(tmp_path):
    (outcome,) = campaign(short(), range(1), out=tmp_path, processes=1)
    assert read_losses(tmp_path).lost_messages == 0
    (outcome,) = campaign(find_scenario(f"{SIM.name}/drizzle"), range(1), out=tmp_path / "lossy", processes=1)
    report = read_losses(tmp_path / "lossy")
    assert [row.user for row in report.rows] == [f"publisher-{number}~1" for number in (1, 2, 3)]
    unknown = sum(row.unknown for row in report.rows)
    assert report.lost_messages - unknown == outcome.tally["told"] > 20
    assert 0 < unknown <= outcome.tally["unknown"]
    assert sum(row.repeat for row in report.rows) == outcome.tally["repeated"] > 0


# -- faults ---------------------------------------------------------------------------------------------------------


def test_a_wall_that_is_set_back_moves_numbers_and_no_window():
    back = Fault("set_wall", 2 * S, 0, "publisher-1", amount=-3_600 * S)
    world = World(short(), 1, schedule=(back,))
    world.run(until_ns=2 * S - 1)
    operator, process = world.devices["operator"], world.processes["publisher-1"]
    before = operator.wall(process)
    assert operator.is_right(process)
    world.run(until_ns=2 * S + 1)
    assert operator.wall(process) - before == 2 - 3_600 * S
    assert process.local_now() == world.now
    assert not operator.is_right(process)
    assert operator.is_right(world.processes["publisher-2"])
    operator.step_wall("publisher-1", 5)
    operator.step_wall("publisher-1", 7)
    assert operator.wall(process) - before == 2 - 3_600 * S + 12
    assert world.run().is_held


def test_a_wall_is_wrong_from_the_beginning_over_all_lives():
    wrong = Fault("wrong_wall", 0, 8 * S, "publisher-1", amount=12 * 3_600 * S)
    world = World(short(), 1, schedule=(wrong, Fault("crash", 3 * S, S, "publisher-1")))
    assert world.run().is_held
    frames = {row[3][:13]: row[12] for row in told_rows(world, "stamped") if row[5] == "stamped"}
    assert set(frames) == {"publisher-1~1", "publisher-1~2", "publisher-2~1", "publisher-3~1"}
    assert frames["publisher-1~1"] > frames["publisher-2~1"] + 5_000
    assert frames["publisher-1~2"] >= frames["publisher-1~1"]


def test_an_unsettled_network_loses_until_it_has_converged():
    world = World(short(converge_s=(4.0,)), 1, schedule=(Fault("unsettled", 1, 4 * S - 2, rate=0.5),))
    assert world.run().is_held
    at = [row[0] for row in world.rows if row[4] == "drop"]
    assert len(at) > 50
    assert 3 * S < max(at) < 4 * S
    faults = {fault.kind: fault for fault in draw(find_scenario(f"{SIM.name}/newcomers"), 1)}
    assert (faults["unsettled"].at_ns, faults["unsettled"].at_ns + faults["unsettled"].for_ns) == (1, 8 * S - 1)


def test_a_row_of_a_loss_says_to_whom_the_message_was():
    world = World(short(), 1, schedule=(Fault("loss", S, 4 * S, rate=0.5),))
    world.run()
    drops = [row for row in world.rows if row[4] == "drop"]
    assert {row[9] for row in drops} == {"receiver-1", "receiver-2", "application-1"}
    for drop in drops[:20]:
        assert not [row for row in world.rows if row[4] == "deliver" and (row[1], row[10]) == (drop[9], drop[10])]


def test_who_joins_late_is_told_of_the_convergence_and_who_leaves_hears_nothing():
    world = World(short(converge_s=(1.0,), join_receivers_s=(4.0,), resubscribe_s=(1, 2), subjects=2), 1)
    assert world.run().is_held
    assert world.watch.tally()["not_subscribed"] > 0
    late = [row for row in world.rows if row[1] == "receiver-3" and row[5] == "converged"]
    assert [row[0] for row in late] == [4 * S]
    turns = [row[5] for row in world.rows if row[4] == "fault" and row[1] == "receiver-1"]
    assert turns[:2] == ["unsubscribe", "subscribe"]


def test_the_layout_of_numbers_ends_and_says_so():
    world = World(short(epoch_s=4_611_686_018 - 3, bases_left=0, subjects=40, publish_ms=(1_000, 7_000)), 1)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert outcome.tally["exhausted"] > 10
    assert max(row[0] for row in told_rows(world, "stamped")) > 4 * S, "streams that have begun go on"


@pytest.mark.parametrize("node", ["receiver-1", "application-1"])
def test_who_stands_still_while_a_second_runs_advises_as_soon_as_it_goes_on(node):
    """Its second is over when it goes on, and what has waited for it brings more losses."""
    for seed in range(3):
        faults = (Fault("loss", S, 6 * S, rate=0.4), Fault("pause", 3 * S, 4 * S, node))
        world = World(short(publish_ms=(20, 200)), seed, schedule=faults)
        assert world.run().is_held, seed
        advised = [row[0] for row in told_rows(world, "advisory", node)]
        assert 7 * S in advised
        assert not [at for at in advised if 3 * S < at < 7 * S]


def test_whoever_says_nothing_of_what_comes_is_noticed():
    """A publisher three days ahead: the application refuses all of it, which is more than any fault here does."""
    ahead = Fault("wrong_wall", 0, 8 * S, "publisher-1", amount=3 * 86_400 * S)
    outcome = World(short(receivers=0), 1, schedule=(ahead,)).run()
    assert (outcome.monitor, "says nothing of message 0" in outcome.detail) == ("DETECT", True)


# -- what a scenario may say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "named_key"),
    [
        ("publishers", -1, "publishers"),
        ("subjects", 0, "subjects"),
        ("interest", 5, "interest"),
        ("publish_ms", [0, 10], "publish_ms"),
        ("resubscribe_s", [0, 10], "resubscribe_s"),
        ("away_ms", [9, 3], "away_ms"),
        ("rest", 1.5, "rest"),
        ("pub_window_s", 9, "pub_window_s"),
        ("sub_window_bytes", 0, "sub_window_bytes"),
        ("converge_s", [99.0], "converge_s"),
        ("only", "limit-none", "limit-forgotten, limit-last, limit-cycled"),
    ],
)
def test_a_value_that_cannot_be_is_named(key, value, named_key):
    plain = {"name": "mine", "protocol": SIM.name, "network": {"fifo": True}, SIM.name: {key: value}}
    with pytest.raises(ConfigurationError, match=named_key):
        check_scenario(from_plain(plain))


def test_a_network_without_order_must_say_what_it_breaks():
    plain = {"name": "mine", "protocol": SIM.name, "out_of_scope": ["EXACT", "NOFALSE", "DETECT"]}
    with pytest.raises(ConfigurationError, match=r"network.fifo.*have JOIN"):
        check_scenario(from_plain(plain))
    check_scenario(from_plain(plain | {"out_of_scope": list(OF_ORDER)}))
    check_scenario(from_plain({"name": "mine", "protocol": SIM.name, "network": {"fifo": True}}))


def test_an_unsettled_network_needs_a_convergence():
    plain = {"name": "mine", "protocol": SIM.name, "network": {"fifo": True}, "faults": {"unsettled": [1, 1]}}
    with pytest.raises(ConfigurationError, match="unsettled"):
        check_scenario(from_plain(plain))


def test_NOFALSE_what_was_on_its_way_when_a_receiver_died_may_show_a_loss_to_its_next_life():
    """A receiver is dead for a millisecond: message 12 was sent before, 13 was lost before, and 12 and 14 reach it."""
    assert World(find_scenario(f"{SIM.name}/reborn"), 37, trace=False).run().is_held

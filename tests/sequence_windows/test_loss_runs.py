"""Simulated multicast: runs hold, they repeat, every lost message is accounted for, and faults do what they say."""

from __future__ import annotations

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.drivers.sequence_windows.loss_source import read_losses
from statemachines.kernel import ConfigurationError
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import (
    Net,
    Phases,
    Scenario,
    check_scenario,
    find_scenario,
    from_plain,
    list_shipped_with,
)
from statemachines_sim.sequence_windows import SIM
from statemachines_sim.sequence_windows.section import LIMITS, OF_ORDER, WindowSection
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

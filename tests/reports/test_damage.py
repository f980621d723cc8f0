"""Traces that are damaged in one place, and what the judges say of them."""

import pytest
from msgspec.structs import replace

from statemachines import cli
from statemachines_reports.damage.damage_matrix import BY_NAME, count_cells, open_trial, try_all
from statemachines_sim.campaign import campaign
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage") / "trace"
    scenario = override(find_scenario("shared_subscriptions/quiet"), FEW["shared_subscriptions"])
    campaign(scenario, range(2), out=folder, processes=1)
    return folder


SCENARIOS = {
    "cursor_recovery": "deaths",
    "missed_samples": "lost_replies",
    "persistent_sessions": "dying_clients",
    "sequence_windows": "any_weather",
    "shared_subscriptions": "kills",
}
"""Small runs, each with deaths or losses."""

SHORTER_S = {"cursor_recovery": 6.8, "missed_samples": 8.0, "persistent_sessions": 8.0, "shared_subscriptions": 13.6}
FEW = {
    "cursor_recovery": ["cursor_recovery.messages=10"],
    "shared_subscriptions": ["shared_subscriptions.load.messages=500"],
}
"""Of these a part is enough, and few messages: every kind of damage has a place in it."""


@pytest.fixture(scope="module")
def tallies(tmp_path_factory):
    """Protocol -> every kind of damage, done once to a simulated run of it."""
    found = {}
    for protocol, name in SCENARIOS.items():
        folder = tmp_path_factory.mktemp(protocol) / "trace"
        scenario = override(find_scenario(f"{protocol}/{name}"), FEW.get(protocol, []))
        safety_s = SHORTER_S.get(protocol, scenario.phases.safety_s)
        short = replace(scenario, phases=replace(scenario.phases, safety_s=safety_s))
        campaign(short, range(1), out=folder, processes=1)
        with open_trial(folder) as trial:
            assert set(trial.judge_undamaged(0).values()) == {"held"}
            found[protocol] = list(try_all(trial, range(1)))
    return found


@pytest.mark.long
def test_D_310_nineteen_of_twenty_cells_of_the_table_are_seen(tallies):
    cells, seen = (sum(counts) for counts in zip(*map(count_cells, tallies.values()), strict=True))
    unseen = [f"{protocol}: {place}" for protocol, found in tallies.items() for one in found for place in one.unseen]
    assert cells > 150
    assert seen >= 0.95 * cells, unseen


@pytest.mark.parametrize(
    ("check", "kinds"),
    [
        ("messages", ("send-removed", "deliver-repeated", "deliver-early", "deliver-event", "deliver-range")),
        ("clocks", ("clock-back-once", "clock-back", "clock-ahead")),
        ("rows", ("kind-unknown", "timer-as-step", "step-as-timer", "machine-unknown", "machine-empty")),
        ("faults", ("faults-removed", "fault-elsewhere", "end-late")),
        ("turns", ("ask-removed", "ask-elsewhere")),
    ],
)
def test_a_check_sees_the_damage_that_it_is_for_in_every_protocol(tallies, check, kinds):
    for protocol, found in tallies.items():
        missed = [one.kind for one in found if one.kind in kinds and check not in one.checks]
        assert missed == [], protocol


@pytest.mark.parametrize("kind", ["tell-never", "tells-swapped", "ack-early", "grant-changed", "tell-number"])
def test_the_order_of_a_stream_in_shared_subscriptions_is_judged(trace, kind):
    with open_trial(trace) as trial:
        tally = trial.try_kind(BY_NAME[kind], range(4))
    assert tally.seen == tally.tried == 4, tally.unseen


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "one of --kind NAME and --all is needed"),
        (("--kind", "no-such-kind"), "is no kind of damage"),
        (("--kind", "send-removed"), "name a folder for the damaged trace"),
        (("--kind", "crash-removed", "--out", "OUT"), "finds nothing to hit in run 0"),
        (("--kind", "log-torn", "--out", "OUT"), "holds none"),
    ],
)
def test_a_damage_that_cannot_be_done_is_refused_in_one_line(trace, tmp_path, capsys, arguments, said):
    given = [str(tmp_path / "out") if one == "OUT" else one for one in arguments]
    assert cli.run(["damage", str(trace), *given]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1

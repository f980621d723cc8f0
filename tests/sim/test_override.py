"""Settings on the command line: what they set, and what is said about those that are none."""

from __future__ import annotations

import pytest

from statemachines import cli
from statemachines.kernel import ConfigurationError
from statemachines_sim.keys import values
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario


def test_settings_are_values_of_toml():
    scenario = override(
        find_scenario("storm"),
        [
            "configuration.exclusive=false",
            "faults.crash = [0, 1]",
            "load.topics=3",
            "network.tail=0.5",
            "subscription=$shared/others/t00",
            'subscription="$shared/others/#"',
        ],
    )
    assert scenario.own.configuration.exclusive is False
    assert scenario.faults["crash"] == (0, 1)
    assert (scenario.own.load.topics, scenario.network.tail) == (3, 0.5)
    assert scenario.own.subscription == "$shared/others/#"
    assert scenario.faults["pause"] == find_scenario("storm").faults["pause"]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("configuration.exclusive", "must be KEY=VALUE"),
        ("configuration.exclusive=", "must be KEY=VALUE"),
        ("exclusive=false", "did you mean configuration.exclusive"),
        ("faults.crashes=[1, 2]", "did you mean faults.crash?"),
        ("wholly.unknown=1", "there are: subscription, order, load.topics"),
        ("shared_subscriptions.load.topics=0", "must lie between 1 and"),
        ("name=storm", "is no key of a scenario"),
        ("configuration={}", "is no key of a scenario"),
        ("configuration.exclusive=7", "expected `bool`, got `int`"),
        ("load.topics=many", "expected `int`, got `str`"),
        ("faults.crash=[3, 1]", "must be a range"),
        ("load.topics=0", "must lie between 1 and"),
        ("configuration.validity_ms=100", "must be less than validity"),
    ],
)
def test_what_cannot_be_set_is_named(setting, says, capsys):
    with pytest.raises(ConfigurationError) as raised:
        override(find_scenario("storm"), [setting])
    assert says in str(raised.value)
    assert cli.run(["simulate", "storm", "--set", setting]) == cli.Exit.USAGE
    assert says in capsys.readouterr().err


def test_every_key_can_be_set_to_the_value_that_it_has():
    import msgspec

    scenario = find_scenario("storm")
    known = values(scenario)
    assert len(known) > 50
    for key, value in known.items():
        if value == [0, 0]:
            continue  # a kind of fault that is left out stays so
        assert override(scenario, [f"{key}={msgspec.json.encode(value).decode()}"]) == scenario

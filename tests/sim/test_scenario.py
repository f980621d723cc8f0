"""Scenario and run files: what is wrong in them is named."""

from __future__ import annotations

import pickle
import re

import pytest

from statemachines.kernel import ConfigurationError
from statemachines_sim import runfile
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import Phases, check_scenario, find_scenario, list_shipped, read
from statemachines_sim.schedule import draw
from statemachines_sim.shared_subscriptions import GroupLoad, Members, scenario
from statemachines_sim.world import World


def test_the_shipped_scenarios_are_named_like_their_files():
    assert {name.partition("/")[2] for name in list_shipped()} >= {"quiet", "storm", "kills", "network", "source"}
    for name in list_shipped():
        scenario = find_scenario(name)
        assert name == f"{scenario.sim.name}/{scenario.name}"
        assert scenario.about


OWN = "shared_subscriptions"
HEAD = f'name = "x"\nprotocol = "{OWN}"\n'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "name"),
        ('name = "x"', "protocol"),
        ('name = "x"\nprotocol = "shared_subscription"', "did you mean 'shared_subscriptions'"),
        (f"{HEAD}speed = 3", "'speed'"),
        (f"{HEAD}[load]\nmessages = 3", "stand in [shared_subscriptions]"),
        (f"{HEAD}[missed_samples]\nload = 3", "section of another protocol"),
        (f"{HEAD}[shared_subscriptions]\nspeed = 3", "speed"),
        (f'{HEAD}[{OWN}.load]\nmessages = "many"', "messages"),
        (f"{HEAD}[{OWN}.load]\nmessages = -1", "load.messages"),
        (f"{HEAD}[faults]\ncrash = [3, 1]", "faults.crash"),
        (f"{HEAD}[faults]\npause = [1, 2]\ncrash = 3", "faults.crash = 3: expected [int, int]"),
        (f'{HEAD}[faults]\ncrash = [1, "2"]', "faults.crash[1] = '2': expected `int`, got `str`"),
        (f'{HEAD}[phases]\nsafety_s = "x"', "phases.safety_s = 'x': expected `float`, got `str`"),
        (f"{HEAD}[faults]\ncrashes = [1, 3]", "did you mean 'crash'"),
        (f"{HEAD}[network]\ntail = 2.0", "network.tail"),
        (f"{HEAD}[{OWN}.members]\njoin_s = [99.0]", "members.join_s"),
        (f'{HEAD}[{OWN}]\nsubscription = "a/b"', "subscription"),
        (f"{HEAD}[{OWN}.load]\nstray = 5", "subscription"),
        (f'{HEAD}out_of_scope = ["S99"]', "out_of_scope"),
        (f"{HEAD}rates = [0.0]", "rates"),
        (f"{HEAD}[swarm]\nshare = 1.5", "swarm.share"),
        (f'{HEAD}[swarm.draw]\n"load.take" = [0, 3]', "swarm.draw.load.take = [0.0, 3.0]: at 0: load.take must lie"),
        (f'{HEAD}[swarm.draw]\n"load.takes" = [1, 3]', "did you mean 'load.take'"),
        (f"{HEAD}[swarm.draw]\nsubscription = [1, 3]", "is of a key that is no number"),
        (f'{HEAD}[swarm.draw]\n"network.tail" = [0.5, 0.1]', "swarm.draw.network.tail"),
        (f'{HEAD}[swarm.draw]\n"members.consumers" = [0, 3]\n[faults]\ncrash = [1, 1]', "faults.crash hits nobody"),
        (f"{HEAD}[{OWN}.configuration]\nping_timeout_ms = 4900", "ping_interval"),
        ("name = ", "is not a scenario"),
    ],
)
def test_what_is_wrong_in_a_scenario_is_named(tmp_path, text, names):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(names)):
        read(path)


def test_an_error_of_a_process_of_a_campaign_comes_back_whole():
    wrong = scenario("wrong", members=Members(leaders=0), phases=Phases(safety_s=2.0))
    error = ConfigurationError("members.leaders", 0, "must lie between 1 and 9")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.key, again.value, again.rule) == (str(error), error.key, error.value, error.rule)
    with pytest.raises(ConfigurationError, match=r"members\.leaders"):
        check_scenario(wrong)


def test_an_unknown_or_missing_scenario_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"did you mean .storm.\? there are \d+, such as storm"):
        find_scenario("strom")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        find_scenario(str(tmp_path / "none.toml"))


def test_a_run_file_repeats_its_run(tmp_path):
    scenario = find_scenario("storm")
    world = World(scenario, 4)
    outcome = world.run()
    path = tmp_path / "deep" / "run.json"
    runfile.write(
        path,
        runfile.RunFile(
            scenario, 4, draw(scenario, 4), outcome.monitor, outcome.detail, runfile.tables("shared_subscriptions")
        ),
    )
    kept = runfile.read(path)
    again = World(kept.scenario, kept.seed, schedule=kept.schedule)
    assert again.run() == outcome
    assert again.rows == world.rows
    assert kept.fingerprints == runfile.tables("shared_subscriptions")


@pytest.mark.parametrize("text", ["", "{}", '{"scenario": {"name": "x"}, "seed": 1, "schedule": 7}'])
def test_what_is_no_run_file_is_refused(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="is not a run file"):
        runfile.read(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        runfile.read(tmp_path / "none.json")


@pytest.mark.long
def test_a_campaign_over_processes_gives_the_same_outcomes_and_whole_runs_in_its_files(tmp_path):
    short = scenario("quiet", load=GroupLoad(messages=50), members=Members(consumers=1), phases=Phases(safety_s=5.0))
    there = campaign(short, range(22), out=tmp_path, processes=2)
    assert there == campaign(short, range(22), processes=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "runs-quiet-000000.parquet",
        "runs-quiet-000020.parquet",
        "trace-quiet-000000.parquet",
        "trace-quiet-000020.parquet",
    ]

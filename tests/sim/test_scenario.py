"""Scenario and run files: what is wrong in them is named."""

from __future__ import annotations

import pytest

from statemachines.kernel import ConfigurationError
from statemachines_sim import runfile
from statemachines_sim.campaign import campaign
from statemachines_sim.fault import draw
from statemachines_sim.scenario import Load, Members, Phases, Scenario, named, read, shipped
from statemachines_sim.world import World


def test_the_shipped_scenarios_are_named_like_their_files():
    assert set(shipped()) >= {"quiet", "storm", "kills", "pauses", "partitions", "network", "source"}
    for name in shipped():
        scenario = named(name)
        assert scenario.name == name
        assert scenario.about


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "name"),
        ('name = "x"\nspeed = 3', "speed"),
        ('name = "x"\n[load]\nmessages = "many"', "messages"),
        ('name = "x"\n[load]\nmessages = -1', "load.messages"),
        ('name = "x"\n[faults]\ncrash = [3, 1]', "faults.crash"),
        ('name = "x"\n[network]\ntail = 2.0', "network.tail"),
        ('name = "x"\n[members]\njoin_s = [99.0]', "members.join_s"),
        ('name = "x"\nsubscription = "a/b"', "subscription"),
        ('name = "x"\n[load]\nstray = 5', "subscription"),
        ('name = "x"\nout_of_scope = ["S99"]', "out_of_scope"),
        ('name = "x"\nrates = [0.0]', "rates"),
        ('name = "x"\n[swarm]\nshare = 1.5', "swarm.share"),
        ('name = "x"\n[swarm]\ntake = [0, 3]', "swarm.take"),
        ('name = "x"\n[swarm]\ntail = [0.5, 0.1]', "swarm.tail"),
        ('name = "x"\n[swarm]\nconsumers = [0, 3]\n[faults]\ncrash = [1, 1]', "members.consumers"),
        ('name = "x"\n[configuration]\nping_timeout_ms = 4900', "ping_interval"),
        ("name = ", "is not a scenario"),
    ],
)
def test_what_is_wrong_in_a_scenario_is_named(tmp_path, text, names):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=names.replace(".", r"\.")):
        read(path)


def test_an_unknown_or_missing_scenario_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"known are .*storm"):
        named("strom")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        named(str(tmp_path / "none.toml"))


def test_a_run_file_repeats_its_run(tmp_path):
    scenario = named("storm")
    world = World(scenario, 4)
    outcome = world.run()
    path = tmp_path / "deep" / "run.json"
    runfile.write(
        path, runfile.RunFile(scenario, 4, draw(scenario, 4), outcome.monitor, outcome.detail, runfile.tables())
    )
    kept = runfile.read(path)
    again = World(kept.scenario, kept.seed, schedule=kept.schedule)
    assert again.run() == outcome
    assert again.rows == world.rows
    assert kept.fingerprints == runfile.tables()


@pytest.mark.parametrize("text", ["", "{}", '{"scenario": {"name": "x"}, "seed": 1, "schedule": 7}'])
def test_what_is_no_run_file_is_refused(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="is not a run file"):
        runfile.read(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        runfile.read(tmp_path / "none.json")


def test_a_campaign_over_processes_gives_the_same_outcomes_and_whole_runs_in_its_files(tmp_path):
    scenario = Scenario("quiet", load=Load(messages=50), members=Members(consumers=1), phases=Phases(safety_s=5.0))
    there = campaign(scenario, range(22), out=tmp_path, processes=2)
    assert there == campaign(scenario, range(22), processes=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "runs-quiet-000000.parquet",
        "runs-quiet-000020.parquet",
        "trace-quiet-000000.parquet",
        "trace-quiet-000020.parquet",
    ]

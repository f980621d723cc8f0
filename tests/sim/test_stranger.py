"""A protocol from outside the tree: scenarios, faults of every kind, campaigns, run files and swarms, as anybody's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import counting
import pytest
from counting import PROTOCOL, SIM, Section
from msgspec.structs import replace

from statemachines import registry
from statemachines.kernel import ConfigurationError
from statemachines_sim import runfile
from statemachines_sim.campaign import campaign, run_row
from statemachines_sim.faults import NEUTRAL
from statemachines_sim.override import override
from statemachines_sim.scenario import (
    Phases,
    Scenario,
    Swarm,
    check_scenario,
    find_scenario,
    from_plain,
    read,
    sim_of,
    to_plain,
)
from statemachines_sim.schedule import draw
from statemachines_sim.shrink import shrink
from statemachines_sim.swarm import draw_values, settle
from statemachines_sim.world import World

HERE = Path(__file__).parent
TEXT = """
name = "few"
protocol = "counting:PROTOCOL"

[counting]
clients = 3
counts = 10

[faults]
crash = [1, 2]
partition = [1, 2]

[phases]
safety_s = 10
"""


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})
    sim_of.cache_clear()
    yield registry.register(PROTOCOL)
    sim_of.cache_clear()


@pytest.fixture
def file(tmp_path, registered):
    path = tmp_path / "few.toml"
    path.write_text(TEXT)
    return path


SHORT = Scenario("short", SIM, Section(), phases=Phases(safety_s=8.0, liveness_s=20.0))


@pytest.mark.parametrize("kind", [kind.name for kind in (*NEUTRAL, *SIM.faults)])
def test_every_kind_of_fault_hits_it_or_is_refused(kind):
    scenario = replace(SHORT, faults={kind: (2, 2)}, out_of_scope=("S1",) if kind in ("forget", "power_loss") else ())
    if kind in ("lost_disk", "twin", "far_jump", "wall_step", "unreachable"):  # somebody asks for them by name
        with pytest.raises(ConfigurationError, match=f"faults.{kind} = .*hits nobody"):
            check_scenario(scenario)
        return
    world = World(check_scenario(scenario), 3)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert outcome.faults[kind] >= 1
    assert [row for row in world.rows if row[4] == "fault" and row[5] == kind]


def test_a_kind_more_changes_no_fault_of_another_kind():
    few, more = replace(SHORT, faults={"crash": (2, 3)}), replace(SHORT, faults={"crash": (2, 3), "forget": (1, 2)})
    for seed in range(5):
        assert [one for one in draw(more, seed) if one.kind == "crash"] == list(draw(few, seed))


def test_kinds_do_not_fall_together():
    scenario = replace(SHORT, faults={"crash": (3, 3), "pause": (3, 3)})
    for seed in range(5):
        assert len({fault.at_ns for fault in draw(scenario, seed)}) == 6


def test_partitions_fall_between_those_that_talk():
    scenario = replace(SHORT, faults={"partition": (8, 8)})
    ends = {frozenset((one.target, one.peer)) for seed in range(10) for one in draw(scenario, seed)}
    assert all(len(pair) == 2 and pair & {"server-1", "table"} for pair in ends)
    assert {"server-1", "table"} <= set().union(*ends)
    assert frozenset(("client-1", "client-2")) not in ends


def test_a_node_is_cut_from_a_store_in_either_direction():
    scenario = replace(SHORT, faults={"store_cut": (8, 8)})
    ends = {(one.target, one.peer) for seed in range(10) for one in draw(scenario, seed)}
    assert ends >= {("server-1", "table"), ("table", "server-1")}
    assert all((one == "table") != (other == "table") for one, other in ends)


def test_a_broken_promise_is_found_shrunk_and_kept(tmp_path, monkeypatch):
    """The client takes every answer, also those of before."""
    bad = counting.Fsm(
        "client",
        protocol="counting",
        record=counting.ClientRecord,
        states=counting.ClientStatus,
        initial=counting.IDLE,
        rows=(
            *(row for row in counting.CLIENT.declared if row.clause not in ("CO-03", "CO-04")),
            counting.Row(counting.Added, counting.WAITING, counting.IDLE, counting.tell, None, "CO-03"),
            counting.Ignore((counting.Added, counting.Again), counting.IDLE, "CO-04"),
        ),
        timers=counting.CLIENT.timers,
    )
    monkeypatch.setattr(counting, "CLIENT", bad)
    scenario = replace(SHORT, faults={"duplicate": (2, 3), "hold_back": (2, 3), "pause": (1, 2)})
    failed = next(one for seed in range(20) if not (one := World(scenario, seed).run()).is_held)
    assert failed.monitor == "S1"
    schedule, outcome = shrink(scenario, failed, draw(scenario, failed.seed))
    assert outcome.monitor == "S1"
    assert len(schedule) < len(draw(scenario, failed.seed))


def test_a_scenario_file_names_the_protocol_by_its_place(file):
    scenario = find_scenario(str(file))
    assert (scenario.sim, scenario.own) == (SIM, Section(clients=3, counts=10))
    assert from_plain(to_plain(scenario)) == scenario
    outcomes = campaign(scenario, range(2), processes=1)
    assert [one.tally["counted"] > 0 for one in outcomes] == [True, True]


def test_the_run_row_says_the_protocol_and_its_tables(file):
    scenario = read(file)
    row = run_row(scenario, World(scenario, 1).run(), 0)
    parameters = json.loads(row.parameters)
    assert parameters["protocol"] == "counting"
    assert parameters["settings"]["clients"] == 3
    assert json.loads(row.fingerprints) == runfile.tables("counting")


def test_a_run_file_repeats_its_run(file, tmp_path):
    scenario = read(file)
    world = World(scenario, 4)
    outcome = world.run()
    path = tmp_path / "run.json"
    runfile.write(path, runfile.RunFile(scenario, 4, draw(scenario, 4), outcome.monitor, outcome.detail))
    kept = runfile.read(path)
    again = World(kept.scenario, kept.seed, schedule=kept.schedule)
    assert (again.run(), again.rows) == (outcome, world.rows)
    path.write_text(path.read_text().replace('"crash"', '"crush"'))
    with pytest.raises(ConfigurationError, match="crush"):
        runfile.read(path)


def test_settings_and_swarms_reach_into_its_section(file):
    scenario = override(read(file), ["clients=4", "counting.counts=3", "faults.forget=[1, 1]"])
    assert scenario.own == Section(clients=4, counts=3)
    assert scenario.faults["forget"] == (1, 1)
    swarm = replace(scenario, swarm=Swarm(0.5, {"clients": (1, 6), "work_ms": (20, 90), "network.tail": (0.0, 0.2)}))
    settled = [settle(check_scenario(swarm), seed) for seed in range(40)]
    assert {one.own.clients for one in settled} == set(range(1, 7))
    assert all(one.own.work_ms[0] == 10 and 20 <= one.own.work_ms[1] <= 90 for one in settled)
    assert len({one.network.tail for one in settled}) > 20
    assert draw_values(swarm, 7)["clients"] == settled[7].own.clients


def test_its_scenarios_come_with_it(tmp_path, registered, monkeypatch):
    folder = tmp_path / "counting_files" / "scenarios"
    folder.mkdir(parents=True)
    (folder / "few.toml").write_text(TEXT)
    (folder / "storm.toml").write_text(TEXT.replace('"few"', '"storm"'))
    (folder.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(type(SIM), "scenarios", "counting_files:scenarios")
    assert find_scenario("few").own == find_scenario("counting/few").own == Section(clients=3, counts=10)
    with pytest.raises(ConfigurationError, match="say counting/storm or shared_subscriptions/storm"):
        find_scenario("storm")
    assert find_scenario("counting/storm").sim is SIM


def test_the_commands_run_it(tmp_path):
    (tmp_path / "few.toml").write_text(TEXT)
    environment = {**os.environ, "PYTHONPATH": str(HERE)}

    def gapless(*arguments):
        command = [sys.executable, "-m", "statemachines", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)

    done = gapless("simulate", "few.toml", "--seed", "2", "--trace", "out", "--set", "clients=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("scenario few, seed 2, clients=2\ncounted ")
    assert list((tmp_path / "out").glob("trace-*.parquet"))
    assert gapless("campaign", "few.toml", "--seeds", "3", "--processes", "1").returncode == 0
    refused = gapless("simulate", "few.toml", "--set", "clint=2")
    assert (refused.returncode, "did you mean clients?" in refused.stderr) == (2, True)


def test_a_run_file_is_repeated_from_any_folder(file, tmp_path):
    """The protocol's module stands above the file; that of the working directory is first."""
    scenario = read(file)
    path = tmp_path / "own/out/failures/few-4.json"
    runfile.write(path, runfile.RunFile(scenario, 4, draw(scenario, 4)))
    (tmp_path / "elsewhere").mkdir()

    def replay(cwd):
        command = [sys.executable, "-c", "from statemachines.entry import main; main()", "replay", str(path)]
        return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)

    refused = replay(tmp_path / "elsewhere")
    assert (refused.returncode, "there is no module 'counting'" in refused.stderr) == (2, True)
    shutil.copy(HERE / "counting.py", tmp_path / "own")
    done = replay(tmp_path / "elsewhere")
    assert (done.returncode, done.stderr) == (
        0,
        f"note: the module counting is looked for in {tmp_path / 'own'}, too\n",
    )
    here = replay(tmp_path / "own")
    assert (here.returncode, here.stderr, here.stdout) == (0, "", done.stdout)


def test_what_a_protocol_says_of_itself_must_be_of_its_name(registered, monkeypatch):
    monkeypatch.setattr(type(SIM), "name", "counts")
    with pytest.raises(ConfigurationError, match="must be a SimProtocol of that name, not 'counts'"):
        sim_of("counting")


def test_it_may_not_be_named_by_another_scenario(registered):
    with pytest.raises(ConfigurationError, match=r"shared_subscriptions = .*section of another protocol"):
        from_plain({"name": "x", "protocol": "counting", "shared_subscriptions": {}})


def test_the_kinds_have_their_words():
    for kind in SIM.kinds.values():
        assert kind.name
        assert kind.about
        assert kind.hits

"""A protocol from outside the tree: scenarios, faults of every kind, campaigns, run files and swarms, as anybody's.

Steered campaigns: the seeds of a swarm are chosen by what its runs have covered.

A campaign that was broken off is resumed file by file: what is there is kept if these seeds would write it again.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import counting
import pyarrow.parquet as pq
import pytest
from counting import PROTOCOL, SIM, Section
from msgspec.structs import replace

from statemachines import cli, registry
from statemachines.kernel import ConfigurationError
from statemachines_sim import campaign as campaigns
from statemachines_sim import runfile
from statemachines_sim.campaign import campaign, campaign_parts, read_outcome, run_row, steered_parts
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
from statemachines_sim.steering import SeedSteering, list_covered
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


def test_the_kinds_have_their_words():
    for kind in SIM.kinds.values():
        assert kind.name
        assert kind.about
        assert kind.hits


SWARM = "cursor_recovery/any_queue"


@pytest.fixture(scope="module")
def swarm():
    return override(find_scenario(SWARM), ("phases.safety_s=3",))


def test_D_601_a_run_covers_rows_pairs_and_faults_in_states(swarm):
    world = World(swarm, 1)
    world.run()
    covered = list_covered(world.rows)
    assert any(len(item) == 2 for item in covered)
    assert any(len(item) == 3 and item[0].startswith("cursor_recovery/") for item in covered)
    assert {item[0] for item in covered if not item[0].startswith("cursor_recovery/")} & {"long_pause"}


@pytest.mark.long
def test_D_601_a_steered_campaign_is_the_same_every_time(swarm, tmp_path, monkeypatch):
    monkeypatch.setattr("statemachines_sim.campaign.ROUND", 2)
    again = [steered_parts(swarm, range(4), out=tmp_path / str(number), processes=1) for number in range(2)]
    first, second = ([one for part in parts for one in part] for parts in again)
    assert first == second
    assert len({one.seed for one in first}) == 4
    names = [sorted(path.name for path in (tmp_path / str(number)).iterdir()) for number in range(2)]
    assert names[0] == names[1] == sorted(f"{kind}-any_queue-{run:06}.parquet" for run in (0, 2)
                                          for kind in ("runs", "trace"))  # fmt: skip


def test_only_a_swarm_is_steered():
    with pytest.raises(ConfigurationError, match="is no swarm, so every seed draws the same mixture"):
        SeedSteering(find_scenario("storm"))


def test_the_command_steers_and_refuses_what_it_cannot(capsys, tmp_path):
    """Its runs end when faults begin."""
    arguments = ["campaign", SWARM, "--set", "phases.safety_s=1", "--seeds", "3", "--processes", "1", "--steer"]
    assert cli.run([*arguments, "--json"]) == cli.Exit.HELD
    assert [one["seed"] for one in json.loads(capsys.readouterr().out)] == [0, 1, 2]
    for other in (["--resume", "--trace", str(tmp_path)], ["--engine", "spark"]):
        assert cli.run([*arguments, *other]) == cli.Exit.USAGE
        assert f"has no {' '.join(other[: 1 + (other[0] == '--engine')])}: leave one out" in capsys.readouterr().err


SEEDS = range(3, 9)


@pytest.fixture(scope="module")
def scenario():
    return override(find_scenario("quiet"), ("shared_subscriptions.load.messages=20",))


@pytest.fixture(scope="module")
def whole(scenario, tmp_path_factory):
    """A folder with all files, two runs a file, and all outcomes."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(campaigns, "SEEDS_PER_FILE", 2)
        return folder, list(campaign_parts(scenario, SEEDS, out=folder, processes=1))


@pytest.mark.long
def test_a_campaign_without_files_hands_over_each_run_as_it_ends(scenario, whole):
    parts = list(campaign_parts(scenario, SEEDS, processes=1))
    assert parts == [[outcome] for part in whole[1] for outcome in part]


@pytest.fixture
def resumed(scenario, whole, tmp_path, monkeypatch):
    """Resumes a copy of the folder to which something was done: its outcomes, and the seeds that were run."""
    seeds = []

    class CountedWorld(World):
        def __init__(self, scenario, seed):
            seeds.append(seed)
            super().__init__(scenario, seed)

    def resume(change=lambda folder: None, of=scenario, settings=()):
        seeds.clear()
        folder = tmp_path / f"copy-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(whole[0], folder)
        change(folder)
        options = {"out": folder, "processes": 1, "settings": settings, "is_resumed": True}
        return list(campaign_parts(of, SEEDS, **options)), list(seeds), contents(folder)

    monkeypatch.setattr(campaigns, "SEEDS_PER_FILE", 2)
    monkeypatch.setattr(campaigns, "World", CountedWorld)
    return resume


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


@pytest.mark.long
def test_what_is_there_is_not_run_again(whole, resumed):
    folder, outcomes = whole
    assert len(contents(folder)) == 6
    assert resumed() == (outcomes, [], contents(folder))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "trace-quiet-000002.parquet").unlink(),
        lambda folder: (folder / "runs-quiet-000002.parquet").unlink(),
        lambda folder: (folder / "trace-quiet-000002.parquet").write_bytes(b"PAR1"),
        lambda folder: shutil.copy(folder / "trace-quiet-000000.parquet", folder / "trace-quiet-000002.parquet"),
        lambda folder: shutil.copy(folder / "runs-quiet-000000.parquet", folder / "runs-quiet-000002.parquet"),
        lambda folder: spoil(folder / "runs-quiet-000002.parquet", "versions", '{"gapless": "0.0"}'),
        lambda folder: spoil(folder / "runs-quiet-000002.parquet", "parameters", "[]"),
        lambda folder: spoil(folder / "runs-quiet-000002.parquet", "parameters", '{"protocol": 7}'),
    ],
)
def test_a_file_that_is_missing_damaged_or_another_s_is_made_again(whole, resumed, change):
    folder, outcomes = whole
    assert resumed(change) == (outcomes, [5, 6], contents(folder))


def spoil(path, column, text):
    table = pq.read_table(path)
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, [[text] * len(table)]), path)


@pytest.mark.long
def test_under_another_setting_everything_is_run(scenario, resumed):
    settings = ("shared_subscriptions.load.messages=21",)
    _, seeds, _ = resumed(of=override(scenario, settings), settings=settings)
    assert seeds == list(SEEDS)


@pytest.mark.parametrize("name", ["quiet", "undisturbed", "calm_sessions", "nothing_follows", "in_order"])
def test_an_outcome_is_read_back_from_the_table_of_runs(name):
    """Whatever the watch of a protocol counts."""
    few = "shared_subscriptions.load.messages=50" if name == "quiet" else "phases.safety_s=3"
    scenario = override(find_scenario(name), [few])
    outcome = World(scenario, 1).run()
    assert outcome.tally
    assert read_outcome(run_row(scenario, outcome, 0)) == outcome


@pytest.mark.parametrize(
    ("options", "says"),
    [(("--resume",), "give --trace"), (("--master", "local[1]"), "give --engine spark")],
)
def test_options_that_do_not_fit_are_named(capsys, options, says):
    assert cli.run(["campaign", "quiet", "--seeds", "1", *options]) == cli.Exit.USAGE
    assert says in capsys.readouterr().err

"""A campaign that was broken off is resumed file by file: what is there is kept if these seeds would write it again."""

from __future__ import annotations

import shutil

import pyarrow.parquet as pq
import pytest

from statemachines import cli
from statemachines_sim import campaign as campaigns
from statemachines_sim.campaign import campaign_parts, read_outcome, run_row
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

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

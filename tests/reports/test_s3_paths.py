"""Traces in an S3 store: what is found in them is what is found in the same files on this machine."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyarrow.fs import FileSelector, FileType, LocalFileSystem, S3FileSystem, copy_files
from s3_store import serve_s3

from statemachines import cli
from statemachines.s3_path import file_system
from statemachines.whole_file import store_path
from statemachines_reports.judge import Judges
from statemachines_reports.piece_judge import give_judges
from statemachines_reports.session import judge_units
from statemachines_reports.trace_set import TraceSet, cut_file, piece_of, table_of
from statemachines_sim import campaign as campaigns
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

ADDRESS = "s3://bucket/runs/sim"
PAIR = ("runs", "trace")


@pytest.fixture(scope="module")
def store():
    """Its endpoint."""
    with serve_s3() as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def environment(store, monkeypatch):
    for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", store)


@pytest.fixture(scope="module")
def trace(tmp_path_factory, store):
    """A folder with a trace; the store has it, too."""
    folder = tmp_path_factory.mktemp("sim")
    scenario = find_scenario("cursor_recovery/undisturbed")
    short = replace(scenario, phases=replace(scenario.phases, safety_s=1.0))
    campaign(short, range(2), out=folder, processes=1)
    system = S3FileSystem(
        access_key="a", secret_key="b", region="us-east-1", endpoint_override=store, allow_bucket_creation=True
    )
    system.create_dir("bucket")
    copy_files(str(folder), "bucket/runs/sim", source_filesystem=LocalFileSystem(), destination_filesystem=system)
    return folder


def test_D_563_a_task_finds_pieces_of_a_file_by_their_address(trace, tmp_path):
    found = []
    for place in (trace, store_path(ADDRESS)):
        opened = TraceSet(place, tmp_path)
        (path,) = opened.files
        table = table_of(list(cut_file(path, opened.groups[path], 1)))
        assert {piece_of(line).path for line in table.to_pylist()} == {path}
        judges = Judges(opened.protocols, opened.missing)
        found.append(pa.Table.from_batches(judge_units(iter(table.to_batches()), give_judges(opened, judges))))
    assert found[0].num_rows > 0
    assert found[0].equals(found[1])


@pytest.mark.long
def test_the_command_reads_an_address(trace, tmp_path):
    assert cli.run(["analyze", ADDRESS, "--out", str(tmp_path / "out"), "--engine", "local"]) == cli.Exit.HELD
    assert (tmp_path / "out" / "index.html").is_file()


@pytest.mark.long
def test_D_600_a_campaign_and_its_analysis_are_in_the_store_as_on_this_machine(trace, tmp_path):
    arguments = ["cursor_recovery/undisturbed", "--seeds", "2", "--set", "phases.safety_s=1", "--processes", "1"]
    for place in (str(tmp_path), "s3://bucket/made"):
        assert cli.run(["campaign", *arguments, "--trace", f"{place}/sim"]) == cli.Exit.HELD
        command = ["analyze", f"{place}/sim", "--out", f"{place}/out", "--engine", "local"]
        assert cli.run(command) == cli.Exit.HELD
    assert list_files("bucket/made", file_system()) == list_files(str(tmp_path), LocalFileSystem())


def list_files(folder, system):
    """Name in the folder -> the bytes, but for the page, which names its trace."""
    files = system.get_file_info(FileSelector(folder, recursive=True))
    names = [one.path for one in files if one.type == FileType.File]
    found = {name.removeprefix(folder): system.open_input_stream(name).read() for name in names}
    assert {"/sim/trace-undisturbed-000000.parquet", "/out/summary.json", "/out/tables/runs.parquet"} < set(found)
    return {name: data for name, data in found.items() if not name.endswith(".html")}


@pytest.mark.long
def test_D_600_a_campaign_that_broke_off_in_the_store_goes_on_there(store, trace, tmp_path, monkeypatch):
    """Its first file is kept, and of the second there is nothing."""
    scenario = find_scenario("cursor_recovery/undisturbed")
    short = replace(scenario, phases=replace(scenario.phases, safety_s=0.2))
    monkeypatch.setattr(campaigns, "SEEDS_PER_FILE", 2)
    made = []

    class BrokenWorld(World):
        def run(self):
            made.append(self)
            if len(made) == 4:
                raise KeyboardInterrupt
            return super().run()

    monkeypatch.setattr(campaigns, "World", BrokenWorld)
    place = store_path("s3://bucket/resumed")
    with pytest.raises(KeyboardInterrupt):
        list(campaigns.campaign_parts(short, range(4), out=place, processes=1))
    assert sorted(path.name for path in place.glob("*")) == [f"{kind}-undisturbed-000000.parquet" for kind in PAIR]
    assert not list(Path(tempfile.gettempdir()).glob("gapless-*/trace-undisturbed-000002.parquet"))
    outcomes = list(campaigns.campaign_parts(short, range(4), out=place, processes=1, is_resumed=True))
    assert [one.seed for part in outcomes for one in part] == [0, 1, 2, 3]
    assert len(made) == 6
    assert len(list(place.glob("trace-*"))) == 2


def test_a_bucket_that_is_not_there_is_named(trace, tmp_path, capsys):
    for command in (["analyze", ADDRESS, "--out"], ["campaign", "quiet", "--trace"]):
        assert cli.run([*command, "s3://elsewhere/out"]) == cli.Exit.USAGE
        assert "= 's3://elsewhere/out': has no such bucket: make it" in capsys.readouterr().err


def test_a_store_that_nobody_serves_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert cli.run(["analyze", ADDRESS, "--out", str(tmp_path)]) == cli.Exit.USAGE
    assert f"trace = '{ADDRESS}': cannot be read" in capsys.readouterr().err

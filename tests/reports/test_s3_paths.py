"""Traces in an S3 store: what is found in them is what is found in the same files on this machine."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from msgspec.structs import replace
from pyarrow.fs import LocalFileSystem, S3FileSystem, copy_files

from statemachines import cli
from statemachines_reports.judge import Judges
from statemachines_reports.piece_judge import give_judges
from statemachines_reports.pipeline import analyze
from statemachines_reports.s3_path import S3Path, trace_path
from statemachines_reports.session import judge_units
from statemachines_reports.trace_piece import cut_file, piece_of, table_of
from statemachines_reports.trace_set import TraceSet
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario

ADDRESS = "s3://bucket/runs/sim"


@pytest.fixture(scope="module")
def store():
    """Its endpoint."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


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


def test_D_563_a_trace_in_s3_is_judged_as_on_this_machine(trace, tmp_path):
    there = analyze(trace_path(ADDRESS), tmp_path / "there", spark=False)
    here = analyze(trace, tmp_path / "here", spark=False)
    assert there.is_held
    assert there.rows > 0
    assert there.tables == here.tables


def test_D_563_a_task_finds_pieces_of_a_file_by_their_address(trace, tmp_path):
    found = []
    for place in (trace, trace_path(ADDRESS)):
        opened = TraceSet(place, tmp_path)
        (path,) = opened.files
        table = table_of(list(cut_file(path, opened.groups[path], 1)))
        assert {piece_of(line).path for line in table.to_pylist()} == {path}
        judges = Judges(opened.protocols, opened.missing)
        found.append(pa.Table.from_batches(judge_units(iter(table.to_batches()), give_judges(opened, judges))))
    assert found[0].num_rows > 0
    assert found[0].equals(found[1])


def test_the_command_reads_an_address(trace, tmp_path):
    assert cli.run(["analyze", ADDRESS, "--out", str(tmp_path / "out"), "--engine", "local"]) == cli.Exit.HELD
    assert (tmp_path / "out" / "index.html").is_file()


def test_an_address_with_nothing_under_it_is_named(trace, tmp_path, capsys):
    for address in ("s3://bucket/none", "s3://elsewhere/runs"):
        assert cli.run(["analyze", address, "--out", str(tmp_path)]) == cli.Exit.USAGE
        assert f"trace = '{address}': is no directory" in capsys.readouterr().err


def test_a_store_that_nobody_serves_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert cli.run(["analyze", ADDRESS, "--out", str(tmp_path)]) == cli.Exit.USAGE
    assert f"trace = '{ADDRESS}': cannot be read" in capsys.readouterr().err


def test_a_path_in_s3_keeps_its_kind():
    path = trace_path("s3:/bucket/runs") / "trace-a.parquet"
    assert isinstance(path, S3Path)
    assert path.with_name("runs-a.parquet").address == "s3://bucket/runs/runs-a.parquet"
    assert pickle.loads(pickle.dumps(path)) == path

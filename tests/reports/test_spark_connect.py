"""Spark Connect: the server is sent our code, and gives the same tables; what it cannot do is refused by name."""

from __future__ import annotations

import os

import pyarrow.parquet as pq
import pytest

from statemachines import cli
from statemachines.cli import Exit
from statemachines.spark.spark_link import find_client
from statemachines.testing.spark_cluster import SparkConnectServer, list_session
from statemachines_reports.foreign_log.log_mapping import read_template
from statemachines_reports.pipeline import analyze

CAMPAIGN = ["campaign", "quiet", "--seeds", "3", "--set", "shared_subscriptions.load.messages=5", "--trace"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    before = dict(os.environ)
    server = SparkConnectServer(tmp_path_factory.mktemp("connect"))
    try:
        yield server
    finally:
        server.stop()
        for name in os.environ.keys() - before.keys():  # PySpark notes there that this process is a client
            del os.environ[name]
        os.environ.update(before)
        assert not list_session(server.process.pid)


def tables(out):
    return {path.name: pq.read_table(path) for path in sorted((out / "tables").glob("*.parquet"))}


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_server_of_spark_connect_judges_and_simulates_as_this_process_does(server, tmp_path, capsys):
    """Its tasks have none of our packages: they are sent.  A session that the program has opened stays open."""
    from pyspark.sql import SparkSession

    folder = tmp_path / "local"
    assert cli.run([*CAMPAIGN, str(folder)]) == 0
    there = ["--engine", "spark", "--master", server.address]
    assert cli.run([*CAMPAIGN, str(tmp_path / "spark"), *there]) == 0
    assert contents(tmp_path / "spark") == contents(folder)
    capsys.readouterr()
    assert cli.run(["analyze", str(folder), "--out", str(tmp_path / "far"), *there]) == 0, capsys.readouterr()
    assert cli.run(["analyze", str(folder), "--out", str(tmp_path / "near"), "--engine", "local"]) == 0
    assert tables(tmp_path / "far") == tables(tmp_path / "near")
    mapping, log = tmp_path / "map.toml", tmp_path / "log.ndjson"
    mapping.write_text(read_template("redis").replace("complete = false", "complete = true "))
    log.write_text('{"at": 1, "kind": "publish", "stream": "s", "id": "1-0", "consumer": null}\n')
    capsys.readouterr()
    assert cli.run(["judge", str(log), "--map", str(mapping), "--master", server.address]) == Exit.VIOLATED, (
        capsys.readouterr()
    )
    assert "lost            VIOLATED" in capsys.readouterr().out
    fixed = [*there, "--conf", "spark.executor.memory=3g"]
    assert cli.run(["analyze", str(folder), "--out", str(tmp_path / "far"), *fixed]) == Exit.USAGE
    assert "'3g': cannot be set" in capsys.readouterr().err
    ours = SparkSession.builder.remote(server.address).getOrCreate()
    try:
        assert find_client() is ours
        analyze(folder, tmp_path / "joined", spark=True)
        assert ours.range(3).count() == 3
        assert not ours.catalog.listTables()
        assert tables(tmp_path / "joined") == tables(tmp_path / "near")
        options = ["--follow", "--out", str(tmp_path / "follow")]
        assert cli.run(["analyze", str(folder), *options]) == Exit.USAGE
        assert "is Spark Connect, whose batches are judged at the server" in capsys.readouterr().err
    finally:
        ours.stop()

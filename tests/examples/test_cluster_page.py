"""docs/cluster.md: its console commands and its program run on a cluster of this machine, and on moto's S3."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from page_listings import read_commands
from pyarrow.fs import S3FileSystem
from s3_store import serve_s3

from statemachines.testing.spark_cluster import LOOPBACK, SparkCluster

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
SEEDS = re.compile(r"--seeds \d+")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def environment(monkeypatch):
    """Of commands: an S3 store with a bucket, and our commands."""
    with serve_s3() as endpoint:
        S3FileSystem(
            access_key="a", secret_key="b", region="us-east-1", endpoint_override=endpoint, allow_bucket_creation=True
        ).create_dir("bucket")
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": endpoint}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        yield {**os.environ, **LOOPBACK, **keys, "PATH": path}


def list_listings():
    """(kind, text) of what runs, in the order of the page."""
    for kind, text in BLOCK.findall(PAGE):
        if kind == "console":
            yield from (("console", command) for command, printed in read_commands(text))
        else:
            yield kind, text


@pytest.mark.long
def test_commands_and_program_of_the_page_run(cluster, environment, tmp_path):
    """The shared files are in this folder; the cluster's address, and what its small executors need, are put in."""
    _, _, _, master, *conf = cluster.list_options()
    (tmp_path / "shared").mkdir()
    judged = []
    for kind, listing in list_listings():
        here = listing.replace("/shared/", f"{tmp_path}/shared/").replace("spark://host:7077", master)
        if kind == "console":
            own = [part for one in conf[1::2] if one.split("=")[0] not in listing for part in ("--conf", one)]
            here = SEEDS.sub("--seeds 2", here).replace("--engine spark", f"--engine spark {shlex.join(own)}")
            command = ["bash", "-c", here]
        else:
            settings = dict(one.split("=", 1) for one in conf[1::2])
            command = [sys.executable, "-c", here.replace('"4g"}', f'"512m", **{settings}}}')]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=400)
        assert done.returncode == 0, (listing, done.stdout, done.stderr)
        table = tmp_path / "shared" / "report" / "tables" / "runs.parquet"
        if table.exists():
            judged.append(pq.read_table(table).num_rows)
            table.unlink()
    assert judged == [2, 2, 2]

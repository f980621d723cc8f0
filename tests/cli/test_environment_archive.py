"""An archive of the environment: its interpreter runs where it is unpacked, and finds the libraries of tasks there."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from importlib.metadata import PathDistribution

import pytest

from statemachines.cli import Exit, run
from statemachines.kernel import ConfigurationError
from statemachines.spark import environment_archive
from statemachines.spark.environment_archive import find_distributions, list_installed, write_environment

SHOW = """
import json, sys
import msgspec, immutables, json.decoder
print(json.dumps([list(sys.version_info[:3]), sys.prefix, msgspec.__file__]))
"""


def test_the_interpreter_of_an_archive_runs_where_it_is_unpacked(tmp_path, monkeypatch):
    """With few libraries: the whole is for a cluster, which has a test of its own."""
    monkeypatch.setattr(environment_archive, "ROOTS", ("immutables",))
    monkeypatch.setattr(environment_archive, "LEVEL", 0)
    content = write_environment(tmp_path / "small.tgz", ["Msgspec"])
    assert sorted(content.versions) == ["immutables", "msgspec"]
    there = tmp_path / "elsewhere"
    with tarfile.open(tmp_path / "small.tgz") as archive:
        archive.extractall(there, filter="data")
        assert len(archive.getnames()) == len({*archive.getnames()}) == content.files
    given = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([there / "bin" / "python", "-c", SHOW], env=given, capture_output=True, text=True, check=True)
    version, prefix, place = json.loads(done.stdout)
    assert version == list(sys.version_info[:3])
    assert prefix == str(there)
    assert place.startswith(str(there / "packages"))
    lacking = subprocess.run([there / "bin" / "python", "-c", "import pytest"], env=given, capture_output=True)
    assert b"No module named 'pytest'" in lacking.stderr


def test_spark_is_left_to_the_executors():
    found = find_distributions(["pyspark"])
    assert sorted(found) == ["py4j", "pyspark"]
    places = [place for _, place in list_installed(found["pyspark"])]
    assert "packages/pyspark/daemon.py" in places
    assert not [place for place in places if place.endswith(".jar") and "/jars/" in place]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("environment.tar",), "must end in .tar.gz or .tgz"),
        ((".tgz",), "must end in"),
        (("e.tgz", "--with", "no-such-thing"), "'no-such-thing': is not installed here"),
        (("e.tgz", "--with", "gapless"), "is installed as a link to its folder"),
    ],
)
def test_what_cannot_be_packed_is_named(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environment_archive, "ROOTS", ())
    assert run(["env-archive", *arguments]) == Exit.USAGE
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_link_to_a_folder_is_refused(tmp_path):
    (tmp_path / "METADATA").write_text("Name: mine\n")
    (tmp_path / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')
    with pytest.raises(ConfigurationError, match="mine"):
        list(list_installed(PathDistribution(tmp_path)))

"""A release: one version, and a wheel that holds the product alone.  `make release` tries it where nothing else is."""

import importlib.util
import tarfile
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pytest

from statemachines import __version__

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("release_tool", ROOT / "tools/release.py")
RELEASE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(RELEASE)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return RELEASE.build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_holds_the_product_and_no_benchmark_test_or_tool(built, tmp_path):
    _, wheel = built
    assert RELEASE.list_strangers(wheel) == []
    with ZipFile(wheel) as files:
        names = set(files.namelist())
    for name in (
        "statemachines/py.typed",
        "statemachines/shared_subscriptions/clauses.md",
        "statemachines_sim/scenarios/shared_subscriptions/storm.toml",
        "statemachines_spec/explorer/explore.py",
        "statemachines_reports/page.py",
    ):
        assert name in names
    stranger = tmp_path / "stranger.whl"
    with ZipFile(stranger, "w") as files:
        files.writestr("statemachines/cli.py", "")
        files.writestr("gapless-0.1.0.dist-info/METADATA", "")
        files.writestr("statemachines_bench/__init__.py", "")
        files.writestr("tests/test_cli.py", "")
    assert RELEASE.list_strangers(stranger) == ["statemachines_bench/__init__.py", "tests/test_cli.py"]
    assert RELEASE.list_differences(stranger, stranger) == []
    assert "tests/test_cli.py" in RELEASE.list_differences(stranger, wheel)


def test_the_source_distribution_has_the_tests_and_nothing_that_was_made(built):
    with tarfile.open(built[0]) as files:
        names = [name.partition("/")[2] for name in files.getnames()]
    assert {"pyproject.toml", "requirements.lock", "tests/cli/test_release.py", "tools/release.py"} <= set(names)
    assert [name for name in names if name.startswith((".venv", "out/", "dist/", "examples/out"))] == []


def test_there_is_one_version(built):
    assert set(RELEASE.read_versions(*built).values()) == {__version__}
    assert version("gapless") == __version__

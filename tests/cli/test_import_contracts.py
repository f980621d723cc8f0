"""The import contracts of `pyproject.toml` hold in a small tree of the same packages, and fail on planted imports."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
LINTER = tomllib.loads(PROJECT)["tool"]["importlinter"]
CONTRACTS = tuple(one["name"] for one in LINTER["contracts"])
(PURE,) = (one["source_modules"] for one in LINTER["contracts"] if one["type"] == "forbidden")
PROTOCOLS = tuple(name.removeprefix("Rooms of ") for name in CONTRACTS if name.startswith("Rooms of "))
LINT = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"

PLANTED = {
    "statemachines.kernel.low": ["statemachines.drivers"],
    "statemachines.wire.codec": ["statemachines.show"],
    "statemachines_spec.walker": ["statemachines_sim"],
    **{f"statemachines_sim.world_{name}": [f"statemachines_sim.{name}"] for name in PROTOCOLS},
    **{f"statemachines.drivers.of_{name}": [f"statemachines.{name}"] for name in PROTOCOLS},
    "statemachines.cursor_recovery.reader": ["statemachines.missed_samples"],
    "statemachines.mqtt_codec.frame": ["statemachines_sim"],
    **{f"{module}.impure": ["time", "asyncio"] for module in PURE},
    "statemachines.trace.low": ["statemachines.trace.sub.one"],
    "statemachines.trace.sub.one": ["statemachines.trace.low"],
}
"""Module -> what it imports, and must not."""


def list_modules():
    """The packages that the contracts name, and the rooms of each protocol."""
    yield from LINTER["root_packages"]
    for one in LINTER["contracts"]:
        if one["type"] == "layers":
            for layer in one["layers"]:
                yield from (name.strip("() ") for name in layer.split("|"))
    yield from PURE
    for area in ("statemachines.drivers", "statemachines.demo", "statemachines_sim", "statemachines_spec"):
        yield from (f"{area}.{name}" for name in PROTOCOLS)


def run_linter(folder, planted):
    """The code and what it says of a tree in which the modules of `planted` stand as well."""
    for module in (*list_modules(), *planted):
        path = folder.joinpath(*module.split("."))
        path.mkdir(parents=True, exist_ok=True)
        for one in (path, *path.parents):
            if one == folder:
                break
            (one / "__init__.py").touch()
        imports = "".join(f"import {name}\n" for name in planted.get(module, ()))
        if imports:
            (path / "__init__.py").write_text(imports)
    alert = 'type = "protected"\nunmatched_ignore_imports_alerting = "none"'
    (folder / "pyproject.toml").write_text(PROJECT.replace('type = "protected"', alert))
    done = subprocess.run([sys.executable, "-c", LINT], cwd=folder, capture_output=True, text=True)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    return run_linter(tmp_path_factory.mktemp("planted"), PLANTED)


def test_the_small_tree_keeps_every_contract(tmp_path):
    code, said = run_linter(tmp_path, {})
    assert code == 0, said
    assert [name for name in CONTRACTS if f"{name} KEPT" in said] == list(CONTRACTS)


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_fails_on_what_is_planted(broken, name):
    code, said = broken
    assert code == 1, said
    assert f"{name} BROKEN" in said


@pytest.mark.parametrize("module", [one for one in PLANTED if not one.startswith("statemachines.trace")])
def test_what_is_planted_is_named(broken, module):
    assert any(f"{module} -> {name} " in broken[1] for name in PLANTED[module]), broken[1]

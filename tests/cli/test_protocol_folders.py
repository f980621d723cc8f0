"""A protocol lies in one folder a layer, and no other folder is named after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statemachines import registry

ROOT = Path(__file__).resolve().parents[2]
PROTOCOLS = frozenset(name for name in registry.names() if (ROOT / "statemachines" / name).is_dir())
TOPS = ("benchmarks", "docs", "examples", "reports", "sim", "spec", "statemachines", "tests", "tools")
MADE = {"__pycache__", "out"}
"""Folders of what programs make."""

PLACES = (
    r"statemachines/P(/properties)?",
    r"statemachines/drivers/P(/(postgres|sqlite))?",
    r"statemachines/(testing|demo)/P",
    r"spec/P(/(certificates|models))?",
    r"spec/statemachines_spec/P",
    r"sim/scenarios/P",
    r"sim/statemachines_sim/P(/monitors)?",
    r"reports/statemachines_reports/P",
    r"tests/P(/(broken|exchanges|golden|interactions|steps|zenoh_scenes|drivers|sim|spec|testing))?",
)
"""Where a protocol P may lie; D-1345 to D-1347 say why the folders in them are there."""


def find_strays(root):
    """Folders below the root that are named after a protocol, hold a file, and are at no allowed place."""
    files = (file for top in TOPS for file in (root / top).rglob("*") if file.is_file())
    folders = {file.parent.relative_to(root) for file in files}
    named = {one for one in folders if not PROTOCOLS.isdisjoint(one.parts) and MADE.isdisjoint(one.parts)}
    return sorted(str(one) for one in named if not is_allowed(one))


def is_allowed(folder):
    place = "/".join("P" if part in PROTOCOLS else part for part in folder.parts)
    return any(re.fullmatch(allowed, place) for allowed in PLACES)


def test_a_protocol_lies_in_one_folder_a_layer():
    assert find_strays(ROOT) == []
    assert len(PROTOCOLS) >= 6
    for protocol in PROTOCOLS:
        assert all((ROOT / folder / protocol).is_dir() for folder in ("statemachines", "spec", "tests")), protocol


@pytest.mark.parametrize(
    "folder",
    [
        "tests/spec/cursor_recovery",
        "tests/cursor_recovery/reports",
        "statemachines/drivers/cursor_recovery/demo",
        "statemachines/wire/cursor_recovery",
        "tests/cursor_recovery/missed_samples",
        "tools/cursor_recovery",
    ],
)
def test_another_folder_is_found(tmp_path, folder):
    for one in ("tests/cursor_recovery/golden", "tests/spec/cursor_recovery/__pycache__", folder):
        (tmp_path / one).mkdir(parents=True, exist_ok=True)
        (tmp_path / one / "file.txt").touch()
    assert find_strays(tmp_path) == [folder]

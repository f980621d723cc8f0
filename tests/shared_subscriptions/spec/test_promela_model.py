"""The model of the rules that was written by hand from the texts: SPIN comes to the verdicts of the explorer."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from statemachines_spec.explorer.explore import explore
from statemachines_spec.shared_subscriptions.systems import system

MODEL = Path(__file__).parents[3] / "spec" / "shared_subscriptions" / "models" / "shared_subscriptions.pml"

S4 = r"\(\(assigned\[\d\]!=0\)&&\(by"
S5 = r"!\(\(\(leased"
SHOWN = r"!\(\(delivered"


def searched(folder, *switches):
    """What the full search says; the model is copied, since SPIN leaves its trail beside it."""
    shutil.copy(MODEL, folder)
    for command in (
        ["spin", "-a", *(f"-D{switch}" for switch in switches), MODEL.name],
        ["gcc", "-DSAFETY", "-DNOREDUCE", "-DCOLLAPSE", "-DMEMLIM=2000", "-o", "pan", "pan.c"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return subprocess.run(["./pan", "-m200000", "-w22"], cwd=folder, capture_output=True, text=True).stdout


@pytest.mark.long
def test_the_settled_rules_hold_in_a_full_search(tmp_path):
    said = searched(tmp_path)
    assert "errors: 0" in said
    assert "max search depth too small" not in said
    assert "Search not completed" not in said
    assert int(re.search(r"(\d+) states, stored", said)[1]) > 100_000
    assert explore(system("late-copies", "small"), engine="plain", hashing=False).always["S5"]


@pytest.mark.parametrize(
    ("switch", "assertion"),
    [
        pytest.param("AS_WRITTEN", S5, marks=pytest.mark.long),
        pytest.param("ANY_GRANT", S4, marks=pytest.mark.long),
        pytest.param("NO_WAIT", S5, marks=pytest.mark.long),
        pytest.param("LATE_LEASE", S5, marks=pytest.mark.long),
        pytest.param("SHOW", SHOWN, marks=pytest.mark.long),
    ],
)
def test_without_a_rule_an_assertion_breaks(switch, assertion, tmp_path):
    said = searched(tmp_path, switch)
    assert re.search(r"assertion violated\s+" + assertion, said), said
    assert (tmp_path / "shared_subscriptions.pml.trail").is_file()


@pytest.mark.parametrize(("variant", "name"), [("as_written", "late-copies"), ("at_once", "borrower-crash")])
def test_the_explorer_comes_to_the_same_verdicts(variant, name):
    assert not explore(system(name, "small", variant), engine="plain", hashing=False).always["S5"]

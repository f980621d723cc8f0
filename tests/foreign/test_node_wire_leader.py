"""Leaders over the wire: the shipped node passes, and mistakes in it are found."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from statemachines.testing.conformance.campaign import Outcome
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_report import text_of
from statemachines.testing.conformance.wire_run import WireRun
from statemachines.testing.conformance.wire_verdict import WireOptions

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from node_bugs import LEADER, LEADER_COMMAND  # noqa: E402

sys.path.pop(0)

ROLE = role_of("shared_subscriptions/leader")
SHIPPED = (sys.executable, "-m", "statemachines")
TESTED = (
    "a stream is handed over before the lease of its owner has ended",
    "the end of an earlier grant frees the stream",
    "a registration that is over is served",
)
"""All of them are found by `make soak`."""


def judge(command, **options):
    return asyncio.run(WireRun(ROLE, WireOptions(rate=40.0, **options), command).judge(lambda address: None))


def test_the_shipped_leader_passes_over_the_wire():
    verdict = judge((*SHIPPED, *LEADER_COMMAND), seconds=3.0, tolerance_s=30.0, seed=3)
    assert verdict.outcome is Outcome.PASS, text_of(verdict, ROLE)
    assert len(verdict.cells) >= 10


@pytest.mark.parametrize("bug", TESTED)
def test_a_bug_of_a_leader_is_found_over_the_wire(bug):
    command = (sys.executable, str(HERE / "planted_node.py"), *LEADER[bug], *LEADER_COMMAND)
    verdict = judge(command, seconds=45.0, seed=1)
    assert verdict.outcome is Outcome.FAIL
    if verdict.violation is None:
        assert "has ended with exit code" in verdict.why
    else:
        assert "by SS-" in text_of(verdict, ROLE)

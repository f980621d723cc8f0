"""Leaders and owners of sessions over the wire: mistakes in the shipped nodes are found.  (docs/wire.md: they pass.)"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path

import planted_node
import pytest
from node_mistakes import LEADER, LEADER_COMMAND, SESSION, SESSION_COMMAND

from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_report import text_of
from statemachines.testing.conformance.wire_run import WireRun
from statemachines.testing.conformance.wire_verdict import WireOptions

LEADER_ROLE = role_of("shared_subscriptions/leader")
SESSION_ROLE = role_of("persistent_sessions/session")
LEADER_TESTED = (
    "a stream is handed over before the lease of its owner has ended",
    "a registration that is over is served",
)
SESSION_TESTED = (
    "a message that is sent again is not marked",
    "a clean start has the session of before",
)
"""All of them are found by `make soak`."""

LONGEST_S = 240.0
"""A run ends when the bug is found, in some seconds; on a busy machine fewer inputs are drawn in each."""


def judge(role, command, **options):
    return asyncio.run(WireRun(role, WireOptions(rate=40.0, **options), command).judge(lambda address: None))


def judge_planted(role, bug, command):
    """The verdict of the first run that has one: a run over sockets whose answers cross leaves more states possible
    than are followed, and says so."""
    for seed in range(1, 6):
        verdict = judge(role, (*plant(bug), *command), seconds=LONGEST_S, seed=seed)
        if verdict.outcome is not ConformanceOutcome.INCONCLUSIVE:
            break
    return verdict


def plant(bug):
    return (sys.executable, planted_node.__file__, *bug)


@pytest.mark.parametrize("bug", [*LEADER.values(), *SESSION.values()])
def test_a_mistake_changes_a_piece_of_text_that_is_there_once(bug):
    """`make soak` puts all of them in."""
    module, piece, _ = bug
    spec = importlib.util.find_spec(module)
    assert Path(spec.origin).read_text().count(piece) == 1


@pytest.mark.parametrize("bug", LEADER_TESTED)
def test_a_bug_of_a_leader_is_found_over_the_wire(bug):
    verdict = judge_planted(LEADER_ROLE, LEADER[bug], LEADER_COMMAND)
    assert verdict.outcome is ConformanceOutcome.FAIL
    if verdict.violation is None:
        assert "has ended with exit code" in verdict.why
    else:
        assert "by SS-" in text_of(verdict, LEADER_ROLE)


@pytest.mark.parametrize("bug", SESSION_TESTED)
def test_a_bug_of_an_owner_of_sessions_is_found_over_the_wire(bug):
    verdict = judge_planted(SESSION_ROLE, SESSION[bug], SESSION_COMMAND)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert verdict.violation is not None, verdict.why
    assert "by PS-" in text_of(verdict, SESSION_ROLE)

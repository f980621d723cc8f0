"""Leaders and owners of sessions over the wire: mistakes in the shipped nodes are found.  (docs/wire.md: they pass.)"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from node_mistakes import NODES, judge_node

from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_verdict import text_of

TESTED = {
    "a stream is handed over before the lease of its owner has ended",
    "a registration that is over is served",
    "a message that is sent again is not marked",
    "a clean start has the session of before",
}
"""All of them are found by `make soak`."""
MISTAKES = [(role, name) for role, node in NODES.items() for name in node.mistakes]

LONGEST_S = 240.0
"""A run ends when the mistake is found, in some seconds; on a busy machine fewer inputs are drawn in each."""


@pytest.mark.parametrize(("role", "name"), MISTAKES)
def test_a_mistake_changes_a_piece_of_text_that_is_there_once(role, name):
    """`make soak` puts all of them in."""
    module, piece, _ = NODES[role].mistakes[name]
    spec = importlib.util.find_spec(module)
    assert Path(spec.origin).read_text().count(piece) == 1


@pytest.mark.parametrize(("role", "name"), [one for one in MISTAKES if one[1] in TESTED])
def test_a_mistake_in_a_shipped_node_is_found_over_the_wire(role, name):
    """A run over sockets whose answers cross leaves more states possible than are followed, and says so: then another
    is played."""
    for seed in range(1, 6):
        verdict = judge_node(role, name, seconds=LONGEST_S, seed=seed)
        if verdict.outcome is not ConformanceOutcome.INCONCLUSIVE:
            break
    assert verdict.outcome is ConformanceOutcome.FAIL
    shown = text_of(verdict, role_of(role)) if verdict.violation else verdict.why
    assert re.search(NODES[role].said, shown)

"""Sequence windows explored: every interleaving of a few messages, losses, copies, rotations, restarts and instants."""

from pathlib import Path

import pytest

from statemachines_spec import certificates
from statemachines_spec.explorer.explore import COMPLETE, VIOLATED, explore
from statemachines_spec.sequence_windows.systems import ASSUMED, LIMITS, system

FOLDER = Path(__file__).parents[2] / "spec" / "sequence_windows"


@pytest.mark.parametrize("name", ["rotation", "lossy-convergence", "overtaking", "used-up", "the-end", "advisories"])
def test_the_plain_walker_comes_to_the_same(name):
    """MONO, FLOW, EARLIEST, ONCE, EXACT, NOFALSE, DETECT, JOIN, JOINED, BEGAN, SAME, THROTTLE, NOTIFY, CONTENT, PROMPT,
    TURN, INBOX and KEPT hold in them, as the certificates say."""
    kept = certificates.read(FOLDER / "certificates" / f"{name}-small.json")
    result = explore(system(name), engine="plain", hashing=False)
    assert (result.is_held, result.states, result.transitions) == (True, kept.states, kept.transitions)


def broken(made):
    result = explore(made, engine="plain", hashing=False)
    assert result.ended in (COMPLETE, VIOLATED)
    return {name.partition(" publisher")[0] for name, held in result.always.items() if not held}


@pytest.mark.parametrize("one", LIMITS, ids=lambda one: one.name)
def test_a_loss_stays_unseen_at_each_of_the_three_limits(one):
    assert broken(one.system()) == {f"DETECT {one.breaks}"}


@pytest.mark.parametrize("one", ASSUMED, ids=lambda one: one.name)
def test_JOIN_is_worth_what_it_assumes(one):
    assert broken(one.system()) == {"JOIN"}

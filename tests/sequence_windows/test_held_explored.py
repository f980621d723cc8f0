"""Held streams explored: losses, messages that overtake each other, queries without an end, frames, and few places."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from statemachines.sequence_windows.held_stream import HELD_STREAM
from statemachines_spec import certificates
from statemachines_spec.bug import change_rows
from statemachines_spec.explorer.explore import explore
from statemachines_spec.liveness.judge import live
from statemachines_spec.sequence_windows.held_systems import HELD, build_held

FOLDER = Path(__file__).parents[2] / "spec" / "sequence_windows"


@pytest.mark.parametrize("name", HELD)
def test_the_plain_walker_comes_to_what_the_certificates_of_held_streams_say(name):
    """ORDER, TWICE, REPORT, LATE, NOGAP, DROPPED, LEFT, UNWANTED and PLACES hold in them."""
    kept = certificates.read(FOLDER / "certificates" / f"{name}-small.json")
    result = explore(build_held(name), engine="plain", hashing=False)
    assert (result.is_held, result.states, result.transitions) == (True, kept.states, kept.transitions)
    assert result.states <= 30_000
    assert all(result.sometimes.values())


def settled(name):
    made = build_held(name)
    (verdict,) = live(made, made.obligations)
    return verdict.is_held


@pytest.mark.parametrize("name", HELD)
def test_everything_that_is_held_is_handed_over_at_last(name):
    """SETTLED, once nothing is lost any more."""
    assert settled(name)


def test_a_run_whose_timers_do_nothing_waits_for_ever():
    with ExitStack() as stack:
        change_rows(HELD_STREAM, "fire_run", do=None)(stack)
        assert not settled("held-stream")

"""Missed-samples recovery explored: every interleaving of a few samples, losses, queries, replies, ends and timers.

After a change of a table or a record: gapless check --certificates --stale --renew
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from long_cases import mark_long

from statemachines_spec import certificates
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.explore import COMPLETE, explore
from statemachines_spec.explorer.replay import replay
from statemachines_spec.liveness.judge import live
from statemachines_spec.missed_samples.bugs import BUGS
from statemachines_spec.missed_samples.counterexamples import BREAKS, empty_answer
from statemachines_spec.missed_samples.systems import SYSTEMS, system

FOLDER = Path(__file__).parents[2] / "spec" / "missed_samples"
LARGE = ("unreliable", "history-tokens", "continued")
"""Obligations of these are judged by `gapless check missed_samples --liveness`."""
QUICK_MAX = 4_000
"""States: what is larger `make soak` explores, but for the one that `make test` judges TAIL in.  A change of the code
that a certificate rests on makes it stale, whatever its size."""


@cache
def certificate(name):
    return certificates.read(FOLDER / "certificates" / f"{name}-small.json")


LONG = [name for name in SYSTEMS if certificate(name).states > QUICK_MAX and name != "heartbeats"]
OWING = [name for name in SYSTEMS if name not in LARGE]


@cache
def explored_once(name):
    """A certificate, its system, and what exploring that comes to: obligations are judged over the same tables."""
    kept = certificate(name)
    made = certificates.system_of(kept)
    entries = Entries(made)
    return kept, made, entries, explore(made, engine="plain", hashing=False, entries=entries)


@pytest.mark.parametrize("name", mark_long(SYSTEMS, *LONG))
def test_a_certificate_is_what_exploring_again_comes_to(name):
    """ORDER, ONCE, REPORT, INVENTED, NOGAP, HASTY, PROMPT, BOUND, QUIET, ASKED, COUNT, TIMING, TIMERS, FORGOTTEN,
    HISTORY, PLACES, QUEUES, REPLIES and WHOLE hold in every state, and what must happen does."""
    kept, _, _, result = explored_once(name)
    assert (kept.system, kept.size, kept.variant) == (name, "small", "settled")
    assert (result.ended, result.is_held, result.is_shown) == (COMPLETE, True, True)
    assert (result.states, result.transitions) == (kept.states, kept.transitions)


@pytest.mark.parametrize("name", mark_long(OWING, *(name for name in LONG if name in OWING)))
def test_LIVE_ISOLATION_TAIL_every_hole_is_settled_once_faults_stop(name):
    _, made, entries, _ = explored_once(name)
    judged = live(made, made.obligations, engine="plain", entries=entries)
    assert [(one.name, one.is_held) for one in judged] == [(one.name, True) for one in made.obligations]
    assert sum(one.open_states for one in judged), "something was open"
    assert sum(one.bounded for one in judged) == 0


def test_the_rule_of_the_source_loses_a_sample_and_the_shipped_machine_does_not():
    result = explore(empty_answer(), engine="plain", hashing=False)
    assert result.path.broken == BREAKS
    assert f"breaks {BREAKS} by a run of {len(result.path.legs)} steps" in (FOLDER / "systems.md").read_text()
    assert explore(empty_answer("settled"), engine="plain", hashing=False).is_held


def test_a_run_of_the_shipped_machines_is_replayed():
    bug = next(one for one in BUGS if one.name == "missed-twice")
    made = system("shallow")
    with plant_bug(f"missed_samples/{bug.name}"):
        result = explore(made, engine="plain", hashing=False)
        assert result.path.broken == "ORDER"
        assert replay(made, result.path).events > 0

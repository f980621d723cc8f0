"""Missed-samples recovery explored: every interleaving of a few samples, losses, queries, replies, ends and timers.

After a change of a table or a record: gapless check --certificates --stale --renew

Contracts of a publisher, a cache and a subscriber: they hold, every rule is met, and small mistakes break each.
"""

from functools import cache
from pathlib import Path

import pytest
from long_cases import mark_long

from statemachines_spec import certificates
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.explore import COMPLETE, VIOLATED, explore
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.replay import replay
from statemachines_spec.liveness.judge import live
from statemachines_spec.missed_samples import cache_contract, publisher_contract, subscriber_contract
from statemachines_spec.missed_samples.bugs import BUGS
from statemachines_spec.missed_samples.counterexamples import BREAKS, empty_answer
from statemachines_spec.missed_samples.systems import SYSTEMS, system
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape
from statemachines_spec.mutants.mutant import plant

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


PARTS = (publisher_contract, cache_contract, subscriber_contract)
BUILDS = {name: part.build for part in PARTS for name in part.ABOUT}


def found_in(name):
    return explore(BUILDS[name](name), engine="plain", hashing=False)


@cache
def mutants():
    return {one.name: one for one in CampaignScope(CampaignShape("missed_samples")).mutants}


@pytest.mark.parametrize("name", BUILDS)
def test_a_contract_is_kept_and_every_rule_met(name):
    found = found_in(name)
    assert found.path is None
    assert not [one for one, times in found.sometimes.items() if not times]


BROKEN = {
    "alone, silent": [("publisher.stamp/3/1-is-2", "OWES stamps"), ("publisher/8/deleted", "OWES leaves")],
    "alone, periodic": [
        ("publisher/heartbeat/timer-halved", "OWES beats"),
        ("publisher/5/negated", "OWES beats"),
        ("publisher/6/timer-doubled", "OWES beats"),
    ],
    "alone, sporadic": [("publisher/7/deleted", "OWES beats"), ("publisher/7/to-changed", "OWES beats")],
    "asked by number": [
        ("reliability_cache/0/deleted", "OWES answers"),
        ("sample_queue._newest/3/1-is-2", "OWES answers"),
        ("selector.parse/1/gt-is-gte", "OWES answers"),
        ("cache.refuse/3/event.n-is-event.t_ns", "OWES refuses"),
        ("serial_number.is_range/7/1-is-0", "OWES refuses"),
    ],
    "asked by time": [
        ("selector._times/3/1-is-0", "OWES answers"),
        ("sample_queue._timely/8/gte-is-gt", "OWES answers"),
    ],
    "asked by key": [("keys._has_parts/5/0-is-1", "OWES answers"), ("keys._matches/6/lt-is-lte", "no-error")],
    "asked verbatim": [("keys._is_of/1/eq-is-noteq", "OWES answers")],
    "asked by source": [("reliability_cache/1/deleted", "OWES answers")],
    "beside its publisher": [("reliability_cache/1/negated", "OWES answers")],
    "turns away": [
        ("reliability_cache/crowded/timer-halved", "OWES lets go"),
        ("reliability_cache/2/negated", "OWES keeps"),
        ("cache.let_go/4/notin-is-in", "OWES lets go"),
        ("cache.turn_away/6/event.first-is-event.last", "OWES turns away"),
        ("reliability_cache/8/deleted", "OWES leaves"),
    ],
    "nothing is lost": [
        ("subscriber/2/deleted", "OWES knows nothing of it"),
        ("subscriber/5/deleted", "OWES passes on"),
        ("subscriber/27/deleted", "OWES leaves"),
    ],
}


@pytest.mark.parametrize(("name", "mutant", "rule"), [(name, *one) for name, each in BROKEN.items() for one in each])
def test_a_small_mistake_breaks_a_rule(name, mutant, rule):
    with plant(mutants()[mutant]):
        found = found_in(name)
    assert found.ended == VIOLATED
    assert [one for one, held in found.always.items() if not held] == [rule]

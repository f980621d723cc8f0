"""Contracts of a publisher, a cache and a subscriber: they hold, every rule is met, and small mistakes break each."""

from __future__ import annotations

from functools import cache

import pytest

from statemachines_spec.explorer.explore import VIOLATED, explore
from statemachines_spec.missed_samples import cache_contract, publisher_contract, subscriber_contract
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape
from statemachines_spec.mutants.mutant import plant

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
        ("subscriber/26/deleted", "OWES leaves"),
    ],
}


@pytest.mark.parametrize(("name", "mutant", "rule"), [(name, *one) for name, each in BROKEN.items() for one in each])
def test_a_small_mistake_breaks_a_rule(name, mutant, rule):
    with plant(mutants()[mutant]):
        found = found_in(name)
    assert found.ended == VIOLATED
    assert [one for one, held in found.always.items() if not held] == [rule]

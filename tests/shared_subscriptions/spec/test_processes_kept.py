"""Contracts of whole processes: they hold, every rule is met, and one small mistake breaks each."""

from __future__ import annotations

from functools import cache

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines import cli
from statemachines_spec.explorer.explore import VIOLATED, explore
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape
from statemachines_spec.mutants.mutant import plant
from statemachines_spec.shared_subscriptions import SPEC, process_contracts

BOUND = 2_500
"""States: each is explored in seconds."""


@cache
def mutants():
    return {one.name: one for one in CampaignScope(CampaignShape("shared_subscriptions")).mutants}


@pytest.mark.parametrize("name", process_contracts.BUILDS)
def test_a_process_keeps_its_contract_and_every_rule_is_met(name):
    found = explore(SPEC.system(name), engine="plain", hashing=False)
    assert found.path is None
    assert not [one for one, times in found.sometimes.items() if not times]
    assert found.states < BOUND


BROKEN = {
    "agent-believes": [
        ("agent/11/deleted", "S19 hears"),
        ("agent/12/deleted", "S19 pings"),
        ("agent/13/deleted", "S19 hears"),
        ("agent/14/deleted", "S19 waits"),
        ("agent/15/deleted", "S19 farewell"),
        ("agent/16/deleted", "S19 farewell"),
        ("agent/19/deleted", "S19 reads"),
        ("agent/25/deleted", "S19 farewell"),
    ],
    "agent-asked": [
        ("agent/2/deleted", "S19 declares"),
        ("agent/0/deleted", "S19 refuses names"),
        ("agent/23/deleted", "S19 begins"),
        ("agent/3/deleted", "S19 gives up"),
        ("agent/4/deleted", "S19 ends"),
        ("agent/9/deleted", "S19 gives up"),
    ],
    "agent-full": [("agent/1/deleted", "S19 is full"), ("agent/10/deleted", "S19 takes")],
    "handler-full": [("handler/23/deleted", "S19 refuses alone"), ("handler/25/deleted", "S19 alone")],
    "handler-away": [
        ("handler/26/deleted", "S19 stands by"),
        ("handler/31/deleted", "S19 goes away"),
        ("handler/32/deleted", "S19 stays away"),
        ("handler/33/deleted", "S19 comes back"),
        ("handler/34/deleted", "S19 goes away"),
        ("handler/30/deleted", "S19 over"),
    ],
    "registry-asked": [
        ("registry/0/deleted", "S19 answers around"),
        ("registry/1/deleted", "S19 gone around"),
        ("registry/3/deleted", "S19 refuses names"),
        ("registry/4/deleted", "S19 starts"),
        ("registry/5/deleted", "S19 gone"),
        ("registry/7/deleted", "S19 answers directly"),
        ("registry/10/deleted", "S19 halts"),
        ("registry/12/deleted", "S19 is held back"),
        ("registry/14/deleted", "S19 takes"),
    ],
    "timed-registry": [
        ("registry/0/timer-doubled", "S19 forgets on time"),
        ("registry/12/timer-halved", "S19 lets go on time"),
    ],
}


@pytest.mark.parametrize(
    ("name", "mutant", "rule"), [(name, *pair) for name, pairs in BROKEN.items() for pair in pairs]
)
def test_a_mistake_in_a_process_row_breaks_a_rule(name, mutant, rule):
    with plant(mutants()[mutant]):
        found = explore(replace(process_contracts.BUILDS[name](name), origin=None), engine="plain", hashing=False)
    assert found.ended == VIOLATED
    assert [one for one, held in found.always.items() if not held] == [rule]


PROCESSES = ("agent", "handler", "registry")
SYSTEMS = {process: [name for name in process_contracts.BUILDS if process in name] for process in PROCESSES}


@pytest.mark.parametrize("process", mark_long(SYSTEMS, *SYSTEMS))
def test_every_mutant_of_a_process_row_is_killed_or_allowed(process, tmp_path):
    systems = [part for name in SYSTEMS[process] for part in ("--systems", name)]
    assert cli.run(("mutate", "shared_subscriptions", "--only", f"{process}/*", *systems, "--out", str(tmp_path))) == 0

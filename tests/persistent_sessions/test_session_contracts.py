"""Contracts of single machines: they hold, every rule is met, and one small mistake breaks each."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from statemachines import cli
from statemachines_spec.explorer.explore import VIOLATED, explore
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape
from statemachines_spec.mutants.mutant import plant
from statemachines_spec.persistent_sessions import directed_systems, group_member_contract

CONTRACTS = {
    name: contract
    for contract in directed_systems.CONTRACTS
    if contract is not group_member_contract
    for name in contract.SYSTEMS
}


@cache
def mutants():
    return {one.name: one for one in CampaignScope(CampaignShape("persistent_sessions")).mutants}


@pytest.mark.long
@pytest.mark.parametrize("name", CONTRACTS)
def test_OWES_a_machine_keeps_its_contract_and_every_rule_is_met(name):
    found = explore(CONTRACTS[name].system(name), engine="plain", hashing=False)
    assert found.path is None
    assert not [one for one, times in found.sometimes.items() if not times]


BROKEN = [
    ("collector-told", "collector/round/timer-doubled", "OWES begins in time"),
    ("collector-told", "collector/1/deleted", "OWES begins"),
    ("collector-told", "collector/2/deleted", "OWES finds clients"),
    ("collector-told", "collector/5/deleted", "OWES forgets"),
    ("collector-told", "collector/7/negated", "OWES deletes rows"),
    ("collector-told", "collector/11/negated", "OWES removes messages"),
    ("collector-told", "collector/14/deleted", "OWES goes on"),
    ("collector-told", "collector/15/deleted", "OWES breaks off"),
    ("resume-told", "session_resume/0/deleted", "OWES loads"),
    ("resume-delivers", "session_resume/13/deleted", "OWES delivers"),
    ("resume-told", "session_resume/24/deleted", "OWES follows a writer"),
    ("resume-takes-over", "session_resume/40/deleted", "OWES takes over"),
    ("resume-told", "session_resume/45/deleted", "OWES yields"),
    ("resume-told", "session_resume/53/deleted", "OWES ends"),
    ("resume-timed", "session_resume/45/timer-halved", "OWES keeps time"),
    ("life-told", "session_life/0/deleted", "OWES locks"),
    ("life-told", "session_life/3/deleted", "OWES looks up"),
    ("life-told", "session_life/2/deleted", "OWES asks again"),
    ("life-told", "session_life/4/negated", "OWES opens"),
    ("life-told", "session_life/6/negated", "OWES is opened"),
    ("life-told", "session_life/8/deleted", "OWES is full"),
    ("life-told", "session_life/9/deleted", "OWES accepts"),
    ("life-told", "session_life/alive/timer-doubled", "OWES lives"),
    ("life-told", "session_life/12/deleted", "OWES leaves"),
    ("life-told", "session_life/21/deleted", "OWES gives up"),
    ("life-told", "session_life/17/deleted", "OWES has left"),
    ("life-told", "session_life/18/deleted", "OWES is superseded"),
    ("life-told", "session_life/19/deleted", "OWES is discarded"),
    ("life-told", "session_life/20/deleted", "OWES fails"),
    ("takeover-told", "takeover/0/deleted", "OWES begins"),
    ("takeover-told", "takeover/again/timer-doubled", "OWES asks again"),
    ("takeover-told", "takeover/5/deleted", "OWES finishes"),
    ("takeover-told", "takeover/7/deleted", "OWES confirms"),
    ("takeover-told", "takeover/9/deleted", "OWES hands on"),
    ("takeover-told", "takeover/10/deleted", "OWES is refused"),
    ("takeover-left", "takeover/begin/timer-doubled", "OWES gives up"),
    ("takeover-told", "takeover/3/unguarded", "OWES ignores"),
    ("writer-told", "writer/0/deleted", "OWES begins"),
    ("writer-told", "writer/4/deleted", "OWES stores"),
    ("writer-ranges", "writer/6/deleted", "OWES stores a range"),
    ("writer-told", "writer/10/deleted", "OWES goes on"),
    ("writer-ranges", "writer/11/deleted", "OWES drops duplicates"),
    ("writer-told", "writer/15/deleted", "OWES reads back"),
    ("writer-told", "writer/19/deleted", "OWES believes what it reads"),
    ("writer-told", "writer/20/deleted", "OWES begins anew"),
    ("writer-told", "writer/21/deleted", "OWES marks"),
    ("flow-told", "writer_flow/0/deleted", "OWES begins"),
    ("flow-timed", "writer_flow/repeat/timer-doubled", "OWES asks again"),
    ("flow-told", "writer_flow/9/deleted", "OWES hears the writer"),
    ("flow-told", "writer_flow/16/unguarded", "OWES reads"),
    ("flow-timed", "writer_flow/17/timer-halved", "OWES looks again"),
    ("flow-timed", "writer_flow/23/timer-dropped", "OWES fences"),
    ("flow-fenced", "writer_flow/28/deleted", "OWES reads what is fenced"),
    ("flow-told", "writer_flow/18/deleted", "OWES hears its session"),
    ("flow-told", "writer_flow/25/deleted", "OWES hears the node"),
]


@pytest.mark.parametrize(("name", "mutant", "rule"), BROKEN)
def test_OWES_a_mistake_in_a_row_of_a_machine_breaks_a_rule(name, mutant, rule):
    with plant(mutants()[mutant]):
        found = explore(replace(CONTRACTS[name].system(name), origin=None), engine="plain", hashing=False)
    assert found.ended == VIOLATED
    assert [one for one, held in found.always.items() if not held] == [rule]


@pytest.mark.long
def test_every_mutant_of_a_row_of_a_takeover_and_of_a_collector_is_killed_or_allowed(tmp_path):
    systems = ("--systems", "takeover-told", "--systems", "takeover-left", "--systems", "collector-told")
    only = ("--only", "takeover/*", "--only", "collector/*")
    assert cli.run(("mutate", "persistent_sessions", *only, *systems, "--out", str(tmp_path))) == 0

"""The contract of a member of a group: it holds, every rule is met, and one small mistake breaks each."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from statemachines import cli
from statemachines_spec.explorer.explore import VIOLATED, explore
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape
from statemachines_spec.mutants.mutant import plant
from statemachines_spec.persistent_sessions import group_member_contract

TOLD, DECLARES = group_member_contract.SYSTEMS


@cache
def mutants():
    return {one.name: one for one in CampaignScope(CampaignShape("persistent_sessions")).mutants}


BROKEN = [
    (DECLARES, "group_member/0/deleted", "OWES begins"),
    (DECLARES, "group_member/3/deleted", "OWES declares"),
    (DECLARES, "group_member/declare/timer-dropped", "OWES declares"),
    (TOLD, "group_member/1/deleted", "OWES begins"),
    (TOLD, "group_member/7/negated", "OWES joins"),
    (TOLD, "group_member/10/deleted", "OWES follows"),
    (TOLD, "group_member/11/deleted", "OWES counts"),
    (TOLD, "group_member/18/deleted", "OWES stores"),
    (TOLD, "group_member_actions.rest/1/no-acknowledge", "OWES acknowledges"),
    (TOLD, "group_member/24/deleted", "OWES yields"),
    (TOLD, "group_member/look/timer-doubled", "OWES looks"),
    (TOLD, "group_member/28/negated", "OWES finds"),
    (TOLD, "group_member/30/unguarded", "OWES finds"),
    (TOLD, "group_member/33/deleted", "OWES ends"),
]


@pytest.mark.parametrize(("name", "mutant", "rule"), BROKEN)
def test_OWES_a_mistake_in_a_row_of_a_member_breaks_a_rule(name, mutant, rule):
    with plant(mutants()[mutant]):
        found = explore(replace(group_member_contract.system(name), origin=None), engine="plain", hashing=False)
    assert found.ended == VIOLATED
    assert [one for one, held in found.always.items() if not held] == [rule]


@pytest.mark.long
def test_every_mutant_of_a_row_of_a_member_is_killed_or_allowed(tmp_path):
    systems = ("--systems", TOLD, "--systems", DECLARES)
    only = ("--only", "group_member/*", "--only", "group_member_actions*")
    assert cli.run(("mutate", "persistent_sessions", *only, *systems, "--out", str(tmp_path))) == 0

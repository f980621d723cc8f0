"""The queue explored: every interleaving of the accesses of a few processes, which may die at any of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from statemachines_spec import certificates
from statemachines_spec.cursor_recovery.directed_systems import DIRECTED_SYSTEMS
from statemachines_spec.cursor_recovery.schedule import ScheduledTurn, schedule_of, slow_writer
from statemachines_spec.cursor_recovery.systems import system
from statemachines_spec.directed_system import explore_directed
from statemachines_spec.explorer.explore import COMPLETE, VIOLATED, explore
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape

GOLDEN = Path(__file__).with_name("golden") / "slow-writer.json"
"""Written by `python -m statemachines_spec.cursor_recovery.schedule tests/cursor_recovery/golden/slow-writer.json`."""
FOLDER = Path(__file__).parents[2] / "spec" / "cursor_recovery" / "certificates"
"""Smallest first."""
QUICK = ("pools", "reborn", "one-each")
LARGE = ("few", "readers", "many")
"""Half a million states and more each: the soak explores them."""


@pytest.mark.parametrize("name", QUICK)
def test_the_plain_walker_comes_to_the_same(name):
    kept = certificates.read(FOLDER / f"{name}-small.json")
    result = explore(system(name), engine="plain", hashing=False)
    assert (result.is_held, result.states, result.transitions) == (True, kept.states, kept.transitions)


def test_by_age_alone_a_slow_owner_shares_its_cursor():
    result = explore(system("slow", variant="by_age"))
    assert result.ended == VIOLATED
    assert {name.partition(" ")[0] for name, held in result.always.items() if not held} == {"EXCL"}


@pytest.mark.long
def test_by_age_alone_a_slow_writer_costs_an_acknowledged_message():
    """By the very run that real processes repeat (tests/cursor_recovery/test_slow_writer.py)."""
    result = explore(slow_writer())
    assert result.path.broken == "ACK"
    assert schedule_of(result) == msgspec.json.decode(GOLDEN.read_bytes(), type=list[ScheduledTurn])


@pytest.mark.long
def test_where_the_death_of_an_owner_is_known_a_slow_writer_costs_nothing():
    result = explore(slow_writer("repaired"))
    assert (result.ended, result.is_held) == (COMPLETE, True)


SHORT = [
    directed
    for directed in DIRECTED_SYSTEMS
    if directed.name in ("left by the dead", "left by earlier lives", "alone", "one of each")
]


@pytest.mark.parametrize("directed", SHORT, ids=lambda directed: directed.name)
def test_nothing_breaks_in_a_directed_system_where_nothing_is_planted(directed):
    assert explore_directed(directed).what == ""


# -- mutants --------------------------------------------------------------------------------------------------------

SLICE = {
    "writer/1/to-1_take_cursor": ("error", "LocalProtocolError"),
    "reader.tell_broken/5/1-is-0": ("property", "TOLD"),
    "writer.tell_full/2/Outcome.FULL-is-Outcome.NO_CURSOR": ("property", "TRUTH"),
    "writer.tell_written/3/record.write_head-is-record.messages": ("property", "KEPT"),
    "block.commit_word/4/64-is-63": ("lived", ""),
}
"""A fixed few, in the systems that are named: what is known to be killed, by what, and what is known to live."""


@pytest.fixture(scope="module")
def judged():
    field = CampaignScope(CampaignShape("cursor_recovery", ("alone", "one of each", "slow by age")))
    judge = field.judge(lambda text: None)
    return {one.name: judge.judge(one) for one in field.mutants if one.name in SLICE}


@pytest.mark.parametrize("name", SLICE)
def test_a_mutant_of_the_fixed_slice_comes_to_what_it_came_to(name, judged):
    """TOLD and TRUTH among them: what is passed in silence, and what is not so."""
    assert (judged[name].verdict, judged[name].by) == SLICE[name]

"""Entries of the shipped machines: pure, counted alike by SPIN, and no fewer under canonical names."""

from __future__ import annotations

import pytest
from projected_states import projected

from statemachines_spec.explorer import promela
from statemachines_spec.explorer.actor import Actor
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.purity import recheck
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.systems import system

HOST_NAMES = {LeaderHost: LeaderHost.canonical}


@pytest.mark.parametrize("name", ["revoke-timeout", pytest.param("reordering", marks=pytest.mark.long)])
def test_spin_counts_the_same(name, tmp_path):
    entries = Entries(system(name, "small"))
    result = explore(entries.system, engine="plain", entries=entries)
    counts = promela.judge(entries, tmp_path)
    assert (counts.states, counts.transitions) == (result.states, result.transitions)


@pytest.mark.long
def test_the_shipped_machines_come_out_alike_under_another_hash_seed():
    entries = Entries(system("leader-crash", "small"))
    result = explore(entries.system, engine="plain", entries=entries)
    assert result.rechecked == sum(result.entries.values())
    assert recheck(entries, 10) == 10


@pytest.mark.long
def test_nothing_is_lost_of_the_shipped_leader_either(monkeypatch):
    """The leader of a small system with all its numbers: more states, which are the same ones under canonical names."""
    kept, named = projected(Entries(system("unsubscribe", "small")), HOST_NAMES)
    monkeypatch.setattr(LeaderHost, "canonical", Actor.canonical)
    more, renamed = projected(Entries(system("unsubscribe", "small")), HOST_NAMES)
    assert named == renamed
    assert len(more) > len(kept) == len(named)

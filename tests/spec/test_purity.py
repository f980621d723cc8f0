"""A step that is not a function of its record and event is refused, and the entry is named."""

from __future__ import annotations

import subprocess

import pytest
from impure_system import forgetting, iterating
from msgspec.structs import replace

from statemachines_spec.explorer.entries import Entries, Nondeterministic
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.purity import recheck
from statemachines_spec.protocol import system_at


def test_a_step_that_counts_its_calls_is_refused():
    with pytest.raises(Nondeterministic, match=r"listener: two results for Note\(n=10\)"):
        explore(forgetting(), engine="plain")


def test_a_step_that_iterates_a_set_is_refused_by_another_hash_seed():
    with pytest.raises(Nondeterministic, match=r"writer: another result.*hash seed"):
        explore(iterating(), engine="plain")


def test_declared_machines_come_out_alike_under_another_hash_seed():
    entries = Entries(system_at("lock_toy:lock_system", asks=1, crashes=1))
    result = explore(entries.system, engine="plain", entries=entries)
    assert result.rechecked == sum(result.entries.values())
    assert recheck(entries, 10) == 10


def test_who_looks_for_a_known_mistake_may_have_each_entry_made_once():
    made = forgetting()
    listener = made.actors[1]
    entries = Entries(made, twice=False)
    explore(made, engine="plain", entries=entries, states_max=20)
    assert listener.calls == entries.components[1].entries > 0


def test_a_system_that_cannot_be_made_elsewhere_is_an_error_and_the_next_one_is_made():
    """In the same other process as those before, or in a new one where that has ended."""
    entries = Entries(system_at("lock_toy:lock_system", asks=1, crashes=1))
    assert explore(entries.system, engine="plain", entries=entries).rechecked > 100
    lost = Entries(replace(entries.system, origin=("nowhere_at_all:lock_system", {})))
    with pytest.raises(subprocess.CalledProcessError):
        explore(lost.system, engine="plain", entries=lost)
    assert recheck(entries, 10) == recheck(entries, 20) // 2 == 10

"""A step that is not a function of its record and event is refused, and the entry is named."""

from __future__ import annotations

from subprocess import CalledProcessError

import msgspec
import pytest
from impure_system import forgetting, iterating

from statemachines_spec.explorer import purity
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.entry_tables import Nondeterministic
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


def test_the_other_process_goes_on_for_the_next_system_and_is_another_where_the_path_is(monkeypatch, tmp_path):
    entries = Entries(system_at("lock_toy:lock_system", asks=1, crashes=1))
    explore(entries.system, engine="plain", entries=entries)
    first = purity._other()
    assert recheck(entries, 10) == recheck(entries, 3) + 7
    assert purity._other() is first
    monkeypatch.syspath_prepend(tmp_path)
    assert purity._other() is not first
    with pytest.raises(ValueError, match="closed"):
        first.make_digests(entries.system.origin, [])


def test_what_the_other_process_dies_of_is_told_and_the_next_is_another():
    entries = Entries(system_at("lock_toy:lock_system", asks=1, crashes=1))
    explore(entries.system, engine="plain", entries=entries)
    entries.system = msgspec.structs.replace(entries.system, origin=("os:_exit", {"status": 7}))
    with pytest.raises(CalledProcessError, match="7"):
        recheck(entries, 10)
    assert explore(system_at("lock_toy:lock_system", asks=1, crashes=1), engine="plain").rechecked > 0


def test_who_looks_for_a_known_mistake_may_have_each_entry_made_once():
    made = forgetting()
    listener = made.actors[1]
    entries = Entries(made, twice=False)
    explore(made, engine="plain", entries=entries, states_max=20)
    assert listener.calls == entries.components[1].entries > 0

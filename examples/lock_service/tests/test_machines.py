"""Both machines under any events; their rules are in steps/lock.txt."""

from __future__ import annotations

import pytest
from lock_service.holder import HOLDER, Fenced
from lock_service.server import SERVER
from lock_service.store import Journal, JournalFailed, Vault, VaultFailed, Write
from lock_service.times import Times

from statemachines.kernel import ConfigurationError
from statemachines.testing.machine import MachineTest

TestServer = MachineTest.of(SERVER, services={"journal": Journal()}, failed={"journal": JournalFailed}).TestCase
TestHolder = MachineTest.of(HOLDER, services={"vault": Vault()}, failed={"vault": VaultFailed}).TestCase


def test_lk_04_a_lease_has_surely_ended_by_any_clock():
    times = Times()
    assert times.surely_over_ns * (1 - times.drift) > times.lease_ms * 1_000_000 * (1 + times.drift)


def test_lk_12_the_vault_refuses_what_is_below():
    vault, state = Vault(), Vault().initial()
    for token in (1, 3, 3):
        state, (answer,) = vault.apply(state, Write(token, token, f"by {token}"), 0)
    assert (state.token, answer.n) == (3, 3)
    assert vault.apply(state, Write(9, 2, "late"), 0) == (state, (Fenced(9, 3),))
    after, _ = Vault(honours=False).apply(state, Write(9, 2, "late"), 0)
    assert (after.token, after.value) == (2, "late")


@pytest.mark.parametrize(("times", "rule"), [({"lease_ms": 0}, "between 1"), ({"renew_ms": 1500}, "half of lease_ms")])
def test_times_that_cannot_be_are_refused(times, rule):
    with pytest.raises(ConfigurationError, match=rule):
        Times(**times).check()

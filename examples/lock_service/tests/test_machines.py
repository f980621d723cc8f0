"""Both machines under any events, and rule by rule."""

from __future__ import annotations

import pytest
from lock_service.holder import (
    HOLDER,
    Drop,
    Fenced,
    Granted,
    HolderRecord,
    LeaseEnd,
    Locked,
    Lost,
    Put,
    RenewTimer,
    Want,
)
from lock_service.message import Acquire, Denied, Release, Renew
from lock_service.server import SERVER, Begin, Loaded, Saved, ServerRecord
from lock_service.store import Journal, JournalFailed, Load, Save, Vault, VaultFailed, Write
from lock_service.times import MS, Times

from statemachines.kernel import Ask, ConfigurationError, LocalProtocolError, Node, Send, Tell
from statemachines.testing.machine import MachineTest

TestServer = MachineTest.of(SERVER, services={"journal": Journal()}, failed={"journal": JournalFailed}).TestCase
TestHolder = MachineTest.of(HOLDER, services={"vault": Vault()}, failed={"vault": VaultFailed}).TestCase

LEASE = Times().lease_ms * MS
OVER = Times().surely_over_ns


def server(token=0):
    """A server that has read `token` from its journal, at 0."""
    node = Node(SERVER, ServerRecord("server~1/1"), name="server~1/1", now_ns=0, check=True)
    assert node.feed(Begin(), 0) == [Ask("journal", Load(1))]
    assert node.feed(Loaded(1, token), 0) == []
    return node


def holding(node, holder="a~1/1", now_ns=0):
    """The server has given the lock to the holder, under the next token."""
    (asked,) = node.feed(Acquire(holder, 1), now_ns)
    (granted,) = node.feed(Saved(asked.request.n), now_ns)
    assert granted.to == holder
    return granted.message.token


def locked(now_ns=0):
    """A holder that asked at `now_ns`, and was granted the lock under token 7."""
    node = Node(HOLDER, HolderRecord("a~1/1", "server"), name="a~1/1", now_ns=now_ns, check=True)
    assert node.feed(Want(), now_ns) == [Send("server", Acquire("a~1/1", 1))]
    assert node.feed(Granted(1, 7), now_ns) == [Tell(Locked(7))]
    return node


def test_lk_01_a_server_asks_its_journal_until_it_answers():
    node = Node(SERVER, ServerRecord("s"), name="s", now_ns=0)
    assert node.feed(Begin(), 0) == [Ask("journal", Load(1))]
    assert node.feed(JournalFailed(1), 1) == []
    assert node.fire(Times().retry_ms * MS) == [Ask("journal", Load(2))]
    with pytest.raises(LocalProtocolError):
        server().feed(Begin(), 0)


def test_lk_02_after_a_restart_it_waits_until_every_lease_has_ended():
    node = server(token=3)
    assert node.feed(Acquire("b~1/1", 1), OVER - 1) == []
    assert node.fire(OVER) == []
    assert node.feed(Acquire("b~1/1", 2), OVER) == [Ask("journal", Save(2, 4))]


def test_lk_03_nobody_hears_of_a_token_before_it_is_durable():
    node = server()
    assert node.feed(Acquire("a~1/1", 5), 0) == [Ask("journal", Save(2, 1))]
    assert node.fire(Times().retry_ms * MS) == [Ask("journal", Save(3, 1))]
    assert node.feed(Saved(2), Times().retry_ms * MS) == []
    (sent,) = node.feed(Saved(3), Times().retry_ms * MS)
    assert (sent.to, sent.message) == ("a~1/1", Granted(5, 1))


def test_lk_04_the_lock_is_free_when_the_lease_has_surely_ended():
    node = server()
    assert holding(node) == 1
    assert node.feed(Acquire("b~1/1", 1), OVER - 1) == [Send("b~1/1", Denied(1))]
    node.fire(OVER)
    assert node.feed(Acquire("b~1/1", 2), OVER) == [Ask("journal", Save(3, 2))]
    assert OVER * (1 - Times().drift) > LEASE * (1 + Times().drift)


def test_lk_05_its_holder_gets_another_lease_under_the_same_token():
    node = server()
    token = holding(node)
    assert node.feed(Renew("a~1/1", 2, token), 100) == [Send("a~1/1", Granted(2, token))]
    assert node.feed(Acquire("a~1/1", 3), 200) == [Send("a~1/1", Granted(3, token))]
    assert node.feed(Acquire("b~1/1", 1), OVER + 199) == [Send("b~1/1", Denied(1))]


def test_lk_06_anybody_else_is_denied():
    node = server()
    token = holding(node)
    assert node.feed(Renew("b~1/1", 4, token), 0) == [Send("b~1/1", Denied(4))]
    assert node.feed(Renew("a~1/1", 4, token + 1), 0) == [Send("a~1/1", Denied(4))]


def test_lk_07_a_release_frees_the_lock_at_once():
    node = server()
    token = holding(node)
    node.feed(Release("a~1/1", 1, token), 1)
    assert holding(node, "b~1/1", 2) == token + 1


def test_lk_07_a_late_release_does_not_free_what_was_taken_again():
    node = server()
    token = holding(node)
    node.feed(Acquire("a~1/1", 2), 1)
    node.feed(Release("a~1/1", 1, token), 2)
    assert node.feed(Acquire("b~1/1", 1), 3) == [Send("b~1/1", Denied(1))]


def test_lk_12_the_vault_refuses_what_is_below():
    vault, state = Vault(), Vault().initial()
    for token in (1, 3, 3):
        state, (answer,) = vault.apply(state, Write(token, token, f"by {token}"), 0)
    assert (state.token, answer.n) == (3, 3)
    assert vault.apply(state, Write(9, 2, "late"), 0) == (state, (Fenced(9, 3),))
    after, _ = Vault(honours=False).apply(state, Write(9, 2, "late"), 0)
    assert (after.token, after.value) == (2, "late")


def test_lk_21_the_lease_counts_from_the_sending_and_only_the_last_attempt():
    node = Node(HOLDER, HolderRecord("a~1/1", "server"), name="a~1/1", now_ns=0, check=True)
    node.feed(Want(), 0)
    retry = Times().retry_ms * MS
    assert node.fire(retry) == [Send("server", Acquire("a~1/1", 2))]
    assert node.feed(Granted(1, 7), retry + 1) == []
    assert node.feed(Granted(2, 7), retry + 1) == [Tell(Locked(7))]
    assert node.armed_timers()["lease", ""] == retry + LEASE


def test_lk_22_a_renewal_extends_the_lease_from_when_it_was_sent():
    node = locked()
    renew = Times().renew_ms * MS
    assert node.fire(renew) == [Send("server", Renew("a~1/1", 2, 7))]
    node.feed(Granted(1, 7), renew + 5)
    assert node.armed_timers()["lease", ""] == LEASE
    node.feed(Granted(2, 7), renew + 5)
    assert node.armed_timers()["lease", ""] == renew + LEASE


def test_lk_23_a_lease_that_ends_is_the_end():
    node = locked()
    assert Tell(Lost(7)) in node.fire(LEASE)
    assert node.feed(Put("late"), LEASE) == []
    node = locked()
    assert node.feed(Denied(1), 1) == [Tell(Lost(7))]


def test_lk_24_who_does_not_need_it_gives_it_back():
    assert locked().feed(Drop(), 1) == [Send("server", Release("a~1/1", 1, 7)), Tell(Lost(7))]


def test_lk_25_a_write_carries_the_token():
    assert locked().feed(Put("x"), 1) == [Ask("vault", Write(1, 7, "x"))]


def test_lk_27_who_was_fenced_off_has_lost_the_lock():
    assert locked().feed(Fenced(1, 8), 1) == [Tell(Lost(7))]
    assert locked().feed(Fenced(1, 7), 1) == []


def test_lk_28_lk_29_what_is_late_changes_nothing():
    node = locked()
    for event in (Granted(0, 3), Denied(0)):
        assert node.feed(event, 1) == []
    idle = Node(HOLDER, HolderRecord("a~1/1", "server"), name="a~1/1", now_ns=0, check=True)
    for event in (Granted(0, 3), Denied(0), RenewTimer(), LeaseEnd()):
        assert idle.feed(event, 1) == []


@pytest.mark.parametrize(("times", "rule"), [({"lease_ms": 0}, "between 1"), ({"renew_ms": 1500}, "half of lease_ms")])
def test_times_that_cannot_be_are_refused(times, rule):
    with pytest.raises(ConfigurationError, match=rule):
        Times(**times).check()

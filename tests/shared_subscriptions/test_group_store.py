"""The group store as a pure function: batches are all or nothing."""

from __future__ import annotations

import pytest

from statemachines.kernel import Map
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    Committed,
    GroupStore,
    Read,
    ReadDone,
    Refused,
    Scan,
    Scanned,
    StoredRecord,
)

STORE = GroupStore()
MINE = Claim("leader~1/1", 1)


def committed(*requests):
    state = STORE.initial()
    for at, request in enumerate(requests, 1):
        state, answers = STORE.apply(state, request, at)
        assert isinstance(answers[0], Committed)
    return state


def test_SS_215_unless_exists():
    take = Commit(1, (("claim", None),), (("claim", MINE),))
    state = committed(take)
    assert STORE.apply(state, take, 9) == (state, (Refused(1, "claim"),))


def test_SS_215_if_exists_exactly_compares_the_time_too():
    state = committed(Commit(1, (("claim", None),), (("claim", MINE),)))
    for stored, accepted in (
        (StoredRecord(MINE, 1), True),
        (StoredRecord(MINE, 0), False),
        (StoredRecord(Claim("x", 1), 1), False),
    ):
        _, answers = STORE.apply(state, Commit(2, (("claim", stored),), (("claim", MINE),)), 5)
        assert isinstance(answers[0], Committed) is accepted


def test_SS_215_a_batch_is_all_or_nothing():
    state = committed(Commit(1, (), (("a", 1),)))
    after, answers = STORE.apply(
        state, Commit(2, (("a", StoredRecord(1, 1)), ("b", StoredRecord(2, 1))), (("a", 5), ("b", 6))), 2
    )
    assert (after, answers) == (state, (Refused(2, "b"),))


def test_SS_216_a_read_comes_with_the_stores_time():
    state = committed(Commit(1, (), (("a", 1),)))
    assert STORE.apply(state, Read(2, ("a", "b")), 77)[1] == (ReadDone(2, (StoredRecord(1, 1), None), 77),)


def test_SS_216_a_scan_comes_in_pages_by_key():
    state = committed(Commit(1, (), (*((f"p:{n}", n) for n in range(5)), ("q", 9))))
    page = STORE.apply(state, Scan(2, "p:", "", 3), 0)[1][0]
    assert page == Scanned(2, tuple((f"p:{n}", StoredRecord(n, 1)) for n in range(3)), True)
    assert STORE.apply(state, Scan(3, "p:", "p:2", 3), 0)[1][0].more is False


def test_an_unknown_request_is_an_error():
    with pytest.raises(TypeError, match="group_store does not take"):
        STORE.apply(Map(), object(), 0)

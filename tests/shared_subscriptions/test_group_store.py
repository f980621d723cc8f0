"""The group store as a pure function: batches are all or nothing."""

from __future__ import annotations

import pytest

from statemachines.kernel import Map
from statemachines.shared_subscriptions.group_store import (
    Commit,
    Committed,
    GroupStore,
    Read,
    ReadDone,
    Refused,
    StoredRecord,
)

STORE = GroupStore()


def committed(*requests):
    state = STORE.initial()
    for at, request in enumerate(requests, 1):
        state, answers = STORE.apply(state, request, at)
        assert isinstance(answers[0], Committed)
    return state


def test_SS_215_a_batch_is_all_or_nothing():
    state = committed(Commit(1, (), (("a", 1),)))
    after, answers = STORE.apply(
        state, Commit(2, (("a", StoredRecord(1, 1)), ("b", StoredRecord(2, 1))), (("a", 5), ("b", 6))), 2
    )
    assert (after, answers) == (state, (Refused(2, "b"),))


def test_SS_216_a_read_comes_with_the_stores_time():
    state = committed(Commit(1, (), (("a", 1),)))
    assert STORE.apply(state, Read(2, ("a", "b")), 77)[1] == (ReadDone(2, (StoredRecord(1, 1), None), 77),)


def test_an_unknown_request_is_an_error():
    with pytest.raises(TypeError, match="group_store does not take"):
        STORE.apply(Map(), object(), 0)

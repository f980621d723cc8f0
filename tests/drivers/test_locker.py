"""The locker: what a machine has counted is handed out under the same words, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statemachines.drivers.payload_buffer import PayloadBuffer


def filled():
    locker = PayloadBuffer()
    locker.put("a", 1, 5, ["five", "six"])
    locker.put("a", 1, 7, ["seven"])
    return locker


def test_what_came_before_is_not_wanted_any_more():
    locker = filled()
    assert locker.take("a", 1, 7, 7) == ["seven"]
    assert len(locker) == 0


@pytest.mark.parametrize(
    ("key", "grant", "first", "last"), [("b", 1, 5, 5), ("a", 2, 5, 5), ("a", 1, 4, 5), ("a", 1, 5, 8)]
)
def test_what_is_not_there_is_not_handed_out(key, grant, first, last):
    locker = filled()
    with pytest.raises(KeyError, match="are not kept"):
        locker.take(key, grant, first, last)
    assert locker.take("a", 1, 5, 7) == ["five", "six", "seven"], "a refused taker takes nothing"


@given(st.lists(st.integers(1, 5), max_size=8), st.data())
def test_however_it_is_put_and_taken_everything_comes_out_once_in_order(sizes, data):
    locker, number = PayloadBuffer(), 0
    for size in sizes:
        locker.put("k", 3, number, list(range(number, number + size)))
        number += size
    out = []
    while len(out) < number:
        last = data.draw(st.integers(len(out), number - 1))
        out += locker.take("k", 3, len(out), last)
    assert out == list(range(number))

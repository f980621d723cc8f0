"""The long run, in little: numbers come in order, and one that is not the next is noticed."""

from __future__ import annotations

import pytest

from statemachines.drivers.cursor_recovery import CircularQueue
from statemachines.testing.cursor_recovery.long_run import BLOCK, CAPACITY, WIDTH, get_numbers, run_long


def test_numbers_come_in_order_through_a_queue_that_they_fill_many_times():
    messages = 40 * BLOCK + 7
    came, head = run_long(messages, lambda come: None)
    assert came == messages
    assert head > WIDTH * messages > CAPACITY


@pytest.mark.parametrize("wrong", [[0, 2], [0, 1, 1], [1], [0, 1, 2, 2 + 2**32]])
def test_a_number_that_is_not_the_next_is_noticed(name, wrong):
    with CircularQueue.create(name, capacity=256) as queue:
        queue.put_many([number.to_bytes(WIDTH, "little") for number in wrong])
        assert get_numbers(queue, 10, lambda come: None) == 0

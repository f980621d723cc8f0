"""A queue of which nearly all are empty."""

import sys
from collections import deque

import pytest

from statemachines.drivers.lazy_queue import LazyQueue


def size_of(queue):
    items = queue.items
    return sys.getsizeof(queue) + (0 if items is None else sys.getsizeof(items))


def test_the_first_that_comes_goes_first_and_an_empty_queue_takes_nearly_nothing():
    queue = LazyQueue()
    empty = size_of(queue)
    assert empty < sys.getsizeof(deque()) / 5
    for round_number in range(2):
        for number in range(3):
            queue.append(number)
        assert (list(queue), len(queue), queue.first) == ([0, 1, 2], 3, 0), round_number
        assert [queue.popleft() for _ in range(3)] == [0, 1, 2]
        assert (list(queue), len(queue), bool(queue), size_of(queue)) == ([], 0, False, empty)
    queue.append(1)
    queue.clear()
    assert size_of(queue) == empty
    for read in (lambda: queue.first, queue.popleft):
        with pytest.raises(IndexError):
            read()

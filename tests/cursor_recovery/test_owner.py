"""Slots: a process is alive as long as the operating system keeps its lock; and incarnations that come round."""

from __future__ import annotations

import os

import pytest

from statemachines.cursor_recovery.memory import FREE, INCARNATIONS, NONE, Queue, token
from statemachines.drivers.cursor_recovery import (
    CircularQueue,
    MissingQueue,
    TooManyProcesses,
)
from statemachines.drivers.cursor_recovery import owner as owner_module
from statemachines.drivers.cursor_recovery.memory_access import MappedMemory
from statemachines.drivers.cursor_recovery.owner import take_slot
from statemachines.drivers.cursor_recovery.segment import attach_segment, create_segment, path_of
from statemachines.kernel import ConfigurationError

NOW = 10**12


@pytest.fixture
def segment(name):
    create_segment(path_of(name), Queue(capacity=128))
    segment = attach_segment(path_of(name))
    yield segment
    segment.close()


@pytest.fixture
def words(segment):
    return MappedMemory(segment)


def test_the_257th_is_refused_and_takes_part_when_one_has_gone(words):
    owners = [take_slot(words) for _ in range(256)]
    with pytest.raises(TooManyProcesses, match="at most 256"):
        take_slot(words)
    owners[99].give_up()
    assert take_slot(words).slot == 99
    for owner in (*owners[:99], *owners[100:]):
        owner.give_up()


def test_who_is_attached_to_a_removed_queue_takes_no_slot_of_the_new_one(words, name):
    path_of(name).unlink()
    with pytest.raises(MissingQueue, match="removed while"):
        take_slot(words)
    create_segment(path_of(name), Queue(capacity=128))
    with pytest.raises(MissingQueue, match="removed while"):
        take_slot(words)


def test_after_4096_lives_a_cursor_of_the_namesake_is_freed_first(words):
    """What life 5 left behind would look like life 4101's, which is alive."""
    words.incarnations[0].store(5 + INCARNATIONS - 1)
    for pool in ("read", "write"):
        words.states[pool][1].store(token(0, 5, NOW))
    words.states["read"][0].store(token(0, 6, NOW))
    words.positions["read"][1].store(40)
    words.messages[1].store(3)
    words.read_head.store(60)
    owner = take_slot(words)
    assert owner.incarnation == 5 + INCARNATIONS
    assert [word.load() for word in words.states["read"]] == [token(0, 6, NOW), FREE]
    assert words.states["write"][1].load() == FREE
    assert words.lost.load() == 3
    owner.give_up()


@pytest.mark.parametrize(("position", "head"), [(NONE, 60), (60, 60)])
def test_a_namesake_that_had_taken_nothing_lost_nothing(words, position, head):
    words.incarnations[0].store(4 + INCARNATIONS)
    words.states["read"][1].store(token(0, 5, NOW))
    words.positions["read"][1].store(position)
    words.messages[1].store(3)
    words.read_head.store(head)
    take_slot(words).give_up()
    assert words.states["read"][1].load() == FREE
    assert words.lost.load() == 0


def test_without_locks_a_queue_that_relies_on_them_is_refused(name, monkeypatch):
    monkeypatch.setattr(owner_module, "has_locks", lambda: False)
    with pytest.raises(ConfigurationError, match="only threshold_only=True works here"):
        CircularQueue.create(name)


def test_without_locks_a_slot_is_a_process_number(words, monkeypatch, child):
    monkeypatch.setattr(owner_module, "has_locks", lambda: False)
    first, second = take_slot(words), take_slot(words)
    assert (first.slot, second.slot) == (0, 1)
    pid = child(lambda: take_slot(words).slot)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    first.give_up()
    assert take_slot(words).slot == 0
    assert take_slot(words).slot == 2  # its process is dead
    for _ in range(253):
        take_slot(words)
    with pytest.raises(TooManyProcesses):
        take_slot(words)


def test_without_locks_a_queue_by_age_alone_works(name, monkeypatch):
    from statemachines.drivers.cursor_recovery import attachment

    for module in (owner_module, attachment):
        monkeypatch.setattr(module, "has_locks", lambda: False)
    with CircularQueue.create(name, threshold_only=True) as queue:
        queue.put(b"a")
        assert queue.get(timeout=1) == b"a"

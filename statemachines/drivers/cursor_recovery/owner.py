"""Owner: a process that takes part holds a slot: a lock that the operating system frees the moment it dies.

Locks are open-file-description locks (Linux), one byte a slot, far behind the end of the segment's file.  They belong
to the open file, not to the process: who asks for a lock does so through another open file, and a forked child, which
shares the open file of its parent, must close it at once, or its parent would seem alive as long as the child is.

An incarnation has 12 bits in a cursor's word.  After 4 096 lives of one slot the same owner comes again, and what the
first one left in a cursor, if nobody has come across it since, would look like the new one's, and alive.  So whoever
takes a slot frees what bears its own slot and incarnation before it does anything else (`free_namesakes`): it can only
be of the dead, since the lock is ours.

Where the system has no such locks a slot is a process number in the segment, and the death of an owner cannot be told:
such a queue goes by age alone (`threshold_only`), and must be created so.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from io import FileIO
from pathlib import Path
from typing import Protocol

from statemachines.cursor_recovery.layout import holder_of
from statemachines.cursor_recovery.memory import FREE, INCARNATIONS, NONE, SLOTS, Queue, incarnation_in, slot_in
from statemachines.drivers.cursor_recovery.errors import MissingQueue, TooManyProcesses
from statemachines.drivers.cursor_recovery.memory_access import MappedMemory
from statemachines.drivers.cursor_recovery.word import Word64
from statemachines.kernel import ConfigurationError

LOCKS_AT = 1 << 40
"""Byte of the file that is the lock of slot 0: behind the end of any segment."""
_OPEN: set[FileIO] = set()
"""The open files of this process that hold a lock, or are about to: each is entered here before it is opened, so that
no fork comes in between."""
_FLOCK = struct.Struct("@hhqqi")


def has_locks() -> bool:
    """Whether this system has locks that tell of a death."""
    return hasattr(fcntl, "F_OFD_SETLK")


def check_platform(queue: Queue) -> None:
    """Raises `ConfigurationError` where the death of an owner cannot be told, and the queue relies on it."""
    if not queue.threshold_only and not has_locks():
        rule = "this system cannot tell that an owner is dead; only threshold_only=True works here (see docs/queue.md)"
        raise ConfigurationError("threshold_only", False, rule)


def is_locked(fd: int, slot: int) -> bool:
    """Whether any other open file has the lock of the slot; `fd` is one that has none."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, LOCKS_AT + slot, 1, 0)
    kind, *_ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
    return bool(kind != fcntl.F_UNLCK)


def _lock(fd: int, slot: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, LOCKS_AT + slot, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _close(file: FileIO) -> None:
    """Free the lock, if this process (and not its parent) has it; once more does no harm."""
    file.close()
    _OPEN.discard(file)


def _close_inherited() -> None:
    for file in list(_OPEN):
        _close(file)


os.register_at_fork(after_in_child=_close_inherited)


class Lock(Protocol):
    """What others see of a slot's owner; once it is closed, they take it for dead."""

    def close(self) -> None:
        """Die, for all others."""
        ...


class Number:
    """The process number in the segment, where the system has no locks."""

    def __init__(self, holder: Word64) -> None:
        self._holder = holder

    def close(self) -> None:
        """It is nobody's."""
        if self._holder.load() == os.getpid():
            self._holder.store(0)


class SlotOwner:
    """One life of a slot: `slot`, `incarnation`; `lock`: what keeps it alive for others."""

    def __init__(self, words: MappedMemory, slot: int, lock: Lock) -> None:
        self.words = words
        self.slot = slot
        self.lock = lock
        self.incarnation = words.incarnations[slot].load() + 1
        words.incarnations[slot].store(self.incarnation)
        words.plain(holder_of(slot)).store(os.getpid())
        free_namesakes(words, slot, self.incarnation)

    def give_up(self) -> None:
        """Die as an owner: what this life has left in cursors is now a dead owner's."""
        self.lock.close()
        _OPEN.discard(self.lock)


def take_slot(words: MappedMemory) -> SlotOwner:
    """The lowest slot that no living process has.

    Raises `TooManyProcesses` where there is none, `MissingQueue` where the file has another one in its place by now.
    """
    if not has_locks():
        return _take_by_number(words)
    file = FileIO.__new__(FileIO)
    try:
        _OPEN.add(file)
        _open_again(file, words)
        for slot in range(SLOTS):
            if _lock(file.fileno(), slot):
                return SlotOwner(words, slot, file)
        raise _too_many(words.segment.path)
    except BaseException:
        _close(file)
        raise


def _open_again(file: FileIO, words: MappedMemory) -> None:
    """A new open file of the very segment that is mapped."""
    segment = words.segment
    try:
        FileIO.__init__(file, segment.path, "r+")
    except FileNotFoundError:
        raise removed_error(segment.path) from None
    if not os.path.sameopenfile(segment.fd, file.fileno()):
        raise removed_error(segment.path)


def removed_error(path: Path) -> MissingQueue:
    """The queue that this process is attached to has been removed, and perhaps made anew."""
    return MissingQueue(
        path,
        "that the queue was removed while this process was attached",
        "the segment it attached to",
        "close this one and attach again",
    )


def _take_by_number(words: MappedMemory) -> SlotOwner:
    for slot in range(SLOTS):
        holder = words.plain(holder_of(slot))
        number = holder.load()
        if not (number and _lives(number)) and holder.cas(number, os.getpid()) == number:
            return SlotOwner(words, slot, Number(holder))
    raise _too_many(words.segment.path)


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _too_many(path: Path) -> TooManyProcesses:
    return TooManyProcesses(path, f"{SLOTS} attached processes", f"at most {SLOTS}", "close one of them first")


def free_namesakes(words: MappedMemory, slot: int, incarnation: int) -> None:
    """Free every cursor whose word names this owner, before it has taken one: they are of a life 4 096 lives ago.

    What a dead reader had taken is counted first, as everywhere (CR-40).
    """
    for pool, states in words.states.items():
        for cursor, state in enumerate(states):
            word = state.load()
            if word == FREE or slot_in(word) != slot or incarnation_in(word) != incarnation % INCARNATIONS:
                continue
            if pool == "read":
                _count_lost(words, cursor)
            state.cas(word, FREE)


def _count_lost(words: MappedMemory, cursor: int) -> None:
    position = words.positions["read"][cursor].load()
    messages = words.messages[cursor].load()
    if position == NONE or words.read_head.load() <= position:
        return
    lost = words.lost.load()
    while (found := words.lost.cas(lost, lost + messages)) != lost:
        lost = found

"""Bell: how who waits for messages, or for room, is woken: a flag in the segment, and a FIFO beside it.

Who is about to sleep raises the flag, looks into the queue once more, and then sleeps on the FIFO.  Who has changed
something takes the flag down, if it is up, and writes one byte: with the flag down, which is the rule while there is
work, ringing costs one load.  The words are sequentially consistent, so one of the two sees what the other did.

A byte wakes at least one sleeper.  Whoever wakes raises the flag again before it looks, for those who still sleep; and
whoever got what it waited for, and sees that others wait, writes a byte if there is more, so that two messages wake two
readers.  A process that dies before its byte is written wakes nobody: therefore nobody sleeps longer than
`LOOK_AGAIN_S`.  One that is killed asleep stays counted: that costs a needless byte now and then.
"""

from __future__ import annotations

import contextlib
import glob
import math
import os
import re
import select
import stat
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from statemachines.drivers.cursor_recovery.word import Word64

_FIFO = re.compile(r"\.[0-9a-f]{16}\.(readers|writers)")
DOWN, UP, REMOVED = 0, 1, 2
LOOK_AGAIN_S = 0.25
"""The longest sleep: what a ring that a crash has swallowed costs."""
SOON_S = 0.001
"""The first sleep where a cursor of somebody alive is in the way; then twice as long each time."""
LATER_S = 0.05
"""The longest of those: only a process that is stopped holds a cursor for so long."""


def fifo_of(path: Path, identity: int, side: str) -> Path:
    """The FIFO of the readers or writers of the segment `path` with this identity."""
    return path.with_name(f"{path.name}.{identity:016x}.{side}")


def fifos_of(path: Path, identity: int | None) -> set[Path]:
    """The FIFOs to remove with the segment: its own, and where its header is damaged, all that are there."""
    found = {
        one for one in path.parent.glob(f"{glob.escape(path.name)}.*") if _FIFO.fullmatch(one.name, len(path.name))
    }
    own = () if identity is None else (fifo_of(path, identity, side) for side in ("readers", "writers"))
    return {one for one in found if stat.S_ISFIFO(one.lstat().st_mode)} | set(own)


class Bell:
    """One side of a queue: `flag`, how many wait, and `fd` of its FIFO, which is never blocked on."""

    def __init__(self, path: Path, flag: Word64, asleep: Word64) -> None:
        self.path = path
        self.flag = flag
        self.asleep = asleep
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # For reading and writing: so there is always a reader, and neither end sees the other go.
        self._file = FileIO(path, "r+", opener=lambda path, _: os.open(path, os.O_RDWR | os.O_NONBLOCK))
        self.fd = self._file.fileno()
        self._sleepers: set[object] = set()
        self._closing = False

    def close(self) -> None:
        """Let go of the FIFO; threads that sleep on it are woken, and the last of them closes it.  Once more does no
        harm."""
        self._closing = True
        if not self._sleepers:
            self._file.close()
        elif not self._file.closed:
            self.write()

    def enter(self) -> None:
        """Before `arm`: be counted among those who wait."""
        self._count(1)

    def leave(self) -> None:
        """Wait no more."""
        with contextlib.suppress(ValueError):  # the queue was closed meanwhile
            self._count(-1)

    def _count(self, more: int) -> None:
        found = self.asleep.load()
        while (before := self.asleep.cas(found, max(found + more, 0))) != found:
            found = before

    def hand_over(self, has_more: Callable[[], bool]) -> None:
        """By who has left with what it waited for.  The flag goes down before others are looked for: who begins to wait
        after that finds it so."""
        self.flag.cas(UP, DOWN)
        if self.asleep.load():
            self.arm()
            if has_more():
                self.write()

    def arm(self) -> None:
        """Before the last look: ask to be woken.  The flag of a removed queue stays."""
        self.flag.cas(DOWN, UP)

    def ring(self) -> bool:
        """Wake somebody, if anybody has asked to be woken; False: the queue has been removed."""
        flag = self.flag.cas(UP, DOWN)
        if flag != DOWN:
            self.write()
        return flag != REMOVED

    def write(self) -> None:
        """One byte; a FIFO that is full wakes whoever sleeps anyway."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.fd, b"\0")

    def drain(self) -> None:
        """After waking: take the byte, and leave none of earlier rings."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)

    def sleep(self, seconds: float) -> None:
        """Until the bell rings, or so long."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        try:
            self._sleepers.add(poll)
            if poll.poll(math.ceil(seconds * 1000)) and not self._closing:
                self.drain()
        finally:
            self._sleepers.discard(poll)
            if self._closing and not self._sleepers:
                self._file.close()


class Patience:
    """How long the next sleep of one waiting call may be: short, and ever longer, while a living one is in the way."""

    def __init__(self) -> None:
        self._next_s = SOON_S

    def next_s(self, *, in_the_way: bool, aged_in_s: float | None) -> float:
        """Seconds; a cursor that is in the way may be judged anew when it is `aged_in_s` from now (None: it is)."""
        if not in_the_way:
            self._next_s = SOON_S
            return LOOK_AGAIN_S
        sleep_s, self._next_s = self._next_s, min(2 * self._next_s, LATER_S)
        return sleep_s if aged_in_s is None else min(sleep_s, aged_in_s)

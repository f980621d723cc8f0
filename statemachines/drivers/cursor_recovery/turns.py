"""Turns: the threads of a process take turns at a queue, and no signal can make a turn last for ever.

An exception may break an operation off between any two instructions: also behind the taking of a lock, before the `try`
that would free it.  So what is taken is no lock but an entry in a dict: the frame of the operation.  `dict.setdefault`
takes the turn and says whose it is, in one indivisible call.  The frame of an operation that has ended can be
cleared, and that of one that runs cannot: so the next operation sees for certain that the one before was broken off,
whether or not anything of its cleaning up was done.  It then does that first, in a new dict, which all find from the
old one.

    cell = turns.cell
    if cell.setdefault(HELD, frame) is not frame:
        cell = turns.wait(frame, clean_up)
    ...
    del cell[HELD]
    if turns.is_awaited:
        turns.let_others()
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeAlias

from statemachines.drivers.cursor_recovery.errors import QueueError

Cell: TypeAlias = dict[int, Any]
HELD: Final = 0
"""In a cell: the frame of the operation whose turn it is; it stays there for ever if that was broken off."""
NEXT: Final = 1
"""In a cell whose operation was broken off: the cell that is used in its place."""
NAP_S: Final = 0.00005


class Turns:
    """`cell`: where to begin; `is_awaited`: some thread has found the turn taken."""

    __slots__ = ("cell", "is_awaited")

    def __init__(self) -> None:
        self.cell: Cell = {}
        self.is_awaited = False

    def wait(self, frame: FrameType, clean_up: Callable[[], object]) -> Cell:
        """The cell in which it is the turn of the operation `frame`; `clean_up()` is called before that, in its turn,
        where the one before was broken off.  `QueueError`: it is the turn of an operation that this very one is within,
        in a signal handler."""
        cell = self.cell
        while (holder := cell.setdefault(HELD, frame)) is not frame:
            if _is_within(frame, holder):
                raise QueueError("an operation within an operation: a signal handler must not use the queue")
            if not _is_over(holder):
                self.is_awaited = True
                time.sleep(NAP_S)
                continue
            mine: Cell = {HELD: frame}
            self.cell = cell = cell.setdefault(NEXT, mine)
            if cell is mine:
                clean_up()
        return cell

    def let_others(self) -> None:
        """By whoever has had a turn: the interpreter would hardly ever change threads just between two of them."""
        self.is_awaited = False
        time.sleep(2 * NAP_S)


def _is_within(frame: FrameType, holder: FrameType) -> bool:
    caller = frame.f_back
    while caller is not None and caller is not holder:
        caller = caller.f_back
    return caller is not None


def _is_over(holder: FrameType) -> bool:
    """It will never go on: only such a frame can be cleared."""
    try:
        holder.clear()
    except RuntimeError:
        return False
    return True

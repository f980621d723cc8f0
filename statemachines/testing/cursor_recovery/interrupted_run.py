"""Interrupted run: an operation at a queue is broken off before chosen instructions of the interpreter.

What must hold, whatever was cut short: the next call of the process, in another thread, is not kept waiting; nor is any
other process, although ours lives on; and what was acknowledged is delivered once.

    count = play("put")          # how many instructions it has
    play("put", 17, 23)          # broken off before the 17th, and what then cleans up before the 23rd
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from statemachines.drivers.cursor_recovery import CircularQueue, GetTimeout
from statemachines.drivers.cursor_recovery.segment import path_of

OURS = os.path.join("drivers", "cursor_recovery", "")
KINDS = ("put", "get", "get_many", "close")
NUMBERS = itertools.count(1)


class PromiseBroken(AssertionError):
    """Something that must hold does not."""


def interrupt(call: Callable[[], object], places: Iterable[int]) -> int:
    """Raise KeyboardInterrupt before the instructions of these numbers; how many instructions were begun."""
    count, left = 0, list(places)

    def at(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
            if left and count >= left[0]:
                left.pop(0)
                raise KeyboardInterrupt
        return at

    def enter(frame: Any, event: str, arg: Any) -> Any:
        if OURS not in frame.f_code.co_filename:
            return None
        frame.f_trace = at  # Python 3.13 looks at it before it tells of instructions
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return at

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 tells of none unless some frame wants them before it is traced
    sys.settrace(enter)
    try:
        call()
    except KeyboardInterrupt:
        return count
    finally:
        sys.settrace(before)
    return count


class InterruptedQueue:
    """A queue with two ends; the call of one of them is broken off."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = f"cut-{os.getpid()}-{next(NUMBERS)}"
        self.ours: CircularQueue[bytes] = CircularQueue.create(self.name, threshold=0.0001, capacity=256)
        self.theirs: CircularQueue[bytes] = CircularQueue.attach(self.name)
        self.ours.put(b"0")

    def call(self) -> None:
        """What is broken off."""
        match self.kind:
            case "put":
                self.ours.put(b"cut")
            case "get":
                self.ours.get(timeout=0)
            case "get_many":
                self.ours.get_many(timeout=0)
            case _:
                self.ours.close()

    def check(self) -> None:
        """Everybody goes on; each message comes once, in order, and none that was acknowledged is missing but what the
        operation that was broken off may have taken."""
        if self.kind != "close":
            thread = threading.Thread(target=self.ours.put, args=(b"1", 5), daemon=True)
            thread.start()
            thread.join(10)
            self._need(not thread.is_alive(), "the next call never comes back")
        self.theirs.put(b"2", timeout=5)
        got: list[bytes] = []
        while not got or got[-1] != b"2":
            got.append(self.theirs.get(timeout=5))
        self._need(got == [one for one in (b"0", b"cut", b"1", b"2") if one in got], f"another order: {got}")
        owed = [b"2"] if self.kind == "close" else [b"1", b"2"]
        owed = owed if self.kind in ("get", "get_many") else [b"0", *owed]
        self._need([one for one in got if one in owed] == owed, f"acknowledged: {owed}, came: {got}")
        try:
            again = self.theirs.get(timeout=0)
        except GetTimeout:
            return
        self._need(False, f"{again!r} comes again")

    def end(self) -> None:
        """Closing it gives all back, whatever a first attempt left."""
        self.ours.close()
        self._need(len(self.theirs.stats().processes) == 1, "its slot is still taken")

    def _need(self, holds: bool, what: str) -> None:
        if not holds:
            raise PromiseBroken(what)


def play(kind: str, *places: int) -> int:
    """One call, broken off there; how many instructions were begun.  Raises `NotKept`, which names the places."""
    case = InterruptedQueue(kind)
    try:
        count = interrupt(case.call, places)
        case.check()
        case.end()
    except (PromiseBroken, TimeoutError) as error:
        raise PromiseBroken(f"play({kind!r}, {', '.join(map(str, places))}): {error}") from error
    finally:
        case.theirs.close()
        if path_of(case.name).exists():
            CircularQueue.unlink(case.name)
    return count

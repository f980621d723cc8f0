"""Interrupts: SIGTERM ends a command as Ctrl-C does, with all the processes that it has begun."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

THREADS_S: Final = 1.0
"""So long a process that was told to end waits for its threads."""


REPEAT_S: Final = 0.05
"""So long after it came too soon an interrupt is sent again."""


INTERRUPTED: Final = 130
"""The exit code of a command that Ctrl-C or SIGTERM has ended."""


def end_early() -> None:
    """Until `begin_work`, Ctrl-C ends this process with one line and the exit code 130, wherever it is: it imports what
    it needs, and has begun nothing.  Where Ctrl-C is ignored, it stays so."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
        signal.signal(signal.SIGINT, _leave)


def begin_work(*, compiles: bool = False) -> None:
    """From now on there is something to clean up: Ctrl-C raises `KeyboardInterrupt`, as everywhere in Python.

    Args:
        compiles: numba may compile meanwhile.  Ctrl-C waits until LLVM has made what it makes: numba fails where that
            is not whole.
    """
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, _interrupt_when_compiled if compiles else signal.default_int_handler)
        sys.unraisablehook = repeat_interrupt


def repeat_interrupt(lost: sys.UnraisableHookArgs) -> None:
    """A `KeyboardInterrupt` that nobody can catch (raised in a callback of a C library, or in a `__del__`) is sent
    again a moment later; Python would print a traceback and go on.  Others are printed."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _send_again()
    else:
        sys.__unraisablehook__(lost)


@contextmanager
def not_interrupted() -> Iterator[None]:
    """Processes that are begun meanwhile never hear of Ctrl-C, which a terminal sends to all of them: whoever began
    them ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_on_sigterm() -> None:
    """From now on SIGTERM raises `KeyboardInterrupt` in this process, so that whatever cleans up does; processes that
    it forks end at once, as they would have.  Roles of `gapless node` have a way of their own (`drivers.signals`)."""
    signal.signal(signal.SIGTERM, _interrupt)
    os.register_at_fork(before=_hold, after_in_child=_end_at_once, after_in_parent=_release)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """SIGTERM and Ctrl-C that come meanwhile act at the end: between the moment a process is begun and the one it is
    known to who ends it, nobody would.  Those without a handler of Python's act as ever; so do those of other threads,
    where no handler runs."""
    came: list[int] = []
    before = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            if callable(signal.getsignal(number)) and threading.current_thread() is threading.main_thread():
                before[number] = signal.signal(number, lambda number, frame: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for one in came[:1]:
        signal.raise_signal(one)


def leave_threads(code: int) -> None:
    """Before the process ends on a signal: where a thread stands in a call that may not come back (a database that is
    locked, a server that says nothing) Python would wait for it; so the process ends here, with this exit code."""
    end = time.monotonic() + THREADS_S
    others = (one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon)
    waited_for = [one for one in others if one.ident is not None]  # one that never began cannot be joined
    for one in waited_for:
        one.join(max(0.0, end - time.monotonic()))
    if any(one.is_alive() for one in waited_for):
        end_here(code)


def end_here(code: int) -> NoReturn:
    """End as by SIGKILL, but for what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(RuntimeError, OSError, ValueError):  # this may be a signal in the middle of a print
            stream.flush()
    os._exit(code)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"interrupted: nothing had begun yet\n")
    end_here(INTERRUPTED)


def _interrupt_when_compiled(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("llvmlite."):
            _send_again()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _send_again() -> None:
    main = threading.main_thread().ident
    with suppress(RuntimeError):  # Python ends already, and begins no thread any more
        threading.Timer(REPEAT_S, signal.pthread_kill, (main, signal.SIGINT)).start()


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # who is asked twice does not wait
    print("ends on SIGTERM", file=sys.stderr)
    if signal.getsignal(signal.SIGINT) is _leave:
        end_here(INTERRUPTED)  # nothing has begun yet
    raise KeyboardInterrupt


def _hold() -> None:
    """One that comes while a child is made waits: the child would call our handler, in the middle of its making."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _end_at_once() -> None:
    if signal.getsignal(signal.SIGTERM) is _interrupt:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release()

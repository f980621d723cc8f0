"""Callbacks on zenoh's threads, at what a call costs and no more.

Python makes a state for each foreign thread that calls it, and throws it away when the call returns: with a sample a
call that is four fifths of all that a sample costs.  So each of zenoh's threads keeps its state from its first call on;
there are a few of them in a process, and they live as long as it does.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from zenoh.handlers import Callback


class _Kept(threading.local):
    """Of each thread: whether its state is kept.  The state that is thrown away takes this with it."""

    here = False


_kept = _Kept()


def direct(function: Callable[[Any], object], over: Callable[[], object] | None = None) -> Callback[Any]:
    """A handler for zenoh's declarations: `function` is called where a thing arrives, before the next is looked at;
    `over` when nothing more comes."""

    def call(given: Any) -> None:
        if not _kept.here:
            _keep()
        function(given)

    return Callback(call, over, indirect=False)


def _keep() -> None:
    """One `Ensure` more than there are releases: the last of them does not throw the state away."""
    _kept.here = True
    ctypes.pythonapi.PyGILState_Ensure()

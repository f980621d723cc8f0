"""Sandbox: while a callback runs it reaches no file, socket, process or thread, and asks neither clock nor chance.

Callbacks run thousands of times, so nothing outside may notice; and a step that reads a clock or draws a number is not
the same step twice.  What is blocked raises `Blocked` and is remembered, in case a callback catches it.  This keeps
accidents out, and not malice: C code that raises no audit event is not seen.
"""

from __future__ import annotations

import _thread
import datetime
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final

from statemachines.kernel import ConfigurationError

KINDS: Final = ("files", "sockets", "processes", "threads", "time", "random")
"""What `--allow` may name."""

EVENTS: Final = {
    "builtins.input": "files",
    "open": "files",
    "os.chdir": "files",
    "os.link": "files",
    "os.listdir": "files",
    "os.mkdir": "files",
    "os.remove": "files",
    "os.rename": "files",
    "os.rmdir": "files",
    "os.scandir": "files",
    "os.symlink": "files",
    "os.truncate": "files",
    "os.utime": "files",
    "shutil.copyfile": "files",
    "shutil.rmtree": "files",
    "sqlite3.connect": "files",
    "tempfile.mkstemp": "files",
    "socket.__new__": "sockets",
    "socket.bind": "sockets",
    "socket.connect": "sockets",
    "socket.getaddrinfo": "sockets",
    "socket.gethostbyname": "sockets",
    "socket.sendto": "sockets",
    "socket.sendmsg": "sockets",
    "os.exec": "processes",
    "os.fork": "processes",
    "os.forkpty": "processes",
    "os.kill": "processes",
    "os.posix_spawn": "processes",
    "os.spawn": "processes",
    "os.system": "processes",
    "subprocess.Popen": "processes",
}
"""Audit events of Python -> kind."""

CLOCKS: Final = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
    *("process_time", "process_time_ns", "sleep", "localtime", "gmtime", "strftime", "ctime"),
)
THREADS: Final = ("_start_new_thread", "_start_joinable_thread", "start_new_thread", "start_joinable_thread")
"""What begins a thread: the joinable ones since Python 3.13, where `threading` has them alone."""

EXEMPT: Final = frozenset({"logging", "asyncio", "warnings", "threading", "importlib", "linecache", "traceback"})
"""Packages that may read a clock or a file for themselves: a log line is stamped, a module is imported."""


class BlockedCall(BaseException):
    """A callback reached for what is blocked: `kind`, and `what` it called.  No `except Exception` catches it."""

    def __init__(self, kind: str, what: str, where: str) -> None:
        self.kind = kind
        self.what = what
        self.where = where
        super().__init__(f"{what} ({kind}) is blocked")


class Sandbox:
    """Blocks everything but the kinds in `allow`, for what runs inside `with sandbox.enclose():` in one thread."""

    def __init__(self, allow: tuple[str, ...] = ()) -> None:
        for kind in allow:
            if kind not in KINDS:
                raise ConfigurationError("--allow", kind, f"must be one of: {', '.join(KINDS)}")
        self.blocked_kinds = frozenset(KINDS) - frozenset(allow)
        self.reached: list[BlockedCall] = []
        """What was reached for since the last `enclose()` began."""
        self._owner = 0
        self._undo: list[Callable[[], None]] = []

    @contextmanager
    def install(self, functions: Callable[[], list[FunctionType]]) -> Iterator[None]:
        """Clocks and chance can be blocked meanwhile, in their modules and where `functions` have imported them."""
        global _CURRENT
        _hook_once()
        before, _CURRENT = _CURRENT, self
        try:
            replaced = self._patch_modules()
            self._patch_globals(functions(), replaced)
            yield
        finally:
            for undo in reversed(self._undo):
                undo()
            self._undo.clear()
            _CURRENT = before

    @contextmanager
    def enclose(self) -> Iterator[None]:
        """What runs here is blocked; it may be entered again inside."""
        before, self._owner = self._owner, get_ident()
        if not before:
            self.reached.clear()
        try:
            yield
        finally:
            self._owner = before

    def is_entered(self) -> bool:
        """Whether this thread is inside."""
        return self._owner == get_ident()

    def is_blocked(self, kind: str) -> bool:
        """Whether this kind is blocked for the thread that asks."""
        return kind in self.blocked_kinds and self._owner == get_ident()

    def refuse(self, kind: str, what: str, frame: FrameType | None) -> None:
        """Raise `Blocked`, and remember it."""
        blocked = BlockedCall(kind, what, _function_of(frame))
        self.reached.append(blocked)
        raise blocked

    def _patch(self, owner: Any, name: str, made: Any) -> None:
        self._undo.append(partial(setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, made)

    def _patch_modules(self) -> dict[int, Any]:
        """Replace clocks and chance in their modules; id of the original -> what stands for it."""
        replaced: dict[int, Any] = {}
        chance = [name for name in vars(random) if getattr(vars(random)[name], "__self__", None) is _SHARED_RANDOM]
        wanted: list[tuple[ModuleType | type, str, str]] = [(time, name, "time") for name in CLOCKS]
        wanted += [(random, name, "random") for name in chance]
        wanted += [(threading.Thread, "start", "threads")]  # before it counts as a thread that is about to run
        wanted += [(module, name, "threads") for module in (threading, _thread) for name in THREADS]
        wanted += [(os, "urandom", "random"), (uuid, "uuid1", "random"), (uuid, "uuid4", "random")]
        for module, name, kind in wanted:
            if kind in self.blocked_kinds and hasattr(module, name):
                original = getattr(module, name)
                replaced[id(original)] = made = self._guard(original, kind, f"{module.__name__}.{name}")
                self._patch(module, name, made)
        if "time" in self.blocked_kinds:
            for kind_of_time in (datetime.datetime, datetime.date):
                made = _guarded_date(self, kind_of_time)
                replaced[id(kind_of_time)] = made
                self._patch(datetime, kind_of_time.__name__, made)
        return replaced

    def _patch_globals(self, functions: list[FunctionType], replaced: dict[int, Any]) -> None:
        for names in {id(one.__globals__): one.__globals__ for one in functions}.values():
            for name, value in list(names.items()):
                if id(value) in replaced:
                    self._undo.append(partial(names.__setitem__, name, value))
                    names[name] = replaced[id(value)]

    def _guard(self, original: Callable[..., Any], kind: str, what: str) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.is_blocked(kind):
                frame = sys._getframe(1)
                if kind == "threads" or not _is_exempt(frame):
                    self.refuse(kind, what, frame)
            return original(*args, **kwargs)

        guarded.__name__ = getattr(original, "__name__", what)
        return guarded


def _guarded_date(sandbox: Sandbox, original: Any) -> Any:
    """`datetime.datetime` or `datetime.date` without a clock; what it makes are objects of the original."""

    class Meta(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, original)

        def __getattr__(cls, name: str) -> Any:
            return getattr(original, name)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs)

    def ask(name: str) -> Any:
        return staticmethod(sandbox._guard(getattr(original, name), "time", f"{original.__name__}.{name}"))

    clocks = {name: ask(name) for name in ("now", "utcnow", "today") if hasattr(original, name)}
    return Meta(original.__name__, (), clocks)


_SHARED_RANDOM: Final = getattr(random.random, "__self__", None)
_CURRENT: Sandbox | None = None
_IS_HOOKED = False


def _hook_once() -> None:
    """An audit hook cannot be taken away: there is one for all sandboxes, which does nothing while none is closed."""
    global _IS_HOOKED
    if not _IS_HOOKED:
        _IS_HOOKED = True
        sys.addaudithook(_hear_audit)


def _hear_audit(event: str, arguments: tuple[Any, ...]) -> None:
    kind = EVENTS.get(event)
    if kind is None or _CURRENT is None or not _CURRENT.is_blocked(kind):
        return
    frame: FrameType | None = sys._getframe(1)
    if kind == "files" and _is_exempt(frame):
        return
    what = f"{event}({arguments[0]!r})" if kind in ("files", "processes") and arguments else event
    _CURRENT.refuse(kind, what, frame)


def _is_exempt(frame: FrameType | None) -> bool:
    """Whether a package that may do so asks, directly."""
    name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in EXEMPT or name.startswith("importlib")


def _function_of(frame: FrameType | None) -> str:
    """The function of the user's that is nearest."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in sys.stdlib_module_names:
            return frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name
        frame = frame.f_back
    return "a callback"

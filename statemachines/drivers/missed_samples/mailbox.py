"""Mailbox: from zenoh's threads into an event loop, bounded.

zenoh calls back on threads of its own.  What is for the loop they put into the mailbox, and the loop takes it out.  A
loop that is blocked, or a reader that does not read, lets the mailbox fill up.  Then what comes is refused, counted and
said in the log.  A sample that is refused is lost like any other, and recovered like any other.

Outlet: what waits for the application, bounded: who fills it waits for room.

LoopWaker: one wake-up of a loop for all that other threads want of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.complaint_log import RateLimitedLog

logger = logging.getLogger("gapless")

TURN: Final = 512
"""So many things are taken out in one turn of the loop, at most."""

STREAM: Final = 8
"""After so many wake-ups on end, with no longer pause than `PAUSE_S`, the loop waits for more to come: a loop that is
woken for each thing hands the interpreter's lock to and fro for it, which takes several times as long as the thing."""

PAUSE_S: Final = 0.0005
GATHER_S: Final = 0.002
"""So long."""


class LoopWaker:
    """Calls functions in the loop, each once however often it was wanted since."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._wanted: dict[Callable[[], object], None] = {}
        self._on_end = 0
        self._idle_since = 0.0

    def call(self, act: Callable[[], object]) -> bool:
        """From any thread; False: the loop is closed."""
        with self._lock:
            wakes = not self._wanted
            self._wanted[act] = None
        try:
            if wakes:
                self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return False
        return True

    def _wake(self) -> None:
        self._on_end = self._on_end + 1 if time.monotonic() - self._idle_since < PAUSE_S else 0
        if self._on_end > STREAM:
            self._loop.call_later(GATHER_S, self._call_all)
        else:
            self._call_all()

    def _call_all(self) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted, {}
        for act in wanted:
            try:
                act()
            except Exception:
                logger.exception("what comes could not be taken")
        self._idle_since = time.monotonic()


_wakers: WeakValueDictionary[asyncio.AbstractEventLoop, LoopWaker] = WeakValueDictionary()


def find_waker() -> LoopWaker:
    """That of the loop that runs here."""
    loop = asyncio.get_running_loop()
    return _wakers.setdefault(loop, LoopWaker(loop))


Item = tuple[Callable[[Any], object], Any, int]
"""(what is to be done with it in the loop, what came, how many bytes it counts for)"""


class Mailbox:
    """`take(items)` is called in the loop; `name` stands in the log; at most `count_max` things of `bytes_max` bytes
    wait.  `refused` counts what found no room."""

    def __init__(self, name: str, take: Callable[[list[Item]], None], *, count_max: int, bytes_max: int) -> None:
        self.refused = 0
        self._name = name
        self._take = take
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._taken = 0
        self._lock = threading.Lock()
        self._refusals = RateLimitedLog(steady_ns)
        self._started = False
        self._closed = False
        self._waker = find_waker()

    def start(self, outlet: Outlet[Any] | None = None) -> None:
        """Take out what comes, while there is room in the outlet that it goes to."""
        self._outlet = outlet
        self._started = True
        self._waker.call(self._turn)

    def came(self) -> int:
        """How many things have come so far."""
        return self._taken + len(self._items)

    def take_count(self) -> int:
        """How many of them were taken out."""
        return self._taken

    def put(self, act: Callable[[Any], object], given: Any, size: int = 0, *, always: bool = False) -> bool:
        """From any thread; False: there is no room, or nobody takes anything any more.  `always`: of which there are
        few anyway, and something else would wait for it in vain."""
        self._lock.acquire()  # `with` takes twice as long, and every sample comes by here
        try:
            if self._closed:
                return False
            total = self._bytes + size
            full = not always and (total > self._bytes_max or len(self._items) >= self._count_max)
            if full:
                self.refused += 1
            else:
                self._items.append((act, given, size))
                self._bytes = total
        finally:
            self._lock.release()
        if full:
            if self._refusals.count_event():
                text = "%s: no room for what comes, refused %d so far; the loop is too slow"
                logger.warning(text, self._name, self.refused)
            return False
        return self._waker.call(self._turn)

    def _turn(self) -> None:
        if self._started and self._items and (self._outlet is None or self._outlet.has_room(self._turn)):
            self._take(self._some())
            if self._items:
                self._waker.call(self._turn)

    def close(self) -> list[Item]:
        """Nothing is taken in any more; what was still waiting."""
        with self._lock:
            self._closed = True
            left, self._items = list(self._items), deque()
            return left

    def _some(self) -> list[Item]:
        with self._lock:
            count = min(TURN, len(self._items))
            next_item = self._items.popleft
            found = [next_item() for _ in range(count)]
            self._taken += count
            self._bytes -= sum([size for _, _, size in found])
        return found


T = TypeVar("T")


class Outlet(Generic[T]):
    """Without a `handler` what is in it is taken out by `get` or `try_recv`.  Otherwise the handler gets one thing at a
    time, in the loop of `caller` (None: of this one); with `direct` in the thread that puts something in, unless that
    is the loop.  What it raises is noted by `failed()`.

    It has room for `room_max` things.  One turn may still put more: what it delivers it delivers whole.  With `newest`
    it has always room, and the oldest goes.  `items` are put in under `lock` where their order matters.
    """

    def __init__(
        self,
        room_max: int,
        handler: Callable[[T], object] | None = None,
        *,
        caller: LoopWaker | None = None,
        direct: bool = False,
        newest: bool = False,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.items: deque[T] = deque(maxlen=room_max if newest else None)
        self.lock = threading.Lock()
        self.error: BaseException | None = None
        self._room_max = math.inf if newest else room_max
        self._handler = handler
        self._direct = direct
        self._failed = failed
        self._handling = threading.Lock()
        self._waker = find_waker()
        self._caller = caller or self._waker
        self._filled = asyncio.Event()
        self._then: Callable[[], None] | None = None
        self._ended = False

    @property
    def is_full(self) -> bool:
        """Whether `room_max` things wait."""
        return len(self.items) >= self._room_max

    def put(self, item: T) -> None:
        """At the end, from any thread."""
        self.items.append(item)
        self.wake()

    def wake(self, here: bool = False) -> None:
        """Something was put in; `here`: by the loop."""
        if self._handler is None:
            if not self._filled.is_set():
                self._waker.call(self._filled.set)
        elif self._caller is self._waker if here else self._direct:
            self._handle()
        else:
            self._caller.call(self._handle)

    def _handle(self) -> None:
        """Whoever comes first; who comes meanwhile leaves it to that one."""
        assert self._handler is not None
        left = TURN
        while left and self.items and self._handling.acquire(blocking=False):
            try:
                while left and self.items:
                    left -= not self._direct
                    self._handler(self._take())
            except Exception:
                self._failed()
            finally:
                self._handling.release()
        if not left:
            self._caller.call(self._handle)

    def _take(self) -> T:
        item = self.items.popleft()
        if (then := self._then) is not None and not self.is_full:
            self._then = None
            self._waker.call(then)
        return item

    async def filled(self) -> None:
        """Wait until there is something; raises `StopAsyncIteration` at the end, or what it ended with."""
        while not self.items:
            self._filled.clear()
            if self._ended:
                raise self.error or StopAsyncIteration
            if not self.items:
                await self._filled.wait()

    async def get(self) -> T:
        """The next; raises as `filled`."""
        await self.filled()
        return self._take()

    def try_recv(self) -> T | None:
        """The next, in any thread; None: there is none now."""
        try:
            return self._take()
        except IndexError:
            return None

    def has_room(self, then: Callable[[], None]) -> bool:
        """Whether there is; otherwise `then` is called in the loop when there is again."""
        self._then = then
        if self.is_full and not self._ended:
            return False
        self._then = None
        return True

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes, and nobody waits for room any longer."""
        self._ended = True
        self.error = self.error or error
        self._filled.set()
        if self._then is not None:
            self._waker.call(self._then)

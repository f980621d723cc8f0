"""Authority: decides what a client may do: by a hook of the application, by a file of permissions, or by certificates.

    def authorize(identity, action, client_id, topic):        # or async def
        return action != "publish" or topic.startswith(f"devices/{client_id}/")

    authority = Authority(authorize)
    authority.check(identity, "publish", "tablet-1", "devices/tablet-1/state", take)

A hook has a time limit.  It denies by anything but True: by an error, and by silence.  A function that is not async
runs in a thread, so that one which stands still does not stop the node.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from typing import Any, Final

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.complaint_log import RateLimitedLog
from statemachines.drivers.identity import Identity
from statemachines.drivers.permission_file import Action, PermissionFile
from statemachines.kernel import ConfigurationError
from statemachines.wire import quote_for_log

logger = logging.getLogger("gapless")

AUTHORIZE_S: Final = 2.0
"""A hook that has not answered for so long denies."""

LINES_MAX: Final = 5
"""Refusals that are logged within a minute."""

THREADS_MAX: Final = 4
"""Threads in which hooks run that are not async; where all of them stand still, others wait, and are denied."""

IDLE_S: Final = 10.0
"""A thread that has had nothing to do for so long ends."""

Authorize = Callable[[Identity, Action, str, str], bool | Awaitable[bool]]
"""Whether `identity`, connected as a client id, may do this; topic: or a filter, or "" to connect."""


class Authority:
    """`source`: a hook, a file of permissions, or None: everything is allowed, and a client with a certificate connects
    under a name of it.  With a file it may do that as well.

    `limit_s`: how long a hook may take; `who`: the node, for the log.
    """

    def __init__(
        self,
        source: Authorize | PermissionFile | None = None,
        *,
        limit_s: float = AUTHORIZE_S,
        who: str = "",
        clock: Clock = steady_ns,
    ) -> None:
        if source is not None and not isinstance(source, PermissionFile) and not callable(source):
            raise ConfigurationError("authorize", source, "must be a function, or a PermissionFile")
        if not limit_s > 0:
            raise ConfigurationError("authorize_s", limit_s, "must be more than 0 seconds")
        self.refused = 0
        """How often something was refused."""
        self._source = source
        self._limit_s = limit_s
        self._who = who
        self._log = RateLimitedLog(clock, burst=LINES_MAX)
        self._failures = RateLimitedLog(clock)
        self._threads = HookThreads()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.on_reload: Callable[[], None] = lambda: None
        """Called when other permissions are in force."""

    @property
    def is_open(self) -> bool:
        """Whether anybody may subscribe and publish anything."""
        return self._source is None

    def check(
        self, identity: Identity, action: Action, client_id: str, topic: str, take: Callable[[bool], None]
    ) -> None:
        """`take` hears whether it is allowed: at once, unless a hook is asked; it is called once, and never for a hook
        that answers behind its limit."""
        source = self._source
        if source is None or isinstance(source, PermissionFile):
            is_allowed = self._is_certified(identity, action, client_id)
            if isinstance(source, PermissionFile):
                is_named = is_allowed and action == "connect" and identity.is_certified
                is_allowed = is_named or source.is_allowed(identity, action, client_id, topic)
            self._take(is_allowed, (identity, action, client_id, topic), take)
            return
        task = asyncio.ensure_future(self._ask(source, (identity, action, client_id, topic), take))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def still_allows(self, identity: Identity, action: Action, client_id: str, topic: str) -> bool:
        """Whether a file allows it now; a hook is not asked about what it has allowed."""
        source = self._source
        return not isinstance(source, PermissionFile) or source.is_allowed(identity, action, client_id, topic)

    def owns_client(self, identity: Identity, client_id: str) -> bool:
        """Whether the client id may be its own; False: it connects as anybody may, by a line such as `* connect *`."""
        source = self._source
        return (
            identity.is_certified or not isinstance(source, PermissionFile) or source.owns_client(identity, client_id)
        )

    def reload(self) -> bool:
        """Read the file again, and ask again what was allowed; of a hook, ask again.  False: the file is bad, and
        nothing changes."""
        if isinstance(self._source, PermissionFile) and not self._source.reload():
            return False
        self.on_reload()
        return True

    async def close(self) -> None:
        """No answer is waited for any more."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @staticmethod
    def _is_certified(identity: Identity, action: Action, client_id: str) -> bool:
        return action != "connect" or not identity.is_certified or client_id in identity.names

    async def _ask(
        self, hook: Authorize, asked: tuple[Identity, Action, str, str], take: Callable[[bool], None]
    ) -> None:
        is_allowed = False
        try:
            async with asyncio.timeout(self._limit_s):
                is_allowed = await self._call(hook, asked) is True
        except (Exception, asyncio.CancelledError) as error:
            if self._is_closed:
                return
            if self._failures.count_event():
                why = f"no answer within {self._limit_s:g} s" if isinstance(error, TimeoutError) else repr(error)
                what = "%s: the authorisation hook failed, which denies: %s (%d times so far)"
                logger.error(what, self._who, quote_for_log(why), self._failures.count)
        self._take(is_allowed, asked, take)

    async def _call(self, hook: Authorize, asked: tuple[Identity, Action, str, str]) -> Any:
        if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004
            return await hook(*asked)  # type: ignore[misc]
        answer = await self._threads.run(lambda: hook(*asked))
        return await answer if inspect.isawaitable(answer) else answer

    def _take(self, is_allowed: bool, asked: tuple[Identity, Action, str, str], take: Callable[[bool], None]) -> None:
        if not is_allowed:
            self._refuse(*asked)
        take(is_allowed)

    def _refuse(self, identity: Identity, action: Action, client_id: str, topic: str) -> None:
        self.refused += 1
        if not self._log.count_event():
            return
        what = "%s: %s may not %s%s as client %s (%d refusals so far; at most %d lines a minute say so)"
        which = f" {quote_for_log(topic)}" if topic else ""
        name, client = quote_for_log(identity.describe()), quote_for_log(client_id or "-")
        logger.warning(what, self._who, name, action, which, client, self.refused, LINES_MAX)


Work = tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]
"""What to call, what hears of its result, and in which loop."""


class HookThreads:
    """Runs functions in a few threads, which end by themselves and which nothing waits for."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Work] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    async def run(self, call: Callable[[], Any]) -> Any:
        """What it returns."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        self._work.put((call, done, loop))
        with self._lock:
            is_wanted = self._work.qsize() > self._idle and self._threads < THREADS_MAX
            self._threads += is_wanted
        if is_wanted:
            threading.Thread(target=self._serve, name="authorize", daemon=True).start()
        return await done

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                call, done, loop = self._work.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    self._idle -= 1
                    if not self._work.empty():
                        continue  # it has come at this moment, for a thread that waits
                    self._threads -= 1
                    return
            with self._lock:
                self._idle -= 1
            if not done.cancelled():
                _carry_out(call, done, loop)


def _carry_out(call: Callable[[], Any], done: asyncio.Future[Any], loop: asyncio.AbstractEventLoop) -> None:
    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            set_it(value)

    try:
        answer, set_it = call(), done.set_result
    except BaseException as error:
        answer, set_it = RuntimeError(repr(error)), done.set_exception
    try:
        loop.call_soon_threadsafe(settle, set_it, answer)
    except RuntimeError:  # the loop is closed
        return

"""Publishers and subscribers over zenoh that miss no sample, used as those of `zenoh.ext` are (docs/gapless_zenoh.md).

    with zenoh.open(zenoh.Config()) as session:
        with gapless.zenoh.declare_subscriber(session, "room/*") as subscriber:
            for sample in subscriber:
                print(sample.key_expr, sample.payload.to_string())

A program has no event loop for it: what is declared shares one in a thread of its own.  Handlers are called in a second
thread, so that one that takes its time delays other handlers alone, and may ask, declare and undeclare.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

import msgspec
import zenoh
from zenoh.handlers import Callback, DefaultHandler

from statemachines.drivers.missed_samples import (
    Beats,
    History,
    LoopThread,
    Missed,
    Recovery,
    declare_reliable_publisher,
    declare_reliable_subscriber,
)
from statemachines.drivers.missed_samples import ReceivedSample as Sample
from statemachines.drivers.missed_samples.mailbox import Outlet, find_waker
from statemachines.kernel import ConfigurationError

__all__ = [
    "AdvancedPublisher",
    "AdvancedSubscriber",
    "CacheConfig",
    "FifoChannel",
    "HistoryConfig",
    "Miss",
    "MissDetectionConfig",
    "Recovery",
    "RecoveryConfig",
    "RingChannel",
    "Sample",
    "SampleMissListener",
    "declare_publisher",
    "declare_subscriber",
]

T = TypeVar("T")


class FifoChannel(msgspec.Struct, frozen=True):
    """At most `capacity` samples wait.  What finds no room is asked for later: nobody waits for a reader."""

    capacity: int = 10_000


class RingChannel(msgspec.Struct, frozen=True):
    """The newest `capacity` samples wait."""

    capacity: int


class CacheConfig(msgspec.Struct, frozen=True):
    """As in `zenoh.ext`; `max_samples` are kept."""

    max_samples: int = 1_000


class MissDetectionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """As in `zenoh.ext`; seconds between heartbeats, or between those that are sent after something was published."""

    heartbeat: float | None = None
    sporadic_heartbeat: float | None = None


class HistoryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """As in `zenoh.ext`: the newest `max_samples` of each publisher, at most `max_age` seconds old (None: all).
    Publishers that come later are always detected."""

    detect_late_publishers: bool = True
    max_samples: int | None = None
    max_age: float | None = None


class RecoveryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """As in `zenoh.ext`: ask every so many seconds, or listen to heartbeats."""

    periodic_queries: float | timedelta | None = None
    heartbeat: bool = True


class Miss(NamedTuple):
    """Samples `first`..`last` of `source` will not come."""

    source: str
    first: int
    last: int

    @property
    def nb(self) -> int:
        """How many."""
        return self.last - self.first + 1


_lock: Final = threading.Lock()
_threads: Final[list[LoopThread]] = []


def _list_threads() -> list[LoopThread]:
    """That of the machines and that of handlers, for as long as the process lives."""
    with _lock:
        while len(_threads) < 2:
            _threads.append(LoopThread().__enter__())
    return _threads


def _check(name: str, given: Any, kind: type[T]) -> T | None:
    """Raises `ConfigurationError` for an object of another class: zenoh's own do not say what is in them."""
    if given is not None and not isinstance(given, kind):
        said = f"gapless.zenoh.{kind.__name__}, with the arguments of zenoh's own, which cannot be read"
        raise ConfigurationError(name, given, said)
    return given


def _read_handler(given: Any) -> tuple[dict[str, Any], Any, Any]:
    """What an application gives as handler: options of an `Outlet`, what is called at the end, what it is found as."""
    if isinstance(given, tuple):
        return (*_read_handler(given[0])[:2], given[1])
    if isinstance(given, RingChannel):
        return {"room_max": given.capacity, "newest": True}, None, None
    options: dict[str, Any] = {"room_max": FifoChannel().capacity, "caller": _list_threads()[1].call(find_waker)}
    if isinstance(given, Callback):
        return options | {"handler": given.callback, "direct": not given.indirect}, given.drop, None
    if callable(given):
        return options | {"handler": given}, None, None
    channel = _check("handler", None if isinstance(given, DefaultHandler) else given, FifoChannel) or FifoChannel()
    return {"room_max": channel.capacity}, None, None


class _Declared:
    """What is declared, until it is undeclared."""

    _entity: AbstractAsyncContextManager[object]
    _drop: Callable[[], object] | None = None

    def undeclare(self) -> None:
        """Nothing more comes; again: nothing happens.  Handlers may call it."""
        drop, self._drop = self._drop, None
        closing = _threads[0].submit(self._entity.__aexit__(None, None, None))
        if threading.current_thread() is not _threads[0].thread:  # a handler may be called in it, of a local publisher
            closing.result()
        if drop is not None:
            drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.undeclare()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await asyncio.to_thread(self.undeclare)


class _Receiver(_Declared, Generic[T]):
    """What has something for the application."""

    _outlet: Outlet[T]

    def try_recv(self) -> T | None:
        """The next that waits (None: nothing)."""
        return self._outlet.try_recv()

    def recv(self) -> T:
        """The next; waits for it.  Raises `zenoh.ZError` when nothing more comes."""
        try:
            return next(self)
        except StopIteration:
            raise zenoh.ZError("nothing more comes: it was undeclared, or its session was closed") from None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while (item := self._outlet.try_recv()) is None:
            try:
                _threads[0].wait(self._outlet.filled())
            except StopAsyncIteration:
                raise StopIteration from None
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while (item := self._outlet.try_recv()) is None:
            await asyncio.wrap_future(_threads[0].submit(self._outlet.filled()))
        return item


class SampleMissListener(_Receiver[Miss]):
    """What a subscriber reports as missed."""

    def __init__(self, listeners: list[Callable[[Missed], object]], given: Any) -> None:
        made, self._drop, self.handler = _read_handler(given)
        self._outlet = _threads[0].call(lambda: Outlet(**made))
        self._entity = listening = AsyncExitStack()

        def hear(missed: Missed) -> None:
            self._outlet.put(Miss(missed.source, missed.first, missed.last))

        listeners.append(hear)
        listening.callback(self._outlet.end)
        listening.callback(listeners.remove, hear)


class AdvancedSubscriber(_Receiver[Sample]):
    """See `declare_subscriber`."""

    def __init__(self, session: zenoh.Session, key_expr: str, given: Any, options: dict[str, Any]) -> None:
        made, self._drop, self.handler = _read_handler(given)
        self.key_expr = zenoh.KeyExpr(key_expr)
        self._session = session
        self._entity = self._reader = declare_reliable_subscriber(
            session, key_expr, waiting_max=made.pop("room_max"), **made, **options
        )
        _list_threads()[0].wait(self._reader.__aenter__())
        self._outlet = self._reader.outlet
        self.statistics = self._reader.statistics

    @property
    def sources(self) -> tuple[str, ...]:
        """The publishers that it keeps something of."""
        return self._reader.sources

    def sample_miss_listener(self, handler: Any = None) -> SampleMissListener:
        """What is missed from now on; handlers as of `declare_subscriber`."""
        return SampleMissListener(self._reader.on_missed, handler)

    def detect_publishers(self, handler: Any = None, *, history: bool = False) -> zenoh.Subscriber[Any]:
        """Tokens of publishers that come and go, as zenoh's own gives them."""
        where = self._reader.layout.watch_key(self._reader.key_expr)
        return self._session.liveliness().declare_subscriber(where, handler, history=history)


class AdvancedPublisher(_Declared):
    """See `declare_publisher`.  It has what a `zenoh.Publisher` has: `matching_status`, `id`, `priority` and others."""

    def __init__(self, session: zenoh.Session, key_expr: str, options: dict[str, Any]) -> None:
        self._entity = self._reliable = declare_reliable_publisher(session, key_expr, **options)
        self._thread = _list_threads()[0]
        self._thread.wait(self._reliable.__aenter__())

    def put(self, payload: Any, **options: Any) -> None:
        """Publish, from any thread; `encoding`, `attachment`, `timestamp` as zenoh's."""
        self._thread.call(self._reliable.put, payload, **options)

    def delete(self, **options: Any) -> None:
        """Publish that the key has no value any more."""
        self._thread.call(self._reliable.delete, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reliable._publisher, name)


def declare_subscriber(
    session: zenoh.Session,
    key_expr: str | zenoh.KeyExpr,
    handler: Any = None,
    *,
    allowed_origin: zenoh.Locality | None = None,
    history: HistoryConfig | None = None,
    recovery: RecoveryConfig | Recovery | None = None,
) -> AdvancedSubscriber:
    """A subscriber that gets each sample once and in order, and recovers what it missed.

    `handler`: a function, called in the thread of all handlers; a `zenoh.handlers.Callback`, of which one with
    `indirect=False` is called in zenoh's thread, and must not wait there; a pair of one of them and an object;
    `FifoChannel(capacity)` (None: of 10 000) or `RingChannel(capacity)`: then `recv`, `try_recv` or iterate.

    Raises `ConfigurationError` for an option that cannot be, `BadKey` for what is no key expression, `zenoh.ZError`.
    """
    options: dict[str, Any] = {"allowed_origin": allowed_origin}
    if (past := _check("history", history, HistoryConfig)) is not None:
        options["history"] = History(past.max_samples or 0, round((past.max_age or 0) * 1_000))
    if isinstance(recovery, Recovery):
        options["recovery"] = recovery
    elif (how := _check("recovery", recovery, RecoveryConfig)) is not None:
        period = how.periodic_queries or 0.0
        options["period_s"] = period.total_seconds() if isinstance(period, timedelta) else period
        options["heartbeats"] = how.heartbeat
    return AdvancedSubscriber(session, str(key_expr), handler, options)


def declare_publisher(
    session: zenoh.Session,
    key_expr: str | zenoh.KeyExpr,
    *,
    cache: CacheConfig | None = CacheConfig(),  # noqa: B008 (frozen)
    sample_miss_detection: MissDetectionConfig | None = MissDetectionConfig(sporadic_heartbeat=1.0),  # noqa: B008
    publisher_detection: bool = True,
    **quality: Any,
) -> AdvancedPublisher:
    """A publisher whose samples can be asked for again.

    `cache`: so many are kept (None: none, and nothing is recovered); `sample_miss_detection`: heartbeats, so that the
    loss of the last sample is noticed; `publisher_detection`: say that it lives; `encoding`, `congestion_control`,
    `priority`, `express`, `reliability` as zenoh's.

    Raises as `declare_subscriber`.
    """
    options: dict[str, Any] = {**quality, "with_cache": cache is not None, "token": publisher_detection}
    if (kept := _check("cache", cache, CacheConfig)) is not None:
        options["history"] = kept.max_samples
    said = _check("sample_miss_detection", sample_miss_detection, MissDetectionConfig)
    if said is not None and (said.heartbeat or said.sporadic_heartbeat):
        options["heartbeat"] = Beats.PERIODIC if said.heartbeat else Beats.SPORADIC
        options["heartbeat_period_s"] = said.heartbeat or said.sporadic_heartbeat
    return AdvancedPublisher(session, str(key_expr), options)

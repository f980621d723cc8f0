"""ReliabilityCache: keeps samples of every source anywhere in the network (source: "The `ReliabilityCache`").

async with declare_reliability_cache(session, "room/**", history=1_000): ...
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import zenoh

from statemachines.drivers.lives import Life, begin_life
from statemachines.drivers.missed_samples.attachment import MalformedAttachment
from statemachines.drivers.missed_samples.layout import Declarations, layout_of
from statemachines.drivers.missed_samples.mailbox import Item, Mailbox
from statemachines.drivers.missed_samples.publisher import PROTOCOL, check_options
from statemachines.drivers.missed_samples.query_sender import QueryQueue, at_once, stop
from statemachines.drivers.missed_samples.received_sample import OVERHEAD, ReceivedSample
from statemachines.drivers.missed_samples.sample_store import CacheStatistics, SampleStore
from statemachines.drivers.missed_samples.zenoh_thread import direct
from statemachines.drivers.opening import closed_on_failure
from statemachines.missed_samples.cache import CacheRecord
from statemachines.missed_samples.keys import BadKey, check_expression
from statemachines.missed_samples.message import EVERY_SOURCE


class CacheOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `declare_reliability_cache`."""

    prefix: str = EVERY_SOURCE
    layout: str = "advanced"
    history: int = 1
    places: int = 10_000
    bytes_max: int = 256 << 20
    allowed_origin: zenoh.Locality | None = None
    queue_max: int = 50_000
    queue_bytes_max: int = 64 << 20
    life: Life | None = None


class ReliabilityCache:
    """See `declare_reliability_cache`."""

    def __init__(self, session: zenoh.Session, key_expr: str, options: CacheOptions) -> None:
        self.key_expr = check_expression(key_expr)
        self._session = session
        self._options = options
        self._layout = layout_of(options.layout)
        self._local = options.allowed_origin == zenoh.Locality.SESSION_LOCAL
        of_all = {EVERY_SOURCE: self._layout.cache_key(key_expr)}
        self._answers = of_all.get(options.prefix) or self._layout.own_key(options.prefix, key_expr)
        self._record = CacheRecord(
            options.prefix, key_expr, self._local, options.history, self._layout.width, options.places
        )
        self._declared = Declarations()

    @property
    def statistics(self) -> CacheStatistics:
        """Counts since the beginning."""
        self._store.statistics.overflowed = self._mailbox.refused
        return self._store.statistics

    async def __aenter__(self) -> Self:
        options = self._options
        life = options.life or begin_life(None, Path(), None, None, PROTOCOL, kind="cache")
        self._store = SampleStore(
            self._session, self._layout, self._record, life, bytes_max=options.bytes_max
        )  # fmt: skip
        self._declared.on_close(self._store.close)
        self._mailbox = Mailbox(life.name, self._take, count_max=options.queue_max, bytes_max=options.queue_bytes_max)
        self._task = asyncio.ensure_future(self._mailbox.run(at_once))
        self._declared.on_close(self._stop)
        desk = QueryQueue(f"queries to {life.name}", self._store.answer, self._store.statistics)
        await desk.open(self._declared)
        async with closed_on_failure(self._declared.close):
            await asyncio.to_thread(self._declare, desk)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._declared.close()

    def _declare(self, desk: QueryQueue) -> None:
        def keep_sample(sample: zenoh.Sample) -> None:
            self._mailbox.put(self._keep, sample, OVERHEAD + len(sample.payload))

        origin = self._options.allowed_origin
        hear = direct(keep_sample)
        self._declared.add(self._session.declare_subscriber(self.key_expr, hear, allowed_origin=origin))
        self._declared.add(self._session.declare_queryable(self._answers, desk.handler()))

    async def _stop(self) -> None:
        self._mailbox.close()
        await stop(self._task)

    def _take(self, items: list[Item]) -> None:
        for keep, sample, _ in items:
            try:
                keep(sample)
            except (BadKey, MalformedAttachment, ValueError):
                self._store.statistics.malformed += 1

    def _keep(self, sample: zenoh.Sample) -> None:
        found = self._layout.read_sample(sample)
        if found is None:
            return
        source, sn, attachment = found
        if not source:
            self._store.statistics.unnumbered += 1
            return
        self._store.keep(ReceivedSample(sample, source, -1, attachment), sn, local=self._local)


def declare_reliability_cache(session: zenoh.Session, key_expr: str, **options: Any) -> ReliabilityCache:
    """A cache under a key expression, to be entered with `async with`.

    `prefix`: the id of the one source that it keeps and answers for, "*" for all.  `history`: so many samples are kept
    of each key and source, the newest, and of all of them at most `bytes_max` bytes, in at most `places` queues;
    samples that need one more are counted (`statistics.not_kept`), and queues that are silent for an hour make place
    then.  `allowed_origin`: `zenoh.Locality.SESSION_LOCAL` for what this session publishes alone; `layout` as for
    publishers; `queue_max`, `queue_bytes_max`: what may wait for the loop, samples beyond are refused and counted.

    Raises `BadKey` for what is no key expression, `ConfigurationError` for an option that cannot be, `zenoh.ZError`.
    """
    return ReliabilityCache(session, key_expr, check_options(CacheOptions, options))

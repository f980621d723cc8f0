"""ReliablePublisher: publishes samples that can be asked for again (source: "The `ReliablePublisher`").

async with declare_reliable_publisher(session, "room/1", history=1_000) as publisher:
    publisher.put("22.5", encoding="text/plain")
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import zenoh

from statemachines.drivers.lives import Life, begin_life
from statemachines.drivers.missed_samples.arrivals import SampleParty
from statemachines.drivers.missed_samples.layout import Declarations, layout_of
from statemachines.drivers.missed_samples.query_sender import QueryQueue
from statemachines.drivers.missed_samples.received_sample import OwnSample, ReceivedSample
from statemachines.drivers.missed_samples.sample_store import CacheStatistics, SampleStore
from statemachines.drivers.missed_samples.session import is_matched
from statemachines.drivers.opening import closed_on_failure
from statemachines.kernel import ConfigurationError, Event
from statemachines.missed_samples.cache import CacheRecord
from statemachines.missed_samples.keys import check_key
from statemachines.missed_samples.message import Heartbeat
from statemachines.missed_samples.publisher import (
    PUBLISHER,
    Beats,
    Declare,
    Publish,
    PublisherRecord,
    Stamped,
    Undeclare,
)
from statemachines.missed_samples.serial_number import wrap_number
from statemachines.wire import Packet, quote_for_log

logger = logging.getLogger("gapless")

PROTOCOL = "missed_samples"

TWIN_S: Final = 1.0
"""So long, at most, we wait to learn whether our id is somebody's."""


class PublisherStatistics(msgspec.Struct):
    """Counts since the beginning: samples `published`, `heartbeats` sent, and what zenoh `failed` to take."""

    published: int = 0
    heartbeats: int = 0
    failed: int = 0


class ReliablePublisher:
    """See `declare_reliable_publisher`.  `source` is its id, `next_number` the number of its next sample; for one
    thread: that of the loop it was declared in."""

    def __init__(self, session: zenoh.Session, key_expr: str, options: PublisherOptions) -> None:
        self.statistics = PublisherStatistics()
        self.key_expr = check_key(key_expr)
        self.source = ""
        self._session = session
        self._options = options
        self._layout = layout_of(options.layout)
        self._waiting: deque[dict[str, Any]] = deque()
        self._leaving: dict[int, dict[str, Any]] = {}
        self._declared = Declarations()
        self._store: SampleStore | None = None

    @property
    def next_number(self) -> int:
        """The number of the next sample: what a publisher that goes on under the same id begins with (`next`)."""
        number: int = self._party.record.next
        return number

    @property
    def is_heard(self) -> bool:
        """Whether there is a subscriber now, as far as zenoh knows."""
        return is_matched(self._publisher)

    @property
    def cache_statistics(self) -> CacheStatistics | None:
        """Of its cache (None: it has none)."""
        return None if self._store is None else self._store.statistics

    # -- its life -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        options = self._options
        self._loop = asyncio.get_running_loop()
        async with closed_on_failure(self._declared.close):
            self._publisher = self._declared.add(self._session.declare_publisher(self.key_expr, **options.quality()))
            self.source = self._layout.source(self._publisher, options.source)
            self._key = self._layout.own_key(self.source, self.key_expr)
            life = options.life or begin_life(None, Path(), None, None, PROTOCOL, kind="publisher")
            if options.source and options.token:
                await asyncio.to_thread(self._refuse_twin)
            if options.with_cache:
                await self._open_cache(life)
            self._party = SampleParty(PUBLISHER, options.record(self.source, self.key_expr, self._layout.width), life,
                                transport=self, told=self._route_tell)  # fmt: skip
            self._declared.on_close(self._party.close)
            self._party.feed(Declare())
            if options.token:  # after the queryable: who sees the token may ask at once
                self._declared.add(self._session.liveliness().declare_token(self._key))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._party.feed(Undeclare())
        await self._declared.close()

    def _refuse_twin(self) -> None:
        """In a thread.  Who chooses an id may choose one that somebody has: of two samples with one number, subscribers
        would take one for the other."""
        for reply in self._session.liveliness().get(self._key, timeout=TWIN_S):
            if reply.ok is not None:
                rule = f"a publisher of this id lives on {self.key_expr} already: give each an id of its own"
                raise ConfigurationError("source", self.source, rule)

    async def _open_cache(self, life: Life) -> None:
        options = self._options
        record = CacheRecord(self.source, self.key_expr, True, options.history, self._layout.width)
        beside = life._replace(name=f"{life.name}/cache")
        self._store = SampleStore(self._session, self._layout, record, beside, bytes_max=options.bytes_max)
        self._declared.on_close(self._store.close)
        desk = QueryQueue(f"the cache of {self.source}", self._store.answer, self._store.statistics)
        await desk.open(self._declared)
        self._declared.add(self._session.declare_queryable(self._key, desk.handler()))

    # -- samples ------------------------------------------------------------------------------------------------

    def put(
        self,
        payload: Any,
        *,
        encoding: zenoh.Encoding | str | None = None,
        attachment: bytes | str | None = None,
        timestamp: zenoh.Timestamp | None = None,
    ) -> int:
        """Publish, as zenoh's; the number of the sample.  What zenoh does not take now can still be asked for."""
        return self._publish(
            {
                "kind": zenoh.SampleKind.PUT,
                "payload": zenoh.ZBytes(payload),
                "encoding": self._publisher.encoding if encoding is None else _encoding(encoding),
                "attachment": _bytes(attachment),
                "timestamp": timestamp or self._timestamp(),
            }
        )

    def delete(self, *, attachment: bytes | str | None = None, timestamp: zenoh.Timestamp | None = None) -> int:
        """Publish that the key has no value any more; the number of the sample."""
        return self._publish(
            {
                "kind": zenoh.SampleKind.DELETE,
                "payload": zenoh.ZBytes(b""),
                "encoding": zenoh.Encoding.ZENOH_BYTES,
                "attachment": _bytes(attachment),
                "timestamp": timestamp or self._timestamp(),
            }
        )

    def _timestamp(self) -> zenoh.Timestamp | None:
        """A cache is asked for samples of a time, so it has to know theirs."""
        return self._session.new_timestamp() if self._store is not None else None

    def _publish(self, given: dict[str, Any]) -> int:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if not here:
            rule = "belongs to the event loop that it was declared in; publish there, or with LoopThread.call"
            raise ConfigurationError("publisher", self.key_expr, rule)
        self._waiting.append(given)
        try:
            self._party.feed(Publish())
        except BaseException:
            self._waiting.clear()
            raise
        return self.next_number - 1

    def _route_tell(self, event: Event) -> None:
        """It has a number: the cache keeps it before it leaves."""
        assert isinstance(event, Stamped)
        given = self._waiting.popleft()
        sn = wrap_number(event.first, self._layout.width)
        stamped = self._layout.stamp(self._publisher, self.source, sn, given["attachment"])
        self._leaving[sn] = {**given, **stamped}
        if self._store is not None:
            attachment = given["attachment"]
            own = OwnSample(
                self.key_expr,
                given["payload"],
                given["kind"],
                given["encoding"],
                given["timestamp"],
                self._publisher.priority,
                self._publisher.congestion_control,
                source_info=stamped.get("source_info"),
            )
            sample = ReceivedSample(own, self.source, event.first, attachment)
            self._store.keep(sample, sn, local=True)

    def send(self, packet: Packet[Any]) -> None:
        """What the machine sends: a sample, or a heartbeat."""
        said = packet.message
        try:
            if isinstance(said, Heartbeat):
                self._session.put(self._key, **self._layout.beat(self.source, said.last))
                self.statistics.heartbeats += 1
                return
            given = self._leaving.pop(said.first)
            self.statistics.published += 1
            if given.pop("kind") == zenoh.SampleKind.DELETE:
                del given["payload"], given["encoding"]
                self._publisher.delete(**given)
            else:
                self._publisher.put(**given)
        except zenoh.ZError as error:
            self.statistics.failed += 1
            logger.warning("%s: zenoh does not take what is sent: %s", self.source, quote_for_log(str(error)))


class PublisherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `declare_reliable_publisher`."""

    layout: str = "advanced"
    source: str = ""
    next: int = 0
    with_cache: bool = True
    history: int = 1
    bytes_max: int = 256 << 20
    heartbeat: Beats = Beats.OFF
    heartbeat_period_s: float = 1.0
    token: bool = True
    encoding: zenoh.Encoding | str | None = None
    congestion_control: zenoh.CongestionControl | None = None
    priority: zenoh.Priority | None = None
    express: bool | None = None
    reliability: zenoh.Reliability | None = None
    life: Life | None = None

    def quality(self) -> dict[str, Any]:
        """What zenoh's publisher is declared with."""
        names = ("encoding", "congestion_control", "priority", "express", "reliability")
        return {name: getattr(self, name) for name in names}

    def record(self, source: str, key: str, width: int) -> PublisherRecord:
        """The machine as it begins."""
        return PublisherRecord(
            source, key, self.heartbeat, round(self.heartbeat_period_s * 1_000), width, next=self.next
        )


def declare_reliable_publisher(session: zenoh.Session, key_expr: str, **options: Any) -> ReliablePublisher:
    """A publisher on one key, to be entered with `async with`.

    `with_cache`: keep what is published, the newest `history` samples of at most `bytes_max` bytes, and answer who
    missed some; `heartbeat`: `Beats.PERIODIC` or `Beats.SPORADIC`, every `heartbeat_period_s` seconds, so that who
    missed the last one learns of it; `token`: say that we live; `layout`: "advanced", which zenoh's own advanced
    subscribers understand, or "plain", with 64-bit numbers, where `source` is an id of your choice (refused while a
    publisher of that id lives on this key) and `next` the number to go on with after a restart; `encoding`,
    `congestion_control`, `priority`, `express`, `reliability` as zenoh's.

    Raises `BadKey` for a key with wild cards, `ConfigurationError` for an option that cannot be, `zenoh.ZError`.
    """
    return ReliablePublisher(session, key_expr, check_options(PublisherOptions, options))


def check_options(kind: Any, options: dict[str, Any]) -> Any:
    """The options of this kind; raises `ConfigurationError` for one that there is not."""
    for name in options:
        if name not in kind.__struct_fields__:
            raise ConfigurationError("option", name, f"one of {', '.join(kind.__struct_fields__)}")
    return kind(**options)


def _bytes(attachment: bytes | str | None) -> bytes | None:
    return attachment.encode() if isinstance(attachment, str) else attachment


def _encoding(encoding: zenoh.Encoding | str) -> zenoh.Encoding:
    return zenoh.Encoding(encoding) if isinstance(encoding, str) else encoding

"""ReliablePublisher: publishes samples that can be asked for again (source: "The `ReliablePublisher`").

with declare_reliable_publisher(session, "room/1", history=1_000) as publisher:
    publisher.put("22.5", encoding="text/plain")
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from threading import RLock
from typing import Any, Final

import msgspec
import zenoh

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.lives import Life
from statemachines.drivers.missed_samples.entity import Entity
from statemachines.drivers.missed_samples.layout import layout_of
from statemachines.drivers.missed_samples.machine_log import MachineLog
from statemachines.drivers.missed_samples.received_sample import OwnSample
from statemachines.drivers.missed_samples.sample_store import CacheStatistics, SampleStore
from statemachines.drivers.missed_samples.session import is_matched
from statemachines.drivers.missed_samples.timer_thread import TIMERS
from statemachines.drivers.missed_samples.zenoh_thread import direct
from statemachines.kernel import ConfigurationError, LocalProtocolError
from statemachines.missed_samples.cache import CacheRecord
from statemachines.missed_samples.keys import check_key
from statemachines.missed_samples.publisher import (
    PUBLISHER,
    Beats,
    Declare,
    Publish,
    PublisherRecord,
    Undeclare,
    period_ns,
)
from statemachines.missed_samples.serial_number import wrap_number
from statemachines.wire import quote_for_log

logger = logging.getLogger("gapless")

PROTOCOL = "missed_samples"

TWIN_S: Final = 1.0
"""So long, at most, we wait to learn whether our id is somebody's."""

PUT: Final = zenoh.SampleKind.PUT


class PublisherStatistics(msgspec.Struct):
    """Counts since the beginning: samples `published`, `heartbeats`, and what of both zenoh `failed` to take."""

    published: int = 0
    heartbeats: int = 0
    failed: int = 0


class SampleNumbers:
    """What the machine PUBLISHER does, without its steps: a property holds the two equal.  `number`: that of the next
    sample; `due_ns`: when the publisher says its last number (None: it says none)."""

    def __init__(self, record: PublisherRecord, clock: Clock = steady_ns) -> None:
        self.number = record.next
        self._record = record
        self._clock = clock
        self._is_sporadic = record.beats is Beats.SPORADIC
        self.due_ns = {Beats.PERIODIC: clock() + period_ns(record)}.get(record.beats)

    def publish(self) -> bool:
        """Take the next number; whether a heartbeat is due since then."""
        self.number += 1
        if not self._is_sporadic or self.due_ns is not None:
            return False
        self.due_ns = self._clock() + period_ns(self._record)
        return True

    def beat(self) -> int | None:
        """The heartbeat is due: the number that it says, as the wire has it (None: nothing was published yet)."""
        self.due_ns = None if self._is_sporadic else self._clock() + period_ns(self._record)
        return wrap_number(self.number - 1, self._record.width) if self.number else None


class ReliablePublisher(Entity):
    """See `declare_reliable_publisher`.  `source` is its id; for any thread, callbacks of zenoh included."""

    def __init__(self, session: zenoh.Session, key_expr: str, options: PublisherOptions) -> None:
        super().__init__()
        self.statistics = PublisherStatistics()
        self.key_expr = check_key(key_expr)
        self.source = ""
        self._session = session
        self._options = options
        self._layout = layout_of(options.layout)
        self._lock = RLock()
        self._is_open = False
        self._leaving: deque[tuple[Callable[..., object], dict[str, Any]]] = deque()
        self._store: SampleStore | None = None
        self._planned: Any = None

    @property
    def next_number(self) -> int:
        """The number of the next sample: what a publisher that goes on under the same id begins with (`next`)."""
        return self._numbers.number + len(self._leaving)

    @property
    def is_heard(self) -> bool:
        """Whether there is a subscriber now, as far as zenoh knows."""
        return is_matched(self._publisher)

    @property
    def cache_statistics(self) -> CacheStatistics | None:
        """Of its cache (None: it has none)."""
        return None if self._store is None else self._store.statistics

    # -- its life -----------------------------------------------------------------------------------------------

    def _declare(self) -> None:
        options, session = self._options, self._session
        as_zenohs = ("encoding", "congestion_control", "priority", "express", "reliability")
        one = self._publisher = self._add(
            session.declare_publisher(self.key_expr, **{name: getattr(options, name) for name in as_zenohs})
        )
        self._id, self._encoding, self._quality = one.id, one.encoding, (one.priority, one.congestion_control)
        self.source = self._layout.source(one, options.source, options.next is not None)
        key, width = self._layout.own_key(self.source, self.key_expr), self._layout.width
        self._place = self.source, self.key_expr
        if options.source and options.token:
            self._refuse_twin()
        if options.with_cache:
            cache = CacheRecord(self.source, self.key_expr, True, options.history, width)
            beside = options.life and options.life._replace(name=f"{options.life.name}/cache")
            self._store = SampleStore(session, self._layout, cache, beside, bytes_max=options.bytes_max)
            self._declared.callback(self._store.close)
            self._add(session.declare_queryable(key, direct(self._store.take_query)))
        self._beats = self._add(session.declare_publisher(key))
        period_ms = round(options.heartbeat_period_s * 1_000)
        record = PublisherRecord(*self._place, options.heartbeat, period_ms, width, next=options.next or 0)
        self._trace = MachineLog(PUBLISHER, record, options.life)
        self._trace.note_step(Declare())
        self._numbers = SampleNumbers(record)
        self._is_open = True
        self._declared.callback(self._end)
        self._plan_beat()
        if options.token:  # after the queryable: who sees the token may ask at once
            self._add(session.liveliness().declare_token(key))

    def _end(self) -> None:
        with self._lock:
            self._is_open = False
            self._trace.note_step(Undeclare())
            TIMERS.cancel(self._planned)

    def _refuse_twin(self) -> None:
        """Who chooses an id may choose one that somebody has: of two samples with one number, subscribers would take
        one for the other."""
        name = self.source.partition("~")[0]
        for reply in self._session.liveliness().get(f"{name}$*/{self.key_expr}", timeout=TWIN_S):
            if reply.ok is not None and str(reply.ok.key_expr).partition("/")[0].partition("~")[0] == name:
                rule = f"a publisher of this id lives on {self.key_expr} already: give each an id of its own"
                raise ConfigurationError("source", name, rule)

    # -- samples ------------------------------------------------------------------------------------------------

    def put(
        self,
        payload: Any,
        *,
        encoding: zenoh.Encoding | str | None = None,
        attachment: bytes | str | None = None,
        timestamp: zenoh.Timestamp | None = None,
    ) -> int:
        """Publish, as zenoh's, from any thread; the number of the sample.  What zenoh does not take now can still be
        asked for.  Raises `LocalProtocolError` before the publisher is declared, and after its end."""
        return self._publish(PUT, zenoh.ZBytes(payload), encoding, attachment, timestamp)

    def delete(self, *, attachment: bytes | str | None = None, timestamp: zenoh.Timestamp | None = None) -> int:
        """Publish that the key has no value any more; the number of the sample; raises as `put` does."""
        return self._publish(
            zenoh.SampleKind.DELETE, zenoh.ZBytes(b""), zenoh.Encoding.ZENOH_BYTES, attachment, timestamp
        )

    def _publish(
        self,
        kind: zenoh.SampleKind,
        payload: zenoh.ZBytes,
        encoding: zenoh.Encoding | str | None,
        attachment: bytes | str | None,
        timestamp: zenoh.Timestamp | None,
    ) -> int:
        """Number it, keep it, send it: what a callback publishes meanwhile in this thread goes behind it."""
        if attachment is not None:
            attachment = zenoh.ZBytes(attachment).to_bytes()
        if isinstance(encoding, str):
            encoding = zenoh.Encoding(encoding)
        with self._lock:
            if not self._is_open:
                why = f"nothing is published on {self.key_expr} but within `with`, or between open() and close()"
                raise LocalProtocolError("publisher", "closed", "publish", "MS-35", why)
            number = self.next_number
            sn = wrap_number(number, self._layout.width)
            said = self._layout.stamp(self._id, self.source, sn, attachment)
            if self._store is not None:
                timestamp = timestamp or self._session.new_timestamp()  # a cache is asked for samples of a time
            said["timestamp"] = timestamp
            if self._trace.is_on:
                self._trace.note_step(Publish())
            if self._store is not None:
                info, encoded = said.get("source_info"), encoding or self._encoding
                own = OwnSample(self.key_expr, payload, kind, encoded, timestamp, *self._quality, False, info)
                self._store.keep(self._place, sn, own, attachment)
            act: Callable[..., object] = self._publisher.delete
            if kind is PUT:
                act, said["encoding"], said["payload"] = self._publisher.put, encoding, payload
            self._leaving.append((act, said))
            if len(self._leaving) == 1:
                self._send_all()
        return number

    def _send_all(self) -> None:
        """In order; a heartbeat says the number of no sample that was not sent."""
        while self._leaving:
            try:
                self._send(*self._leaving[0])
            finally:
                self._leaving.popleft()
                self.statistics.published += 1
                if self._numbers.publish():
                    self._plan_beat()

    def _send(self, act: Callable[..., object], said: dict[str, Any]) -> None:
        try:
            act(**said)
        except zenoh.ZError as error:
            self.statistics.failed += 1
            if self.statistics.failed.bit_count() == 1:  # the 1st, 2nd, 4th ...
                logger.warning("zenoh refused %d sends so far: %s", self.statistics.failed, quote_for_log(str(error)))

    # -- heartbeats ---------------------------------------------------------------------------------------------

    def _plan_beat(self) -> None:
        if self._numbers.due_ns is not None:
            self._planned = TIMERS.call_at(self._numbers.due_ns, self._beat)

    def _beat(self) -> None:
        """In the thread of timers, which waits for no full link, and so not for who publishes."""
        if not self._is_open:
            return
        self._trace.note_step(None)
        last = self._numbers.beat()
        if last is not None:
            self.statistics.heartbeats += 1
            self._send(self._beats.put, self._layout.beat(self.source, last))
        self._plan_beat()


class PublisherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `declare_reliable_publisher`."""

    layout: str = "advanced"
    source: str = ""
    next: int | None = None
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


def declare_reliable_publisher(session: zenoh.Session, key_expr: str, **options: Any) -> ReliablePublisher:
    """A publisher on one key, to be entered with `with` or `async with`, or by `open()` and `close()`.

    `with_cache`: keep what is published, the newest `history` samples of at most `bytes_max` bytes, and answer who
    missed some; `heartbeat`: `Beats.PERIODIC` or `Beats.SPORADIC`, every `heartbeat_period_s` seconds, so that who
    missed the last one learns of it; `token`: say that we live; `layout`: "advanced", which zenoh's own advanced
    subscribers understand, or "plain", with 64-bit numbers, where `source` is an id of your choice, refused while a
    publisher of that id lives on this key.  `next`: the number to begin with, of an application that keeps
    `next_number` over its restarts; without it each start is a new life of the id, and a new source for subscribers,
    `<id>~<life>`.  `encoding`, `congestion_control`, `priority`, `express`, `reliability` as zenoh's.

    Raises `BadKey` for a key with wild cards, `ConfigurationError` for an option that cannot be, `zenoh.ZError`.
    """
    return ReliablePublisher(session, key_expr, check_options(PublisherOptions, options))


def check_options(kind: Any, options: dict[str, Any]) -> Any:
    """The options of this kind; raises `ConfigurationError` for one that there is not."""
    for name in options:
        if name not in kind.__struct_fields__:
            raise ConfigurationError("option", name, f"one of {', '.join(kind.__struct_fields__)}")
    return kind(**options)

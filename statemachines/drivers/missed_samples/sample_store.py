"""SampleStore: a cache with what it keeps, which answers queries.

Answers are sent by a thread of their own, since a reply waits while the link is full.  A subscriber of ours is answered
with replies that say source and number, and at last how many there were.  zenoh's own advanced subscribers read
neither: for them the samples are put again, with the source information that they had, and nobody promises that they
arrive.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections import OrderedDict, defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock, Semaphore
from typing import Any, Final

import msgspec
import zenoh

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.lives import Life
from statemachines.drivers.missed_samples.attachment import EndAttachment, SampleAttachment, encode
from statemachines.drivers.missed_samples.layout import KeyLayout
from statemachines.drivers.missed_samples.machine_log import MachineLog
from statemachines.drivers.missed_samples.received_sample import OVERHEAD, OwnSample
from statemachines.drivers.missed_samples.timer_thread import TIMERS
from statemachines.missed_samples.cache import CACHE, CacheQuery, CacheRecord, Place, Published, Withdraw, retention_ns
from statemachines.missed_samples.keys import KeyPlace, matches
from statemachines.missed_samples.message import EVERY_SOURCE, check_range
from statemachines.missed_samples.selector import Selector, parse
from statemachines.missed_samples.serial_number import origin, unwrap_number, wrap_number
from statemachines.wire import quote_for_log

logger = logging.getLogger("gapless")

OURS: Final = "_gapless"
"""The parameter of a query that says that a subscriber of ours asks."""

ANSWERS_MAX: Final = 64
"""So many answers are under way; a query beyond them is refused."""

PUT_AGAIN_PER_S: Final = 20_000
"""So many samples are put again in a second, for advanced subscribers; a query beyond them is refused."""

DECLARED_S: Final = 0.1
"""So long after a stranger's query for history its samples are put again: zenoh may carry a query past the declaration
of the subscriber that asks, and what is put before that is known goes to nobody."""

END_KEY: Final = "@gapless/end"
"""The key of the last reply, which is no sample's."""

BUSY: Final = "busy: ask again later"


class CacheStatistics(msgspec.Struct):
    """Counts since the beginning, but for `samples` and `bytes`, which are kept now.  `too_old`: samples that a full
    queue had no room for; `pushed_out`: dropped because `bytes_max` was reached; `queries` were answered with `replies`
    and `put_again`; `refused` were malformed, or asked for too much, `busy` came while too many were answered; `failed`
    answers could not be sent; `malformed` were samples that cannot be read, `unnumbered` such without a number;
    `not_kept` were turned away because so many queues are kept as may be, and `let_go` queues made place."""

    samples: int = 0
    bytes: int = 0
    kept: int = 0
    too_old: int = 0
    pushed_out: int = 0
    queries: int = 0
    replies: int = 0
    put_again: int = 0
    refused: int = 0
    busy: int = 0
    failed: int = 0
    malformed: int = 0
    unnumbered: int = 0
    not_kept: int = 0
    let_go: int = 0


AnySample = zenoh.Sample | OwnSample
KeptSample = tuple[AnySample, bytes | None, int]
"""(sample, the application's attachment (None: it gave none), its size in bytes, roughly)"""


def read_time_ns(sample: AnySample) -> int:
    """When it was published, in nanoseconds since 1970 (0: nobody says)."""
    stamp = sample.timestamp
    return 0 if stamp is None else stamp.get_time_as_ntp64().as_nanos()


class SampleStore:
    """What the machine CACHE does, without its steps: a property holds the two equal.  `record`: the cache as it
    begins; `session`: where samples are put again; at most `bytes_max` bytes of samples are kept: beyond them those go
    that have been kept longest.  For any thread."""

    def __init__(
        self, session: zenoh.Session, layout: KeyLayout, record: CacheRecord, life: Life | None, *, bytes_max: int,
        clock: Clock = steady_ns,
    ) -> None:  # fmt: skip
        self.statistics = CacheStatistics()
        self._lock = Lock()
        self._session = session
        self._layout = layout
        self._record = record
        self._bytes_max = bytes_max
        self._clock = clock
        self._trace = MachineLog(CACHE, record, life)
        self._numbers: defaultdict[Place, deque[int]] = defaultdict(deque)
        self._samples: OrderedDict[tuple[Place, int], KeptSample] = OrderedDict()
        self._heard: set[Place] = set()
        self._crowded_until_ns = 0
        self._sender = ThreadPoolExecutor(1, "gapless-answers")
        self._room = Semaphore(ANSWERS_MAX)
        self._second, self._put_again = 0, 0

    # -- samples ------------------------------------------------------------------------------------------------

    def keep(self, place: Place, sn: int, sample: AnySample, attachment: bytes | None) -> None:
        """Take a sample in, if it is for this cache; `sn`: its number on the wire."""
        with self._lock:
            record, counts = self._record, self.statistics
            if self._trace.is_on:
                self._trace.note_step(Published(place[1], place[0], sn, sn, record.local, read_time_ns(sample)))
            if self._crowded_until_ns:
                self._let_go()
            if place not in self._numbers and not self._has_place(place, sn):
                return
            if self._crowded_until_ns:
                self._heard.add(place)
            numbers = self._numbers[place]
            size = OVERHEAD + len(sample.payload) + len(attachment or b"")
            number = unwrap_number(sn, numbers[-1], record.width) if numbers else origin(record.width) + sn
            if not numbers or number > numbers[-1]:
                numbers.append(number)
            else:
                at = bisect_left(numbers, number)
                if numbers[at] == number:
                    return
                if not at and (len(numbers) >= record.history or counts.bytes + size > self._bytes_max):
                    counts.too_old += 1
                    return
                numbers.insert(at, number)
            self._samples[place, number] = sample, attachment, size
            counts.kept += 1
            counts.samples += 1
            counts.bytes += size
            if len(numbers) > record.history:
                self._forget(place, numbers.popleft())
            while counts.bytes > self._bytes_max and self._samples:
                self._push_out()

    def _push_out(self) -> None:
        """What has been kept longest; the highest number of its queue stays, by which those of the wire are read."""
        place, number = next(iter(self._samples))
        self._forget(place, number)
        self.statistics.pushed_out += 1
        numbers = self._numbers[place]
        while len(numbers) > 1 and (place, numbers[0]) not in self._samples:
            numbers.popleft()

    def _has_place(self, place: Place, sn: int) -> bool:
        """Whether a queue begins with this sample."""
        (source, key), record, counts = place, self._record, self.statistics
        if record.prefix not in (EVERY_SOURCE, source) or not matches(record.expression, key):
            return False
        check_range("sample", source, sn, sn)
        if len(self._numbers) < record.places:
            return True
        self._crowded_until_ns = self._crowded_until_ns or self._clock() + retention_ns(record)
        counts.not_kept += 1
        if counts.not_kept.bit_count() == 1:  # the 1st, 2nd, 4th ...: a flood does not fill the log
            where = f"{quote_for_log(key)} of {quote_for_log(source)}"
            logger.warning("no place for one more queue, %d samples not kept so far: %s", counts.not_kept, where)
        return False

    def _let_go(self) -> None:
        """A retention after a sample found no place: the queues into which nothing came since."""
        if not self._crowded_until_ns or self._clock() < self._crowded_until_ns:
            return
        for place in self._numbers.keys() - self._heard:
            for number in self._numbers.pop(place):
                self._forget(place, number)
            self.statistics.let_go += 1
        self._heard.clear()
        self._crowded_until_ns = 0

    def _forget(self, place: Place, number: int) -> None:
        kept = self._samples.pop((place, number), None)
        if kept is not None:
            self.statistics.samples -= 1
            self.statistics.bytes -= kept[2]

    def select(self, asked: KeyPlace, parameters: str, now_ns: int) -> list[tuple[str, int, KeptSample]]:
        """(source, number on the wire, sample) of what is asked for at this time, in nanoseconds since 1970; raises
        `Malformed`."""
        width = self._record.width
        with self._lock:
            query = CacheQuery(f"asker-{now_ns}", 1, asked.source, asked.expression, parameters, now_ns)
            self._trace.note_step(query, query.asker)  # no life of a node: it keeps no log
            selector = parse(parameters, width, now_ns)
            self._let_go()
            return [
                (place[0], wrap_number(number, width), self._samples[place, number])
                for place, numbers in self._numbers.items()
                if asked.source in (place[0], EVERY_SOURCE) and matches(asked.expression, place[1])
                for number in self._select_numbers(place, numbers, selector)
            ]

    def _select_numbers(self, place: Place, numbers: deque[int], selector: Selector) -> list[int]:
        low, high, width = numbers[0], numbers[-1], self._record.width
        if selector.first is not None:
            low = max(low, unwrap_number(selector.first, numbers[-1], width))
        if selector.last is not None:
            high = min(high, unwrap_number(selector.last, numbers[-1], width))
        some = range(low, high + 1) if high - low < len(numbers) else numbers
        found = [one for one in some if low <= one <= high and (place, one) in self._samples]
        if selector.begin_ns is not None or selector.end_ns is not None:
            begin, end = max(1, selector.begin_ns or 1), (1 << 64 if selector.end_ns is None else selector.end_ns)
            found = [one for one in found if begin <= read_time_ns(self._samples[place, one][0]) <= end]
        return found if selector.newest is None else found[max(0, len(found) - selector.newest) :]

    # -- answers ------------------------------------------------------------------------------------------------

    def take_query(self, query: zenoh.Query) -> None:
        """Answer a query, soon, and end it; what a queryable is declared with."""
        parameters = str(query.parameters)
        names = {part.partition("=")[0] for part in parameters.split(";")}
        self.statistics.queries += 1
        if not self._room.acquire(blocking=False):
            self.statistics.busy += 1
            refuse(query, BUSY)
        elif OURS in names or "_sn" in names:
            self._submit(query, parameters, OURS in names)
        else:
            at_ns = steady_ns() + round(DECLARED_S * 1e9)
            TIMERS.call_at(at_ns, lambda: self._submit(query, parameters, False))

    def _submit(self, query: zenoh.Query, parameters: str, is_ours: bool) -> None:
        with suppress(RuntimeError):  # it is closed: nobody answers the query any more, and leaving it ends it
            self._sender.submit(self._answer, query, parameters, is_ours)

    def _answer(self, query: zenoh.Query, parameters: str, is_ours: bool) -> None:
        """In the thread."""
        counts = self.statistics
        try:
            samples = self.select(self._layout.read_key(str(query.key_expr)), parameters, time.time_ns())
            if not is_ours:
                self._check_stranger(query, len(samples))
            with query:
                for one in samples:
                    if is_ours:
                        reply(query, *one)
                    else:
                        put_again(self._session, one[2])
                counts.replies += len(samples) * is_ours
                counts.put_again += len(samples) * (not is_ours)
                if is_ours:
                    query.reply(END_KEY, b"", attachment=encode(EndAttachment(len(samples))))
        except ValueError as error:
            counts.refused += 1
            refuse(query, str(error))
        except Exception as error:
            counts.failed += 1
            logger.warning("an answer could not be sent: %s", quote_for_log(str(error)))
        finally:
            self._room.release()

    def _check_stranger(self, query: zenoh.Query, count: int) -> None:
        """Raises ValueError where so many samples may not be put again for one."""
        if self._layout.name != "advanced":
            raise ValueError(f"the plain layout is read by subscribers that say {OURS}=1 alone")
        if query.accepts_replies() != zenoh.ReplyKeyExpr.ANY:
            raise ValueError("a cache answers with keys of samples: ask with accept_replies=ANY")
        second = int(time.monotonic())
        self._put_again = count if second != self._second else self._put_again + count
        self._second = second
        if self._put_again > PUT_AGAIN_PER_S:
            raise ValueError(BUSY)

    def close(self) -> None:
        """Answer nothing more; what is being sent is sent."""
        self._sender.shutdown(cancel_futures=True)
        self._trace.note_step(Withdraw())


def refuse(query: zenoh.Query, why: str) -> None:
    """End a query with an error, if its session is open; from any thread."""
    with suppress(zenoh.ZError), query:
        query.reply_err(why)


def reply(query: zenoh.Query, source: str, sn: int, kept: KeptSample) -> None:
    """Of a subscriber of ours: the sample as it was, with its source and its number."""
    sample, attachment, _ = kept
    stamp = encode(SampleAttachment(source, sn, attachment, PRIORITIES.index(sample.priority) + 1))
    same: dict[str, Any] = {"attachment": stamp, "timestamp": sample.timestamp}
    if sample.kind == zenoh.SampleKind.DELETE:
        query.reply_del(sample.key_expr, **same)
    else:
        query.reply(sample.key_expr, sample.payload, encoding=sample.encoding, **same)


def put_again(session: zenoh.Session, kept: KeptSample) -> None:
    """For zenoh's advanced subscribers: the sample with the source information that it had.

    With the priority of queries: what has another may be overtaken by the end of the query, and who asked takes no
    sample after that.  So do the replies of zenoh's own caches.
    """
    sample, attachment, _ = kept
    same: dict[str, Any] = {
        "attachment": attachment,
        "timestamp": sample.timestamp,
        "priority": zenoh.Priority.DATA,
        "congestion_control": zenoh.CongestionControl.BLOCK,
        "source_info": sample.source_info,
    }
    if sample.kind == zenoh.SampleKind.DELETE:
        session.delete(sample.key_expr, **same)
    else:
        session.put(sample.key_expr, sample.payload, encoding=sample.encoding, **same)


PRIORITIES: Final = (
    zenoh.Priority.REAL_TIME,
    zenoh.Priority.INTERACTIVE_HIGH,
    zenoh.Priority.INTERACTIVE_LOW,
    zenoh.Priority.DATA_HIGH,
    zenoh.Priority.DATA,
    zenoh.Priority.DATA_LOW,
    zenoh.Priority.BACKGROUND,
)

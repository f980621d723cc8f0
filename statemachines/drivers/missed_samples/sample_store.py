"""SampleStore: a cache with what it keeps: the machine says which samples, the store has them.

Queries wait for nothing but the machine; their answers are sent by a thread of their own, since a reply waits while the
link is full.  A subscriber of ours is answered with replies that say source and number, and at last how many there
were.  zenoh's own advanced subscribers read neither: for them the samples are put again, with the source
information that they had, and nobody promises that they arrive.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, Final

import msgspec
import zenoh

from statemachines.drivers.lives import Life
from statemachines.drivers.missed_samples.arrivals import SampleParty
from statemachines.drivers.missed_samples.attachment import EndAttachment, SampleAttachment, encode
from statemachines.drivers.missed_samples.layout import KeyLayout
from statemachines.drivers.missed_samples.received_sample import ReceivedSample
from statemachines.drivers.opening import finish_in_thread
from statemachines.kernel import Event
from statemachines.missed_samples.cache import (
    CACHE,
    CacheQuery,
    CacheRecord,
    LetGo,
    NotKept,
    Published,
    Reply,
    ReplyEnded,
    ReplyRefused,
    Withdraw,
)
from statemachines.missed_samples.keys import BadKey
from statemachines.missed_samples.sample_queue import SampleQueue
from statemachines.missed_samples.serial_number import origin, unwrap_number, wrap_number
from statemachines.wire import Packet, quote_for_log

logger = logging.getLogger("gapless")

OURS: Final = "_gapless"
"""The parameter of a query that says that a subscriber of ours asks."""

ANSWERS_MAX: Final = 64
"""So many answers wait for their thread; a query beyond them is refused."""

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
    and `put_again`; `refused` were malformed, `busy` too many; `failed` replies could not be sent; `overflowed` found
    no room on their way to the cache; `malformed` were samples that cannot be read, `unnumbered` such without a
    number; `not_kept` were turned away because so many queues are kept as may be, and `let_go` queues made place."""

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
    overflowed: int = 0
    malformed: int = 0
    unnumbered: int = 0
    not_kept: int = 0
    let_go: int = 0


class PartialAnswer(msgspec.Struct):
    """An answer that is being put together."""

    query: zenoh.Query
    ours: bool
    history: bool
    samples: list[tuple[str, int, ReceivedSample]]
    refused: str = ""


class SampleStore:
    """`record`: the cache as it begins; `session`: where samples are put again; at most `bytes_max` bytes of samples
    are kept: beyond them those go that have been kept longest."""

    def __init__(
        self, session: zenoh.Session, layout: KeyLayout, record: CacheRecord, life: Life, *, bytes_max: int
    ) -> None:
        self.statistics = CacheStatistics()
        self._session = session
        self._layout = layout
        self._bytes_max = bytes_max
        self._samples: OrderedDict[tuple[str, str, int], ReceivedSample] = OrderedDict()
        self._numbers: dict[tuple[str, str], list[int]] = {}
        self._party = SampleParty(CACHE, record, life, transport=self, told=self._route_tell)
        self._answers: dict[int, PartialAnswer] = {}
        self._n = 0
        self._sender = ThreadPoolExecutor(1, "gapless-answers")
        self._sending: dict[asyncio.Future[tuple[int, int, int]], zenoh.Query] = {}
        self._second, self._put_again = 0, 0

    # -- samples ------------------------------------------------------------------------------------------------

    def keep(self, sample: ReceivedSample, sn: int, *, local: bool) -> None:
        """Take a sample in, if it is for this cache; `sn`: its number on the wire."""
        place = (sample.source, sample.key_expr)
        number = self._number_of(place, sn)
        t_ns = 0 if sample.timestamp is None else sample.timestamp.get_time_as_ntp64().as_nanos()
        before = self._party.record
        self._party.feed(Published(sample.key_expr, sample.source, sn, sn, local, t_ns))
        if self._party.record is before:
            return
        queue = self._party.record.queues.get(place)
        if queue is None:
            return  # turned away
        if number < queue.kept[0][0]:
            self.statistics.too_old += 1
            return
        self._put(place, number, sample)
        self._drop_below(place, queue.kept[0][0])
        while self.statistics.bytes > self._bytes_max and self._samples:
            self._forget(next(iter(self._samples)))
            self.statistics.pushed_out += 1

    def _route_tell(self, event: Event) -> None:
        match event:
            case NotKept():
                self.statistics.not_kept += event.last - event.first + 1
                if self.statistics.not_kept.bit_count() == 1:  # the 1st, 2nd, 4th ...: a flood does not fill the log
                    text = "no place for one more queue, %d samples not kept so far: %s of %s"
                    logger.warning(
                        text, self.statistics.not_kept, quote_for_log(event.key), quote_for_log(event.source)
                    )
            case LetGo():
                self.statistics.let_go += 1
                for number in self._numbers.pop((event.source, event.key)):
                    self._forget((event.source, event.key, number))

    def _put(self, place: tuple[str, str], number: int, sample: ReceivedSample) -> None:
        key = (*place, number)
        if key in self._samples:
            return
        self._samples[key] = sample
        heappush(self._numbers.setdefault(place, []), number)
        self.statistics.kept += 1
        self.statistics.samples += 1
        self.statistics.bytes += sample.size

    def _drop_below(self, place: tuple[str, str], low: int) -> None:
        numbers = self._numbers[place]
        while numbers and numbers[0] < low:
            self._forget((*place, heappop(numbers)))

    def _forget(self, key: tuple[str, str, int]) -> None:
        sample = self._samples.pop(key, None)
        if sample is not None:
            self.statistics.samples -= 1
            self.statistics.bytes -= sample.size

    def _number_of(self, place: tuple[str, str], sn: int) -> int:
        """The number in its queue that the wire's `sn` stands for."""
        width = self._layout.width
        queue = self._party.record.queues.get(place, SampleQueue())
        return unwrap_number(sn, queue.top, width) if queue.kept else origin(width) + sn

    # -- queries ------------------------------------------------------------------------------------------------

    def answer(self, query: zenoh.Query) -> None:
        """Answer a query, and end it."""
        self.statistics.queries += 1
        parameters = str(query.parameters)
        names = {part.partition("=")[0] for part in parameters.split(";")}
        ours, history = OURS in names, "_sn" not in names
        try:
            place = self._layout.read_key(str(query.key_expr))
        except BadKey as error:
            self.statistics.refused += 1
            self._send(PartialAnswer(query, ours, history, [], str(error)))
            return
        self._n += 1
        self._answers[self._n] = PartialAnswer(query, ours, history, [])
        asker = f"asker-{self._n}"  # no life of a node: it keeps no log
        self._party.receive(
            asker, CacheQuery(asker, self._n, place.source, place.expression, parameters, time.time_ns())
        )
        self._answers.pop(self._n, None)

    def send(self, packet: Packet[Any]) -> None:
        """What the machine says to an asker."""
        said = packet.message
        answer = self._answers[said.n]
        match said:
            case Reply():
                answer.samples += self._list_samples(said)
            case ReplyRefused():
                self.statistics.refused += 1
                answer.refused = said.why
                self._send(answer)
            case ReplyEnded():
                self._send(answer)

    def _list_samples(self, said: Reply) -> list[tuple[str, int, ReceivedSample]]:
        place = (said.source, said.key)
        first = self._number_of(place, said.first)
        numbers = range(first, first + said.last - said.first + 1)
        found = ((one, self._samples.get((*place, one))) for one in numbers)
        return [(said.source, wrap_number(n, self._layout.width), one) for n, one in found if one is not None]

    # -- answers ------------------------------------------------------------------------------------------------

    def _send(self, answer: PartialAnswer) -> None:
        if not answer.refused and not answer.ours:
            answer.refused = self._why_not_again(answer)
        if len(self._sending) >= ANSWERS_MAX or answer.refused == BUSY:
            self.statistics.busy += 1
            refuse(answer.query, BUSY)
            return
        work = asyncio.ensure_future(self._later(answer)) if self._waits(answer) else self._begin(answer)
        self._sending[work] = answer.query
        work.add_done_callback(self._note)

    @staticmethod
    def _waits(answer: PartialAnswer) -> bool:
        return answer.history and not answer.ours and not answer.refused

    async def _later(self, answer: PartialAnswer) -> tuple[int, int, int]:
        await asyncio.sleep(DECLARED_S)
        return await self._begin(answer)

    def _begin(self, answer: PartialAnswer) -> asyncio.Future[tuple[int, int, int]]:
        return asyncio.get_running_loop().run_in_executor(self._sender, self._carry_out, answer)

    def _why_not_again(self, answer: PartialAnswer) -> str:
        """Why samples may not be put again for a stranger ("": they may)."""
        if self._layout.name != "advanced":
            return f"the plain layout is read by subscribers that say {OURS}=1 alone"
        if answer.query.accepts_replies() != zenoh.ReplyKeyExpr.ANY:
            return "a cache answers with keys of samples: ask with accept_replies=ANY"
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._put_again = second, 0
        self._put_again += len(answer.samples)
        return BUSY if self._put_again > PUT_AGAIN_PER_S else ""

    def _carry_out(self, answer: PartialAnswer) -> tuple[int, int, int]:
        """In the thread: (replies, put again, failed)."""
        replies = again = failed = 0
        with answer.query:
            if answer.refused:
                answer.query.reply_err(answer.refused)
                return 0, 0, 0
            for source, sn, sample in answer.samples:
                try:
                    if answer.ours:
                        reply(answer.query, source, sn, sample)
                        replies += 1
                    else:
                        put_again(self._session, sample)
                        again += 1
                except zenoh.ZError:
                    failed += 1
            if answer.ours:
                answer.query.reply(END_KEY, b"", attachment=encode(EndAttachment(replies + failed)))
        return replies, again, failed

    def _note(self, work: asyncio.Future[tuple[int, int, int]]) -> None:
        query = self._sending.pop(work)
        if work.cancelled():
            with suppress(RuntimeError), query:  # nobody answers it any more: leaving it ends it
                return
            return  # a thread is at it ("already borrowed"), and ends it when it is done
        error = work.exception()
        if error is not None:
            self.statistics.failed += 1
            logger.warning("an answer could not be sent: %s", quote_for_log(str(error)))
            return
        replies, again, failed = work.result()
        self.statistics.replies += replies
        self.statistics.put_again += again
        self.statistics.failed += failed

    async def close(self) -> None:
        """Answer nothing more; what is being sent is sent."""
        self._party.feed(Withdraw())
        await self._party.close()
        sending = list(self._sending)
        for work in sending:
            work.cancel()  # those that wait; the one that is being sent is not stopped by it
        await finish_in_thread(self._sender.shutdown)
        await asyncio.gather(*sending, return_exceptions=True)


def refuse(query: zenoh.Query, why: str) -> None:
    """End a query with an error; from any thread."""
    try:
        with query:
            query.reply_err(why)
    except zenoh.ZError as error:
        logger.warning("a query could not be refused: %s", quote_for_log(str(error)))


def reply(query: zenoh.Query, source: str, sn: int, sample: ReceivedSample) -> None:
    """Of a subscriber of ours: the sample as it was, with its source and its number."""
    stamp = encode(SampleAttachment(source, sn, sample.attachment, PRIORITIES.index(sample.priority) + 1))
    if sample.kind == zenoh.SampleKind.DELETE:
        query.reply_del(sample.key_expr, attachment=stamp, timestamp=sample.timestamp)
    else:
        query.reply(
            sample.key_expr, sample.payload, encoding=sample.encoding, attachment=stamp, timestamp=sample.timestamp
        )


def put_again(session: zenoh.Session, sample: ReceivedSample) -> None:
    """For zenoh's advanced subscribers: the sample with the source information that it had.

    With the priority of queries: what has another may be overtaken by the end of the query, and who asked takes no
    sample after that.  So do the replies of zenoh's own caches.
    """
    same: dict[str, Any] = {
        "attachment": sample.attachment,
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

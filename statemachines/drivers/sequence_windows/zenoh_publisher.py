"""SequencedZenohPublisher: numbers messages over zenoh, and answers who missed some.

async with declare_sequenced_publisher(session, "room/1", history=1_000) as publisher:
    publisher.put(b"22.5")
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import zenoh

from statemachines.drivers.missed_samples.attachment import EndAttachment, encode
from statemachines.drivers.missed_samples.declaration import Declarations
from statemachines.drivers.missed_samples.layout import PLAIN
from statemachines.drivers.missed_samples.publisher import check_options
from statemachines.drivers.missed_samples.query_queue import QueryQueue
from statemachines.drivers.missed_samples.sample_store import BUSY, END_KEY, CacheStatistics, refuse
from statemachines.drivers.missed_samples.session import is_matched
from statemachines.drivers.opening import finish_in_thread
from statemachines.drivers.sequence_windows.publisher import SequencedPublisher
from statemachines.drivers.sequence_windows.recovery_query import RecoveryQuery
from statemachines.kernel import ConfigurationError
from statemachines.missed_samples.keys import check_key
from statemachines.missed_samples.selector import Malformed, parse
from statemachines.sequence_windows.rotation import Window
from statemachines.wire import quote_for_log

logger = logging.getLogger("gapless")

NUMBER_BITS: Final = 64
MESSAGE_MAX: Final = 16 << 20
"""Bytes of a message: zenoh is no datagram."""
ANSWERS_MAX: Final = 64
"""So many answers wait for their thread; a query beyond them is refused, and asked again."""


class SequencedPublisherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `declare_sequenced_publisher`."""

    source: str = ""
    history: int = 0
    history_bytes: int = 64 << 20
    window: Window | None = None
    congestion_control: zenoh.CongestionControl | None = None
    priority: zenoh.Priority | None = None
    express: bool | None = None
    reliability: zenoh.Reliability | None = None

    def quality(self) -> dict[str, Any]:
        """What zenoh's publisher is declared with."""
        return {name: getattr(self, name) for name in ("congestion_control", "priority", "express", "reliability")}


class SequencedZenohPublisher:
    """See `declare_sequenced_publisher`.  `source` is its id; for one thread: that of the loop it was declared in."""

    def __init__(self, session: zenoh.Session, key_expr: str, options: SequencedPublisherOptions) -> None:
        self.statistics = CacheStatistics()
        self.key_expr = check_key(key_expr)
        self.source = ""
        self._session = session
        self._options = options
        self._declared = Declarations()
        self._answers: dict[asyncio.Future[int], zenoh.Query] = {}

    @property
    def is_heard(self) -> bool:
        """Whether there is a subscriber now, as far as zenoh knows."""
        return is_matched(self._zenoh)

    async def __aenter__(self) -> Self:
        options = self._options
        self._loop = asyncio.get_running_loop()
        try:
            self._zenoh = self._declared.add(self._session.declare_publisher(self.key_expr, **options.quality()))
            self.source = PLAIN.source(self._zenoh, options.source)
            self.sequenced = SequencedPublisher(
                self._zenoh.put,
                publisher=self.source,
                window=options.window,
                size=MESSAGE_MAX,
                history=options.history,
                history_bytes=options.history_bytes,
            )
            if options.history:
                await self._open_history()
        except BaseException:
            await self._declared.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._declared.close()

    def put(self, payload: bytes) -> int:
        """Number a message and publish it; its number.  `MessageTooLarge` above 16 MiB; `zenoh.ZError` where zenoh does
        not take it: then it can still be asked for."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if not here:
            rule = "belongs to the event loop that it was declared in; publish there, or with LoopThread.call"
            raise ConfigurationError("publisher", self.key_expr, rule)
        return self.sequenced.publish(self.key_expr, payload)

    def start_new_streams(self) -> None:
        """The network has converged: a stream that is older begins anew with its next message."""
        self.sequenced.start_new_streams()

    # -- answers --------------------------------------------------------------------------------------------------

    async def _open_history(self) -> None:
        self._sender = ThreadPoolExecutor(1, "gapless-answers")
        self._declared.on_close(self._end_answers)
        desk = QueryQueue(f"the history of {self.source}", self._answer, self.statistics)
        await desk.open(self._declared)
        key = PLAIN.own_key(self.source, self.key_expr)
        self._declared.add(self._session.declare_queryable(key, desk.handler()))

    def _answer(self, query: zenoh.Query) -> None:
        """In the loop; what is found is sent by a thread, since a reply waits while the link is full."""
        self.statistics.queries += 1
        try:
            asked = parse(str(query.parameters), NUMBER_BITS, 0)
        except Malformed as error:
            self.statistics.refused += 1
            refuse(query, str(error))
            return
        if len(self._answers) >= ANSWERS_MAX:
            self.statistics.busy += 1
            refuse(query, BUSY)
            return
        life = self.sequenced.life  # of others the numbers are others, or the receiver drops the answer
        wanted = RecoveryQuery(self.source, self.key_expr, asked.first or 0, asked.last or 0, life=life)
        found = self.sequenced.answer(wanted)
        work = self._loop.run_in_executor(self._sender, _carry_out, query, self.source, found)
        self._answers[work] = query
        work.add_done_callback(self._note)

    def _note(self, work: asyncio.Future[int]) -> None:
        query = self._answers.pop(work)
        if work.cancelled():
            with query:  # nobody answers it any more: leaving it ends it
                return
        error = work.exception()
        if error is not None:
            self.statistics.failed += 1
            logger.warning("an answer could not be sent: %s", quote_for_log(str(error)))
            return
        self.statistics.replies += work.result()

    async def _end_answers(self) -> None:
        """What is being sent is sent, and no more."""
        answers = list(self._answers)
        for work in answers:
            work.cancel()
        await finish_in_thread(self._sender.shutdown)
        await asyncio.gather(*answers, return_exceptions=True)


def _carry_out(query: zenoh.Query, source: str, found: list[bytes]) -> int:
    """Every message, then how many there were, and whose word that is: who counts fewer knows that the answer is not
    whole, and a cache of others that has nothing of it does not speak for the publisher."""
    with query:
        for data in found:
            query.reply(query.key_expr, data)
        query.reply(END_KEY, source.encode(), attachment=encode(EndAttachment(len(found))))
    return len(found)


def declare_sequenced_publisher(session: zenoh.Session, key_expr: str, **options: Any) -> SequencedZenohPublisher:
    """A publisher on one key, which is its subject, to be entered with `async with`.

    `history`: so many messages are kept, the newest, of at most `history_bytes` bytes, and receivers that missed some
    are answered (0: none), under the plain layout (`<source id>/<key>`); `source`: an id that nobody has, or had (none:
    one that zenoh gives); `window`: when to forget; `congestion_control`, `priority`, `express`, `reliability` as
    zenoh's.

    Raises `BadKey` for a key with wild cards, or a source that cannot be part of a key, `ConfigurationError` for an
    option that cannot be, `zenoh.ZError`.
    """
    return SequencedZenohPublisher(session, key_expr, check_options(SequencedPublisherOptions, options))

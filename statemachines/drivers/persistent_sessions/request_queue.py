"""RequestQueue: what a node asks of its database, in the order in which it was asked, in batches.

A batch is one transaction with a number.  One that failed, or of which nobody knows what became, is given again with
the same number until it is answered: it is carried out once.  So a machine waits, and is never told that its request
failed; what has to end in time ends by its own timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.deferred_calls import DeferredCalls
from statemachines.drivers.persistent_sessions.host_requests import PutCarried
from statemachines.drivers.persistent_sessions.machine_requests import StoreRows
from statemachines.drivers.persistent_sessions.request_batch import follows, joins, may_be_passed
from statemachines.drivers.persistent_sessions.route_rows import PutMessage
from statemachines.drivers.persistent_sessions.sql import A, Asked, StoreRequest
from statemachines.drivers.persistent_sessions.store import SessionStore, StoredLife, needs_read
from statemachines.drivers.port import Feed
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.kernel import Answer
from statemachines.persistent_sessions.collector import DeletePage
from statemachines.persistent_sessions.request import MarkDelivered, PutRows

logger = logging.getLogger("gapless")

BATCH_MAX: Final = 500
"""Statements in one transaction."""

ROWS_MAX: Final = 5_000
"""Rows that are stored or marked in one transaction."""

BYTES_MAX: Final = 16 * 2**20
"""Bytes of payload that are stored in one transaction, but for one message that is larger."""

AHEAD_MAX: Final = 4
"""Batches of messages that are stored one behind the other while rows wait."""

LATE_S: Final = 0.05
"""So long marks of what was delivered wait for a transaction that is made for something else; and deletions, while
something is delivered."""

AGAIN_S: Final = (0.02, 1.0)
"""First and longest pause before a batch that failed is given again."""

Taker = Callable[[Any], object]
"""Hears what a request is answered with."""

Given = tuple[Asked, Taker, bool]
"""A request, who hears its answer, and whether it is late: made with others, when these are made."""


class RequestQueue:
    """`store`, and the `life` of the node that asks; `clock` of the node."""

    def __init__(self, store: SessionStore, life: StoredLife, clock: Clock = steady_ns) -> None:
        self.deferred = DeferredCalls()
        """What answers defer is called behind the last one of their batch."""
        self._call_soon = asyncio.get_running_loop().call_soon
        self._is_alone = False
        """The answer that is given now is the only one that somebody waits for."""
        self.asked_ns: int | None = None
        """When the batch was given first that the store has not answered yet (None: it has answered everything)."""
        self._store = store
        self._life = life
        self._clock = clock
        self._batch = 0
        self._waiting: deque[Given] = deque()
        self._there = asyncio.Event()
        self._ahead = 0
        """So many batches in a row were stored ahead of the others."""
        self._late = 0
        """So many of those that wait are late."""
        self._alarm: asyncio.TimerHandle | None = None
        """Runs while something is delivered."""
        self._has_marked = False
        """Since the alarm was set."""
        self._is_due = False
        """What is late has waited for long enough."""

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    @property
    def silent_s(self) -> float:
        """How long the store owes an answer."""
        return 0.0 if self.asked_ns is None else (self._clock() - self.asked_ns) / 1e9

    def serve(
        self, party: str, request: Asked, feed: Feed, answers_of: Callable[[Any], Iterable[Answer]] = iter
    ) -> None:
        """The service of the machines: the answers are fed to the party; `answers_of` what the database gives back."""
        if isinstance(request, MarkDelivered):
            self._has_marked = True
            self._give_mark(request)
            return

        def take(found: Any) -> None:
            for answer in answers_of(found):
                feed(party, answer)

        if self._alarm is not None and isinstance(request, DeletePage):
            self._give_late(request, take)
        else:
            self._append(request, take)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call it when what comes at once is there: behind a lone answer nothing is waited for (D-1062)."""
        if self._is_alone:
            self.deferred.defer(call)
        else:
            self._call_soon(call)

    def give(self, request: StoreRequest[A], take: Callable[[A], object]) -> None:
        """Ask; `take` hears the answer, behind those to whatever was asked before."""
        self._append(request, take)

    def _append(self, request: Asked, take: Taker) -> None:
        self._waiting.append((request, take, False))
        self._there.set()

    def _give_mark(self, request: MarkDelivered) -> None:
        """There may be a hundred thousand: one behind another becomes one with it."""
        before = self._waiting[-1][0] if self._late and self._waiting else None
        if isinstance(before, MarkDelivered) and follows(before, request):
            last = request.last or request.number
            if last - before.number < ROWS_MAX:
                self._waiting[-1] = (replace(before, last=last), _leave, True)
                return
        self._give_late(request, _leave)

    def _give_late(self, request: Asked, take: Taker) -> None:
        """Ask for what can wait: it goes with what is asked next."""
        self._waiting.append((request, take, True))
        self._late += 1
        if self._alarm is None:
            self._set_alarm()

    def _set_alarm(self) -> None:
        self._has_marked = False
        self._alarm = asyncio.get_running_loop().call_later(LATE_S, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._has_marked:
            self._set_alarm()
        self._is_due = bool(self._late)
        if self._is_due:
            self._there.set()

    def give_first(self, request: StoreRequest[A], take: Callable[[A], object]) -> None:
        """The same, ahead of whatever waits."""
        self._waiting.appendleft((request, take, False))
        self._there.set()

    async def ask(self, request: StoreRequest[A]) -> A:
        """What it is answered with."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self.give(request, partial(_set, answer))
        return await answer

    async def run(self) -> None:
        """Carry out whatever comes; raises what no repetition helps against (`Superseded`, `StoreDamaged`)."""
        while True:
            await self._there.wait()
            ahead = self._take_ahead()
            batch = ahead or self._next_batch()
            self._is_due = self._is_due and bool(ahead)
            can_wait = self._alarm is not None and not self._is_due
            if not self._waiting or (can_wait and len(self._waiting) == self._late):
                self._there.clear()
            self.asked_ns = self._clock()
            answers = await self._carry_out([one[0] for one in batch], before=bool(ahead))
            self.asked_ns = None
            if answers is None:  # the next batch has them, and is no such one
                self._put_back(batch)
                self._ahead = AHEAD_MAX
                continue
            self._put_back(batch[len(answers) :])
            batch = batch[: len(answers)]
            self._is_alone = [is_late for _, _, is_late in batch].count(False) == 1
            with self.deferred.batch():
                for (_, take, _), answer in zip(batch, answers, strict=True):
                    take(answer)
            self._is_alone = False

    def _put_back(self, given: list[Given]) -> None:
        """Ahead of what waits."""
        if given:
            self._waiting.extendleft(reversed(given))
            self._late += sum(one[2] for one in given)
            self._there.set()

    def _take_ahead(self) -> list[Given]:
        """Messages that need not wait for what waits for a flush; rows wait for a few of these batches at most."""
        if self._ahead == AHEAD_MAX:
            self._ahead = 0
            return []
        ahead: list[Given] = []
        others: list[Given] = []
        size = 0
        while self._waiting and len(ahead) + len(others) < BATCH_MAX:
            first, _, is_late = self._waiting[0]
            goes_ahead = self._store.stores_ahead(first)
            if not (goes_ahead or is_late or may_be_passed(first)):
                break
            if goes_ahead:
                size += size_of(first)
                if size > BYTES_MAX and ahead:
                    break
            (ahead if goes_ahead else others).append(self._waiting.popleft())
        self._waiting.extendleft(reversed(others))
        self._ahead = self._ahead + 1 if ahead and others else 0
        return ahead

    def _next_batch(self) -> list[Given]:
        """What comes next; what is carried out together counts as one statement."""
        waiting = self._waiting
        batch = [self._take_first()]
        statements, rows, size = 1, rows_of(batch[0][0]), size_of(batch[0][0])
        while waiting and rows < ROWS_MAX:
            statements += not joins(batch[-1][0], waiting[0][0])
            size += size_of(waiting[0][0])
            if statements > BATCH_MAX or size > BYTES_MAX:
                break
            batch.append(self._take_first())
            rows += rows_of(batch[-1][0])
        return batch

    def _take_first(self) -> Given:
        first = self._waiting.popleft()
        self._late -= first[2]
        return first

    async def _carry_out(self, requests: list[Asked], *, before: bool) -> list[Any] | None:
        reads = all(map(needs_read, requests))
        if not (reads or before):
            self._batch += 1
        pause, said = AGAIN_S[0], ""
        answers: list[Any] | None
        while True:
            try:
                if before:
                    answers = await self._store.store_ahead(self._life, self._batch, requests)
                elif reads:
                    answers = await self._store.read(self._life, requests)
                else:
                    answers = await self._store.carry_out(self._life, self._batch, requests)
            except StoreUnavailable as error:
                if str(error) != said:
                    said = str(error)
                    logger.warning("%s: %s; asking again until it answers", self._life.node, said)
            else:
                if said:
                    logger.warning("%s: the store answers again", self._life.node)
                return answers
            await asyncio.sleep(pause)
            pause = min(2 * pause, AGAIN_S[1])


def rows_of(request: Asked) -> int:
    """How many rows it stores or marks, or 1: whatever else it is about."""
    match request:
        case MarkDelivered():
            return request.until - request.number + 1
        case PutRows():
            return len(request.rows)
        case StoreRows():
            return len(request.put.rows)
    return 1


def size_of(request: Asked) -> int:
    """Bytes of payload that it stores; those that go with rows are there already, as a rule."""
    if type(request) is PutMessage:
        return len(request.payload) + len(request.head or b"")
    if type(request) is PutCarried:
        return sum(len(payload.data) + len(payload.head or b"") for _, payload in request.messages)
    return 0


def _leave(answers: tuple[Answer, ...]) -> None:
    """Nobody waits for them."""


def _set(answer: asyncio.Future[Any], value: Any) -> None:
    if not answer.done():
        answer.set_result(value)

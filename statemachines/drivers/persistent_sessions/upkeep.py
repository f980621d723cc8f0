"""Upkeep: what a node, or a collector alone, does again and again beside serving clients.

    await run_collector(open_session_store("sessions.db"))        # until it is cancelled

The collector may be cancelled, or killed, at any moment: each of its requests is one transaction.  One is enough, and
several do no harm.

LagMonitor: looks for rows of other writers that no live message has announced.  Live messages may be lost without a
trace: a full buffer, a link that nobody made.  What follows from a find the host decides (`RowsSeen`).

WillSender: publishes wills that are due, of whatever node their clients were at.  Each node has one.  A will is
deleted in the transaction that publishes it, so one node sends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import msgspec

from statemachines.drivers.authority import Authority
from statemachines.drivers.clock import LOOK_AGAIN_S, Clock, steady_ns
from statemachines.drivers.complaint_log import RateLimitedLog
from statemachines.drivers.metrics_endpoint import Metric, MetricsEndpoint
from statemachines.drivers.persistent_sessions.collector_requests import Backlog, SessionBounds
from statemachines.drivers.persistent_sessions.host_requests import DropRows, LagAnswer, ReadStoreTime, WatchedSession
from statemachines.drivers.persistent_sessions.life_requests import DropWill, DueWill, DueWills, EndWills, FindDueWills
from statemachines.drivers.persistent_sessions.node_messages import RetainedPublisher
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.session_server import SessionServer
from statemachines.drivers.persistent_sessions.store import SessionStore
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.drivers.tcp import parse_address
from statemachines.kernel import Answer, Ask, Effect, Event, Map, Node, Outgoing, Tell
from statemachines.persistent_sessions.collector import (
    COLLECTOR,
    GRACES,
    Collect,
    CollectFailed,
    CollectorRecord,
    Graces,
    MessageLost,
)
from statemachines.persistent_sessions.session_host_process import SessionHost
from statemachines.persistent_sessions.session_host_record import Position, RowsSeen

logger = logging.getLogger("gapless")

REST_S_MAX: Final = 1.0
"""The longest pause between two requests."""


class CollectorCounts:
    """What a collector has counted since it began; `trouble`: why its last request was not carried out ("": it was)."""

    def __init__(self) -> None:
        self.messages_dropped = 0
        self.trouble = ""


async def run_collector(
    store: SessionStore,
    graces: Graces = GRACES,
    *,
    bounds: SessionBounds | None = None,
    counts: CollectorCounts | None = None,
    told: Callable[[Event], None] = lambda event: None,
    clock: Clock = steady_ns,
) -> None:
    """Rounds without end, the first of them at once; what `told` hears are `RoundEnded` and `MessageLost`.

    `bounds`: what may wait for a session (None: `SessionBounds()`); `counts`: where it counts.  A store that is
    unavailable ends a round, and the next one goes on; raises `StoreDamaged` where it is damaged.
    """
    node = Node(COLLECTOR, CollectorRecord(graces), name="collector", now_ns=clock())
    effects = node.feed(Collect(), clock())
    store.bound_sessions(bounds or SessionBounds(), graces.retention_ms)
    counts = counts or CollectorCounts()
    while True:
        request = _tell(effects, told)
        if request is not None:
            answer = await _carry_out(store, request, counts)
            await _drop(store, counts)
            effects = node.feed(answer, clock())
            continue
        deadline = node.deadline()
        assert deadline is not None, "a collector that waits for nobody waits for its next round"
        # An event loop's clock may stand still meanwhile.
        await asyncio.sleep(min(max(deadline - clock(), 0) / 1e9, LOOK_AGAIN_S))
        effects = node.fire(clock())


def _tell(effects: list[Effect], told: Callable[[Event], None]) -> Ask | None:
    """What is asked, if anything is: it asks one thing at a time."""
    for effect in effects:
        if isinstance(effect, Tell):
            if isinstance(effect.event, MessageLost):
                lost = effect.event
                logger.warning("message %s is lost to %d subscriptions: it was too old", lost.message, lost.rows)
            told(effect.event)
    asked = [effect for effect in effects if isinstance(effect, Ask)]
    return asked[0] if asked else None


async def _carry_out(store: SessionStore, asked: Ask, counts: CollectorCounts) -> Answer:
    """Then it rests for as long as that has taken, so that whoever waits for the database comes in between."""
    began = steady_ns()
    try:
        (answer,) = await store.ask(asked.request)
        counts.trouble = ""
    except StoreUnavailable as error:
        counts.trouble = str(error)
        logger.warning("a round of the collector ends: %s", error)
        answer = CollectFailed()
    await asyncio.sleep(min((steady_ns() - began) / 1e9, REST_S_MAX))
    return answer


async def _drop(store: SessionStore, counts: CollectorCounts) -> None:
    try:
        counts.messages_dropped += await drop_rows(store.take_drops(), store.do)
    except StoreUnavailable as error:
        logger.warning("a session keeps more than it may until the next round: %s", error)


async def drop_rows(drops: Sequence[DropRows], do: Callable[[DropRows], Awaitable[int]]) -> int:
    """Drop them, and say so; how many messages that were."""
    counts: Counter[str] = Counter()
    for one in drops:
        counts[one.session] += await do(one)
    for session, count in counts.items():
        if count:
            what = "session %s has more waiting than it may (--session-messages, --session-bytes): "
            logger.warning(what + "its %d oldest messages are dropped", session, count)
    return counts.total()


LOOK_MAX: Final = 1_000
"""Sessions in one look; the others have theirs at the next."""


class LagMonitor:
    """It looks for the owners of `host`."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self._asked: dict[str, str] = {}
        """Session -> the owner for which it is looked."""
        self._last = ""

    def list_watched(self) -> tuple[WatchedSession, ...]:
        """What to ask for at this look."""
        resumes = ((owner, self._host.resume_of(owner)) for owner in sorted(self._host.owners))
        live = {owner: resume for owner, resume in resumes if resume is not None and resume.session}
        turns = [*(owner for owner in live if owner > self._last), *(owner for owner in live if owner <= self._last)]
        turns = turns[:LOOK_MAX]
        self._last = turns[-1] if turns else ""
        self._asked = {live[owner].session: owner for owner in turns}
        return tuple(
            WatchedSession(live[owner].session, live[owner].token, self._host.list_followed(owner)) for owner in turns
        )

    def take(self, seen: tuple[LagAnswer, ...], now_ns: int) -> list[Outgoing]:
        """What was found, in the order of `list_watched`."""
        out: list[Outgoing] = []
        for one in seen:
            last: dict[str, Position] = {}
            for writer, epoch, row in one.rows:
                last[writer] = max(last.get(writer, (0, 0)), (epoch, row.number))
            owner = self._asked.get(one.session, "")
            found = RowsSeen(owner, superseded=one.superseded, writers=one.writers, rows=Map(last))
            out += self._host.take_look(found, now_ns)
        return out


LOOK_S: Final = 1.0
"""Between two looks for wills that are due; a look comes sooner where a connection has ended here."""


class WillSender:
    """`desk` and `server` of a node; `authority` says whether a client may publish its will."""

    def __init__(self, desk: RequestQueue, server: SessionServer, authority: Authority) -> None:
        self._desk = desk
        self._server = server
        self._authority = authority
        self._denied = RateLimitedLog(steady_ns)

    async def run(self) -> None:
        """For ever."""
        while True:
            self._server.session_ended.clear()
            due: DueWills = await self._desk.ask(FindDueWills())
            if due.wills:
                since_ns = await self._desk.ask(ReadStoreTime())
                await asyncio.gather(*(self._settle(one, since_ns) for one in due.wills))
            if due.has_ended:
                await self._desk.ask(EndWills())
            elif not due.wills:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._server.session_ended.wait()

    async def _settle(self, due: DueWill, since_ns: int) -> None:
        """Publish it behind what its client has published (PS-521), or delete it if its client may not publish it
        (PS-450)."""
        allowed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._authority.check(due.will.identity, "publish", due.client, due.will.topic, allowed.set_result)
        if not await allowed:
            if self._denied.count_event():
                what = "the will of client %s is not sent: it may not publish it (%d such wills so far)"
                logger.warning(what, due.client, self._denied.count)
            await self._desk.ask(DropWill(due.connection))
            return
        stored = asyncio.Event()
        known = RetainedPublisher(due.will.identity, due.client)
        publisher = b"" if self._authority.is_open else msgspec.json.encode(known)
        self._server.messages.publish_will(due, since_ns, publisher, stored.set)
        await stored.wait()


def list_backlog(backlog: Backlog | None, dropped: int) -> list[Metric]:
    """What waits in the store, once a round of the collector has found it, and how many messages it has dropped."""
    found = [
        Metric("messages_dropped", "counter", "dropped since sessions had more waiting than they may", dropped),
    ]
    if backlog is not None:
        about = "in the store, at most, as of the collector's last round"
        found += [
            Metric("messages_waiting", "gauge", f"wait for sessions {about}", backlog.messages),
            Metric("bytes_waiting", "gauge", f"payload that waits for sessions {about}", backlog.size_bytes),
            Metric("messages_waiting_largest", "gauge", f"wait for the session with most {about}", backlog.largest),
        ]
    return found


def read_collector_metrics(store: SessionStore, counts: CollectorCounts) -> list[Metric]:
    """The same of a collector alone, by the same names."""
    return list_backlog(store.backlog, counts.messages_dropped)


def watch_collector(store: SessionStore, counts: CollectorCounts, address: str) -> AbstractAsyncContextManager[None]:
    """The same of a collector alone."""
    return serve_metrics(address, lambda: read_collector_metrics(store, counts), lambda: counts.trouble)


@asynccontextmanager
async def serve_metrics(address: str, read: Callable[[], list[Metric]], find: Callable[[], str]) -> AsyncIterator[None]:
    if not address:
        yield
        return
    async with MetricsEndpoint(parse_address(address), read, find) as endpoint:
        print("metrics at http://{}:{}/metrics".format(*endpoint.address), flush=True)
        yield

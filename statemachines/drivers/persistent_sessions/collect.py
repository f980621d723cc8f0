"""Collect: the collector of a store, run on an asyncio loop; one is enough, and several do no harm.

    await run_collector(open_session_store("sessions.db"))        # until it is cancelled

It may be cancelled, or killed, at any moment: whatever it has asked is one transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from statemachines.drivers.clock import LOOK_AGAIN_S, Clock, steady_ns
from statemachines.drivers.persistent_sessions.backlog import SessionBounds
from statemachines.drivers.persistent_sessions.host_request import DropRows
from statemachines.drivers.persistent_sessions.store import SessionStore
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.kernel import Answer, Ask, Effect, Event, Node, Tell
from statemachines.persistent_sessions.collector import COLLECTOR
from statemachines.persistent_sessions.collector_record import Collect, CollectorRecord, MessageLost
from statemachines.persistent_sessions.collector_request import CollectFailed
from statemachines.persistent_sessions.graces import GRACES, Graces

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
        await asyncio.sleep(_wait_s(node, clock))
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


def _wait_s(node: Node[CollectorRecord], clock: Clock) -> float:
    """Until the next round, as far as that is known: an event loop's clock may stand still meanwhile."""
    deadline = node.deadline()
    assert deadline is not None, "a collector that waits for nobody waits for its next round"
    return min(max(deadline - clock(), 0) / 1e9, LOOK_AGAIN_S)

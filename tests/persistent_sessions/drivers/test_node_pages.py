"""A session with more rows than its client receives: they stay in the database until there is room (PS-193 to 195)."""

from __future__ import annotations

import pytest
from session_nodes import QUICK, take

from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher
from statemachines.persistent_sessions.resume_record import ResumeRecord
from statemachines.persistent_sessions.times import Times

RECEIVES = 6
PAGE = 3
COUNT = 60
QUEUE = 4
BUFFER = 10


class Seen:
    """An observer: how many rows an owner had in its hands at most, and how many of them queued; and the states of its
    flows."""

    def __init__(self):
        self.held = self.queued = 0
        self.states = set()

    def __call__(self, node, event, before, step, now_ns):
        record = node.record
        if not isinstance(record, ResumeRecord) or record.delivery is None:
            return
        delivery = record.delivery
        kept = [one.rows for one in record.pending]
        kept += [change.take.rows for change in delivery.inbox if change.take]
        kept += [flow.buffer for flow in record.flows.values()]
        self.queued = max(self.queued, len(delivery.state.queued))
        self.held = max(self.held, sum(map(len, kept)) + len(delivery.state.packets) + self.queued)
        self.states |= {flow.status.value for flow in record.flows.values()}


async def fill(node, count=COUNT):
    """So much waits for the client `c`."""
    async with PersistentSession("c", node=node) as session:
        await session.subscribe("t")
    async with SessionPublisher(node=node) as publisher:
        for number in range(count):
            await publisher.publish("t", str(number).encode())


def is_bounded(seen):
    """Never more than is in flight and what is read beside it, whatever waits."""
    return seen.held <= RECEIVES + 2 * PAGE and seen.queued <= PAGE


async def test_PS_200_BOUNDED_a_client_that_does_not_acknowledge_fills_no_memory(store):
    """It is connected, and acknowledges when all is published; then it has all of it, in order."""
    times = Times(marker_ms=400, repeat_ms=100, queue=QUEUE, resume_buffer=BUFFER)
    seen = Seen()
    async with (
        SessionNode(store, name="a", observe=seen, **{**QUICK, "times": times}) as node,
        PersistentSession("c", node=node, receive_maximum=RECEIVES) as session,
        SessionPublisher(node=node) as publisher,
    ):
        await session.subscribe("t")
        for number in range(COUNT):
            await publisher.publish("t", str(number).encode())
        slow = seen.queued, seen.held
        assert await take(session, COUNT) == [str(number) for number in range(COUNT)]
    assert "behind" in seen.states
    assert slow[0] <= QUEUE
    assert slow[1] <= RECEIVES + QUEUE + BUFFER
    assert seen.queued < QUEUE + BUFFER, "what was kept is taken in one piece, where there is room"


@pytest.mark.parametrize("most", range(1, 10))
async def test_PS_286_an_application_that_gathers_all_that_it_receives_gets_it(store, most):
    """It acknowledges only when it has as many as may be unacknowledged; and one that keeps some of them has the rest
    of its room."""
    async with SessionNode(store, name="a", **QUICK) as node:
        await fill(node)
        async with PersistentSession("c", node=node, receive_maximum=most) as session:
            kept = [await anext(session) for _ in range(most)]
            for _ in range(2 * most):
                kept.pop().acknowledge()
                kept.append(await anext(session))
            for one in kept:
                one.acknowledge()
            got = [*range(3 * most)]
            assert await take(session, COUNT - len(got)) == [str(number) for number in range(len(got), COUNT)]

"""An application that computes in its loop for most of a lease, message by message, against a real leader host."""

from __future__ import annotations

import asyncio
import time

from stage import TENTH, Stage

from statemachines.drivers.shared_subscriptions import SharedSubscription
from statemachines.shared_subscriptions.configuration import Configuration

LONG = {"ping_interval_ms": 2_000, "ping_timeout_ms": 10_000, "validity_ms": 15_000, "revoke_timeout_ms": 20_000}
"""A lease lasts 12 s, and a ping is due long before a quarter of that."""

PATIENCE_S = 120
MESSAGES = 8


def member(stage, times):
    """The one member of the group."""
    return SharedSubscription(
        "$shared/g/#",
        leader=stage.leader,
        store=stage.nodes.store,
        trace=stage.trace,
        configuration=times,
        start="beginning",
    )


async def publish(stage):
    """The messages, in one stream."""
    await stage._publish(["orders"], MESSAGES)
    stage.stream = "0.0/orders"


def test_SS_183_before_it_gets_more_what_it_acknowledged_is_told_and_pings_are_answered(tmp_path):
    times = Configuration(**LONG).check()

    async def test(stage):
        async with asyncio.timeout(PATIENCE_S), member(stage, times) as messages:
            handed = pinged = 0
            async for batch in messages.batches(1):
                borrower = messages.machines.nodes[batch[0].owner].record
                if 0 < handed < 4:
                    assert borrower.ping_n > pinged, "one was due"
                    assert not borrower.outstanding, "whatever it asked is answered"
                    assert borrower.streams[stage.stream].progress == handed
                handed, pinged = handed + 1, borrower.ping_n
                if handed < 4:
                    time.sleep(1.05 * times.lease_ms / 4 / 1000)
                await batch.ack()
                if handed == MESSAGES:
                    break
            assert messages.machines.record.recreated == 0

    with Stage(tmp_path, **{field: getattr(times, field) for field in TENTH}) as stage:
        asyncio.run(publish(stage))
        stage.lead()
        asyncio.run(test(stage))

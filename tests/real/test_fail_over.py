"""An application whose leader host is killed and comes back: what it holds from before harms nothing."""

from __future__ import annotations

import asyncio

from stage import TENTH, Stage

from statemachines.drivers.shared_subscriptions import SharedSubscription
from statemachines.shared_subscriptions.configuration import Configuration

PATIENCE_S = 120


def test_what_was_handed_over_under_a_leader_that_is_gone(tmp_path):
    """The next leader gives its grants the same numbers.  What was fetched under the old one is not taken for the new
    one's, and acknowledging what the old one granted changes nothing: it comes again (SS-108)."""

    async def until(holds):
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0.01)

    async def test(stage):
        times, failures = Configuration(**TENTH), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        async with SharedSubscription(
            "$shared/g/#",
            leader=stage.leader,
            store=stage.nodes.store,
            trace=stage.trace,
            configuration=times,
            buffer=16,
            start="beginning",
        ) as messages:
            batches = messages.batches(5)
            async with asyncio.timeout(PATIENCE_S):
                before = await anext(batches)
            stage.kill("leader-1")
            await asyncio.to_thread(stage.lead)
            session = messages._host.nodes[messages._host.session]
            await until(lambda: messages._host.record.recreated)
            await until(lambda: any(reading.fetched for _, reading in session.record.readings.items()))
            ((_, reading),) = session.record.readings.items()
            assert reading.grant == before[0].grant, "as the test supposes"
            assert reading.delivered == 0
            for message in before:
                await message.ack()
            await asyncio.sleep(0)
            assert failures == []
            ((_, reading),) = session.record.readings.items()
            assert reading.progress == 0
            got = []
            async with asyncio.timeout(PATIENCE_S):
                async for batch in batches:
                    got += batch
                    for message in batch:
                        await message.ack()
                    if len(got) == 50:
                        break
            assert [message.payload for message in got] == stage.published["orders"]

    with Stage(tmp_path) as stage:
        asyncio.run(stage._publish(["orders"], 50))
        stage.lead()
        asyncio.run(test(stage))

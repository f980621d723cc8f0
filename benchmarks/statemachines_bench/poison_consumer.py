"""A member of a group as a process of its own, for the row about poison: it takes a millisecond for each message, and
dies of one whose payload it is told.

`LEADER STORE NAME TIMES POISON`: where the leader host listens, the database, its name, a file of times, the payload.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

WORK_S = 0.001


async def work(leader: str, store: str, name: str, times: str, poison: str) -> None:
    from statemachines.drivers.shared_subscriptions import SharedSubscription
    from statemachines.shared_subscriptions.configuration import Configuration

    configuration = msgspec.json.decode(Path(times).read_bytes(), type=Configuration)
    async with SharedSubscription(
        "$shared/bench/#", leader=leader, store=store, node=name, configuration=configuration
    ) as messages:
        async for message in messages:
            await asyncio.sleep(WORK_S)
            if message.payload == poison.encode():
                os.kill(os.getpid(), signal.SIGKILL)
            await message.ack()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))

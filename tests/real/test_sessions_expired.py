"""What has expired while its session was away does not stay stored: a node as a process, and a collector beside it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing

from node_processes import PATIENCE_S, nodes_of

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.drivers.persistent_sessions.collect import run_collector
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.persistent_sessions.collector_record import MessageLost
from statemachines.persistent_sessions.graces import Graces

SOON_S = 0.05
BEHIND = [f"behind {number}".encode() for number in range(3)]
EXPIRED = 200


def stored(store):
    """What lies in the tables: payloads, and how many rows."""
    with closing(sqlite3.connect(store)) as connection:
        payloads = {payload for (payload,) in connection.execute("SELECT payload FROM messages")}
        ((rows,),) = connection.execute("SELECT count(*) FROM session_rows WHERE tag = 0")
    return payloads, rows


def logged(folder, event):
    """How often the node has logged this."""
    lines = [line for file in folder.glob("*.ndjson") for line in file.read_text().splitlines()]
    return sum(json.loads(line).get("event") == event for line in lines)


async def test_PS_240_PS_241_what_expired_while_its_session_was_away_is_deleted_and_counted(tmp_path):
    store, logs = str(tmp_path / "s.db"), tmp_path / "logs"

    async def main():
        async with nodes_of(tmp_path, store, ("a",), "--no-collect", "--trace", str(logs)) as (node,):
            nodes = [node.address]
            async with PersistentSession("tablet", nodes=nodes) as session:
                await session.subscribe("t")
            async with SessionPublisher(nodes=nodes) as publisher:
                await asyncio.gather(*(publisher.publish("t", b"x" * 1_000, expiry=SOON_S) for _ in range(EXPIRED)))
                for payload in BEHIND:
                    await publisher.publish("t", payload)
            assert stored(store)[1] == EXPIRED + len(BEHIND)
            lost = await collected(store, lambda: len(stored(store)[0]) == len(BEHIND))
            assert (stored(store), lost) == ((set(BEHIND), EXPIRED + len(BEHIND)), [])
            async with PersistentSession("tablet", nodes=nodes) as session:
                for payload in BEHIND:
                    message = await anext(session)
                    assert (message.payload, message.dup) == (payload, False)
                    message.acknowledge()
            assert await node.end() == 0
            assert logged(logs, "message_expired") == EXPIRED

    async with asyncio.timeout(PATIENCE_S):
        await main()


async def collected(store, is_done):
    """Rounds until this is so; what was told as lost."""
    told = []
    opened = await asyncio.to_thread(open_session_store, store)
    task = asyncio.create_task(run_collector(opened, Graces(message_ms=1, round_ms=20), told=told.append))
    while not is_done():
        assert not task.done(), task
        await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await opened.close()
    return [one for one in told if isinstance(one, MessageLost)]

"""Rows of many sessions in few statements: the same rows as one by one."""

from __future__ import annotations

import asyncio
from functools import partial

from session_databases import Clock, connect

from statemachines.drivers.persistent_sessions import machine_requests
from statemachines.drivers.persistent_sessions.host_requests import Beat
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import BeginEpoch, PutRows, RowStored

SESSIONS = machine_requests.SESSIONS_MIN + 5
MESSAGES = machine_requests.HANDS_MAX + 3
ROWS = (
    "SELECT session, number, tag, message, filter, qos, token, n, k, until_ns FROM @session_rows WHERE writer = :writer"
)


def to_rows(first):
    """Messages that differ in whatever a row has of them."""
    return tuple(Queued(first + one, f"m{one}", f"a/{one % 2}", one % 3, one) for one in range(MESSAGES))


async def put_twice(opened, **writers):
    """By each of these writers the same rows, together from so many sessions on; some sessions have a row before them,
    and a higher epoch."""
    life = await opened.begin_life("n1", 10_000)
    sessions = [f"s{number}" for number in range(SESSIONS)]
    for place, session in enumerate(sessions):
        await connect(opened, session, session)
        for writer in writers:
            for _ in range(1 + place % 2):
                await opened.ask(BeginEpoch(session, writer))
            if place % 3 == 0:
                await opened.ask(PutRows(session, writer, 1 + place % 2, (Queued(1, "before", "a", 1),)))
    for batch, (writer, least) in enumerate(writers.items(), 1):
        machine_requests.SESSIONS_MIN = least
        asked = [
            PutRows(session, writer, 1 + place % 2, to_rows(1 + (place % 3 == 0)))
            for place, session in enumerate(sessions)
        ]
        *answers, _ = await opened.carry_out(life, batch, [*asked, Beat("n1", 10_000)])
        assert all(isinstance(one, RowStored) for (one,) in answers)


def test_PS_500_rows_of_many_sessions_are_the_rows_that_each_would_have_alone(url, monkeypatch):
    async def body():
        opened = open_session_store(url, clock=Clock())
        try:
            await put_twice(opened, together=2, alone=SESSIONS + 1)
            return [await opened._database.run(partial(read, opened, one)) for one in ("together", "alone")]
        finally:
            await opened.close()

    def read(opened, writer):
        with opened._database.reading() as sql:
            return sorted(sql.all(ROWS, writer=writer.encode()))

    monkeypatch.setattr(machine_requests, "SESSIONS_MIN", machine_requests.SESSIONS_MIN)  # as it was, behind the test
    together, alone = asyncio.run(body())
    assert together == alone
    assert len(together) == SESSIONS * MESSAGES + len(range(0, SESSIONS, 3))

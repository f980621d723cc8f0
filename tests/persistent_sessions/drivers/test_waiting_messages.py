"""A round passes over messages that wait, and finds those that do not, whatever sessions have taken meanwhile."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from session_databases import MS, wipe
from test_collector_contract import LATER, NOW

from statemachines.drivers.persistent_sessions.collector_requests import SessionBounds
from statemachines.drivers.persistent_sessions.machine_requests import PUT_ROW
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.persistent_sessions import waiting_messages
from statemachines.persistent_sessions.collector_request import ReadMessages
from statemachines.persistent_sessions.graces import NEVER_MS

GRACE_MS = 60_000
OLDEST_NS = NOW - 100 * GRACE_MS * MS
UNTIL_NS = {"lasts": 0, "ends later": LATER, "has ended": NOW}


class Backlog:
    """A database in which messages wait, as a collector that remembers and one that does not see it."""

    def __init__(self, url, retention_ms=NEVER_MS):
        self.store, self._other = (open_session_store(url, clock=lambda: NOW) for _ in range(2))
        self.store.bound_sessions(SessionBounds(), retention_ms)
        self._messages = 0
        self._rows = {}

    async def write(self, work):
        def carry_out():
            with self.store._database.writing() as sql:
                work(sql)

        await self.store._database.run(carry_out)

    async def begin(self):
        def work(sql):
            wipe(sql)
            sql.run("UPDATE @store SET time_ns = :now", now=NOW)

        await self.write(work)

    async def publish(self, count, sessions, ends="lasts"):
        """Messages that are old, with a row for each of these sessions."""

        def work(sql):
            for _ in range(count):
                self._messages += 1
                message = b"m%d" % self._messages
                sql.run("INSERT INTO @messages VALUES (:id, :none, :none, 1, :at, NULL)",
                        id=message, none=b"", at=OLDEST_NS + self._messages)  # fmt: skip
                for session in sessions:
                    number = self._rows[session] = self._rows.get(session, 0) + 1
                    row = (
                        session.encode(),
                        b"w",
                        1,
                        number,
                        0,
                        message,
                        b"",
                        1,
                        0,
                        0,
                        0,
                        OLDEST_NS,
                        UNTIL_NS[ends],
                        None,
                    )
                    sql.put_many(PUT_ROW, [row])

        await self.write(work)

    async def take(self, session, share):
        """So much of what was ever stored for the session goes, from the front."""
        last = int(self._rows.get(session, 0) * share)
        statement = "DELETE FROM @session_rows WHERE session = :session AND number <= :last"
        await self.write(lambda sql: sql.run(statement, session=session.encode(), last=last))

    async def delete(self, messages):
        await self.write(
            lambda sql: [sql.run("DELETE FROM @messages WHERE id = :id", id=one.encode()) for one in messages]
        )

    async def walk(self, page, *, remembers=True):
        """The messages that nobody waits for any more, as a round finds them, and how many pages it reads."""
        after, found, pages = "", [], 0
        while True:
            (read,) = await (self.store if remembers else self._other).ask(ReadMessages(after, page, GRACE_MS))
            pages += 1
            if not read.messages:
                return found, pages
            assert read.place > after
            found += [one.message for one in read.messages if one.over or not one.referenced]
            after = read.place

    async def close(self):
        for store in (self.store, self._other):
            await store.close()


def on(url, body, **options):
    async def main():
        backlog = Backlog(url, **options)
        try:
            await backlog.begin()
            return await body(backlog)
        finally:
            await backlog.close()

    return asyncio.run(main())


SESSIONS = st.lists(st.sampled_from("abc"), unique=True)
PUBLISHES = st.lists(st.tuples(st.integers(1, 7), SESSIONS, st.sampled_from(sorted(UNTIL_NS))), max_size=3)
TAKES = st.dictionaries(st.sampled_from("abc"), st.sampled_from((0.2, 0.5, 0.9, 1.0)))
ROUNDS = st.lists(st.tuples(PUBLISHES, TAKES, st.booleans()), min_size=2, max_size=5)


@settings(max_examples=20)
@given(rounds=ROUNDS, page=st.integers(1, 4), run_max=st.integers(1, 9), asked_max=st.integers(1, 3))
def test_PS_710_a_round_that_passes_over_messages_finds_what_one_finds_that_reads_all(
    shared_url, rounds, page, run_max, asked_max
):
    async def body(backlog):
        for publishes, takes, is_deleted in rounds:
            for one in publishes:
                await backlog.publish(*one)
            for session, share in takes.items():
                await backlog.take(session, share)
            found, _ = await backlog.walk(page)
            assert found == (await backlog.walk(page, remembers=False))[0]
            if is_deleted:
                await backlog.delete(found)

    with (
        patch.object(waiting_messages, "RUN_MAX", run_max),
        patch.object(waiting_messages, "ASKED_MAX", asked_max),
        patch.object(waiting_messages, "SHARE", 1),
    ):
        on(shared_url, body)

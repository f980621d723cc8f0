"""What a commit survives: when the file waits for fsync, and which server is refused."""

from __future__ import annotations

import asyncio

import pytest

from statemachines.drivers.persistent_sessions.route_rows import PutMessage
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.sql.durability import Durability
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.request import BeginEpoch

NORMAL, FULL = 1, 2


def read_setting(store):
    return store._database._database.connection.execute("PRAGMA synchronous").fetchone()[0]


@pytest.mark.parametrize(("durability", "flushed"), [(Durability.PROCESS, NORMAL), (Durability.POWER, FULL)])
def test_D_510_with_power_a_commit_is_flushed_unless_its_rows_come_later(tmp_path, durability, flushed):
    async def test():
        store = open_session_store(tmp_path / "s.db", durability=durability)
        try:
            life = await store.begin_life("n", 1)
            found = [await store._database.run(lambda: read_setting(store))]
            for batch, request in enumerate(
                (
                    PutMessage("m1", "t", b"x", 1),
                    PutMessage("m2", "t", b"x", 1, retain=True),
                    PutMessage("m3", "t", b"x", 1),
                    PutMessage("m4", "t", b"x", 1, is_appended=True),
                    BeginEpoch("nobody", "n"),
                ),
                1,
            ):
                await store.carry_out(life, batch, [request])
                found.append(await store._database.run(lambda: read_setting(store)))
            return found
        finally:
            await store.close()

    assert asyncio.run(test()) == [flushed, NORMAL, flushed, NORMAL, flushed, flushed]


def test_D_510_a_server_that_does_not_flush_is_refused(postgres_url):
    mark = "&" if "?" in postgres_url else "?"
    lazy = f"{postgres_url}{mark}options=-c%20synchronous_commit%3Doff"
    with pytest.raises(ConfigurationError, match="synchronous_commit = off"):
        open_session_store(lazy, durability=Durability.POWER)
    for url, durability in ((lazy, Durability.PROCESS), (postgres_url, Durability.POWER)):
        asyncio.run(open_session_store(url, durability=durability).close())

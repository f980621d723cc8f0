"""A PostgreSQL behind pgbouncer in transaction mode: each transaction has another session of the server (SS-305)."""

from __future__ import annotations

import asyncio

import pytest
from pgbouncer import pgbouncer

from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore, PostgresStreamStore
from statemachines.drivers.sql.failure import StoreAway
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.group_store import Commit, Committed, Read, ReadDone
from statemachines.shared_subscriptions.stream_store import Fetch, Slice, stream_id
from statemachines.testing.postgres import run_sql

OFTEN = 12
"""A statement is prepared when it has been sent five times."""


@pytest.fixture(params=["", "ignore_startup_parameters = options"], ids=["refuses options", "drops options"])
def pooled(request, postgres, tmp_path):
    """The URL of an empty database behind one that takes no settings of a session."""
    with pgbouncer(postgres.url, tmp_path, more=request.param) as url:
        yield url


def test_SS_305_stores_behind_a_pooler_work_and_their_transactions_have_their_limits(pooled):
    """Two of a kind at once, so that sessions of the server go from hand to hand."""

    async def run():
        streams = [PostgresStreamStore(pooled) for _ in range(2)]
        groups = [PostgresGroupStore(pooled) for _ in range(2)]
        try:
            for number in range(OFTEN):
                await asyncio.gather(*(store.append("a", [b"x"]) for store in streams))
                for n, store in enumerate(groups):
                    ((done,), (read,)) = (
                        [await store.ask(Commit(1, (), ((f"k{n}", number),)))],
                        await store.ask(Read(2, (f"k{n}",))),
                    )
                    assert isinstance(done[0], Committed)
                    assert isinstance(read, ReadDone)
                    assert read.records[0].value == number
            _, payloads = await streams[0].fetch(Fetch(1, (Slice(stream_id("a", 4, 0), 1, 0, 99),)))
            limits = await streams[0]._database.run(lambda: limits_of(streams[0]._database))
        finally:
            for store in (*streams, *groups):
                await store.close()
        return payloads, limits

    payloads, limits = asyncio.run(run())
    assert payloads == [[(b"x", None)] * 2 * OFTEN]
    assert limits == ["2s", "1min", "2s"] * 2
    assert run_sql(pooled, "SHOW lock_timeout") == [("0",)], "the next user of this session has no limit of ours"


def limits_of(database):
    """In a transaction, and where only one statement is asked."""
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
    found = []
    for opened in (database.transaction, database.single):
        with opened() as connection:
            found += [connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names]
    return found


def test_SS_305_what_a_server_says_who_lets_nobody_in_is_told_at_once(postgres, tmp_path):
    """It answers, so nobody waits for it to be there."""
    with pgbouncer(postgres.url, tmp_path) as url, pytest.raises(ConfigurationError) as refused:
        PostgresStreamStore(f"{url}?options=-csearch_path%3Dx")
    assert not isinstance(refused.value, StoreAway)
    assert "lets nobody in" in str(refused.value)
    assert "unsupported startup parameter" in str(refused.value)

"""Opening a PostgreSQL database: every one that cannot be used is refused by name, without its password; and what the
stores there add to their meaning: waiting, failures, costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from store_programs import OPEN, process, run, tell

from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore, PostgresStreamStore
from statemachines.drivers.sql.failure import StoreDamaged, StoreUnavailable
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.group_store import Commit, Read, StoreFailed
from statemachines.shared_subscriptions.stream_store import FetchFailed, ListStreams, stream_id
from statemachines.testing.postgres import run_sql

STREAM = stream_id("a", 4, 0)


def make(url):
    asyncio.run(PostgresStreamStore(url).close())


def refused(url, *says):
    """The stores are refused with a text that says all of it, and shows no password."""
    for store in (PostgresGroupStore, PostgresStreamStore):
        with pytest.raises(ConfigurationError) as raised:
            store(url)
        text = str(raised.value)
        assert raised.value.key == "store"
        assert all(part in text for part in says), text
        assert "secret" not in text


# -- what is refused ------------------------------------------------------------------------------------------------


def test_a_schema_of_another_program(postgres):
    postgres.sql("CREATE SCHEMA gapless")
    postgres.sql("CREATE TABLE gapless.theirs (x integer)")
    refused(postgres.url, "another program's schema 'gapless'; give a database of its own")
    assert postgres.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'gapless'") == [(1,)]


def test_a_user_who_may_not_make_the_tables_or_use_them(postgres):
    user = f"guest_{postgres.url.rpartition('/')[2]}"
    postgres.sql(f"CREATE USER {user}")
    guest = postgres.url.replace("postgres@", f"{user}@")
    refused(guest, "does not allow what is needed (permission denied for database", "let its user CREATE")
    make(postgres.url)
    refused(guest, "does not allow what is needed (permission denied for schema")
    postgres.sql(f"GRANT USAGE ON SCHEMA gapless TO {user}")
    postgres.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA gapless TO {user}")
    with pytest.raises(
        ConfigurationError, match=r"does not allow UPDATE on gapless.store, INSERT on gapless.group_records"
    ):
        PostgresGroupStore(guest)
    reader = PostgresStreamStore(guest)

    async def test():
        with pytest.raises(StoreUnavailable, match="permission denied for table streams"):
            await reader.append("a", [b"1"])

    run(test(), reader)


@pytest.mark.parametrize("made", [True, False])
def test_SS_261_a_standby_may_be_the_primary_server_soon(postgres, made):
    if made:
        make(postgres.url)
    postgres.sql(f"ALTER DATABASE {postgres.url.rpartition('/')[2]} SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match=r"read-only"):
        PostgresGroupStore(postgres.url)


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from statemachines.cli import run
sys.exit(run(["node", "publisher", "--store", "postgresql://u:secret@h/d"]))
"""


@pytest.mark.parametrize("package", ["psycopg", "sqlalchemy"])
def test_a_missing_extra_is_named(package):
    done = subprocess.run([sys.executable, "-c", WITHOUT, package], capture_output=True, text=True)
    assert done.returncode == 2
    needs = f"needs the package '{package}', which is not installed: pip install 'gapless[postgres]'"
    assert done.stderr == f"error: store = 'h/d': {needs}\n"


# -- where a store is -----------------------------------------------------------------------------------------------


# -- several at once ------------------------------------------------------------------------------------------------

MAKE = (
    OPEN
    + """
async def main():
    print("ready", flush=True)
    for url in sys.stdin:
        groups, streams = open_both(url.strip())
        appended = await streams.append("t", [b"x"])
        await groups.close()
        await streams.close()
        print(appended.last, flush=True)

asyncio.run(main())
"""
)


@pytest.mark.long
def test_several_processes_make_the_tables_at_the_same_time(postgres):
    with process(MAKE, "") as a, process(MAKE, "") as b, process(MAKE, "") as c:
        children = (a, b, c)
        assert [child.stdout.readline() for child in children] == ["ready\n"] * 3
        for _ in range(3):
            for child in children:
                tell(child, postgres.url)
            assert sorted(child.stdout.readline() for child in children) == ["0\n", "1\n", "2\n"]
            postgres.wipe()


# -- failures -------------------------------------------------------------------------------------------------------


def test_a_connection_that_was_cut_is_made_anew(postgres):
    groups, streams = PostgresGroupStore(postgres.url), PostgresStreamStore(postgres.url)

    async def test():
        await groups.ask(Commit(1, (), (("k", 1),)))
        for _ in range(2):
            cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'gapless'"
            run_sql(postgres.url, cut + " AND datname = current_database()")
            assert await groups.ask(Read(2, ("k",))) == (StoreFailed(2),)
            assert (await groups.ask(Read(3, ("k",))))[0].records[0].value == 1
            assert await streams.ask(ListStreams(4, "#", 0, "", 9)) == (FetchFailed(4),)
            assert (await streams.ask(ListStreams(5, "#", 0, "", 9)))[0].streams == ()

    run(test(), groups, streams)


def fail_with(postgres, code):
    """In the place of the records stands what fails like a server in trouble."""
    postgres.sql("ALTER TABLE gapless.group_records RENAME TO elsewhere")
    postgres.sql(
        "CREATE FUNCTION gapless.fails() RETURNS bytea LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION 'in trouble' USING ERRCODE = '{code}'; END $$"
    )
    columns = "gapless.fails() AS key, ''::bytea AS value, 0::bigint AS time_ns"
    postgres.sql(f"CREATE VIEW gapless.group_records AS SELECT {columns}")


def test_damage_is_no_passing_failure(postgres):
    store = PostgresGroupStore(postgres.url)
    fail_with(postgres, "XX001")

    async def test():
        with pytest.raises(StoreDamaged, match="in trouble; restore the database from a copy"):
            await store.ask(Read(1, ("k",)))

    run(test(), store)


# -- cost -----------------------------------------------------------------------------------------------------------

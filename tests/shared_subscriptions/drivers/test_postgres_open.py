"""Opening a PostgreSQL database: every one that cannot be used is refused by name, without its password; and what the
stores there add to their meaning: waiting, failures, costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress

import pytest
from sqlalchemy.exc import DBAPIError
from store_programs import OPEN, process, run, tell

from statemachines import cli
from statemachines.drivers.shared_subscriptions.open_stores import directory_of, open_stores, open_stream_store, path_of
from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore, PostgresStreamStore
from statemachines.drivers.shared_subscriptions.postgres import stream_store as streams_on_postgres
from statemachines.drivers.sql.failure import StoreDamaged, StoreUnavailable
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.group_store import Commit, Read, StoreFailed
from statemachines.shared_subscriptions.stream_store import Fetch, FetchFailed, ListStreams, Slice, stream_id
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


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (
            "postgresql://u:secret@127.0.0.1:1/d",
            ["postgresql://u:***@127.0.0.1:1/d", "cannot be reached", "start Post"],
        ),
        ("postgresql://u:secret@nowhere.invalid/d", ["@nowhere.invalid/d", "cannot be reached", "check host and port"]),
        ("postgresql://u@127.0.0.1:1/d?password=secret", ["password=***", "cannot be reached"]),
        (
            "postgresql://u:secret@127.0.0.1:port/d",
            ["127.0.0.1:port/d", "must be postgresql://USER@HOST:PORT/DATABASE"],
        ),
        ("postgresql://u:secret@127.0.0.1", ["names no database"]),
    ],
)
def test_a_url_that_leads_nowhere(url, says):
    refused(url, *says)


@pytest.mark.parametrize("role", [["leader"], ["consumer", "$shared/g/#"], ["publisher"]])
def test_a_node_that_cannot_open_its_store_says_so_and_shows_no_password(role, tmp_path, capsys):
    store = ["--store", "postgresql://u:secret@127.0.0.1:1/d?sslmode=bogus", "--state", str(tmp_path)]
    assert cli.run(["node", *role, *store]) == cli.Exit.USAGE
    said = capsys.readouterr().err
    assert said.startswith("error: store = 'postgresql://u:***@127.0.0.1:1/d?sslmode=bogus': cannot be ")
    assert "secret" not in said


def test_a_database_that_is_not_there(postgres):
    refused(postgres.url + "_none", "is not there", "make it with createdb")


def test_a_user_that_is_not_there(postgres):
    refused(postgres.url.replace("postgres@", "nobody:secret@"), "nobody:***@", "does not let us in", "check user")


def test_tables_of_another_version(postgres):
    make(postgres.url)
    postgres.sql("UPDATE gapless.store SET version = 9, oldest_reader = 9")
    refused(
        postgres.url,
        "of version 9, and needs a gapless with tables of version 9 or later; this one has version 1: use a newer one",
    )


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


def test_a_store_is_a_path_or_a_url(tmp_path, monkeypatch, postgres):
    monkeypatch.chdir(tmp_path)
    assert [str(path_of(each)) for each in ("a/b.db", "sqlite:///a/b.db", "sqlite:////a%20b.db")] == [
        "a/b.db",
        "a/b.db",
        "/a b.db",
    ]
    assert path_of(postgres.url) is None
    assert [str(directory_of(each)) for each in ("a/b.db", postgres.url)] == ["a", "."]
    for wrong in ("mysql://u:secret@h/d", "sqlite://x", "sqlite:///", "http://"):
        with pytest.raises(ConfigurationError, match="must be a path, sqlite:///PATH or postgresql://") as raised:
            open_stores(wrong)
        assert "secret" not in str(raised.value)
    for where in ("sqlite:///x.db", postgres.url):
        groups, streams = open_stores(where)
        run(streams.append("a", [b"1"]), groups, streams)
        again = open_stream_store(where)
        assert run(again.append("a", [b"2"]), again).first == 1
    assert (tmp_path / "x.db").exists()


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


def test_a_process_that_is_paused_within_a_transaction_holds_nobody_up_for_ever(postgres):
    store = PostgresGroupStore(postgres.url)
    with store._database._engine.connect() as connection:
        found = {name: connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in LIMITS}
    assert found == LIMITS
    run(store.ask(Read(1, ())), store)


LIMITS = {
    "lock_timeout": "2s", "statement_timeout": "1min", "idle_in_transaction_session_timeout": "2s",
    "tcp_keepalives_idle": "5", "tcp_keepalives_interval": "1", "tcp_keepalives_count": "5",
}  # fmt: skip


def test_what_was_refused_writes_nothing_and_time_goes_on(postgres):
    store = PostgresGroupStore(postgres.url)

    async def test():
        (first,) = await store.ask(Commit(1, (), (("k", 1),)))
        await store.ask(Commit(2, (("k", None),), (("k", 2),)))
        (read,) = await store.ask(Read(3, ("k", "other")))
        assert read.records[0].stamp == first.stamp <= read.time_ns
        assert read.records[1] is None
        assert (await store.ask(Read(4, ())))[0].records == ()
        assert (await store.ask(Commit(5, (), ())))[0].stamp > first.stamp

    run(test(), store)
    assert postgres.sql("SELECT abs(extract(epoch FROM clock_timestamp()) * 1e9 - time_ns) < 6e10 FROM gapless.store")[
        0
    ][0], "it is the server's time"


def test_the_largest_message_and_topic(postgres):
    """A machine that takes more than 2 s for these 20 MB loses its transaction, and is told to try again."""
    store = PostgresStreamStore(postgres.url)

    async def append():
        for _ in range(10):
            with suppress(StoreUnavailable):
                return await store.append("é" * 512, [b"\0" * 2**20] * 20)
        raise AssertionError("it was refused each time")

    async def test():
        with pytest.raises(ConfigurationError, match="must have at most 1048576"):
            await store.append("a", [b"x" * (2**20 + 1)])
        appended = await append()
        fetched, (payloads,) = await store.fetch(Fetch(1, (Slice(appended.stream, 1, 0, 20),)))
        assert payloads == [(b"\0" * 2**20, None)] * 16
        assert fetched.batches[0].last == 15

    run(test(), store)


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


@pytest.mark.parametrize("code", ["40001", "40P01", "53100", "55P03", "57014", "25006", "42501"])
def test_what_passes_is_the_protocol_s_store_error(postgres, code, caplog):
    store = PostgresGroupStore(postgres.url)
    fail_with(postgres, code)

    async def test():
        assert await store.ask(Read(1, ("k",))) == (StoreFailed(1),)
        assert await store.ask(Commit(2, (("k", None),), ())) == (StoreFailed(2),)

    run(test(), store)
    assert "in trouble; nothing was written, try again" in caplog.text


def test_damage_is_no_passing_failure(postgres):
    store = PostgresGroupStore(postgres.url)
    fail_with(postgres, "XX001")

    async def test():
        with pytest.raises(StoreDamaged, match="in trouble; restore the database from a copy"):
            await store.ask(Read(1, ("k",)))

    run(test(), store)


def test_a_mistake_of_ours_is_not_hidden(postgres):
    store = PostgresGroupStore(postgres.url)
    fail_with(postgres, "22012")

    async def test():
        with pytest.raises(DBAPIError, match="in trouble"):
            await store.ask(Read(1, ("k",)))

    run(test(), store)


# -- cost -----------------------------------------------------------------------------------------------------------


def test_a_fetch_looks_only_at_what_it_gives(postgres):
    store = PostgresStreamStore(postgres.url)

    async def fill():
        for topic in "abcdefgh":
            await store.append(topic, [b"x" * 64] * 2_000)

    run(fill(), store)
    postgres.sql("ANALYZE gapless.messages")
    read = str(streams_on_postgres.READ).replace(":firsts", "'{1}'").replace(":lasts", "'{100}'").replace(":room", "99")
    plan = "\n".join(row[0] for row in postgres.sql("EXPLAIN " + read))
    assert "messages_pkey" in plan
    assert "Seq Scan" not in plan

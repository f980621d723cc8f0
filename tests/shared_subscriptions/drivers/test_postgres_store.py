"""Opening a PostgreSQL database: every one that cannot be used is refused by name, without its password; and what the
stores there add to their meaning: waiting, failures, costs.

A PostgreSQL behind pgbouncer in transaction mode: each transaction has another session of the server (SS-305).

What every database adds to the meaning of the stores alike: waiting, failures, the end of a stream, what fits.

The server dies in the middle: nothing committed is lost, nothing is there twice or half, and its clients go on.

The private server of tests: never as root, gone afterwards however its users went, shared where that is wanted.
"""

import asyncio
import contextlib
import signal
import subprocess
import sys

import psycopg
import pytest
from pgbouncer import pgbouncer
from store_programs import OPEN, close_afterwards, process, tell
from waiting import until

from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore, PostgresStreamStore
from statemachines.drivers.sql.failure import OutcomeOpen, StoreAway, StoreDamaged, StoreUnavailable
from statemachines.kernel import ConfigurationError, LocalProtocolError
from statemachines.shared_subscriptions.group_store import Commit, Committed, Read, ReadDone, StoreFailed
from statemachines.shared_subscriptions.stream_store import (
    Append,
    Fetch,
    FetchFailed,
    ListStreams,
    Slice,
    StreamsListed,
    stream_id,
)
from statemachines.testing import postgres
from statemachines.testing.postgres import PostgresServer, run_sql

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


async def test_a_user_who_may_not_make_the_tables_or_use_them(postgres):
    user = f"guest_{postgres.url.rpartition('/')[2]}"
    postgres.sql(f"CREATE USER {user}")
    guest = postgres.url.replace("postgres@", f"{user}@")
    refused(guest, "does not allow what is needed (permission denied for database", "let its user CREATE")
    await PostgresStreamStore(postgres.url).close()
    refused(guest, "does not allow what is needed (permission denied for schema")
    postgres.sql(f"GRANT USAGE ON SCHEMA gapless TO {user}")
    postgres.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA gapless TO {user}")
    with pytest.raises(
        ConfigurationError, match=r"does not allow UPDATE on gapless.store, INSERT on gapless.group_records"
    ):
        PostgresGroupStore(guest)
    reader = PostgresStreamStore(guest)

    async with close_afterwards(reader):
        with pytest.raises(StoreUnavailable, match="permission denied for table streams"):
            await reader.append("a", [b"1"])


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


async def test_a_connection_that_was_cut_is_made_anew(postgres):
    groups, streams = PostgresGroupStore(postgres.url), PostgresStreamStore(postgres.url)

    async with close_afterwards(groups, streams):
        await groups.ask(Commit(1, (), (("k", 1),)))
        for _ in range(2):
            cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'gapless'"
            run_sql(postgres.url, cut + " AND datname = current_database()")
            assert await groups.ask(Read(2, ("k",))) == (StoreFailed(2),)
            assert (await groups.ask(Read(3, ("k",))))[0].records[0].value == 1
            assert await streams.ask(ListStreams(4, "#", 0, "", 9)) == (FetchFailed(4),)
            assert (await streams.ask(ListStreams(5, "#", 0, "", 9)))[0].streams == ()


def fail_with(postgres, code):
    """In the place of the records stands what fails like a server in trouble."""
    postgres.sql("ALTER TABLE gapless.group_records RENAME TO elsewhere")
    postgres.sql(
        "CREATE FUNCTION gapless.fails() RETURNS bytea LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION 'in trouble' USING ERRCODE = '{code}'; END $$"
    )
    columns = "gapless.fails() AS key, ''::bytea AS value, 0::bigint AS time_ns"
    postgres.sql(f"CREATE VIEW gapless.group_records AS SELECT {columns}")


async def test_damage_is_no_passing_failure(postgres):
    store = PostgresGroupStore(postgres.url)
    fail_with(postgres, "XX001")

    async with close_afterwards(store):
        with pytest.raises(StoreDamaged, match="in trouble; restore the database from a copy"):
            await store.ask(Read(1, ("k",)))


# -- cost -----------------------------------------------------------------------------------------------------------


OFTEN = 12
"""A statement is prepared when it has been sent five times."""


@pytest.fixture(params=["", "ignore_startup_parameters = options"], ids=["refuses options", "drops options"])
def pooled(request, postgres, tmp_path):
    """The URL of an empty database behind one that takes no settings of a session."""
    with pgbouncer(postgres.url, tmp_path, more=request.param) as url:
        yield url


async def test_SS_305_stores_behind_a_pooler_work_and_their_transactions_have_their_limits(pooled):
    """Two of a kind at once, so that sessions of the server go from hand to hand."""

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


def test_all_stores_of_a_database_have_the_same_shards(new_database):
    asyncio.run(new_database.groups().close())
    asyncio.run(new_database.streams(shards=7).close())
    with pytest.raises(ConfigurationError, match="shards = 4: the store was made with 7; give that number"):
        new_database.streams()
    asyncio.run(new_database.streams(shards=7).close())
    with pytest.raises(ConfigurationError, match="shards = 0: must be at least 1"):
        new_database.streams(shards=0)


async def test_the_end_of_a_stream(new_database):
    store = new_database.streams()

    async with close_afterwards(store):
        with pytest.raises(ConfigurationError, match="is not in the store; give an id"):
            await store.end(STREAM)
        await store.append("a", [b"1"])
        await store.end(STREAM)
        await store.end(STREAM)
        (fetched,) = await store.ask(Fetch(1, (Slice(STREAM, 1, 0, 9),)))
        assert fetched.batches[0].ended
        with pytest.raises(ConfigurationError, match="topic = 'a': has ended"):
            await store.append("a", [b"2"])


# -- failures -------------------------------------------------------------------------------------------------------


async def test_SS_255_a_busy_database_answers_that_it_failed(new_database, caplog):
    groups, streams = new_database.groups(busy_s=0.05), new_database.streams(busy_s=0.05)

    async with close_afterwards(groups, streams):
        with new_database.locked() as other:
            assert await groups.ask(Commit(5, (), (("k", 1),))) == (StoreFailed(5),)
            with pytest.raises(StoreUnavailable, match=r"lock.*; nothing was written, try again"):
                await streams.append("a", [b"1"])
            if new_database.kind == "sqlite":  # elsewhere an end waits for its stream alone
                with pytest.raises(StoreUnavailable):
                    await streams.end(STREAM)
            assert isinstance((await groups.ask(Read(6, ("k",))))[0], ReadDone), "reads do not wait for writes"
            assert isinstance((await streams.ask(ListStreams(7, "#", 0, "", 9)))[0], StreamsListed)
            other.rollback()
            assert isinstance((await groups.ask(Commit(8, (), (("k", 1),))))[0], Committed)
            assert (await streams.append("a", [b"1"])).first == 0
    assert new_database.says_locked in caplog.text


async def test_a_closed_store_takes_nothing_and_another_service_s_request_is_refused(new_database):
    store, streams = new_database.groups(), new_database.streams()

    for opened in (store, streams):
        with pytest.raises(TypeError, match="does not take a Append"):
            await opened.ask(Append(1, "a", 1))
    await streams.close()
    await store.close()
    await store.close()
    with pytest.raises(LocalProtocolError, match="was closed; open another"):
        await store.ask(Read(1, ()))


KEYS = ("k0", "k1", "k2")
# Each number is committed in all keys on top of the one before, then appended, until that is answered; then it is said.
WRITE = (
    OPEN
    + """
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.shared_subscriptions.group_store import StoreFailed

async def read(groups):
    while True:
        (answer,) = await groups.ask(Read(0, ("k0", "k1", "k2")))
        if not isinstance(answer, StoreFailed):
            assert len({stored and stored.value for stored in answer.records}) == 1, "half a commit"
            return answer.records[0]
        await asyncio.sleep(0.02)

async def commit(groups, number):
    before = await read(groups)
    while True:
        (answer,) = await groups.ask(Commit(1, (("k0", before),), tuple((f"k{part}", number) for part in range(3))))
        if isinstance(answer, Committed):
            return
        found = await read(groups)
        if found is not None and found.value == number:
            return
        assert found == before, "somebody else wrote"

async def append(streams, number):
    while True:
        try:
            return await streams.append("t", [b"%08d" % number * 100] * 5)
        except StoreUnavailable as error:
            assert "nothing was written" in str(error), error
            await asyncio.sleep(0.02)

async def main():
    groups, streams = open_both()
    number = 0
    while True:
        number += 1
        await commit(groups, number)
        await append(streams, number)
        os.write(1, b"%d\\n" % number)

asyncio.run(main())
"""
)


OURS = "FROM pg_stat_activity WHERE application_name = 'gapless'"


def asked(server, statement):
    """The rows, as soon as the server has recovered and there are some."""

    def ask():
        with contextlib.suppress(psycopg.OperationalError):
            return server.sql(statement)

    return until(ask)


def crash(server):
    server.crash()
    server.start()


def kill(server):
    server.stop(signal.SIGKILL)
    server.start()


@pytest.fixture(scope="module")
def own_server():
    with PostgresServer() as server:
        yield server


@pytest.fixture
def server(own_server):
    """A server that runs, whatever the test before has done to it."""
    own_server.stop()
    own_server.start()
    return own_server


async def look(url):
    groups, streams = PostgresGroupStore(url), PostgresStreamStore(url)
    (read,) = await groups.ask(Read(1, KEYS))
    _, (payloads,) = await streams.fetch(Fetch(1, (Slice(stream_id("t", 4, 0), 1, 0, 10**6),)))
    await groups.close()
    await streams.close()
    return {stored.value for stored in read.records}, [payload for payload, _ in payloads]


# -- an append whose connection is lost -----------------------------------------------------------------------------


class Lost(PostgresStreamStore):
    """A store whose appends lose their connection: `when` is "before" or "after" the commit."""

    when = ""

    def __init__(self, url, server):
        super().__init__(url)
        self.server = server

    def _try_append(self, *given):
        engine = self._database._engine
        if self.when == "before":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine.dialect, "do_commit", lambda connection: cut(self.server, connection))
                super()._try_append(*given)
        elif self.when == "after":
            commit = engine.dialect.do_commit

            def commit_and_cut(connection):
                commit(connection)
                cut(self.server, connection)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine.dialect, "do_commit", commit_and_cut)
                super()._try_append(*given)
        else:
            super()._try_append(*given)


def cut(server, connection):
    """The connection is lost, and the client hears of it."""
    server.sql(f"SELECT pg_terminate_backend({connection.driver_connection.info.backend_pid}, 5000)")
    connection.driver_connection.execute("SELECT 1")


async def test_an_append_stays_open_where_the_server_does_not_come_back(server, monkeypatch):
    monkeypatch.setattr("statemachines.drivers.shared_subscriptions.postgres.stream_store.PATIENCE_S", 0.2)
    store = Lost(server.database("open"), server)

    def cut_and_stop(server, connection):
        server.crash()
        connection.driver_connection.execute("SELECT 1")

    monkeypatch.setitem(globals(), "cut", cut_and_stop)
    await store.append("t", [b"1"])
    store.when = "after"
    with pytest.raises(OutcomeOpen, match=r"@127.0.0.1:\d+/open: .*outcome of this one is open"):
        await store.append("t", [b"2"])
    await store.close()


def answers(url):
    try:
        return run_sql(url, "SELECT 1") == [(1,)]
    except psycopg.OperationalError:
        return False


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL])
def test_a_server_that_was_stopped_starts_again_with_what_was_committed(own, how):
    url = own.database(f"stop_{how}")
    run_sql(url, "CREATE TABLE t (x integer)")
    run_sql(url, "INSERT INTO t VALUES (1)")
    own.stop(how)
    assert not answers(url)
    own.start()
    assert run_sql(url, "SELECT x FROM t") == [(1,)]


@pytest.fixture(scope="module")
def own():
    with PostgresServer() as server:
        yield server


def test_where_postgresql_is_missing_its_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(postgres, "DEBIAN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"initdb.*install the package 'postgresql'"):
        PostgresServer()

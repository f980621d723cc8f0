"""Databases that were made before keys said how long names are: upgraded as they are opened, whole or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import msgspec
import pytest
from headless_store import forget_heads

from statemachines.drivers.shared_subscriptions import old_keys
from statemachines.drivers.shared_subscriptions.old_keys import translate
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore, SqliteStreamStore
from statemachines.drivers.shared_subscriptions.sqlite import tables as sqlite_tables
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.group_store import Claim, Commit, Properties, Read, Scan, StoreFailed
from statemachines.shared_subscriptions.names import RecordName, record_key, record_name
from tests.drivers.shared_subscriptions.conftest import SqliteDatabase

CLAIM, PROPERTIES = Claim("leader-1~1/1", 3), Properties(0, 1_000, 2_000, 15_000)

PLAIN = {
    "g/#:claim": CLAIM,
    "g/#:properties": PROPERTIES,
    "g/#:root": 7,
    "g/#:progress:0.0/t:0": 5,
    "$queue/t/#:claim": CLAIM,
    "g/a:claim": CLAIM,
    "g/a:progress:0.0/a": 4,
    "g/a:progress:x:claim": CLAIM,
    "g/a:progress:x:properties": PROPERTIES,
    "g/a:progress:x:root": 2,
    "g/a:progress:x:progress:0.0/a:progress:x": 6,
}
"""Of four groups, all told apart, although one is called as if it were progress of another."""

MEANT = {
    RecordName("g", "#", "claim"): CLAIM,
    RecordName("g", "#", "properties"): PROPERTIES,
    RecordName("g", "#", "root"): 7,
    RecordName("g", "#", "progress:0.0/t:0"): 5,
    RecordName("$queue", "t/#", "claim"): CLAIM,
    RecordName("g", "a", "claim"): CLAIM,
    RecordName("g", "a", "progress:0.0/a"): 4,
    RecordName("g", "a:progress:x", "claim"): CLAIM,
    RecordName("g", "a:progress:x", "properties"): PROPERTIES,
    RecordName("g", "a:progress:x", "root"): 2,
    RecordName("g", "a:progress:x", "progress:0.0/a:progress:x"): 6,
}

BOTH = {"g/b/a:root:claim": CLAIM, "g/b/a:root:progress:0.0/b/a:claim": CLAIM}
AMBIGUOUS = "g/b/a:root:progress:0.0/b/a:root"
"""The root of the longer filter, or the progress of a stream of the shorter; with `BOTH` nobody can tell."""


def encoded(records):
    return {key: msgspec.msgpack.encode(value) for key, value in records.items()}


def test_SS_219_old_keys_are_told_apart():
    keys, left = translate(encoded(PLAIN))
    assert not left
    assert {record_name(new): PLAIN[old] for old, new in keys.items()} == MEANT


def test_SS_219_a_key_that_two_groups_could_have_written_is_left():
    keys, left = translate(encoded({**BOTH, AMBIGUOUS: 3}))
    assert (left, sorted(keys)) == ([AMBIGUOUS], sorted(BOTH))


@pytest.mark.parametrize("led", BOTH)
def test_SS_219_only_a_group_that_was_led_can_have_written(led):
    keys, left = translate(encoded({led: CLAIM, AMBIGUOUS: 3}))
    assert not left
    assert record_name(keys[AMBIGUOUS]).filter == record_name(keys[led]).filter


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("k", 1),
        ("g/#:claim", 1),
        ("g/#:root", CLAIM),
        ("g/a:progress:0.0/b", 1),
        ("g/a:progress:b", 1),
        ("+/#:root", 1),
    ],
)
def test_SS_219_what_no_group_could_have_written_is_left(key, value):
    assert translate(encoded({key: value})) == ({}, [key])
    assert translate({key: b"\xc1"}) == ({}, [key])


# -- databases ------------------------------------------------------------------------------------------------------


def make_old(database, records):
    """As the version before left it: one message in a stream, and these records."""

    async def make():
        streams = database.streams()
        await streams.append("a", [b"kept"])
        await streams.close()

    asyncio.run(make())
    forget_heads(database)
    if database.kind == "postgres":
        database.sql("ALTER TABLE gapless.group_records RENAME TO records")
        database.sql("ALTER TABLE gapless.store DROP COLUMN identity")
        database.sql("UPDATE gapless.store SET version = 1, time_ns = 5")
        for key, value in encoded(records).items():
            values = f"'\\x{key.encode().hex()}', '\\x{value.hex()}', 5"
            database.sql(f"INSERT INTO gapless.records VALUES ({values})")
        return
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE group_records RENAME TO records")
        connection.execute("ALTER TABLE store DROP COLUMN identity")
        connection.execute("UPDATE store SET time_ns = 5")
        rows = [(key, value, 5) for key, value in encoded(records).items()]
        connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
        connection.execute("PRAGMA user_version = 2")


def records_in(database):
    async def scan():
        store = database.groups()
        (scanned,) = await store.ask(Scan(1, "", "", 100))
        await store.close()
        return scanned.records

    return asyncio.run(scan())


def test_SS_219_a_database_is_upgraded_as_it_is_opened(new_database, caplog):
    database = new_database
    make_old(database, {**PLAIN, **BOTH, AMBIGUOUS: 3})
    found = records_in(database)
    of_both = {RecordName("g", key.removeprefix("g/").removesuffix(":claim"), "claim"): CLAIM for key in BOTH}
    assert {record_name(key): stored.value for key, stored in found} == {**MEANT, **of_both}
    assert {stored.stamp for _, stored in found} == {5}, "whoever watches a claim goes on"
    assert [AMBIGUOUS in line for line in caplog.text.splitlines() if "left_records" in line] == [True]
    caplog.clear()
    assert records_in(database) == found, "once"
    assert not caplog.text
    left = "SELECT count(*) FROM {}left_records"
    if database.kind == "postgres":
        assert database.sql(left.format("gapless.")) == [(1,)]
    else:
        with closing(sqlite3.connect(database.path)) as connection:
            assert connection.execute(left.format("")).fetchall() == [(1,)]


def test_SS_219_a_program_of_before_that_goes_on_is_refused(new_database):
    """It reads and writes the table that is not there any more: the recoverable error, and never a second claim."""
    database = new_database
    make_old(database, PLAIN)
    records_in(database)
    old = "SELECT count(*) FROM {}records"
    if database.kind == "postgres":
        assert database.sql("SELECT to_regclass('gapless.records')") == [(None,)]
    else:
        with (
            closing(sqlite3.connect(database.path)) as connection,
            pytest.raises(sqlite3.OperationalError, match="no such table"),
        ):
            connection.execute(old.format(""))


def test_SS_219_an_upgrade_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    database = SqliteDatabase(tmp_path)
    make_old(database, PLAIN)

    def fails(left):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(sqlite_tables, "say_left", fails)
    with pytest.raises(ConfigurationError, match="cannot be opened for writing"):
        SqliteStreamStore(database.path)
    with closing(sqlite3.connect(database.path)) as connection:
        assert sorted(key for (key,) in connection.execute("SELECT key FROM records")) == sorted(PLAIN)
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    monkeypatch.undo()
    assert len(records_in(database)) == len(PLAIN)


def test_SS_219_one_of_several_that_open_a_database_upgrades_it(new_database):
    database = new_database
    make_old(database, PLAIN)

    async def open_all():
        stores = await asyncio.gather(*(asyncio.to_thread(database.groups) for _ in range(4)))
        for store in stores:
            (read,) = await store.ask(Read(1, (record_key("g", "#", "root"),)))
            assert read.records[0].value == 7
            await store.close()

    asyncio.run(open_all())


# -- records that cannot be read ------------------------------------------------------------------------------------


def spoil(database, key, value=b"\xc1"):
    if database.kind == "postgres":
        spoiled = f"'\\x{value.hex()}'"
        database.sql(f"UPDATE gapless.group_records SET value = {spoiled} WHERE key = '\\x{key.encode().hex()}'")
        return
    with closing(sqlite3.connect(database.path)) as connection, connection:
        connection.execute("UPDATE group_records SET value = ? WHERE key = ?", (value, key))


def test_SS_225_a_record_that_cannot_be_read_is_named_and_left_alone(new_database, caplog):
    database = new_database
    keys = [record_key("g", "#", f"progress:0.0/{number}") for number in range(5)]
    prefix = record_key("g", "#", "progress:")

    async def test():
        store = database.groups()
        await store.ask(Commit(1, (), tuple((key, 1) for key in keys)))
        spoil(database, keys[0])
        spoil(database, keys[1])
        spoil(database, keys[3], msgspec.msgpack.encode(CLAIM))
        for _ in range(2):
            (scanned,) = await store.ask(Scan(2, prefix, "", 2))
            assert ([key for key, _ in scanned.records], scanned.more) == ([keys[2], keys[3]], True)
            (scanned,) = await store.ask(Scan(3, prefix, keys[3], 2))
            assert ([key for key, _ in scanned.records], scanned.more) == ([keys[4]], False)
        assert await store.ask(Read(4, (keys[2], keys[0]))) == (StoreFailed(4),)
        assert await store.ask(Commit(5, ((keys[0], None),), ())) == (StoreFailed(5),)
        await store.close()

    asyncio.run(test())
    scans = [line for line in caplog.messages if "left alone" in line]
    for number, times in enumerate((3, 1, 0, 1, 0)):
        assert sum(f"progress:0.0/{number} " in line for line in scans) == times, "once, and where a request needs it"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("claim", 7),
        ("claim", Claim("l~1/1", 2**63 - 1)),
        ("claim", Claim("l~1/1", -1)),
        ("root", CLAIM),
        ("root", 2**63 - 1),
        ("root", -1),
        ("properties", 7),
        ("properties", CLAIM),
        ("progress:0.0/a", CLAIM),
        ("progress:0.0/a", 2**63),
        ("progress:0.0/a", -1),
    ],
)
def test_SS_225_a_record_of_another_kind_or_a_number_that_cannot_be_is_none_of_ours(new_database, caplog, name, value):
    database, key = new_database, record_key("g", "#", name)

    async def test():
        store = database.groups()
        await store.ask(Commit(1, (), ((key, 1),)))
        spoil(database, key, msgspec.msgpack.encode(value))
        assert await store.ask(Read(2, (key,))) == (StoreFailed(2),)
        assert await store.ask(Commit(3, ((key, None),), ())) == (StoreFailed(3),)
        await store.close()

    asyncio.run(test())
    assert all(key in line and "left alone" in line for line in caplog.messages)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("claim", Claim("l~1/1", 2**63 - 2)),
        ("root", 2**63 - 2),
        ("progress:0.0/a", 2**63 - 1),
    ],
)
def test_SS_225_the_greatest_numbers_can_be_read(new_database, name, value):
    database, key = new_database, record_key("g", "#", name)

    async def test():
        store = database.groups()
        await store.ask(Commit(1, (), ((key, value),)))
        (read,) = await store.ask(Read(2, (key,)))
        assert read.records[0].value == value
        await store.close()

    asyncio.run(test())


def test_SS_225_the_memory_of_what_was_named_is_bounded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("statemachines.drivers.shared_subscriptions.record_codec.NAMED_MAX", 1)
    store = SqliteGroupStore(tmp_path / "x.db")
    codec = store._codec
    for key in "ab":
        assert codec.read_all([(key, b"\xc1", 1)]) == []
    assert len(codec._named) == 1
    asyncio.run(store.close())
    assert old_keys.say_left([]) == ()

"""Records of groups that cannot be read."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import msgspec
import pytest

from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore
from statemachines.shared_subscriptions.group_store import Claim, Commit, Properties, Read, Scan, StoreFailed
from statemachines.shared_subscriptions.names import record_key

CLAIM, PROPERTIES = Claim("leader-1~1/1", 3), Properties(0, 1_000, 2_000, 15_000)


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
async def test_SS_225_a_record_of_another_kind_or_a_number_that_cannot_be_is_none_of_ours(
    new_database, caplog, name, value
):
    database, key = new_database, record_key("g", "#", name)
    store = database.groups()
    await store.ask(Commit(1, (), ((key, 1),)))
    spoil(database, key, msgspec.msgpack.encode(value))
    assert await store.ask(Read(2, (key,))) == (StoreFailed(2),)
    assert await store.ask(Commit(3, ((key, None),), ())) == (StoreFailed(3),)
    await store.close()
    assert all(key in line and "left alone" in line for line in caplog.messages)


def test_SS_225_the_memory_of_what_was_named_is_bounded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("statemachines.drivers.shared_subscriptions.record_codec.NAMED_MAX", 1)
    store = SqliteGroupStore(tmp_path / "x.db")
    codec = store._codec
    for key in "ab":
        assert codec.read_all([(key, b"\xc1", 1)]) == []
    assert len(codec._named) == 1
    asyncio.run(store.close())

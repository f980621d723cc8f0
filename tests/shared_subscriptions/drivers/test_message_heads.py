"""Headers, key and timestamp of messages: through both stores, to members of a group."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from test_nodes import Place, read

from statemachines.drivers.message_head import MessageHead, make_head
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.stream_store import stream_id
from statemachines.testing.postgres import run_sql

STREAM = stream_id("a", 4, 0)
HEAD = make_head({"trace": b"\0\xff", "é": b""}, b"customer-7", 1_764_000_000.25)


def rows_of(database, statement):
    if database.kind == "postgres":
        return run_sql(database.url, statement.format("gapless."))
    with closing(sqlite3.connect(database.path)) as connection:
        return connection.execute(statement.format("")).fetchall()


async def test_SS_380_a_member_gets_what_the_publisher_gave(tmp_path):
    place = Place(tmp_path)
    async with Publisher(place.store, node="publisher") as publisher:
        await publisher.publish("a", [b"0", b"1"], headers=HEAD.headers, key=HEAD.key, timestamp=HEAD.timestamp)
        await publisher.publish("a", [b"2", b"3"], heads=[None, MessageHead(key=b"k")])
        await publisher.publish("a", [b"4"])
        refused = ({"headers": {"": b""}}, {"key": b"k", "heads": [None]}, {"heads": [None, None]}, {"key": "text"})
        for given in refused:
            with pytest.raises(ConfigurationError):
                await publisher.publish("a", [b"bad"], **given)
    async with place.leading(), place.consumer("consumer-1") as messages:
        found = await read(messages, 5)
    assert [one.payload for one in found] == [b"%d" % number for number in range(5)]
    for one in found[:2]:
        assert (one.headers, one.key, one.timestamp) == (HEAD.headers, HEAD.key, HEAD.timestamp)
    assert [(one.headers, one.key, one.timestamp) for one in found[2:]] == [
        ((), None, None),
        ((), b"k", None),
        ((), None, None),
    ]

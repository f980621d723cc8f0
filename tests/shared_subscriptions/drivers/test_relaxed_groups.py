"""Groups whose order is relaxed, in real nodes: their streams go on, across members, leaders and stores."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace
from test_dead_letter_topic import FAILING, LETTER, PROGRESS, read_values
from test_given_back import GROUP, TEN, seen
from test_nodes import FAST, Place, read

from statemachines import cli
from statemachines.drivers.shared_subscriptions.groups import declare
from statemachines.drivers.shared_subscriptions.record_codec import RecordCodec, RecordUnreadable
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.dead_letter import LetterStored, StoreLetter
from statemachines.shared_subscriptions.group_store import Commit, FailingMessage, Properties
from statemachines.shared_subscriptions.message import HOLES_MAX


def test_SS_405_a_group_is_declared_with_its_order_and_keeps_it(tmp_path, capsys):
    store = tmp_path / "messages.db"
    arguments = ("group", "declare", GROUP, "--store", str(store))
    assert cli.run((*arguments, "--order", "relaxed")) == 0
    assert capsys.readouterr().out.endswith("on, in relaxed order\n")
    assert cli.run(arguments) == 0
    assert "was declared already" in capsys.readouterr().out
    assert cli.run((*arguments, "--order", "strict")) == 2
    assert "the group was declared with the other one" in capsys.readouterr().err
    assert cli.run((*arguments, "--order", "loose")) == 2
    assert 'must be "strict" or "relaxed"' in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="order"):
        asyncio.run(declare(GROUP, store=store, order="strict"))


def test_SS_405_records_of_earlier_versions_are_read_as_strict_and_without_ranges():
    codec, name = RecordCodec("messages.db"), "/1.1/g/#:"
    old = msgspec.msgpack.encode(
        {"type": "properties", "start_ns": 0, "ping_interval_ms": 1, "ping_timeout_ms": 2, "claim_ttl_ms": 3}
    )
    assert codec.read(f"{name}properties", old, 1).value == Properties(0, 1, 2, 3)
    old = msgspec.msgpack.encode({"type": "failing", "progress": 4, "count": 1})
    key = f"{name}progress-failing:0.0/a"
    assert codec.read(key, old, 1).value == FailingMessage(4, 1)
    many = tuple((2 * number, 2 * number) for number in range(3, HOLES_MAX + 3))
    full = FailingMessage(4, 0, acked=many)
    assert codec.read(key, codec.encode(full), 1).value == full
    for wrong in ((*many, (9_000, 9_001)), ((2**63 - 1, 2**63 - 1),), ((-1, 3),)):
        with pytest.raises(RecordUnreadable):
            codec.read(key, codec.encode(replace(full, acked=wrong)), 1)


async def test_SS_407_a_letter_keeps_what_is_acknowledged_behind_its_message(new_database):
    groups, streams = new_database.groups(), new_database.streams(shards=1)
    await streams.append("orders/a", TEN)
    failing = FailingMessage(1, 3, parked=True, acked=((2, 4), (6, 7)))
    await groups.ask(Commit(1, (), ((PROGRESS, 1), (FAILING, failing))))
    assert await streams.ask(StoreLetter(3, "dead", LETTER)) == (LetterStored(3, True),)
    assert await read_values(groups) == [5, FailingMessage(5, 0, acked=((6, 7),))]
    await groups.close()
    await streams.close()


async def test_SS_406_SS_407_streams_go_on_and_the_next_member_and_leader_know_the_holes(tmp_path):
    place = Place(tmp_path)
    await declare(GROUP, store=place.store, start="beginning", order="relaxed", configuration=place.times)
    await place.publish("orders", *TEN)
    async with place.leading(), place.consumer("consumer-1") as messages:
        batch = await anext(messages.batches(4))
        await batch[1].nack(delay=0.3)
        await batch[3].nack(delay=3_600)
        await batch[0].ack()
        await batch[2].ack(durable=True)
        got = await read(messages, 6)
        assert seen(got) == [(offset, 1, False) for offset in range(4, 10)]
        (again,) = await read(messages, 1, ack=False)
        assert (*seen([again]), again.payload) == ((1, 2, True), b"1")
        await again.nack(delay=3_600)
        await got[-1].ack(durable=True)
    async with place.leading(), place.consumer("consumer-2") as messages:
        assert seen(await read(messages, 2)) == [(1, 3, True), (3, 2, True)]
        await place.publish("orders", b"ten")
        assert seen(await read(messages, 1)) == [(10, 1, False)]


async def test_SS_407_a_member_that_dies_leaves_its_holes_alone(tmp_path):
    place = Place(tmp_path, FAST)
    await declare(GROUP, store=place.store, start="beginning", order="relaxed", configuration=place.times)
    await place.publish("orders", *TEN)
    async with place.leading():
        dying = place.consumer("consumer-1")
        messages = await dying.__aenter__()
        batch = await anext(messages.batches(10))
        await batch[2].nack(delay=3_600)
        for one in (*batch[:2], *batch[3:6], *batch[7:]):
            await one.ack(durable=True)
        await dying.abort()
        async with place.consumer("consumer-2") as messages:
            got = await read(messages, 2)
            assert [one.offset for one in got] == [2, 6]
            await got[-1].ack(durable=True)

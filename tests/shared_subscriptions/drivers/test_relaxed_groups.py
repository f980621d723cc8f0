"""Groups whose order is relaxed, in real nodes: their streams go on, across members, leaders and stores."""

from __future__ import annotations

import asyncio

import pytest
from test_given_back import GROUP, TEN, seen
from test_nodes import FAST, Place, read

from statemachines import cli
from statemachines.drivers.shared_subscriptions.groups import declare
from statemachines.kernel import ConfigurationError


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

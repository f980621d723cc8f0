"""Messages that an application gives back, in real nodes; what failed too often is parked, shown and skipped."""

from __future__ import annotations

import asyncio
import logging
import math

import pytest
from msgspec.structs import replace
from test_nodes import CALM, Place, read, run

from statemachines import cli
from statemachines.drivers.shared_subscriptions.durable_progress import AcknowledgementUncertain
from statemachines.drivers.shared_subscriptions.groups import list_parked, skip
from statemachines.kernel import ConfigurationError, LocalProtocolError

TEN = [b"%d" % number for number in range(10)]
GROUP = "$shared/g/#"


def seen(messages):
    return [(one.offset, one.delivery_count, one.redelivered) for one in messages]


async def test_SS_332_SS_336_a_message_that_is_given_back_comes_first_and_says_how_often(tmp_path):
    place = Place(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading():
        async with place.consumer("consumer-1") as messages:
            batch = await anext(messages.batches(10))
            assert seen(batch[:2]) == [(0, 1, False), (1, 1, False)]
            await batch[:4].ack()
            await batch[6].ack()
            await batch[4].nack()
            again = await read(messages, 5, ack=False)
            assert seen(again) == [(4, 2, True), (5, 2, True), (7, 2, True), (8, 2, True), (9, 2, True)]
            assert [one.payload for one in again] == [b"4", b"5", b"7", b"8", b"9"]
            await again[0].nack()
        async with place.consumer("consumer-2") as messages:
            assert seen(await read(messages, 2)) == [(4, 3, True), (5, 2, True)]


@pytest.mark.parametrize("wrong", ["x" * 513, "\udc80", 7])
async def test_SS_411_a_reason_that_is_too_long_or_no_text_is_refused(tmp_path, wrong):
    place = Place(tmp_path)
    await place.publish("orders", *TEN[:2])
    async with place.leading(), place.consumer("consumer-1") as messages:
        (first,) = await read(messages, 1, ack=False)
        with pytest.raises(ConfigurationError, match="reason"):
            await first.nack(reason=wrong)
        await first.ack()
        assert seen(await read(messages, 1)) == [(1, 1, False)]


async def test_SS_333_what_cannot_be_given_back_is_named(tmp_path):
    place = Place(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading(), place.consumer("consumer-1") as messages:
        first, second = await read(messages, 2, ack=False)
        for wrong in (-1.0, 86_401.0, math.nan, math.inf):
            with pytest.raises(ConfigurationError, match=r"delay = .*a day"):
                await first.nack(delay=wrong)
        await first.ack()
        with pytest.raises(LocalProtocolError, match=r"message 0 of 0\.0/orders cannot be given back: it was ackn"):
            await first.nack()
        await second.nack()
        with pytest.raises(LocalProtocolError, match=r"message 1 of 0\.0/orders .*it was given back before"):
            await second.nack()
        (again,) = await read(messages, 1, ack=False)
        with pytest.raises(LocalProtocolError, match=r"give that one back"):
            await second.nack()
        await again.ack()
        messages.leave(messages.subscription)
        with pytest.raises(LocalProtocolError, match=r"its lease or grant has ended"):
            await again.nack()


async def test_SS_412_SS_413_a_durable_acknowledgement_does_not_wait_for_what_was_given_back(tmp_path):
    place = Place(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading(), place.consumer("consumer-1") as messages:
        batch = await anext(messages.batches(10))
        await batch[2].nack()
        with pytest.raises(AcknowledgementUncertain, match=r"message 5 .*: message 2 was given back"):
            await batch[5].ack(durable=True)
        for one in (batch[2], batch):
            with pytest.raises(LocalProtocolError, match=r"message 2 .* was given back; acknowledge it when"):
                await one.ack(durable=True)
        (again,) = await read(messages, 1, ack=False)
        pending = asyncio.ensure_future(again.ack(durable=True))
        await asyncio.sleep(0)
        await batch[1].nack()
        with pytest.raises(AcknowledgementUncertain, match=r"message 2 .*: message 1 was given back"):
            await pending
        await batch[0].ack(durable=True)
        rest = await read(messages, 7, ack=False)
        assert [one.offset for one in rest] == [1, 3, 4, 6, 7, 8, 9]
        await asyncio.gather(*(one.ack(durable=True) for one in rest))


async def test_SS_443_a_member_that_leaves_in_good_order_leaves_no_doubt(tmp_path):
    place = Place(tmp_path)
    await place.publish("orders", *TEN)
    for begin in (0, 5):  # each under a leader of its own
        async with place.leading(), place.consumer("consumer-1") as messages:
            assert seen(await read(messages, 5)) == [(offset, 1, False) for offset in range(begin, begin + 5)]


def test_SS_342_SS_343_what_failed_too_often_is_parked_shown_and_skipped(tmp_path, caplog, capsys):
    place = Place(tmp_path, replace(CALM, max_deliver=3))

    async def fail():
        await place.publish("orders", *TEN[:3])
        async with place.leading() as leader:
            await fail_thrice()
            while any(node.record.members for node in leader.machines.nodes.values()):
                await asyncio.sleep(0.05)  # the next leader need not wait for a lease

    async def fail_thrice():
        async with place.consumer("consumer-1") as messages:
            await (await read(messages, 1, ack=False))[0].ack()
            for count in (1, 2, 3):
                (bad,) = await read(messages, 1, ack=False)
                assert (bad.offset, bad.delivery_count) == (1, count)
                await bad.nack()
            while not (parked := await list_parked(GROUP, store=place.store)):
                await asyncio.sleep(0.05)
            assert [(one.stream, one.offset, one.count) for one in parked] == [("0.0/orders", 1, 3)]
            await place.publish("parcels", b"another stream")
            assert [one.topic for one in await read(messages, 1)] == ["parcels"]

    async def go_on():
        async with place.leading(), place.consumer("consumer-1") as messages:
            assert [(one.offset, one.delivery_count) for one in await read(messages, 1)] == [(2, 1)]
            while await list_parked(GROUP, store=place.store):
                await asyncio.sleep(0.05)
            with pytest.raises(ConfigurationError, match="is not parked; there are: none"):
                await skip(GROUP, "0.0/orders", store=place.store)

    with caplog.at_level(logging.WARNING, "gapless"):
        run(fail())
        assert cli.run(("group", "parked", GROUP, "--store", str(place.store))) == 0
        assert "0.0/orders: message 1 was handed over 3 times" in capsys.readouterr().out
        assert cli.run(("group", "skip", GROUP, "0.0/parcels", "--store", str(place.store))) == 2
        assert "is not parked; there are: 0.0/orders" in capsys.readouterr().err
        assert cli.run(("group", "skip", GROUP, "0.0/orders", "--store", str(place.store))) == 0
        assert cli.run(("group", "parked", GROUP, "--store", str(place.store))) == 0
        assert "and is to be skipped" in capsys.readouterr().out
        run(go_on())
    said = [line.partition(": ")[2] for line in caplog.messages if "message 1" in line]
    assert said[0].startswith("0.0/orders is parked at message 1, which was handed over 3 times")
    assert said[-1].startswith("message 1 of 0.0/orders was handed over 3 times and not acknowledged; it was skipped")

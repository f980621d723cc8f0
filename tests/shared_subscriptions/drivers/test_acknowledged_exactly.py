"""What an application has in hand is acknowledged exactly, errors reach it, and what it forgets is logged."""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3

import msgspec
import pytest
from test_nodes import Place, read, run

from statemachines.drivers.shared_subscriptions.durable_progress import AcknowledgementUncertain
from statemachines.drivers.shared_subscriptions.shared_session import SharedSession, SharedSubscription
from statemachines.drivers.shared_subscriptions.stalled_streams import LINES_MAX, LOOK_MAX, StalledStreams
from statemachines.kernel import ConfigurationError, LocalProtocolError
from statemachines.shared_subscriptions.session_record import StreamReading

TEN = [b"%d" % number for number in range(10)]


async def test_SS_289_an_illegal_acknowledgement_raises_where_it_is_made_and_others_count(tmp_path):
    place = Place(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading():
        async with place.consumer("consumer-1", buffer=4) as messages:
            (first,) = await read(messages, 1, ack=False)
            where = (first.owner, first.stream, first.grant)
            for illegal in ((5_000, 5_000), (0, 1), (1, 1), (0, -1)):
                with pytest.raises(LocalProtocolError, match=r"acknowledge what was handed over \[SS-107\]"):
                    messages.acknowledge(*where, *illegal)
            await first.ack()
            assert [one.offset for one in await read(messages, 9)] == list(range(1, 10))
            messages.acknowledge(first.owner, first.stream, first.grant + 1, 7, 9)
        async with place.consumer("consumer-2") as messages:
            await place.publish("orders", b"10")
            assert [one.offset for one in await read(messages, 1)] == [10]


class Watched:
    """Streams that are watched for ten seconds, and what the log says of them."""

    def __init__(self, caplog):
        self.readings = {}
        self.now_s = 0.0
        self.streams = StalledStreams(10.0, lambda: round(self.now_s * 1e9), self.readings.get)
        self.caplog = caplog

    def have(self, key, progress=0, delivered=5, grant=1):
        self.readings[key] = StreamReading("o", key, grant, progress, delivered, delivered)
        self.streams.hand_over(key)

    def look(self, at_s):
        """What is said then, without the name of the node."""
        self.caplog.clear()
        self.now_s = at_s
        self.streams.look()
        return [line.removeprefix(": stream ").partition(":")[0] for line in self.caplog.messages]


def watched(caplog, story):
    """Play it, with a loop that runs."""

    async def play():
        watch = Watched(caplog)
        story(watch)
        watch.streams.close()

    with caplog.at_level(logging.WARNING, "gapless"):
        run(play())


def test_SS_296_a_stream_is_named_after_the_time_and_then_after_twice_as_much(caplog):
    def story(watch):
        watch.have("a")
        said = [(at_s, *watch.look(at_s)) for at_s in (9.0, 10.0, 19.0, 20.0, 39.0, 40.0)]
        assert said == [
            (9.0,),
            (10.0, "a stands at 0 for 10.0 s"),
            (19.0,),
            (20.0, "a stands at 0 for 20.0 s"),
            (39.0,),
            (40.0, "a stands at 0 for 40.0 s"),
        ]

    watched(caplog, story)


def test_SS_296_lines_and_looks_are_bounded(caplog):
    def story(watch):
        for number in range(LOOK_MAX + 100):
            watch.have(f"{number}")
        assert len(watch.look(10.0)) == LINES_MAX
        assert watch.look(12.0) == []
        watch.look(20.0)
        left_out = LOOK_MAX + 100 - LINES_MAX
        assert caplog.messages[0] == f": {left_out} more streams stand, each since a message is not acknowledged"

    watched(caplog, story)


@pytest.mark.parametrize("wrong", [0, -1.0, math.nan])
def test_a_time_that_is_none_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="stall_warning_s"):
        SharedSubscription("$shared/g/#", leader="127.0.0.1:1", store="no.db", stall_warning_s=wrong)


def read_progress(path):
    """What the store has of the one stream."""
    with sqlite3.connect(path) as store:
        (value,) = store.execute("SELECT value FROM group_records WHERE key LIKE '%progress:%'").fetchone()
    return msgspec.msgpack.decode(value)


async def test_SS_330_a_durable_acknowledgement_returns_when_the_store_has_it(tmp_path):
    place = Place(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading(), place.consumer("consumer-1") as messages:
        batch = await anext(messages.batches(10))
        await batch[:4].ack(durable=True)
        assert read_progress(place.store) == 4
        later = asyncio.ensure_future(batch[5].ack(durable=True))
        await batch[6].ack()
        await asyncio.sleep(0.3)
        assert not later.done(), "message 4 was not acknowledged"
        messages.leave(messages.subscription)
        with pytest.raises(AcknowledgementUncertain, match=r"message 5 of 0\.0/orders"):
            await later


async def test_SS_330_a_durable_acknowledgement_under_a_grant_that_is_over_is_uncertain(tmp_path):
    place = Place(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading(), place.consumer("consumer-1") as messages:
        (one,) = await read(messages, 1, ack=False)
        messages.leave(messages.subscription)
        with pytest.raises(AcknowledgementUncertain, match="its grant is over"):
            await one.ack(durable=True)


async def test_SS_330_a_private_subscription_has_no_durable_progress(tmp_path):
    place = Place(tmp_path)
    await place.publish("orders", *TEN)
    async with SharedSession(leader="127.0.0.1:1", store=place.store) as session:
        await session.subscribe("orders", start="beginning")
        (one,) = await read(session, 1, ack=False)
        with pytest.raises(LocalProtocolError, match="a private subscription has no durable progress"):
            await one.ack(durable=True)


@pytest.mark.parametrize("missing", [0, 1])
def test_SS_331_a_forgotten_acknowledgement_is_named_when_nothing_more_is_handed_over(tmp_path, caplog, missing):
    async def test():
        place = Place(tmp_path)
        await place.publish("orders", *TEN)
        async with place.leading(), place.consumer("consumer-1", buffer=4) as messages:
            with pytest.raises(ConfigurationError, match="limit = 0: must be at least 1"):
                await anext(messages.batches(0))
            got = await read(messages, 3, ack=False)
            for one in got[:missing] + got[missing + 1 :]:
                await one.ack()
            await asyncio.sleep(0)
            assert not caplog.messages, "there is room for one more"
            for one in await read(messages, 1, ack=False):
                await one.ack()
                await one.ack()
            await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING, "gapless"):
        run(test())
    (line,) = caplog.messages
    assert line.startswith(f"consumer-1: stream 0.0/orders stands at {missing}")
    assert f"message {missing} is not acknowledged; await ack() of every message ({4 - missing} are in hand" in line

"""Messages that an application gives back, in real nodes; what failed too often is parked, shown and skipped.

Groups whose order is relaxed, in real nodes: their streams go on, across members, leaders and stores.

Dead letters on real stores and nodes: one batch with the progress, once, and read by another group.

The acknowledgement wait on real nodes: a handler that hangs, and an idle member beside it.

What an application has in hand is acknowledged exactly, errors reach it, and what it forgets is logged.

A consumer has no more bytes of messages in hand than it may have, and one message.
"""

import asyncio
import logging
import math
import pickle
import sqlite3

import msgspec
import pytest
from msgspec.structs import replace
from test_sessions import CALM, NODES_FAST, NodesPlace, read_of_nodes
from waiting import pause_async, run_async, turns, until_async

from statemachines import cli
from statemachines.drivers.message_head import decode_head
from statemachines.drivers.shared_subscriptions import node_life
from statemachines.drivers.shared_subscriptions.deliveries import AcknowledgementUncertain
from statemachines.drivers.shared_subscriptions.groups import declare, list_parked, skip
from statemachines.drivers.shared_subscriptions.node_life import BytesInHand
from statemachines.drivers.shared_subscriptions.shared_session import DeliveryRevoked, SharedSession, SharedSubscription
from statemachines.drivers.shared_subscriptions.stalled_streams import LINES_MAX, LOOK_MAX, StalledStreams
from statemachines.kernel import ConfigurationError, LocalProtocolError, Map
from statemachines.shared_subscriptions import dead_letter
from statemachines.shared_subscriptions.group_store import Commit, FailingMessage, Read, ReadDone
from statemachines.shared_subscriptions.session_record import StreamReading
from statemachines.shared_subscriptions.stream_store import Fetch, Slice

TEN = [b"%d" % number for number in range(10)]
GROUP = "$shared/g/#"


def seen(messages):
    return [(one.offset, one.delivery_count, one.redelivered) for one in messages]


async def test_SS_332_SS_336_a_message_that_is_given_back_comes_first_and_says_how_often(tmp_path):
    place = NodesPlace(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading():
        async with place.consumer("consumer-1") as messages:
            batch = await anext(messages.batches(10))
            assert seen(batch[:2]) == [(0, 1, False), (1, 1, False)]
            await batch[:4].ack()
            await batch[6].ack()
            await batch[4].nack()
            again = await read_of_nodes(messages, 5, ack=False)
            assert seen(again) == [(4, 2, True), (5, 2, True), (7, 2, True), (8, 2, True), (9, 2, True)]
            assert [one.payload for one in again] == [b"4", b"5", b"7", b"8", b"9"]
            await again[0].nack()
        async with place.consumer("consumer-2") as messages:
            assert seen(await read_of_nodes(messages, 2)) == [(4, 3, True), (5, 2, True)]


@pytest.mark.parametrize("wrong", ["x" * 513, "\udc80", 7])
async def test_SS_411_a_reason_that_is_too_long_or_no_text_is_refused(tmp_path, wrong):
    place = NodesPlace(tmp_path)
    await place.publish("orders", *TEN[:2])
    async with place.leading(), place.consumer("consumer-1") as messages:
        (first,) = await read_of_nodes(messages, 1, ack=False)
        with pytest.raises(ConfigurationError, match="reason"):
            await first.nack(reason=wrong)
        await first.ack()
        assert seen(await read_of_nodes(messages, 1)) == [(1, 1, False)]


async def test_SS_333_what_cannot_be_given_back_is_named(tmp_path):
    place = NodesPlace(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading(), place.consumer("consumer-1") as messages:
        first, second = await read_of_nodes(messages, 2, ack=False)
        for wrong in (-1.0, 86_401.0, math.nan, math.inf):
            with pytest.raises(ConfigurationError, match=r"delay = .*a day"):
                await first.nack(delay=wrong)
        await first.ack()
        with pytest.raises(LocalProtocolError, match=r"message 0 of 0\.0/orders cannot be given back: it was ackn"):
            await first.nack()
        await second.nack()
        with pytest.raises(LocalProtocolError, match=r"message 1 of 0\.0/orders .*it was given back before"):
            await second.nack()
        (again,) = await read_of_nodes(messages, 1, ack=False)
        with pytest.raises(LocalProtocolError, match=r"give that one back"):
            await second.nack()
        await again.ack()
        messages.leave(messages.subscription)
        with pytest.raises(LocalProtocolError, match=r"its lease or grant has ended"):
            await again.nack()


async def test_SS_412_SS_413_a_durable_acknowledgement_does_not_wait_for_what_was_given_back(tmp_path):
    place = NodesPlace(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading(), place.consumer("consumer-1") as messages:
        batch = await anext(messages.batches(10))
        await batch[2].nack()
        with pytest.raises(AcknowledgementUncertain, match=r"message 5 .*: message 2 was given back"):
            await batch[5].ack(durable=True)
        for one in (batch[2], batch):
            with pytest.raises(LocalProtocolError, match=r"message 2 .* was given back; acknowledge it when"):
                await one.ack(durable=True)
        (again,) = await read_of_nodes(messages, 1, ack=False)
        pending = asyncio.ensure_future(again.ack(durable=True))
        await turns()
        await batch[1].nack()
        with pytest.raises(AcknowledgementUncertain, match=r"message 2 .*: message 1 was given back"):
            await pending
        await batch[0].ack(durable=True)
        rest = await read_of_nodes(messages, 7, ack=False)
        assert [one.offset for one in rest] == [1, 3, 4, 6, 7, 8, 9]
        await asyncio.gather(*(one.ack(durable=True) for one in rest))


async def test_SS_443_a_member_that_leaves_in_good_order_leaves_no_doubt(tmp_path):
    place = NodesPlace(tmp_path)
    await place.publish("orders", *TEN)
    for begin in (0, 5):  # each under a leader of its own
        async with place.leading(), place.consumer("consumer-1") as messages:
            assert seen(await read_of_nodes(messages, 5)) == [(offset, 1, False) for offset in range(begin, begin + 5)]


def test_SS_342_SS_343_what_failed_too_often_is_parked_shown_and_skipped(tmp_path, caplog, capsys):
    place = NodesPlace(tmp_path, replace(CALM, max_deliver=3))

    async def fail():
        await place.publish("orders", *TEN[:3])
        async with place.leading() as leader:
            await fail_thrice()
            await until_async(lambda: not any(node.record.members for node in leader.machines.nodes.values()))

    async def fail_thrice():
        async with place.consumer("consumer-1") as messages:
            await (await read_of_nodes(messages, 1, ack=False))[0].ack()
            for count in (1, 2, 3):
                (bad,) = await read_of_nodes(messages, 1, ack=False)
                assert (bad.offset, bad.delivery_count) == (1, count)
                await bad.nack()
            parked = await until_async(lambda: list_parked(GROUP, store=place.store))
            assert [(one.stream, one.offset, one.count) for one in parked] == [("0.0/orders", 1, 3)]
            await place.publish("parcels", b"another stream")
            assert [one.topic for one in await read_of_nodes(messages, 1)] == ["parcels"]

    async def go_on():
        async with place.leading(), place.consumer("consumer-1") as messages:
            assert [(one.offset, one.delivery_count) for one in await read_of_nodes(messages, 1)] == [(2, 1)]
            while await list_parked(GROUP, store=place.store):
                await pause_async(0.05, "between two looks")
            with pytest.raises(ConfigurationError, match="is not parked; there are: none"):
                await skip(GROUP, "0.0/orders", store=place.store)

    with caplog.at_level(logging.WARNING, "gapless"):
        run_async(fail())
        assert cli.run(("group", "parked", GROUP, "--store", str(place.store))) == 0
        assert "0.0/orders: message 1 was handed over 3 times" in capsys.readouterr().out
        assert cli.run(("group", "skip", GROUP, "0.0/parcels", "--store", str(place.store))) == 2
        assert "is not parked; there are: 0.0/orders" in capsys.readouterr().err
        assert cli.run(("group", "skip", GROUP, "0.0/orders", "--store", str(place.store))) == 0
        assert cli.run(("group", "parked", GROUP, "--store", str(place.store))) == 0
        assert "and is to be skipped" in capsys.readouterr().out
        run_async(go_on())
    said = [line.partition(": ")[2] for line in caplog.messages if "message 1" in line]
    assert said[0].startswith("0.0/orders is parked at message 1, which was handed over 3 times")
    assert said[-1].startswith("message 1 of 0.0/orders was handed over 3 times and not acknowledged; it was skipped")


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
    place = NodesPlace(tmp_path)
    await declare(GROUP, store=place.store, start="beginning", order="relaxed", configuration=place.times)
    await place.publish("orders", *TEN)
    async with place.leading(), place.consumer("consumer-1") as messages:
        batch = await anext(messages.batches(4))
        await batch[1].nack(delay=0.3)
        await batch[3].nack(delay=3_600)
        await batch[0].ack()
        await batch[2].ack(durable=True)
        got = await read_of_nodes(messages, 6)
        assert seen(got) == [(offset, 1, False) for offset in range(4, 10)]
        (again,) = await read_of_nodes(messages, 1, ack=False)
        assert (*seen([again]), again.payload) == ((1, 2, True), b"1")
        await again.nack(delay=3_600)
        await got[-1].ack(durable=True)
    async with place.leading(), place.consumer("consumer-2") as messages:
        assert seen(await read_of_nodes(messages, 2)) == [(1, 3, True), (3, 2, True)]
        await place.publish("orders", b"ten")
        assert seen(await read_of_nodes(messages, 1)) == [(10, 1, False)]


PROGRESS, FAILING = "/1.8/g/orders/#:progress:0.0/orders/a", "/1.8/g/orders/#:progress-failing:0.0/orders/a"
LETTER = dead_letter.DeadLetter("g", "orders/#", "0.0/orders/a", 1, 3, dead_letter.REASONS[True])


async def read_values(groups):
    (answer,) = await groups.ask(Read(1, (PROGRESS, FAILING)))
    assert isinstance(answer, ReadDone)
    return [None if one is None else one.value for one in answer.records]


async def test_SS_347_a_letter_and_the_progress_are_one_batch_on_every_database(new_database):
    groups, streams = new_database.groups(), new_database.streams(shards=1)
    failing = FailingMessage(1, 3, parked=True)
    await streams.append("orders/a", [b"zero", b"one", b"two"])
    await groups.ask(Commit(1, (), ((PROGRESS, 1), (FAILING, failing))))

    missing = replace(LETTER, offset=7)
    (refused,) = await streams.ask(dead_letter.StoreLetter(2, "dead", missing))
    assert isinstance(refused, dead_letter.LetterRefused)
    assert "is of no message in the store" in refused.why
    assert await read_values(groups) == [1, failing]

    for new in (True, False):
        assert await streams.ask(dead_letter.StoreLetter(3, "dead", LETTER)) == (dead_letter.LetterStored(3, new),)
        assert await read_values(groups) == [2, None]
    assert await streams.ask(dead_letter.StoreLetter(4, "dead", replace(LETTER, offset=0))) == (
        dead_letter.LetterStored(4, False),
    )
    _, ((payload,),) = await streams.fetch(Fetch(5, (Slice("0.0/dead", 1, 0, 9),)))
    (stored, head) = payload
    assert (stored, dead_letter.read_dead_letter(decode_head(head).headers)) == (b"one", LETTER)

    await streams.end("0.0/dead")
    (refused,) = await streams.ask(dead_letter.StoreLetter(6, "dead", replace(LETTER, offset=2)))
    assert isinstance(refused, dead_letter.LetterRefused)
    assert "has ended" in refused.why
    assert await read_values(groups) == [2, None], "nothing of the batch was written"
    await groups.close()
    await streams.close()


async def test_SS_349_a_group_that_would_get_its_own_letters_is_named_in_the_log(tmp_path, caplog):
    with caplog.at_level(logging.ERROR, "gapless"):
        place = NodesPlace(tmp_path, replace(CALM, max_deliver=1, dead_letter_topic="dead/g"))
        await place.publish("orders", *TEN[:1])
        async with place.leading(), place.consumer("consumer-1") as messages:
            await read_of_nodes(messages, 1)
        with pytest.raises(
            ConfigurationError, match="dead_letter_topic = 'dead/g': is matched by the group's own filter"
        ):
            await declare("$shared/g/dead/+", store=place.store, configuration=place.times)
    assert any("the group g is to read #, which matches its dead-letter topic dead/g" in one for one in caplog.messages)


WAIT_S = 0.5


@pytest.mark.parametrize("times", [CALM, NODES_FAST], ids=["calm", "fast"])
async def test_SS_352_SS_354_an_idle_member_gets_what_a_handler_keeps_that_hangs(tmp_path, caplog, times):
    with caplog.at_level(logging.WARNING, "gapless"):
        place = NodesPlace(tmp_path, times)
        await place.publish("orders", *TEN[:2])
        await place.publish("parcels", *TEN[:2])
        async with place.leading(), place.consumer("consumer-1", ack_wait=WAIT_S) as hangs:
            (late,) = await read_of_nodes(hangs, 1, ack=False)
            await hangs.subscribe("$shared/others/none/#")
            async with place.consumer("consumer-2") as idle:
                got = await read_of_nodes(idle, 4)
                assert sorted((one.topic, one.offset) for one in got) == [
                    (topic, offset) for topic in ("orders", "parcels") for offset in (0, 1)
                ]
                assert [one.delivery_count for one in got if one.topic == late.topic] == [2, 2]
                for ack in (late.ack, lambda: late.ack(durable=True)):
                    with pytest.raises(DeliveryRevoked, match=r"message 0 of 0\.0/\w+ was not acknowledged within"):
                        await ack()
            await place.publish("orders", b"more")
            assert [one.payload for one in await read_of_nodes(hangs, 1)] == [b"more"], "it takes part again"
    said = [line for line in caplog.messages if line.startswith("consumer-1")]
    both = "$shared/g/# and 1 other subscriptions"
    assert any(f"was not acknowledged for 0.5 s: the streams of {both} are given back" in line for line in said)
    assert any(f"{both} takes part again (it kept a message of stream" in line for line in said)


async def test_SS_351_SS_353_an_application_that_waits_for_messages_takes_part_again_at_once(tmp_path):
    place = NodesPlace(tmp_path)
    await place.publish("orders", *TEN[:2])
    async with place.leading(), place.consumer("consumer-1", ack_wait=WAIT_S) as messages:
        assert seen(await read_of_nodes(messages, 2, ack=False)) == [(0, 1, False), (1, 1, False)]
        assert seen(await read_of_nodes(messages, 2)) == [(0, 2, True), (1, 2, True)]


def test_SS_354_a_revoked_delivery_is_known_in_another_process():
    error = DeliveryRevoked("0.0/orders", 3)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("wait", [0, -1.0, math.nan, math.inf, 86_401])
def test_SS_355_a_wait_that_is_none_is_refused(tmp_path, wait):
    with pytest.raises(ConfigurationError, match=r"ack_wait = .*a day"):
        NodesPlace(tmp_path).consumer("consumer-1", ack_wait=wait)


async def test_SS_289_an_illegal_acknowledgement_raises_where_it_is_made_and_others_count(tmp_path):
    place = NodesPlace(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading():
        async with place.consumer("consumer-1", buffer=4) as messages:
            (first,) = await read_of_nodes(messages, 1, ack=False)
            where = (first.owner, first.stream, first.grant)
            for illegal in ((5_000, 5_000), (0, 1), (1, 1), (0, -1)):
                with pytest.raises(LocalProtocolError, match=r"acknowledge what was handed over \[SS-107\]"):
                    messages.acknowledge(*where, *illegal)
            await first.ack()
            assert [one.offset for one in await read_of_nodes(messages, 9)] == list(range(1, 10))
            messages.acknowledge(first.owner, first.stream, first.grant + 1, 7, 9)
        async with place.consumer("consumer-2") as messages:
            await place.publish("orders", b"10")
            assert [one.offset for one in await read_of_nodes(messages, 1)] == [10]


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
        run_async(play())


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
    place = NodesPlace(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading(), place.consumer("consumer-1") as messages:
        batch = await anext(messages.batches(10))
        await batch[:4].ack(durable=True)
        assert read_progress(place.store) == 4
        later = asyncio.ensure_future(batch[5].ack(durable=True))
        await batch[6].ack()
        await pause_async(0.3, "what is acknowledged is committed")
        assert not later.done(), "message 4 was not acknowledged"
        messages.leave(messages.subscription)
        with pytest.raises(AcknowledgementUncertain, match=r"message 5 of 0\.0/orders"):
            await later


async def test_SS_330_a_durable_acknowledgement_under_a_grant_that_is_over_is_uncertain(tmp_path):
    place = NodesPlace(tmp_path)
    await place.publish("orders", *TEN)
    async with place.leading(), place.consumer("consumer-1") as messages:
        (one,) = await read_of_nodes(messages, 1, ack=False)
        messages.leave(messages.subscription)
        with pytest.raises(AcknowledgementUncertain, match="its grant is over"):
            await one.ack(durable=True)


async def test_SS_330_a_private_subscription_has_no_durable_progress(tmp_path):
    place = NodesPlace(tmp_path)
    await place.publish("orders", *TEN)
    async with SharedSession(leader="127.0.0.1:1", store=place.store) as session:
        await session.subscribe("orders", start="beginning")
        (one,) = await read_of_nodes(session, 1, ack=False)
        with pytest.raises(LocalProtocolError, match="a private subscription has no durable progress"):
            await one.ack(durable=True)


@pytest.mark.parametrize("missing", [0, 1])
async def test_SS_331_a_forgotten_acknowledgement_is_named_when_nothing_more_is_handed_over(tmp_path, caplog, missing):
    with caplog.at_level(logging.WARNING, "gapless"):
        place = NodesPlace(tmp_path)
        await place.publish("orders", *TEN)
        async with place.leading(), place.consumer("consumer-1", buffer=4) as messages:
            with pytest.raises(ConfigurationError, match="limit = 0: must be at least 1"):
                await anext(messages.batches(0))
            got = await read_of_nodes(messages, 3, ack=False)
            for one in got[:missing] + got[missing + 1 :]:
                await one.ack()
            await turns()
            assert not caplog.messages, "there is room for one more"
            for one in await read_of_nodes(messages, 1, ack=False):
                await one.ack()
                await one.ack()
            await turns()
    (line,) = caplog.messages
    assert line.startswith(f"consumer-1: stream 0.0/orders stands at {missing}")
    assert f"message {missing} is not acknowledged; await ack() of every message ({4 - missing} are in hand" in line


SIZE = 10_000


class Hand:
    """Readings, and what is counted of them; messages have 10 bytes of payload, and a head of one where it is said."""

    def __init__(self, most):
        self.readings = {}
        self.bytes = BytesInHand(most, lambda: self.readings, 30.0)

    def read(self, key, progress, fetched, acked=(), grant=1):
        self.readings[key] = StreamReading("o", key, grant, progress, fetched, fetched, acked=Map(acked))

    def put(self, key, first, count, head=None, grant=1):
        self.bytes.put(key, grant, first, [(b"x" * 10, head)] * count)

    def room(self):
        self.bytes._counted = self.bytes._most  # so that it counts
        return self.bytes._find_room()


def test_SS_387_sizes_of_messages_that_are_done_are_forgotten():
    hand = Hand(10**9)
    for first in range(0, 10_000, 500):
        hand.read("a", first, first)
        hand.put("a", first, 500)
        assert len(hand.bytes._sizes["a"].sums) <= node_life.KEPT_MAX + 501
    hand.read("a", 9_990, 10_000)
    assert hand.room() == 10**9 - 100


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "64"])
def test_SS_387_a_bound_that_is_none_is_refused(tmp_path, most):
    with pytest.raises(ConfigurationError, match=r"buffer_bytes = .*: must be a number of bytes, at least 1"):
        SharedSession(leader="127.0.0.1:1", store=tmp_path / "s.db", buffer_bytes=most)


async def test_SS_387_a_consumer_that_may_read_nothing_says_so_and_looks_again(monkeypatch, caplog):
    monkeypatch.setattr(node_life, "LOOK_S", 0.001)

    hand = Hand(50)
    hand.bytes._warning_s = 0.002
    hand.put("a", 0, 10)
    hand.read("a", 0, 10)
    waits = asyncio.ensure_future(hand.bytes.wait_room())
    await until_async(lambda: "nothing more is read" in caplog.text)
    assert not waits.done()
    del hand.readings["a"]  # its stream was taken back
    assert await waits == 50
    assert "100 bytes of messages are in hand, and 50 may be (buffer_bytes)" in caplog.text


async def test_SS_387_a_member_reads_no_more_than_it_may_have_and_gets_all_of_it(tmp_path):
    place = NodesPlace(tmp_path)
    for topic in "abcd":
        await place.publish(topic, *[b"x" * SIZE] * 16)
    async with place.leading(), place.consumer("consumer-1", buffer_bytes=5 * SIZE) as messages:
        found, largest = 0, 0
        batches = messages.batches(3)
        while found < 64:
            batch = await anext(batches)
            readings = messages.machines.reads.readings.values()
            largest = max(largest, sum(one.fetched - one.progress for one in readings))
            found += len(batch)
            await batch.ack()
    assert 1 < largest <= 6

"""A consumer has no more bytes of messages in hand than it may have, and one message."""

from __future__ import annotations

import asyncio

import pytest
from test_nodes import Place, run

from statemachines.drivers.shared_subscriptions import bytes_in_hand
from statemachines.drivers.shared_subscriptions.bytes_in_hand import BytesInHand
from statemachines.drivers.shared_subscriptions.shared_session import SharedSession
from statemachines.kernel import ConfigurationError, Map
from statemachines.shared_subscriptions.session_record import StreamReading

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
        assert len(hand.bytes._sizes["a"].sums) <= bytes_in_hand.KEPT_MAX + 501
    hand.read("a", 9_990, 10_000)
    assert hand.room() == 10**9 - 100


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "64"])
def test_SS_387_a_bound_that_is_none_is_refused(tmp_path, most):
    with pytest.raises(ConfigurationError, match=r"buffer_bytes = .*: must be a number of bytes, at least 1"):
        SharedSession(leader="127.0.0.1:1", store=tmp_path / "s.db", buffer_bytes=most)


def test_SS_387_a_consumer_that_may_read_nothing_says_so_and_looks_again(monkeypatch, caplog):
    monkeypatch.setattr(bytes_in_hand, "LOOK_S", 0.001)

    async def test():
        hand = Hand(50)
        hand.bytes._warning_s = 0.002
        hand.put("a", 0, 10)
        hand.read("a", 0, 10)
        waits = asyncio.ensure_future(hand.bytes.wait_room())
        while "nothing more is read" not in caplog.text:
            await asyncio.sleep(0.001)
        assert not waits.done()
        del hand.readings["a"]  # its stream was taken back
        assert await waits == 50

    run(test())
    assert "100 bytes of messages are in hand, and 50 may be (buffer_bytes)" in caplog.text


async def test_SS_387_a_member_reads_no_more_than_it_may_have_and_gets_all_of_it(tmp_path):
    place = Place(tmp_path)
    for topic in "abcd":
        await place.publish(topic, *[b"x" * SIZE] * 16)
    async with (
        place.leading(),
        place.consumer("consumer-1", buffer_bytes=5 * SIZE) as messages,
        asyncio.timeout(120),
    ):
        found, largest = 0, 0
        batches = messages.batches(3)
        while found < 64:
            batch = await anext(batches)
            readings = messages.machines.reads.readings.values()
            largest = max(largest, sum(one.fetched - one.progress for one in readings))
            found += len(batch)
            await batch.ack()
    assert 1 < largest <= 6

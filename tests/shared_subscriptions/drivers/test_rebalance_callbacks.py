"""What an application is told of its streams: which were granted, are to be given back, and are lost."""

import asyncio
import logging

import pytest
from msgspec.structs import replace
from test_sessions import CALM, NodesPlace, read_of_nodes
from waiting import pause_async, turns, until_async

from statemachines.drivers.shared_subscriptions.rebalance_callbacks import GRANTED, LOST, REVOKED, RebalanceCallbacks
from statemachines.kernel import Node
from statemachines.shared_subscriptions.borrower import LeaseBegan, LeaseEnded
from statemachines.shared_subscriptions.session import SESSION, Admit, Dismiss, SessionRecord, Take
from statemachines.shared_subscriptions.stream import Finish, Install, Uninstall
from statemachines.shared_subscriptions.stream_store import Fetched, MessageBatch


class Reader:
    """A session, and what its application is told."""

    def __init__(self, limit_s=30.0, **callbacks):
        self.said = []
        given = {
            name: lambda streams, name=name: self.said.append((name, streams)) for name in (GRANTED, REVOKED, LOST)
        }
        self.callbacks = RebalanceCallbacks(given | callbacks, limit_s)
        self.callbacks.node = "consumer-1"
        self.node = Node(SESSION, SessionRecord("s", buffer=10), name="s", now_ns=0, observe=self.callbacks.observe)
        self.feed(Admit("o", False, False), LeaseBegan("o"))

    def feed(self, *events):
        for event in events:
            self.node.feed(event, 0)

    def fetch(self, *streams):
        """One message of each is fetched and handed over."""
        self.node.fire(10**12)
        record = self.node.record
        asked = [record.readings[key] for key in record.asked]
        batches = tuple(MessageBatch(one.stream, one.grant, one.fetched, one.fetched, False) for one in asked)
        self.feed(Fetched(record.fetch_n, batches), *[Take(1)] * len(streams))

    async def heard(self):
        await self.callbacks.settle()
        said, self.said = self.said, []
        return said


async def test_SS_385_each_stream_that_was_granted_ends_by_one_of_the_two_words():
    reader = Reader()
    reader.feed(*(Install("o", stream, 1, 0) for stream in "abcd"))
    assert await reader.heard() == [(GRANTED, ("a", "b", "c", "d"))]
    reader.feed(Finish("o", "a", 1), Finish("o", "a", 1), Uninstall("o", "a", 1))  # in order, nothing in hand
    assert await reader.heard() == [(REVOKED, ("a",))]
    reader.feed(Uninstall("o", "b", 7), Uninstall("o", "b", 1), Uninstall("o", "b", 1))
    assert await reader.heard() == [(LOST, ("b",))]
    reader.feed(LeaseEnded("o"), LeaseBegan("o"))  # the grants are there still
    assert await reader.heard() == []
    reader.feed(Install("o", "c", 2, 0))  # granted anew: the grant of before is lost
    assert await reader.heard() == [(LOST, ("c",)), (GRANTED, ("c",))]
    reader.feed(Dismiss("o", ""))
    assert await reader.heard() == [(LOST, ("c", "d"))]


async def test_SS_385_a_stream_that_is_taken_back_with_messages_in_hand_is_lost():
    reader = Reader()
    reader.feed(Install("o", "a", 1, 0))
    reader.fetch("a")
    assert reader.node.record.readings["o a"].delivered == 1
    reader.feed(Finish("o", "a", 1), Uninstall("o", "a", 1))
    assert await reader.heard() == [(GRANTED, ("a",)), (REVOKED, ("a",)), (LOST, ("a",))]


async def test_SS_385_who_leaves_gives_its_streams_back():
    reader = Reader()
    reader.feed(Install("o", "a", 1, 0))
    reader.callbacks.is_leaving = True
    reader.feed(Dismiss("o", ""))
    assert await reader.heard() == [(GRANTED, ("a",)), (REVOKED, ("a",))]


async def test_SS_386_a_callback_that_raises_is_logged_with_its_stream_and_others_are_called(caplog):
    async def cancel_itself(streams):
        asyncio.current_task().cancel()
        await turns()

    reader = Reader(**{GRANTED: lambda streams: 1 / 0, REVOKED: cancel_itself})
    reader.feed(Install("o", "a", 1, 0), Install("o", "b", 1, 0), Finish("o", "a", 1), Uninstall("o", "b", 1))
    assert await reader.heard() == [(LOST, ("b",))]
    assert "consumer-1: on_granted raised for stream a (2 streams); the session goes on without it" in caplog.text
    assert "division by zero" in caplog.text
    assert "on_revoked raised for stream a" in caplog.text


async def test_SS_386_a_consumer_that_is_closed_ends_a_callback_that_hangs():
    reader = Reader(**{GRANTED: lambda streams: asyncio.Event().wait()})
    reader.feed(Install("o", "a", 1, 0), Install("o", "b", 1, 0))
    await turns(5)
    assert not reader.callbacks.is_settled
    await reader.callbacks.close()
    assert reader.callbacks.is_settled


@pytest.mark.parametrize("name", [GRANTED, REVOKED, LOST])
async def test_SS_386_all_streams_flow_while_a_callback_hangs_again_and_again(tmp_path, name, caplog):
    """Another member takes streams, and gives them back."""
    caplog.set_level(logging.INFO)

    hangs = []

    async def hang(streams):
        hangs.append(streams)
        await asyncio.Event().wait()

    place = NodesPlace(tmp_path, replace(CALM, revoke_timeout_ms=600))
    for topic in ("a", "b", "c"):
        await place.publish(topic, b"1")
    async with place.leading(), place.consumer("consumer-1", **{name: hang}) as messages:
        assert {one.topic for one in await read_of_nodes(messages, 3)} == {"a", "b", "c"}
        async with place.consumer("consumer-2"):
            lose = lambda: name == LOST and messages._rebalance._say(LOST, "0.0/a")  # noqa: E731
            await until_async(lambda: hangs, meanwhile=lose)
        for topic in ("a", "b", "c"):
            await place.publish(topic, b"2")
        assert {one.topic for one in await read_of_nodes(messages, 3)} == {"a", "b", "c"}
    assert f"consumer-1: {name} for stream" in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
async def test_SS_384_no_message_of_a_stream_is_handed_over_before_its_callback_has_returned(
    tmp_path, is_async, caplog
):
    caplog.set_level(logging.WARNING)

    said = []

    def note(name):
        def sync(streams):
            said.extend((name, stream.partition("/")[2]) for stream in streams)

        async def slow(streams):
            await pause_async(0.05, "messages could be handed over meanwhile")
            sync(streams)

        return slow if is_async else sync

    given = {name: note(name) for name in (GRANTED, REVOKED, LOST)}
    place = NodesPlace(tmp_path)
    for topic in ("a", "b"):
        await place.publish(topic, b"1")
    async with place.leading(), place.consumer("consumer-1", **given) as messages:
        for one in await read_of_nodes(messages, 2):
            said.append(("message", one.topic))
        granted = [name for name, _ in said[:2]]
        assert granted == [GRANTED, GRANTED]
        assert sorted(said[2:]) == [("message", "a"), ("message", "b")]
        async with place.consumer("consumer-2"):
            await until_async(lambda: {(REVOKED, "a"), (REVOKED, "b")} & {*said})
    revoked = [topic for name, topic in said if name == REVOKED]
    assert sorted(revoked[-2:]) == ["a", "b"]
    assert LOST not in [name for name, _ in said]

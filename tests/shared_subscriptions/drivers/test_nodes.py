"""Real nodes: an application's consumer, a leader host and a publisher, over TCP and SQLite."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.shared_session import SharedSession, SharedSubscription
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.trace.log import merge, read_logs

FAST = Configuration(
    find_leader_ms=100,
    ping_interval_ms=100,
    ping_timeout_ms=200,
    validity_ms=500,
    max_delay_ms=40,
    unsubscribe_timeout_ms=500,
    resend_interval_ms=100,
    renew_streams_ms=100,
    revoke_timeout_ms=1_000,
    claim_ttl_ms=1_500,
    claim_heartbeat_ms=500,
    commit_interval_ms=100,
    idle_stop_ms=3_000,
)
"""The defaults divided by ten."""

CALM = replace(FAST, validity_ms=60_000, ping_timeout_ms=50_000, revoke_timeout_ms=60_000, claim_ttl_ms=60_000)
"""The same, and nobody is given up for being slow: what a test on a busy machine must not meet."""

PATIENT = replace(CALM, validity_ms=5_000, ping_timeout_ms=2_000)
"""The same, and a leader host that is gone is given up after two seconds."""


class Place:
    """A store, and the leader host's address."""

    def __init__(self, path, times=CALM):
        self.times = times
        self.store = path / "messages.db"
        self.trace = path / "trace"
        self.leader = ""

    def consumer(self, node, **options):
        options = {"leader": self.leader, "store": self.store, "configuration": self.times, **options}
        return SharedSubscription("$shared/g/#", node=node, trace=self.trace, start="beginning", **options)

    async def publish(self, topic, *payloads):
        async with Publisher(self.store, trace=self.trace) as publisher:
            await publisher.publish(topic, payloads)

    @asynccontextmanager
    async def leading(self, listen=("127.0.0.1", 0)):
        node = LeaderNode(listen=listen, store=self.store, trace=self.trace, configuration=self.times)
        async with node:
            self.leader = "{}:{}".format(*node.address)
            yield node


async def read(messages, count, ack=True):
    """The next `count` messages."""
    got = []
    async with asyncio.timeout(120):
        async for message in messages:
            got.append(message)
            if ack:
                await message.ack()
            if len(got) == count:
                return got
    return got


def run(test):
    asyncio.run(test)


def test_an_application_gets_messages_in_order_and_acknowledges_them(tmp_path):
    async def test():
        place = Place(tmp_path)
        await place.publish("orders", b"one", b"two", b"three")
        async with place.leading(), place.consumer("consumer-1") as messages:
            got = await read(messages, 3)
        assert [(message.topic, message.offset, message.payload) for message in got] == [
            ("orders", 0, b"one"),
            ("orders", 1, b"two"),
            ("orders", 2, b"three"),
        ]

    run(test())


def test_who_comes_back_goes_on_where_it_left_off(tmp_path):
    async def test():
        place = Place(tmp_path)
        await place.publish("orders", b"one", b"two", b"three")
        async with place.leading():
            async with place.consumer("consumer-1") as messages:
                await read(messages, 2)
                await read(messages, 1, ack=False)
            async with place.consumer("consumer-1") as messages:
                (again,) = await read(messages, 1)
        assert again.payload == b"three", "it was not acknowledged"
        async with place.leading(), place.consumer("consumer-1") as messages:
            await place.publish("orders", b"four")
            (next_one,) = await read(messages, 1)
        assert next_one.payload == b"four", "progress was committed when the leader stopped"

    run(test())


def test_a_second_member_takes_its_share_and_a_leaver_s_streams_go_on(tmp_path):
    async def test():
        place = Place(tmp_path)
        for topic in ("a", "b", "c", "d"):
            await place.publish(topic, b"1")
        async with place.leading(), place.consumer("consumer-1") as one:
            await read(one, 4)
            async with place.consumer("consumer-2") as two:
                for topic in ("a", "b", "c", "d"):
                    await place.publish(topic, b"2")
                assert sorted(await read_of_both(one, two)) == ["a", "b", "c", "d"]
            for topic in ("a", "b", "c", "d"):
                await place.publish(topic, b"3")
            assert sorted(message.topic for message in await read(one, 4)) == ["a", "b", "c", "d"]

    async def read_of_both(one, two):
        """Topics, as they come to either of them, until there is one for each message."""
        topics, four = [], asyncio.Event()

        async def read_on(messages):
            async for message in messages:
                topics.append(message.topic)
                await message.ack()
                if len(topics) == 4:
                    four.set()

        tasks = [asyncio.create_task(read_on(messages)) for messages in (one, two)]
        async with asyncio.timeout(120):
            await four.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return topics

    run(test())


def test_batches_are_of_one_stream(tmp_path):
    async def test():
        place = Place(tmp_path)
        await place.publish("a", *[b"x"] * 7)
        await place.publish("b", *[b"y"] * 7)
        got = []
        async with place.leading(), place.consumer("consumer-1") as messages, asyncio.timeout(120):
            async for batch in messages.batches(5):
                assert len({message.stream for message in batch}) == 1
                assert len(batch) <= 5
                got += batch
                await batch.ack()
                if len(got) == 14:
                    break
        assert sorted(message.payload for message in got) == [b"x"] * 7 + [b"y"] * 7
        await place.publish("a", b"z")
        async with place.leading(), place.consumer("consumer-1") as messages:
            (following,) = await read(messages, 1)
        assert following.payload == b"z", "whole batches were acknowledged"

    run(test())


def test_unsubscribing_ends_the_iteration(tmp_path):
    async def test():
        place = Place(tmp_path)
        await place.publish("a", b"1")
        async with place.leading(), place.consumer("consumer-1") as messages, asyncio.timeout(120):
            await read(messages, 1)
            await messages.unsubscribe()
            assert [message async for message in messages] == []

    run(test())


def test_a_leader_host_that_comes_back_is_found_again(tmp_path):
    async def test():
        place = Place(tmp_path, PATIENT)
        await place.publish("a", b"1")
        async with place.leading() as node:
            address = node.address
            messages = place.consumer("consumer-1")
            await messages.__aenter__()
            await read(messages, 1)
        await place.publish("a", b"2")
        async with place.leading(listen=address):
            # The acknowledgement of the first may not have reached the leader that stopped: then it comes again.
            got = [message.payload for message in await read(messages, 1)]
            if got == [b"1"]:
                got = [message.payload for message in await read(messages, 1)]
            assert got == [b"2"]
            await messages.__aexit__(None, None, None)

    run(test())


def test_a_stream_that_comes_back_under_the_same_grant_number_begins_anew(tmp_path):
    """Grants are numbered anew in each epoch: what was fetched and delivered under the last one is of no use."""

    async def test():
        place = Place(tmp_path, PATIENT)
        await place.publish("a", *(b"%d" % number for number in range(50)))
        async with place.leading() as node:
            address = node.address
            messages = place.consumer("consumer-1")
            await messages.__aenter__()
            old = await read(messages, 10, ack=False)
        async with place.leading(listen=address):
            (message,) = await read(messages, 1, ack=False)
            while message.offset != 0:  # what was fetched may be handed over for as long as the lease lasts
                (message,) = await read(messages, 1, ack=False)
            assert message.grant == old[0].grant
            await old[9].ack()
            messages._flush_acks()
            again = [message, *await read(messages, 49, ack=False)]
            assert [(message.offset, message.payload) for message in again] == [(at, b"%d" % at) for at in range(50)]
            await messages.__aexit__(None, None, None)

    run(test())


def test_the_logs_of_a_run_merge(tmp_path):
    async def test():
        place = Place(tmp_path)
        await place.publish("a", b"1", b"2")
        async with place.leading(), place.consumer("consumer-1") as messages:
            await read(messages, 2)
        return list(merge(read_logs(place.trace)))

    rows = asyncio.run(test())
    kinds = {row[4] for row in rows}
    assert kinds >= {"step", "timer", "send", "deliver", "tell", "ask"}
    sent, position = set(), {}
    for row in rows:
        if row[4] == "send":
            sent.add(row[10])
        elif row[4] == "deliver":
            assert row[10] in sent
        assert position.get(row[1], 0) <= row[0], "each node's order is kept"
        position[row[1]] = row[0]
    assert {row[5] for row in rows if row[4] == "tell"} >= {"published", "deliver", "acknowledged"}


@pytest.mark.parametrize("kind", ["leader", "consumer", "publisher"])
async def test_a_node_that_cannot_begin_closes_its_stores(tmp_path, kind):
    """Its logs have no place; the thread of a SQLite store lives as long as the store is open."""
    (tmp_path / "file").touch()
    given = {"store": tmp_path / "messages.db", "trace": tmp_path / "file"}
    node = {
        "leader": lambda: LeaderNode(listen=("127.0.0.1", 0), **given),
        "consumer": lambda: SharedSubscription("$shared/g/#", leader="127.0.0.1:1", **given),
        "publisher": lambda: Publisher(given["store"], trace=given["trace"]),
    }[kind]()
    before = set(threading.enumerate())
    with pytest.raises(ConfigurationError, match="trace"):
        await node.__aenter__()
    assert [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("sqlite")] == []


def test_what_is_wrong_with_a_consumer_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"must be \$shared/GROUP/FILTER"):
        SharedSubscription("orders/#", leader="127.0.0.1:1", store=tmp_path / "x.db")
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        SharedSubscription("$shared/g/#", leader="nowhere", store=tmp_path / "x.db")


def test_who_is_given_no_name_has_one_that_nobody_else_has_and_keeps_nothing(tmp_path):
    store = tmp_path / "x.db"

    async def test():
        async with LeaderNode(listen=("127.0.0.1", 0), store=store) as node:
            there = {"leader": "{}:{}".format(*node.address), "store": store}
            async with (
                SharedSubscription("$shared/g/#", **there) as one,
                SharedSubscription("$shared/g/#", **there) as two,
                Publisher(store) as publisher,
            ):
                return [node.node, one.node, two.node, publisher.node]

    names = asyncio.run(test())
    assert len(set(names)) == 4
    for name, kind in zip(names, ("leader", "consumer", "consumer", "publisher"), strict=True):
        assert re.fullmatch(rf"{kind}-[A-Za-z0-9-]{{1,24}}-{os.getpid()}-[0-9a-f]{{8}}", name)
        assert len(name) <= 64
    assert list(tmp_path.glob("*.life")) == []


def test_SS_232_who_ended_in_good_order_comes_back_under_its_name_at_once(tmp_path):
    """Above what its disk knows, with other bits, and without a wait for the validity, which is a minute here."""
    (tmp_path / "c1.life").write_text("7\n")

    async def test():
        lives = []
        async with asyncio.timeout(CALM.validity_ms / 2_000):
            for _ in range(2):
                async with SharedSession(
                    leader="127.0.0.1:1", store=tmp_path / "x.db", node="c1", configuration=CALM
                ) as session:
                    lives.append(session.machines.id)
            async with LeaderNode(
                listen=("127.0.0.1", 0), store=tmp_path / "x.db", node="c1", configuration=CALM
            ) as leader:
                lives.append(leader.machines.id)
            async with SharedSession(leader="127.0.0.1:1", store=tmp_path / "x.db", node="c1", configuration=CALM):
                pass
        return lives

    lives = asyncio.run(test())
    assert [one.partition(".")[0] for one in lives] == ["c1~8", "c1~9", "c1~10"]
    assert len({one.partition(".")[2] for one in lives}) == 3


def test_who_is_entered_twice_or_after_a_fork_has_two_names(tmp_path):
    """A life has one name, and no name made by chance has two lives: their ids would be the same."""
    publisher = Publisher(tmp_path / "x.db", trace=tmp_path / "trace")
    session = SharedSession(leader="127.0.0.1:1", store=tmp_path / "x.db", trace=tmp_path / "trace")
    assert (publisher.node, session.node) == ("", "")

    async def test():
        names = []
        for one in (publisher, publisher, session, session):
            async with one:
                names.append(one.node)
        return names

    names = asyncio.run(test())
    assert len(set(names)) == 4
    lives = {log.head.life.partition(".")[0] for log in read_logs(tmp_path / "trace")}
    assert lives == {f"{name}~1" for name in names}


def test_an_empty_name_is_none(tmp_path):
    with pytest.raises(ConfigurationError, match="1 to 64 letters"):
        asyncio.run(Publisher(tmp_path / "x.db", node="").__aenter__())


@pytest.mark.parametrize("host", ["a" * 300, "", "böse.example.org", "--", "..", "a b\n"])
def test_a_name_made_by_chance_is_one_whatever_the_host_is_called(monkeypatch, host):
    from statemachines.drivers import lives
    from statemachines.kernel import incarnation

    monkeypatch.setattr(lives.socket, "gethostname", lambda: host)
    name = lives.chance_name("publisher")
    incarnation(name, 1)
    assert re.fullmatch(r"publisher-[A-Za-z0-9]+(-[A-Za-z0-9]+)*", name)


def test_lives_are_numbered_on_disk(tmp_path):
    from statemachines.drivers.lives import next_life, node_number

    assert [next_life(tmp_path, "a"), next_life(tmp_path, "a"), next_life(tmp_path, "b")] == ["a~1", "a~2", "b~1"]
    assert 0 < node_number("a~1") < 2**23
    assert node_number("a~1") != node_number("a~2")
    (tmp_path / "a.life").write_text("many")
    with pytest.raises(ConfigurationError, match="does not hold a number"):
        next_life(tmp_path, "a")
    with pytest.raises(ConfigurationError, match="letters, digits"):
        next_life(tmp_path, "a b")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        next_life(tmp_path / "file", "a")

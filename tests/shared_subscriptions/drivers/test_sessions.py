"""SharedSession: several subscriptions, shared and private, of one real consumer.

Real nodes: an application's consumer, a leader host and a publisher, over TCP and SQLite.

Groups are declared and destroyed while members live (settled page, scenarios 2, 3 and 5).

A whole group on PostgreSQL: the server crashes under leader, consumer and publisher, and no message is lost.

Headers, key and timestamp of messages: through both stores, to members of a group.
"""

import asyncio
import logging
import sqlite3
from contextlib import asynccontextmanager, closing
from math import inf

import pytest
from msgspec.structs import replace
from waiting import pause_async, silence, until_async

from statemachines.cli import run as gapless
from statemachines.drivers import shared_subscriptions
from statemachines.drivers.message_head import MessageHead, make_head
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.shared_session import SharedSession, SharedSubscription, parse_leaders
from statemachines.kernel import ConfigurationError, Tell
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group import GroupDestroyed
from statemachines.shared_subscriptions.group_store import Commit, Properties, Scan, record_key
from statemachines.shared_subscriptions.stream_store import stream_id
from statemachines.testing.postgres import PostgresServer, run_sql

FAST = Configuration(
    find_leader_ms=100,
    ping_interval_ms=100,
    ping_timeout_ms=50_000,
    validity_ms=60_000,
    max_delay_ms=40,
    unsubscribe_timeout_ms=2_000,
    resend_interval_ms=100,
    renew_streams_ms=100,
    revoke_timeout_ms=60_000,
    claim_ttl_ms=60_000,
    claim_heartbeat_ms=500,
    commit_interval_ms=100,
)
"""Everything soon, and nobody is given up for being slow."""


class Place:
    """A store, and the leader host's address."""

    def __init__(self, path):
        self.store = path / "messages.db"
        self.leader = ""

    def session(self, node="consumer-1", **options):
        options = {"leader": self.leader, "store": self.store, "configuration": FAST, "node": node, **options}
        return SharedSession(**options)

    async def publish(self, topic, *payloads):
        async with Publisher(self.store) as publisher:
            await publisher.publish(topic, payloads)

    @asynccontextmanager
    async def leading(self, **options):
        where = {"listen": ("127.0.0.1", 0), "store": self.store, "configuration": FAST, **options}
        async with LeaderNode(**where) as node:
            self.leader = "{}:{}".format(*node.address)
            yield node


async def read(session, count, ack=True):
    """The next `count` messages."""
    got = []
    async for message in session:
        got.append(message)
        if ack:
            await message.ack()
        if len(got) == count:
            break
    return got


def words(messages):
    return sorted((message.subscription, message.topic, message.payload) for message in messages)


async def test_a_topic_filter_is_read_alone_and_its_progress_is_the_application_s(tmp_path):
    async def again(place, kept):
        async with place.session() as session:
            await session.subscribe("#", start="beginning", progress=kept)
            got = await read(session, 1)
            assert session.progress("#")[got[0].stream] == got[0].offset + 1
            return got

    place = Place(tmp_path)
    await place.publish("old", b"1")
    async with place.leading():
        async with place.session() as session:
            await session.subscribe("#")
            await until_async(lambda: session.progress("#"))
            await place.publish("old", b"2", b"3")
            await place.publish("new", b"4")
            got = await read(session, 2)
            kept = session.progress("#")
        got += await again(place, kept)
    assert sorted(message.payload for message in got) == [b"2", b"3", b"4"]


async def test_fire_and_forget_is_acknowledged_when_it_is_handed_over(tmp_path):
    place = Place(tmp_path)
    await place.publish("a", b"1", b"2")
    options = {"store": place.store, "configuration": FAST, "node": "consumer-1"}
    async with place.leading():
        subscription = SharedSubscription(
            "$shared/g/#", leader=place.leader, acknowledge="delivery", start="beginning", **options
        )
        async with subscription as messages:
            await read(messages, 2, ack=False)
        await place.publish("a", b"3")
        async with SharedSubscription("$shared/g/#", leader=place.leader, **options) as messages:
            assert [message.payload for message in await read(messages, 1)] == [b"3"]


def test_addresses_of_leader_hosts_are_named_so_that_no_node_can_have_the_name():
    hosts = {"leader": ("a", 1), "leader:2": ("b", 2)}
    assert parse_leaders("a:1, b:2") == parse_leaders(["a:1", "b:2"]) == hosts
    assert parse_leaders(["a:1", "a:1"]) == {"leader": ("a", 1)}
    for wrong in ([], "a:1,", [f"a:{port}" for port in range(1, 20)]):
        with pytest.raises(ConfigurationError, match="HOST:PORT"):
            parse_leaders(wrong)


async def test_what_is_wrong_with_a_subscription_is_named(tmp_path):
    async def call(function, *args):
        return function(*args)

    place = Place(tmp_path)
    place.leader = "127.0.0.1:1"
    async with place.session() as session:
        await session.subscribe("$shared/g/#")
        for subscription, options, rule in (
            ("$shared/g/#", {}, "subscribed already"),
            ("$shared/g/x#", {}, "whole last level"),
            ("x#", {}, "whole last level"),
            ("$shared/h/#", {"progress": {}}, "is the group's"),
            ("a", {"start": "yesterday"}, "must be now or beginning"),
            ("a", {"acknowledge": "never"}, '"application" or "delivery"'),
            ("a", {"progress": {"s": -1}}, "none below 0"),
        ):
            with pytest.raises(ConfigurationError, match=rule):
                await session.subscribe(subscription, **options)
        for asked in (session.unsubscribe("#"), call(session.progress, "#")):
            with pytest.raises(ConfigurationError, match="is not subscribed"):
                await asked


NODES_FAST = Configuration(
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

CALM = replace(NODES_FAST, validity_ms=60_000, ping_timeout_ms=50_000, revoke_timeout_ms=60_000, claim_ttl_ms=60_000)
"""The same, and nobody is given up for being slow: what a test on a busy machine must not meet."""

PATIENT = replace(CALM, validity_ms=5_000, ping_timeout_ms=2_000)
"""The same, and a leader host that is gone is given up after two seconds."""


class NodesPlace:
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


async def read_of_nodes(messages, count, ack=True):
    """The next `count` messages."""
    got = []
    async for message in messages:
        got.append(message)
        if ack:
            await message.ack()
        if len(got) == count:
            return got
    return got


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


GROUP = "$shared/g/#"
SHORT_CLAIM = replace(PATIENT, claim_ttl_ms=1_500)
"""Whoever destroys a group waits until its leader's claim is over."""


class GroupsPlace:
    """A store, a publisher, and a leader host."""

    def __init__(self, folder, times=CALM):
        self.store = folder / "messages.db"
        self.times = times

    async def publish(self, *payloads):
        async with shared_subscriptions.Publisher(self.store) as publisher:
            await publisher.publish("orders", payloads)

    @asynccontextmanager
    async def leading(self):
        node = shared_subscriptions.LeaderNode(listen=("127.0.0.1", 0), store=self.store, configuration=self.times)
        async with node:
            self.leader = "{}:{}".format(*node.address)
            yield node

    def consumer(self, node, **options):
        return shared_subscriptions.SharedSubscription(
            GROUP, leader=self.leader, store=self.store, node=node, configuration=self.times, **options
        )


def payloads(messages):
    return [message.payload for message in messages]


async def test_scenario_2_a_group_declared_with_start_0_reads_everything_stored(tmp_path):
    place = GroupsPlace(tmp_path)
    await place.publish(b"one", b"two")
    told = await shared_subscriptions.declare(GROUP, store=place.store, start="beginning", configuration=CALM)
    assert (told.start_ns, told.found) == (0, False)
    async with place.leading(), place.consumer("consumer-1") as messages:
        assert payloads(await read_of_nodes(messages, 2)) == [b"one", b"two"]


async def test_the_groups_of_a_store_are_listed_whoever_declared_them(tmp_path, capsys):
    """With more streams than a page has, records of another group between, and one that is being destroyed."""
    place = GroupsPlace(tmp_path)
    await shared_subscriptions.declare("$queue/q/#", store=place.store, order="relaxed", configuration=CALM)
    await shared_subscriptions.declare("$shared/g/orders/#", store=place.store, configuration=CALM)
    async with place.leading(), place.consumer("consumer-1") as messages:
        await place.publish(b"one")
        await read_of_nodes(messages, 1)
        one, other, queue = await shared_subscriptions.groups.list_groups(store=place.store)
        assert (one.subscription, one.epoch, one.order) == (GROUP, 1, "strict")
        assert one.leader.startswith("leader-")
        assert (queue.subscription, queue.order, queue.leader) == ("$shared/q/#", "relaxed", "")
        assert other.subscription == "$shared/g/orders/#"
    opened = await asyncio.to_thread(shared_subscriptions.groups.open_stores, place.store)
    many = tuple((record_key("g", "#", f"progress:0.0/t{number}"), 1) for number in range(2_500))
    gone = replace(Properties(0, 1, 2, 3), destroyed=True)
    await opened.groups.ask(Commit(1, (), (*many, (record_key("h", "a\x1b", "properties"), gone))))
    await opened.groups.close()
    await opened.streams.close()
    assert await asyncio.to_thread(gapless, ["group", "list", "--store", str(tmp_path / "messages.db")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{GROUP}: strict order, led by nobody",
        "$shared/g/orders/#: strict order, led by nobody",
        "$shared/h/a\\x1b: strict order, led by nobody, is being destroyed",
        "$shared/q/#: relaxed order, led by nobody",
    ]
    assert await asyncio.to_thread(gapless, ["group", "list", "--store", str(tmp_path / "none.db")]) == 2
    assert "there is no such file" in capsys.readouterr().err


async def test_leaders_may_keep_what_they_know_in_a_database_of_its_own(tmp_path):
    place = GroupsPlace(tmp_path)
    messages, place.store = str(place.store), f"{place.store};{tmp_path / 'leaders.db'}"
    await shared_subscriptions.declare(GROUP, store=place.store, start="beginning", configuration=CALM)
    async with shared_subscriptions.Publisher(messages) as publisher:
        await publisher.publish("orders/1", b"one")
    async with place.leading(), place.consumer("consumer-1") as consumer:
        assert payloads(await read_of_nodes(consumer, 1)) == [b"one"]
    assert await shared_subscriptions.groups.list_groups(store=messages) == []
    (group,) = await shared_subscriptions.groups.list_groups(store=place.store)
    assert (group.subscription, group.epoch) == (GROUP, 1)
    place.times = replace(CALM, dead_letter_topic="dead", max_deliver=2)
    with pytest.raises(ConfigurationError, match="needs both stores in one database"):
        async with place.leading():
            pass


async def test_scenario_3_the_first_subscribe_declares_from_now_on(tmp_path):
    place = GroupsPlace(tmp_path)
    await place.publish(b"before")
    async with place.leading(), place.consumer("consumer-1") as messages:
        assert (await shared_subscriptions.declare(GROUP, store=place.store, configuration=CALM)).found
        await place.publish(b"after")
        assert payloads(await read_of_nodes(messages, 1)) == [b"after"]


@pytest.mark.long
async def test_scenario_5_a_destroyed_group_delivers_nothing_until_a_new_subscribe(tmp_path):
    place = GroupsPlace(tmp_path, SHORT_CLAIM)
    async with place.leading(), place.consumer("consumer-1", start="beginning") as member:
        await place.publish(b"one")
        assert payloads(await read_of_nodes(member, 1)) == [b"one"]
        assert (await shared_subscriptions.destroy(GROUP, store=place.store, configuration=SHORT_CLAIM)).found
        await place.publish(b"two")
        with pytest.raises(TimeoutError):
            async with silence(1, "nobody is told that nothing comes"):
                await read_of_nodes(member, 1)
        async with place.consumer("consumer-2") as later:
            await place.publish(b"three")
            first = await anext(aiter_of(member, later))
    assert first.payload == b"three", "the new group begins when it is declared"


async def aiter_of(*subscriptions):
    """The next message of whichever gets one: a member of the old group takes part in the new one, too."""
    tasks = [asyncio.create_task(read_of_nodes(one, 1)) for one in subscriptions]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    yield done.pop().result()[0]


async def test_a_subscriber_with_other_times_is_told(tmp_path):
    place = GroupsPlace(tmp_path)
    await shared_subscriptions.declare(GROUP, store=place.store, configuration=Configuration())
    async with place.leading():
        with pytest.raises(ConfigurationError, match="the group lives by ping_interval_ms = 1000"):
            async with place.consumer("consumer-1"):
                pass


def test_the_commands_declare_and_destroy(tmp_path, capsys):
    store = str(tmp_path / "messages.db")
    assert gapless(["group", "declare", GROUP, "--store", store, "--start", "beginning"]) == 0
    assert gapless(["group", "declare", GROUP, "--store", store]) == 0
    assert gapless(["group", "destroy", GROUP, "--store", store]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "$shared/g/#: declared, from the beginning on",
        "$shared/g/#: was declared already, from the beginning on",
        "$shared/g/#: destroyed",
    ]
    assert gapless(["group", "destroy", "$shared/g", "--store", store]) == 2


@pytest.mark.parametrize("verb", ["declare", "destroy"])
@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "mysql"])
def test_the_commands_take_the_url_of_a_store_and_print_no_password(tmp_path, capsys, monkeypatch, verb, scheme):
    monkeypatch.chdir(tmp_path)
    url = f"{scheme}://me:hush-hush@127.0.0.1:1/none?sslmode=bogus"
    assert gapless(["group", verb, GROUP, "--store", url]) == 2
    said = "".join(capsys.readouterr())
    assert "store = " in said
    assert "127.0.0.1:1/none" in said
    assert "hush-hush" not in said


def test_the_commands_take_the_url_of_a_file(tmp_path, capsys):
    assert gapless(["group", "declare", GROUP, "--store", f"sqlite:///{tmp_path}/by_url.db"]) == 0
    assert (tmp_path / "by_url.db").exists()


class Sleeping:
    """A machine that waits for an hour, and then tells that it is done."""

    def __init__(self, event):
        self.event = event

    def deadline(self):
        return 3_600 * 10**9

    def fire(self, now_ns):
        return [Tell(self.event)] if now_ns >= self.deadline() else []


async def test_who_waits_while_the_machine_sleeps_is_done_soon_after(monkeypatch):
    """The event loop's clock stands still meanwhile."""
    now = [0]
    done = GroupDestroyed("g", "#", found=True)
    monkeypatch.setattr(shared_subscriptions.groups, "steady_ns", lambda: now[0])
    monkeypatch.setattr(shared_subscriptions.groups, "LOOK_AGAIN_S", 0.001)

    waiting = asyncio.ensure_future(shared_subscriptions.groups._drive(Sleeping(done), None, []))
    await pause_async(0.01, "ten looks")
    assert not waiting.done()
    now[0] = 3_700 * 10**9
    assert await waiting == done


async def test_a_member_says_that_no_leader_host_takes_it_and_the_host_says_why(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(shared_subscriptions.stalled_streams, "AFTER_S", 0.2)

    with caplog.at_level(logging.INFO, "gapless"):
        place = GroupsPlace(tmp_path)
        await shared_subscriptions.declare(GROUP, store=place.store, configuration=CALM)
        hasty = shared_subscriptions.LeaderNode(
            listen=("127.0.0.1", 0), store=place.store, configuration=replace(CALM, ping_interval_ms=77)
        )
        async with hasty:
            place.leader = "{}:{}".format(*hasty.address)
            async with place.consumer("consumer-1"):
                await until_async(lambda: "no leader host has taken $shared/g/# for" in caplog.text)
    assert any("start this host with the times that the group was declared with" in line for line in caplog.messages)


NODES_ON_POSTGRES_FAST = Configuration(
    **{name: getattr(Configuration(), name) // 10 for name in Configuration.__struct_fields__ if name.endswith("_ms")}
)
TOPICS = ("a", "b", "c")
COUNT = 100
"""Messages of each topic."""


@pytest.fixture(scope="module")
def server():
    with PostgresServer() as server:
        yield server


class Group:
    """One leader host, one publisher, and consumers; what they got."""

    def __init__(self, url, state):
        self.where = {"store": url, "state": state}
        self.leader = ""
        self.got = []

    def leading(self):
        return LeaderNode(listen=("127.0.0.1", 0), configuration=NODES_ON_POSTGRES_FAST, **self.where)

    def consumer(self, name):
        return SharedSubscription(
            "$shared/g/#",
            leader=self.leader,
            configuration=NODES_ON_POSTGRES_FAST,
            node=name,
            start="beginning",
            **self.where,
        )

    async def publish(self, count):
        """As many messages to each topic."""
        async with Publisher(**self.where, patience_s=60) as publisher:
            for number in range(count):
                for topic in TOPICS:
                    await publisher.publish(topic, [f"{number}".encode()])

    async def read(self, messages, enough):
        """Until there are `enough` different ones."""
        async for batch in messages.batches(10):
            self.got += [(message.topic, message.offset, message.payload) for message in batch]
            await batch.ack()
            if len(set(self.got)) >= enough:
                return

    async def committed(self, messages, wanted):
        """Read until the leader has committed the progress of so many messages: where a lease ran out, as on a busy
        host, an acknowledgement is lost and the message comes again."""
        groups = PostgresGroupStore(self.where["store"])
        reading = asyncio.create_task(self.read(messages, inf))
        try:
            found = -1
            while found != wanted:
                await pause_async(0.05, "between two looks")
                (scanned,) = await groups.ask(Scan(1, "/1.1/g/#:progress:", "", 100))
                found = sum(stored.value for _, stored in scanned.records)
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            await groups.close()


@pytest.mark.long
async def test_a_group_goes_on_after_the_server_crashed(server, tmp_path):
    group = Group(server.database("crash"), tmp_path)
    async with group.leading() as node:
        group.leader = "{}:{}".format(*node.address)
        async with group.consumer("consumer-1") as messages:
            publishing = asyncio.create_task(group.publish(COUNT))
            await group.read(messages, 50)
            await asyncio.to_thread(server.crash)
            await asyncio.to_thread(server.start)
            await group.read(messages, COUNT * len(TOPICS))
            await publishing
            await group.committed(messages, COUNT * len(TOPICS))
    wanted = {(topic, number, f"{number}".encode()) for topic in TOPICS for number in range(COUNT)}
    assert set(group.got) == wanted, "each once in the store, and none missing"
    group.got.clear()
    async with group.leading() as node:
        group.leader = "{}:{}".format(*node.address)
        async with group.consumer("consumer-2") as messages:
            await group.publish(1)
            await group.read(messages, len(TOPICS))
    assert sorted(set(group.got)) == [(topic, COUNT, b"0") for topic in TOPICS], "what was acknowledged is committed"


STREAM = stream_id("a", 4, 0)
HEAD = make_head({"trace": b"\0\xff", "é": b""}, b"customer-7", 1_764_000_000.25)


def rows_of(database, statement):
    if database.kind == "postgres":
        return run_sql(database.url, statement.format("gapless."))
    with closing(sqlite3.connect(database.path)) as connection:
        return connection.execute(statement.format("")).fetchall()


async def test_SS_380_a_member_gets_what_the_publisher_gave(tmp_path):
    place = NodesPlace(tmp_path)
    async with Publisher(place.store, node="publisher") as publisher:
        await publisher.publish("a", [b"0", b"1"], headers=HEAD.headers, key=HEAD.key, timestamp=HEAD.timestamp)
        await publisher.publish("a", [b"2", b"3"], heads=[None, MessageHead(key=b"k")])
        await publisher.publish("a", [b"4"])
        refused = ({"headers": {"": b""}}, {"key": b"k", "heads": [None]}, {"heads": [None, None]}, {"key": "text"})
        for given in refused:
            with pytest.raises(ConfigurationError):
                await publisher.publish("a", [b"bad"], **given)
    async with place.leading(), place.consumer("consumer-1") as messages:
        found = await read_of_nodes(messages, 5)
    assert [one.payload for one in found] == [b"%d" % number for number in range(5)]
    for one in found[:2]:
        assert (one.headers, one.key, one.timestamp) == (HEAD.headers, HEAD.key, HEAD.timestamp)
    assert [(one.headers, one.key, one.timestamp) for one in found[2:]] == [
        ((), None, None),
        ((), b"k", None),
        ((), None, None),
    ]

"""Groups in sessions: a node carries messages of shared streams into the sessions that subscribe them (clauses PS-260
to PS-269).

What is handed to a node of sessions, and comes to its clients (PS-151, PS-152, PS-157, PS-159, PS-162).
"""

import asyncio
import contextlib
import itertools
import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager, closing

import pytest
from msgspec import structs
from session_databases import connect, open_node_store
from session_nodes import QUICK, Stranger, lose_store, node_of, take, where
from waiting import until_async

from statemachines.drivers.persistent_sessions import (
    Groups,
    PersistentSession,
    PublishRefused,
    SessionNode,
    SessionPublisher,
    SubscribeRefused,
    client_requests,
    group_rows,
)
from statemachines.drivers.persistent_sessions.group_membership import CARRIED_MAX
from statemachines.drivers.persistent_sessions.group_rows import CountWaiting, ReadGroups
from statemachines.drivers.persistent_sessions.host_requests import PutCarried
from statemachines.drivers.persistent_sessions.machine_requests import StoreRows
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.route_rows import Subscribe
from statemachines.drivers.persistent_sessions.session_publisher import PAYLOAD_MAX
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.shared_session import Deliveries, SharedSession
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    PublishWanted,
    Queued,
    Refused,
    SubscribeWanted,
    UnsubscribeWanted,
    Welcome,
)
from statemachines.persistent_sessions.request import BeginEpoch, PutRows
from statemachines.shared_subscriptions.configuration import Configuration

FAST = Configuration(
    find_leader_ms=100,
    ping_interval_ms=100,
    ping_timeout_ms=500_000,
    validity_ms=600_000,
    max_delay_ms=40,
    unsubscribe_timeout_ms=2_000,
    resend_interval_ms=100,
    renew_streams_ms=100,
    revoke_timeout_ms=600_000,
    claim_ttl_ms=60_000,
    claim_heartbeat_ms=500,
    commit_interval_ms=100,
)
"""Everything soon, and nobody is given up for being slow."""


class Place:
    """The streams of groups, and who leads them."""

    def __init__(self, folder, **times):
        self.store = folder / "messages.db"
        self.times = structs.replace(FAST, **times)
        self.leader = ""

    @property
    def groups(self):
        return Groups(leader=self.leader, store=self.store, configuration=self.times)

    async def publish(self, topic, *payloads):
        async with Publisher(self.store) as publisher:
            await publisher.publish(topic, [one.encode() for one in payloads])


@asynccontextmanager
async def place_of(folder, **times):
    place = Place(folder, **times)
    async with LeaderNode(listen=("127.0.0.1", 0), store=place.store, configuration=place.times) as leader:
        place.leader = "{}:{}".format(*leader.address)
        yield place


GROUP = "$share/g/jobs/#"


@asynccontextmanager
async def played(folder, store, names=("a",), **given):
    """A leader host, and nodes of sessions that know it."""
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(place_of(folder))
        yield (
            place,
            [await stack.enter_async_context(node_of(store, name, groups=place.groups, **given)) for name in names],
        )


def numbers(count, first=0):
    return [str(number) for number in range(first, first + count)]


def count_stored(store):
    """Messages of the group that were stored for any session, delivered or not."""
    with closing(sqlite3.connect(store)) as database:
        asked = "SELECT count(*) FROM messages WHERE substr(topic, 1, 5) = ?"
        return database.execute(asked, (b"jobs/",)).fetchone()[0]


def in_flight(store):
    """Messages that were sent and whose acknowledgement is not stored."""
    with closing(sqlite3.connect(store)) as database:
        return database.execute("SELECT count(*) FROM packets").fetchone()[0]


def reads_of(node):
    """What it reads of streams of groups."""
    return node._carrier._consumer.machines.reads.readings.values()


async def test_PS_260_the_subscription_is_of_the_session_and_holds_when_it_comes_back(store, tmp_path):
    """On another node, too; and it ends when it is unsubscribed."""
    async with played(tmp_path, store, "ab") as (place, (one, other)):
        async with PersistentSession("tablet", nodes=where(one)) as session:
            await session.subscribe(GROUP)
            await session.subscribe(GROUP, qos=2)
        async with PersistentSession("tablet", nodes=where(other)) as session:
            await place.publish("jobs/a", "1")
            message = await anext(session)
            assert (message.payload, message.qos) == (b"1", 2)
            message.acknowledge()
            for _ in range(3):  # the member of before may not be gone when the next begins
                session._guide.say(UnsubscribeWanted(99, GROUP))
                await session.subscribe(GROUP)
            await place.publish("jobs/b", "again")
            assert await take(session, 1) == ["again"]
            await session.unsubscribe(GROUP)
            await until_async(lambda: not other._carrier._labels)
            await place.publish("jobs/a", "2")
            async with PersistentSession("phone", nodes=where(other)) as phone:
                await phone.subscribe(GROUP)
                assert await take(phone, 1) == ["2"]


async def test_PS_332_a_node_that_does_not_reach_its_store_leaves_the_groups_of_its_sessions(
    store, tmp_path, monkeypatch
):
    """Others have the streams, though it is connected to the group's leader, and what it stores never ends."""
    topics = [f"jobs/{letter}" for letter in "abcd"]
    async with (
        played(tmp_path, store, "ab") as (place, (one, other)),
        PersistentSession("tablet", nodes=where(one)) as tablet,
        PersistentSession("phone", nodes=where(other)) as phone,
    ):
        for session in (tablet, phone):
            await session.subscribe(GROUP)
        for topic in topics:
            await place.publish(topic, "first")
        for session in (tablet, phone):
            message = await anext(session)  # each has streams
            message.acknowledge()
        restore = lose_store(one, monkeypatch)
        for topic in topics:
            await place.publish(topic, topic)
        came = set()
        while not came >= set(topics):
            came.update(await take(phone, 1))
        restore()


@pytest.mark.long
async def test_PS_263_a_client_that_is_slow_keeps_few_messages_of_a_group_and_none_of_its_own_wait_behind_more(
    store, tmp_path
):
    most = CARRIED_MAX + 2
    async with (
        played(tmp_path, store, graces=None) as (place, (node,)),
        PersistentSession("tablet", nodes=where(node), receive_maximum=2) as session,
    ):
        await session.subscribe(GROUP)
        await session.subscribe("own")
        await place.publish("jobs/a", *numbers(1_000))
        await until_async(lambda: node._carrier.carried >= most)
        async with SessionPublisher(nodes=where(node)) as publisher:
            await publisher.publish("own", b"own")
        assert count_stored(store) == most
        before = await take(session, most + 1)
        assert before[-1] == "own"
        assert await take(session, 1_000 - most) == numbers(1_000 - most, most)


@pytest.mark.long
async def test_PS_263_what_waits_is_counted_when_the_session_comes_back(store, tmp_path):
    """A client that connects again and again, and acknowledges nothing, gathers no more for that."""
    async with played(tmp_path, store, graces=None) as (place, (node,)):
        for _ in range(3):
            async with PersistentSession("tablet", nodes=where(node), receive_maximum=2) as session:
                await session.subscribe(GROUP)
                if not node._carrier.carried:
                    await place.publish("jobs/a", *numbers(1_000))
                await until_async(lambda: node._carrier.carried == CARRIED_MAX + 2)
                await until_async(lambda: any(one.delivered > one.progress for one in reads_of(node)))
                await until_async(lambda: any(one.waiting >= CARRIED_MAX for one in node._carrier._labels.values()))
            await until_async(lambda: not node._carrier._labels)
        assert count_stored(store) == CARRIED_MAX + 2
        async with PersistentSession("tablet", nodes=where(node), receive_maximum=2) as session:
            assert await take(session, 1_000) == numbers(1_000)


async def test_PS_265_what_is_stored_is_the_sessions_and_the_rest_is_for_others_when_it_goes(store, tmp_path):
    async with played(tmp_path, store) as (place, (node,)):
        async with PersistentSession("tablet", nodes=where(node), receive_maximum=2) as session:
            await session.subscribe(GROUP)
            await place.publish("jobs/a", *numbers(300))
            await until_async(lambda: node._carrier.carried == CARRIED_MAX + 2)
        async with PersistentSession("phone", nodes=where(node)) as phone:
            await phone.subscribe(GROUP)
            assert await take(phone, 198) == numbers(198, 102)
        async with PersistentSession("tablet", nodes=where(node)) as session:
            assert await take(session, 102) == numbers(102)


async def test_PS_266_an_owner_that_another_has_superseded_stores_nothing_more(store, tmp_path):
    """Nor one whose session does not subscribe the filter: nothing is acknowledged to the group."""
    async with (
        played(tmp_path, store) as (_, (node,)),
        PersistentSession("tablet", nodes=where(node)) as session,
    ):
        await session.subscribe(GROUP)
        (owner,) = node.machines.owners
        token, its = node.machines.resume_of(owner).token, session.session
        put = [("m", Payload("jobs/a", b"x"))]
        assert await node.request_queue.ask(PutCarried(its, token, GROUP, tuple(put))) == 1
        assert await node.request_queue.ask(PutCarried(its, token - 1, GROUP, tuple(put))) is None
        assert await node.request_queue.ask(PutCarried(its, token, "$share/other/x", tuple(put))) is None
        assert await node.request_queue.ask(PutCarried("none", token, GROUP, tuple(put))) is None
        await session.unsubscribe(GROUP)
        assert await node.request_queue.ask(PutCarried(its, token, GROUP, tuple(put))) is None


async def test_PS_267_what_no_group_can_be_is_refused_and_named(store, tmp_path):
    async with (
        played(tmp_path, store) as (place, (node,)),
        PersistentSession("tablet", nodes=where(node)) as session,
    ):
        for wrong, why in (
            ("$share/g", "subscription"),
            ("$share//x", "GROUP is not empty"),
            (f"$share/{'g' * 300}/x", "must have 1 to 256 bytes"),
            ("$queue/q/" + "x" * 1_100, "must have 1 to 1024 bytes"),
        ):
            with pytest.raises(SubscribeRefused, match=why):
                await session.subscribe(wrong)
        slow = structs.replace(FAST, ping_interval_ms=101)
        async with SharedSession(leader=place.leader, store=place.store, configuration=slow) as other:
            await other.subscribe("$share/slow/x")
        with pytest.raises(SubscribeRefused, match="the group lives by ping_interval_ms = 101"):
            await session.subscribe("$share/slow/x")
        assert await node.request_queue.ask(ReadGroups(session.session)) == ()
        await session.subscribe(GROUP)
        await place.publish("jobs/a", "1")
        assert await take(session, 1) == ["1"]


async def test_PS_268_a_message_that_no_client_can_be_sent_is_named_and_holds_up_nothing(store, tmp_path, caplog):
    async with (
        played(tmp_path, store) as (place, (node,)),
        PersistentSession("tablet", nodes=where(node)) as session,
    ):
        await session.subscribe(GROUP)
        await place.publish("jobs/a", "1", "x" * (PAYLOAD_MAX + 1), "2")
        assert await take(session, 2) == ["1", "2"]
        assert node._carrier.too_large == 1
    assert "a message of jobs/a has" in caplog.text
    assert "a session is sent at most" in caplog.text


async def test_PS_261_PS_470_who_dies_between_the_two_leaves_nothing_out_and_repeats_none(store, tmp_path, monkeypatch):
    """Messages are stored, and their node dies before the group hears of it: the next gets them again, and brings none
    of them."""

    async def never(self):
        await asyncio.Event().wait()

    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(place_of(tmp_path, ping_timeout_ms=4_000, validity_ms=5_000))
        node = SessionNode(store, name="a", groups=place.groups, graces=None, **QUICK)
        await node.__aenter__()
        session = PersistentSession("tablet", node=node, receive_maximum=2)
        await session.__aenter__()
        await session.subscribe(GROUP)
        await place.publish("jobs/a", *numbers(5))
        assert await take(session, 5) == numbers(5)
        await until_async(lambda: all(each.progress == 5 for each in reads_of(node)) and in_flight(store) == 0)
        with monkeypatch.context() as patch:
            patch.setattr(Deliveries, "ack", never)
            await place.publish("jobs/a", *numbers(3, 5))
            await until_async(lambda: count_stored(store) == 8)
            await session.abort()
            await node.abort()
        node = await stack.enter_async_context(node_of(store, "b", groups=place.groups, graces=None))
        session = await stack.enter_async_context(PersistentSession("tablet", nodes=where(node)))
        await place.publish("jobs/a", *numbers(3, 8))
        assert await take(session, 6) == [*numbers(3, 5), *numbers(3, 8)]


async def test_PS_269_a_session_without_room_leaves_what_another_waits_for(store, tmp_path, caplog):
    """Else it would be given up for not finishing; and nothing comes twice for that."""
    caplog.set_level("INFO", "gapless")
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(place_of(tmp_path, revoke_timeout_ms=3_000))
        node = await stack.enter_async_context(node_of(store, groups=place.groups, graces=None))
        tablet = PersistentSession("tablet", nodes=where(node), receive_maximum=2)
        await stack.enter_async_context(tablet)
        await tablet.subscribe(GROUP)
        for topic in ("jobs/a", "jobs/b"):
            await place.publish(topic, *numbers(300))
        await until_async(lambda: node._carrier.carried >= CARRIED_MAX + 2)
        await until_async(lambda: sum(one.delivered - one.progress for one in reads_of(node)) >= CARRIED_MAX)
        phone = await stack.enter_async_context(PersistentSession("phone", nodes=where(node)))
        await phone.subscribe(GROUP)
        await take(phone, 1)
        await tablet.unsubscribe(GROUP)
        await take(phone, 600 - (CARRIED_MAX + 2) - 1)
        await take(tablet, CARRIED_MAX + 2)
        assert count_stored(store) == 600
    assert "is no member any more: it left" in caplog.text
    assert "was kicked" not in caplog.text


async def two_writers(store):
    """A session with three rows of a group of one writer, one of another, and three of its own behind them."""
    one = await connect(store, "s1")
    for topic_filter in (GROUP, "own/+", "$queue/q/a"):
        await store.do(Subscribe("s1", one.token, topic_filter, 1))
    messages = tuple((f"m{number}", Payload("jobs/a", b"x")) for number in range(1, 8))
    assert await store.do(PutCarried("s1", one.token, GROUP, messages)) == 1
    for writer, rows in (("n1", 3), ("n2", 1)):
        await store.ask(BeginEpoch("s1", writer))
        for number in range(1, rows + 1):
            await store.ask(PutRows("s1", writer, 1, (Queued(number, f"m{number}", GROUP, 1),)))
    for number in (2, 3, 4):
        await store.ask(PutRows("s1", "n2", 1, (Queued(number, f"m{number + 3}", "own/+", 1),)))
    return one


@pytest.mark.parametrize(("looked", "found"), [(4, 100), (7, 100), (8, 4)])
async def test_PS_288_where_more_waits_than_is_looked_through_there_is_no_room(url, looked, found, monkeypatch, caplog):
    """Seven rows wait; of a group that has four of them, and of one that has none."""
    monkeypatch.setattr(group_rows, "LOOKED_MAX", looked)

    async with open_node_store(url) as (store, _clock):
        await two_writers(store)
        assert await store.do(CountWaiting("s1", GROUP, 100)) == found
        assert await store.do(CountWaiting("s1", "$queue/q/a", 100)) == (found if found == 100 else 0)
        await connect(store, "s2", clean=True)
        assert "has ended: 4 messages of groups go back" in caplog.text


@pytest.mark.parametrize("clients", [1, 3])
async def test_PS_285_a_session_of_a_group_is_told_that_its_node_knows_none_and_misses_nothing(
    store, tmp_path, caplog, clients
):
    """It goes on with the rest there, and with the group where it comes to a node that has it."""
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(place_of(tmp_path))
        plain = await stack.enter_async_context(node_of(store, "b"))
        publisher = await stack.enter_async_context(SessionPublisher(nodes=where(plain)))
        async with node_of(store, "a", groups=place.groups) as node:
            sessions = [
                await stack.enter_async_context(PersistentSession(f"c{n}", nodes=where(node, plain)))
                for n in range(clients)
            ]
            for session in sessions:
                await session.subscribe(GROUP)
                await session.subscribe("own/+")
            await place.publish("jobs/a", "1", "2", "3")
            await until_async(lambda: node._carrier.carried == 3)
        await until_async(lambda: all(session.refused_groups for session in sessions))
        ((refused, why),) = sessions[0].refused_groups.items()
        assert refused == GROUP
        assert "knows no groups: run it with --group-leader and --group-store" in why
        await place.publish("jobs/a", "4", "5")
        await place.publish("jobs/b", "6")
        await publisher.publish("own/x", b"own")
        got = {session: [] for session in sessions}
        for session in sessions:
            while "own" not in got[session]:
                got[session] += await take(session, 1)
            with pytest.raises(SubscribeRefused, match="knows no groups"):
                await session.subscribe(GROUP)
            assert session.refused_groups
        assert sorted(itertools.chain(*got.values())) == ["1", "2", "3", *["own"] * clients]
        back = await stack.enter_async_context(node_of(store, "a", groups=place.groups))
        for session in sessions:
            await session.leave()
        sessions = [
            await stack.enter_async_context(PersistentSession(f"c{n}", nodes=where(back))) for n in range(clients)
        ]
        rest = []

        async def listen(session):
            async for message in session:
                rest.append(message.payload.decode())
                message.acknowledge()

        tasks = [asyncio.ensure_future(listen(session)) for session in sessions]
        await place.publish("jobs/a", "7")
        await until_async(lambda: len(rest) >= 4)
        assert not any(session.refused_groups for session in sessions)
        for task in tasks:
            task.cancel()
        assert sorted(rest) == ["4", "5", "6", "7"]
        if clients == 1:  # the stream may go from one to the other
            assert [one for one in rest if one != "6"] == ["4", "5", "7"]
    said = [one for one in caplog.messages if "and this node knows none" in one]
    assert len(said) == 1
    assert f"subscribes {GROUP} of groups" in said[0]
    assert "--group-leader and --group-store" in said[0]
    assert sum("nothing of it comes" in one for one in caplog.messages) == clients


async def test_PS_267_a_node_whose_groups_cannot_be_says_why_and_ends(store, tmp_path, caplog):
    groups = Groups(leader="127.0.0.1:1", store=tmp_path / "nowhere" / "messages.db")
    async with node_of(store, groups=groups) as node:
        with pytest.raises(ConfigurationError, match="there is no directory"):
            await node.wait_for_failure()
    with pytest.raises(ConfigurationError, match="must be HOST:PORT"):
        async with node_of(store, groups=Groups(leader="nobody", store=store)):
            pass
    assert "there is no directory" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("topic", "payload", "qos", "said"),
    [
        ("a/#", b"", 1, "only filters have"),
        ("", b"", 1, "not empty"),
        ("t", b"", 3, "must be 0, 1 or 2"),
        ("t", bytes(PAYLOAD_MAX + 1), 1, f"at most {PAYLOAD_MAX} bytes"),
    ],
)
async def test_PS_151_what_cannot_be_published_is_said(store, topic, payload, qos, said):
    async with node_of(store) as node, SessionPublisher(node=node) as publisher:
        with pytest.raises(ConfigurationError, match=said):
            await publisher.publish(topic, payload, qos)


async def test_PS_151_so_many_are_under_way_and_the_next_is_refused(store, monkeypatch):
    monkeypatch.setattr(client_requests, "PUBLISHES_MAX", 5)
    async with node_of(store) as node, SessionPublisher(node=node) as publisher:
        done = await asyncio.gather(
            *(publisher.publish("t", str(one).encode()) for one in range(8)), return_exceptions=True
        )
        assert [str(one) for one in done] == ["None"] * 5 + ["busy"] * 3
        assert isinstance(done[-1], PublishRefused)
        await publisher.publish("t", b"again")


@pytest.mark.parametrize(
    ("bound", "most"), [("PUBLISHER_MAX", 2), ("PUBLISHER_BYTES_MAX", 10), ("PUBLISHER_BYTES_MAX", 14)]
)
async def test_PS_151_a_publisher_that_floods_takes_no_room_of_others(store, monkeypatch, bound, most):
    monkeypatch.setattr(client_requests, bound, most)
    async with (
        node_of(store) as node,
        SessionPublisher(node=node) as flooding,
        SessionPublisher(node=node) as other,
    ):
        floods = (flooding.publish("t", b"12345") for _ in range(4))
        others = (other.publish("t", b"12345") for _ in range(2))
        done = await asyncio.gather(*floods, *others, return_exceptions=True)
        assert [str(one) for one in done] == ["None", "None", "busy", "busy", "None", "None"]
        await asyncio.gather(*(flooding.publish("t", b"12345") for _ in range(2)))
        await flooding.publish("t", b"more than may be under way beside others")


@pytest.mark.parametrize(("published", "subscribed", "came"), [(2, 1, 1), (1, 2, 1), (2, 2, 2), (0, 2, 0), (2, 0, 0)])
async def test_PS_151_a_message_comes_with_the_lower_qos(store, published, subscribed, came):
    async with (
        node_of(store) as node,
        SessionPublisher(node=node) as publisher,
        PersistentSession("tablet", node=node) as session,
    ):
        await session.subscribe("t", qos=subscribed)
        await publisher.publish("t", b"1", qos=published)
        message = await anext(session)
        assert (message.qos, bool(message.packet)) == (came, came > 0)


async def test_PS_151_so_many_subscriptions_are_under_way_and_the_next_is_refused(store, monkeypatch):
    monkeypatch.setattr(client_requests, "CHANGES_MAX", 2)
    async with node_of(store) as node, PersistentSession("tablet", node=node) as session:
        done = await asyncio.gather(*(session.subscribe(name) for name in "abc"), return_exceptions=True)
        assert [str(one) for one in done] == ["None", "None", "busy"]
        await session.subscribe("c")


async def test_PS_151_what_a_node_refuses_is_said(store):
    async with node_of(store) as node, Stranger(node.address) as stranger:
        stranger.say(SubscribeWanted(1, "t", 1))
        assert await stranger.hears(Refused) == Refused(1, "no session is connected here")
        stranger.heard.clear()
        stranger.say(ConnectWanted("c", False, 0, 1))
        await stranger.hears(Welcome)
        stranger.say(UnsubscribeWanted(2, "a/#/b"))
        assert "has '#' before its last level" in (await stranger.hears(Refused)).why
        stranger.heard.clear()
        stranger.say(PublishWanted(3, "a/+", b"", 1))
        assert "only filters have" in (await stranger.hears(Refused)).why
    async with node_of(store, "b") as node, PersistentSession("tablet", node=node) as session:
        with pytest.raises(ConfigurationError, match="has '#' before its last level"):
            await session.subscribe("a/#/b")
        session._count += 1
        with pytest.raises(SubscribeRefused, match="has '#' before its last level"):
            await session._change(SubscribeWanted(session._count, "a/#/b", 1))


async def test_PS_162_a_message_that_was_deleted_before_its_row_is_there_again(store):
    async with node_of(store) as node, PersistentSession("tablet", node=node) as session:
        await session.subscribe("t", qos=1)
        given = node._store.carry_out

        async def late(life, batch, requests):
            if any(isinstance(one, StoreRows | PutRows) for one in requests):  # a collector came between
                with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
                    connection.execute("DELETE FROM messages")
            return await given(life, batch, requests)

        node._store.carry_out = late
        async with SessionPublisher(node=node) as publisher:
            await publisher.publish("t", b"kept")
    async with node_of(store) as node, PersistentSession("tablet", node=node) as session:
        assert await take(session, 1) == ["kept"]


@pytest.mark.parametrize("inside", [False, True], ids=["tcp", "inside"])
async def test_PS_151_PS_152_what_is_published_comes_in_order(store, inside):
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(node_of(store))
        given = {"node": node} if inside else {"nodes": where(node)}
        session = await stack.enter_async_context(PersistentSession("tablet", **given))
        publisher = await stack.enter_async_context(SessionPublisher(**given))
        await publisher.publish("news/1", b"nobody wants this")
        await session.subscribe("news/+")
        await asyncio.gather(*(publisher.publish("news/1", str(one).encode()) for one in range(50)))
        assert await take(session, 50) == [str(one) for one in range(50)]
        await session.unsubscribe("news/+")
        await publisher.publish("news/1", b"nor this")
        await session.subscribe("news/#")
        await publisher.publish("news/1", b"this")
        message = await anext(session)
        assert (message.topic, message.payload, message.filter, message.qos) == ("news/1", b"this", "news/#", 1)

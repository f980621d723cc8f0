"""Clients of nodes of sessions: they go on with their sessions (PS-103, PS-108, PS-146, PS-155, PS-156).

Who says what it likes to a node of sessions (PS-158, PS-159, PS-164).

What no clock and no database counts to: epochs, numbers and names that a peer makes up.
"""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from unittest.mock import patch

import pytest
from session_nodes import QUICK, Stranger, lose_store, node_of, take, where
from waiting import pause_async, run_async, until_async

from statemachines.drivers import complaint_log
from statemachines.drivers.credentials import Credentials
from statemachines.drivers.persistent_sessions import (
    NodeUnreachable,
    PersistentSession,
    SessionLost,
    SessionNode,
    SessionPublisher,
    SubscribeRefused,
    node_link,
    session_server,
)
from statemachines.drivers.persistent_sessions.node_link import NodeGuide
from statemachines.drivers.persistent_sessions.node_messages import NODE
from statemachines.drivers.persistent_sessions.outbox import UNACKNOWLEDGED_MAX
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.topic import TOPIC_MAX
from statemachines.kernel import ConfigurationError, Send, Tell
from statemachines.persistent_sessions.life_record import SessionClosed
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Delivered,
    Farewell,
    Live,
    LiveMarker,
    MarkerWanted,
    Ping,
    Publish,
    Queued,
    Subscribed,
    Welcome,
)
from statemachines.persistent_sessions.session_host_parties import life_of_owner


@asynccontextmanager
async def tablet_at(store, **given):
    """A node, a publisher and a session there, which has subscribed."""
    async with (
        node_of(store, **given) as node,
        SessionPublisher(node=node) as publisher,
        PersistentSession("tablet", node=node) as session,
    ):
        await session.subscribe("t")
        yield node, publisher, session


async def publish(publisher, *numbers):
    for number in numbers:
        await publisher.publish("t", str(number).encode())


async def test_PS_152_what_is_acknowledged_makes_room_for_as_many_bytes(store):
    async with tablet_at(store) as (_, publisher, session):
        for letter in "abcde":
            await publisher.publish("t", letter.encode() * (UNACKNOWLEDGED_MAX // 2))
        assert [one[:1] for one in await take(session, 5)] == list("abcde")


async def test_PS_167_what_is_acknowledged_and_then_left_does_not_come_again(store):
    async with node_of(store) as node, SessionPublisher(node=node) as publisher:
        async with PersistentSession("tablet", node=node) as session:
            await session.subscribe("t")
            await publish(publisher, 1, 2, 3)
            await take(session, 2)
        async with PersistentSession("tablet", node=node) as session:
            assert await take(session, 1) == ["3"]


def test_PS_462_a_ping_is_said_only_where_nothing_else_was():
    guide = NodeGuide([("10.0.0.1", 1)], opened=lambda: None, heard=lambda _: None, closed=lambda: None)
    guide._link = type("Link", (), {"say": lambda self, message: True})()

    def look(*happens):
        """Whether a ping is due behind each of these."""
        found = []
        for happen in happens:
            happen()
            found.append(guide._is_ping_due())
            if found[-1]:
                guide.say(Ping())
        return found

    def hear():
        guide._take(Subscribed(1))

    def be_still():
        pass

    assert look(be_still, be_still, hear, be_still, hear, hear) == [True, True, False, True, False, False]
    assert look(*[hear] * 20).count(True) == 2  # its node gives up who is silent
    guide.say(Ping())
    assert look(*[hear] * node_link.SPEAK_PINGS) == [False] * node_link.SPEAK_PINGS


async def test_PS_463_a_node_with_as_many_connections_as_it_may_have_says_so_to_its_client(store, caplog):
    async with (
        node_of(store, max_connections=1) as node,
        PersistentSession("tablet", nodes=where(node)) as session,
    ):
        others = [NodeGuide([node.address], opened=lambda: None, heard=print, closed=print) for _ in range(3)]
        tasks = [asyncio.ensure_future(one.run()) for one in others]
        await until_async(lambda: all(one.refusal for one in others))
        assert all(one.refusal.startswith("there are 1 connections, which is the most") for one in others)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await session.subscribe("t")
    with pytest.raises(ConfigurationError, match="max_connections = 0"):
        SessionNode(store, name="a", max_connections=0)
    assert str(NodeUnreachable("no node", "full")) == "no node; it was refused: full"
    assert caplog.text.count("cut off") == 1


async def test_PS_735_a_client_that_is_refused_again_and_again_says_so_once_a_minute(store, caplog):
    async with (
        node_of(store, max_connections=1) as node,
        PersistentSession("tablet", nodes=where(node)),
    ):
        other = NodeGuide([node.address], opened=lambda: None, heard=print, closed=print)
        task = asyncio.ensure_future(other.run())
        await until_async(lambda: sum(one for _, one in other._complaints._complaints.values()) >= 3)
        assert caplog.text.count("refuses this node") == 1
        with patch.object(complaint_log, "REPEAT_S", 0):
            other._complaints._complaints = dict.fromkeys(other._complaints._complaints, (0, 18))
            await until_async(lambda: "(19 times so far)" in caplog.text)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_PS_207_where_no_node_answers_the_next_has_more_time(monkeypatch):
    """A crowd that begins anew every two seconds, on machines that are busy, would be answered never."""
    patience = []

    async def dial(*_, within_s, **__):
        patience.append(within_s)
        if len(patience) in (7, 8):
            return Answered()
        raise NodeUnreachable("nobody answers")

    class Answered:
        """A node that is there, and ends the connection at once."""

        def say(self, message):
            return False

        async def close(self):
            pass

    monkeypatch.setattr(node_link.NodeLink, "dial", dial)
    monkeypatch.setattr(node_link, "AGAIN_S", (0.001, 0.001))
    monkeypatch.setattr(node_link, "PING_S", 0.001)
    places = [("10.0.0.1", 1), ("10.0.0.2", 1)]
    guide = NodeGuide(places, opened=lambda: None, heard=lambda _: None, closed=lambda: None)
    task = asyncio.ensure_future(guide.run())
    await until_async(lambda: len(patience) >= 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert patience[:10] == [2, 2, 4, 4, 8, 8, 10, 10, 2, 2]


class Storeless:
    """A node that sends its client away."""

    def say(self, message):
        return True

    async def close(self):
        pass


def guide_through(dial, monkeypatch, *, hosts, until_s):
    """A guide whose dials are `dial(host, hear)`, until `until_s()`."""

    async def dial_there(address, hear, *_, **__):
        return dial(address[0], hear)

    monkeypatch.setattr(node_link.NodeLink, "dial", dial_there)
    guide = NodeGuide(
        [(host, 1) for host in hosts], opened=print, heard=lambda _: guide.leave_node(), closed=lambda: None
    )

    async def main():
        task = asyncio.ensure_future(guide.run())
        await until_async(until_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_async(main())
    return guide


def test_PS_333_a_node_that_is_without_its_store_counts_as_one_that_does_not_answer(monkeypatch):
    """Where all are, each client asks less and less often."""
    dialled, pauses = [], []

    async def pause(seconds):
        if seconds in (0.001, 0.002, 0.004):
            pauses.append(seconds)
        await pause_async(seconds, "what is replaced would do so")

    def dial(host, hear):
        dialled.append(host)
        asyncio.get_running_loop().call_soon(hear, Farewell("no_store" if len(dialled) <= 8 else "closing"))
        return Storeless()

    monkeypatch.setattr(node_link, "AGAIN_S", (0.001, 0.004))
    monkeypatch.setattr(node_link.asyncio, "sleep", pause)
    guide_through(dial, monkeypatch, hosts="ab", until_s=lambda: len(pauses) >= 6)
    assert pauses[:6] == [0.001, 0.002, 0.004, 0.004, 0.001, 0.001]


def test_PS_562_a_node_that_gives_no_hello_is_tried_behind_the_others(monkeypatch):
    dialled = []

    def dial(host, hear):
        dialled.append(host)
        if host == "a":
            raise NodeUnreachable("nobody answers")
        asyncio.get_running_loop().call_soon(hear, Farewell("no_store" if host == "b" else "closing"))
        return Storeless()

    monkeypatch.setattr(node_link, "AGAIN_S", (0.001, 0.001))
    guide_through(dial, monkeypatch, hosts="abc", until_s=lambda: len(dialled) >= 9)
    assert "".join(dialled[:9]) == "abccbacba"


def test_PS_563_a_client_says_that_the_store_of_a_node_is_busy(monkeypatch, caplog):
    dialled = []

    def dial(host, hear):
        dialled.append(host)
        if host == "a":
            raise NodeUnreachable("nobody answers")
        asyncio.get_running_loop().call_soon(hear, Farewell("no_store"))
        return Storeless()

    monkeypatch.setattr(node_link, "AGAIN_S", (0.001, 0.001))
    guide = guide_through(dial, monkeypatch, hosts="ab", until_s=lambda: len(dialled) >= 8)
    assert guide.refusal == "the store of the node at b:1 is busy or away; the log of the node says who holds it"
    assert caplog.text.count("the store of the node at b:1 is busy") == 1


async def test_a_node_that_does_not_reach_the_store_sends_its_clients_to_others_until_it_does(
    store, monkeypatch, caplog
):
    async with node_of(store, "b") as two, node_of(store, lease_ms=1_000) as one:
        session = await PersistentSession("tablet", nodes=where(one, two)).__aenter__()
        async with SessionPublisher(nodes=where(one, two)) as publisher:
            await session.subscribe("t")
            await publisher.publish("t", b"1")
            assert await take(session, 1) == ["1"]
            assert one.machines.owners
            restore = lose_store(one, monkeypatch)
            await publisher.publish("t", b"2")  # it is answered elsewhere
            again = await anext(session)
            if again.dup:  # what it had acknowledged was not committed
                again.acknowledge()
                again = await anext(session)
            again.acknowledge()
            assert (again.payload, again.dup) == (b"2", False)
            assert two.machines.owners
            assert not one.reception.visitors
            restore()
            async with PersistentSession("phone", nodes=where(one)) as phone:
                await phone.subscribe("t")
                await publisher.publish("t", b"3")
                assert await take(phone, 1) == ["3"]
                assert sorted(await take(session, 2)) == ["2", "3"]  # the first node had been handed it, too
        await session.leave()
    said = [one for one in caplog.messages if "clients" in one]
    assert said == [
        "a: the store has not answered for 1 s; its 2 clients are sent to other nodes until it answers",
        "a: the store answers again; clients are served again",
    ]


async def test_PS_103_a_clean_start_shows_nothing_old_nor_does_the_third_connect(store):
    async with node_of(store) as one, node_of(store, "b") as two, SessionPublisher(node=one) as publisher:
        async with PersistentSession("tablet", node=one) as session:
            await session.subscribe("t")
            await publisher.publish("t", b"old")
            await anext(session)
        async with PersistentSession("tablet", node=two, clean_start=True) as session:
            assert not session.present
            await publisher.publish("t", b"old, too")
            await session.subscribe("t")
            await publisher.publish("t", b"new")
            assert await take(session, 1) == ["new"]
        async with PersistentSession("tablet", node=one) as session:
            assert session.present
            await publisher.publish("t", b"newer")
            assert await take(session, 1) == ["newer"]


@pytest.mark.long
async def test_PS_151_who_has_lost_its_session_subscribes_nothing(store):
    async with (
        node_of(store, look_ms=60_000, life_times=LifeTimes(alive_ms=4_000)) as one,
        node_of(store, "b") as two,
        PersistentSession("tablet", node=one) as first,
        PersistentSession("tablet", node=two),
    ):
        with pytest.raises(SubscribeRefused, match="another connection has the session"):
            await first.subscribe("t")


async def test_PS_155_a_session_that_has_expired_is_not_given_another_silently(store):
    one = SessionNode(store, name="a", listen=("127.0.0.1", 0), **QUICK)
    await one.__aenter__()
    address = one.address
    session = PersistentSession("tablet", nodes=where(one), expiry_ms=1)
    await session.__aenter__()
    await one.__aexit__(None, None, None)
    async with SessionNode(store, name="a", listen=address, **QUICK):
        with pytest.raises(SessionLost, match="has expired"):
            await anext(session)
        await session.leave()


async def test_PS_620_messages_of_a_turn_are_one_run_before_what_is_told_behind_them(store):
    happened, runs = [], []

    def deliver(messages):
        runs.append([one.packet for one in messages])
        happened.extend(messages)
        return True

    async with node_of(store) as node:
        node.reception.enter("c~1", lambda message: not happened.append(message), deliver=deliver)
        node.reception.hear("c~1", ConnectWanted("c", False, 60_000, 9))
        await until_async(lambda: kinds_of(happened, Welcome))
        owner = node.reception.visitors["c~1"].owner
        node.reception.messages.payloads.put("m", Payload("t", b"x"))
        sent = [(owner, Send("c", Publish(packet, "m", "t", 1, False))) for packet in (1, 2, 3)]
        told = (life_of_owner(owner), Tell(SessionClosed("s", "superseded")))
        node._runtime.run(lambda now_ns: [*sent, told])
        assert runs == [[1, 2, 3]]
        assert kinds_of(happened, Delivered, Farewell) == [Delivered] * 3 + [Farewell]


def kinds_of(happened, *kinds):
    return [type(one) for one in happened if isinstance(one, kinds)]


@pytest.mark.parametrize("inside", [False, True], ids=["tcp", "inside"])
async def test_PS_190_a_client_that_was_given_up_and_is_still_there_hears_it_and_goes_on(store, monkeypatch, inside):
    """As after a stop: what it said meanwhile is read behind the look whether it is silent."""
    monkeypatch.setattr(node_link, "PING_S", 0.05)
    async with node_of(store) as node:
        given = {"node": node} if inside else {"nodes": where(node)}
        async with PersistentSession("tablet", **given) as session, SessionPublisher(**given) as publisher:
            await session.subscribe("t")
            for visitor in node.reception.visitors.values():
                visitor.heard_ns -= session_server.SILENT_NS + 1
            node.reception.lose_silent()
            assert node.reception.visitors == {}
            await publisher.publish("t", b"1")
            assert await take(session, 1) == ["1"]
        await until_async(lambda: not node.reception._given_up)


@pytest.mark.parametrize("life", ["a~99", "a~1.0000000000000001"])
async def test_PS_158_a_client_that_goes_by_the_name_of_the_node_does_not_speak_as_it(store, caplog, life):
    async with node_of(store) as node, Stranger(node.address, life=life) as stranger:
        stranger.say(Live("s", "a", 1, Queued(1, "m")))
        stranger.say(ConnectWanted("c", False, 0, 1))
        await stranger.hears(Welcome)
    assert "only nodes say that" in caplog.text


async def test_PS_158_who_does_not_know_the_secret_is_refused(store, monkeypatch):
    monkeypatch.setattr(node_link, "DIAL_S", 0.3)
    known = Credentials(secret=b"a secret that nobody else knows")
    async with node_of(store, credentials=known) as node:
        async with PersistentSession("tablet", nodes=where(node), credentials=known):
            pass
        with pytest.raises(NodeUnreachable, match="no node has connected 'tablet' within"):
            async with PersistentSession("tablet", nodes=where(node), patience_s=0.5):
                pass


async def test_a_client_that_connects_twice_or_nameless_is_refused(store):
    async with node_of(store) as node, Stranger(node.address) as stranger:
        stranger.say(ConnectWanted("", False, 0, 1))
        assert await stranger.hears(Farewell) == Farewell("refused")
        stranger.say(ConnectWanted("c", False, 0, 1))
        await stranger.hears(Welcome)
        stranger.heard.clear()
        stranger.say(ConnectWanted("d", False, 0, 1))
        assert await stranger.hears(Farewell) == Farewell("refused")


async def test_PS_159_a_client_without_room_for_what_it_is_sent_is_gone(store, monkeypatch):
    monkeypatch.setattr(session_server, "SILENT_NS", 3_600_000_000_000)  # its silence tells nothing
    async with node_of(store) as node, Stranger(node.address) as stranger:
        stranger.say(ConnectWanted("c", False, 60_000, 10))
        await stranger.hears(Welcome)
        visitor = next(iter(node.reception.visitors.values()))
        visitor.say = lambda message: False
        node.reception.hear("x~1", ConnectWanted("c", False, 0, 1))
        assert node.reception.visitors == {}
        await until_async(lambda: not node.machines.owners)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "a~b"}, "letters, digits"),
        ({"lease_ms": 0}, "at least 1"),
        ({"look_ms": 0}, "at least 1"),
    ],
)
def test_a_node_says_what_cannot_be(store, given, said):
    with pytest.raises(ConfigurationError, match=said):
        SessionNode(store, **{"name": "a", **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give either"),
        ({"nodes": ["nowhere"]}, "HOST:PORT"),
        ({"nodes": ["h:1"], "expiry_ms": -2}, "-1"),
        ({"nodes": ["h:1"], "receive_maximum": 0}, "1 to 65535"),
        ({"nodes": ["h:1"], "client_id": ""}, "not empty"),
    ],
)
def test_a_client_says_what_cannot_be(given, said):
    with pytest.raises(ConfigurationError, match=said):
        PersistentSession(**{"client_id": "c", **given})


MEMBERS, NODES = b"what every client knows, too", b"what only the nodes know"


def taken(node, owner):
    """The last number that an owner has of writer `b`."""
    return node.machines.resume_of(owner).delivery.state.taken["b"][1]


def test_PS_165_a_node_that_cannot_prove_to_others_that_it_is_one_does_not_start(store):
    alone = {"name": "a", "listen": ("127.0.0.1", 0), "credentials": Credentials(secret=MEMBERS)}
    SessionNode(store, **alone)
    with pytest.raises(ConfigurationError, match=r"peers.*nobody to be a node.*the same --node-secret-file"):
        SessionNode(store, **alone, peers=[("127.0.0.1", 1)])


HUGE = (2**62 - 1, 2**62, 2**63, 2**64 - 1)


@pytest.mark.parametrize("lie", HUGE)
async def test_PS_205_a_node_that_makes_up_epochs_and_numbers_ends_nobody_and_nothing_is_lost(store, lie, caplog):
    """It goes by the name of a node that has written for the session, and is gone."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(node_of(store))
        session = await stack.enter_async_context(PersistentSession("tablet", nodes=where(node)))
        await session.subscribe("t")
        async with node_of(store, "b") as other, SessionPublisher(nodes=where(other)) as publisher:
            await publisher.publish("t", b"first")
        assert await take(session, 1) == ["first"]
        (owner,) = node.machines.owners
        its = node.machines.resume_of(owner).session
        said = [
            Live(its, "b", lie, Queued(1, "m")),
            Live(its, "b", 1, Queued(lie, "m")),
            LiveMarker(its, "b", lie, 1, 1, 1),
            LiveMarker(its, "b", 1, lie, lie, lie),
            MarkerWanted(its, "b~999/1", lie, lie),
            Live(its, "b", -lie, Queued(-lie, "m")) if lie < 2**63 else Live(its, "b", -1, Queued(-1, "m")),
        ]
        for number, one in enumerate(said, 1):
            async with Stranger(node.address, NODE, "b~999", store=node._transport.store) as evil:
                evil.say(one, owner, "b~999/1")
                await until_async(lambda number=number: caplog.text.count("refuses this node") >= number)
        publisher = await stack.enter_async_context(SessionPublisher(nodes=where(node)))
        for number in range(5):
            await publisher.publish("t", str(number).encode())
        assert await take(session, 5) == list("01234")
        again = await stack.enter_async_context(node_of(store, "b"))
        other = await stack.enter_async_context(SessionPublisher(nodes=where(again)))
        for number in range(5, 10):
            await other.publish("t", str(number).encode())
        assert await take(session, 5) == list("56789")
        assert node._runtime.failed is None
    assert "Expected `int` <= 2305843009213693952" in caplog.text
    assert "Expected `int` >= 0" in caplog.text


async def test_PS_206_a_client_id_that_no_client_may_have_is_refused(store, caplog):
    """By a peer that does not look at it itself."""
    async with node_of(store) as node:
        async with Stranger(node.address, life="x~1") as stranger:
            stranger.say(ConnectWanted("c" * (TOPIC_MAX + 1), False, 0, 1))
            assert await stranger.hears(Farewell) == Farewell("refused")
            stranger.say(ConnectWanted("c" * TOPIC_MAX, False, 0, 1))
            await stranger.hears(Welcome)
        await until_async(lambda: not node.machines.owners)
    assert "connect_wanted" in caplog.text
    assert f"must have at most {TOPIC_MAX} bytes" in caplog.text

"""Nodes of sessions and their clients, over TCP and within a process (clauses PS-150 to PS-159)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from statemachines.drivers.credentials import Credentials
from statemachines.drivers.persistent_sessions import (
    NodeUnreachable,
    PersistentSession,
    PublishRefused,
    SessionLost,
    SessionNode,
    SessionPublisher,
    SessionTaken,
    SubscribeRefused,
    node_guide,
    node_link,
    reception,
)
from statemachines.drivers.persistent_sessions.host_request import ReadNodes, StoreRow
from statemachines.drivers.persistent_sessions.node_roles import CLIENT, NODE
from statemachines.drivers.persistent_sessions.session_publisher import PAYLOAD_MAX, WINDOW, WINDOW_BYTES
from statemachines.drivers.tcp import TcpTransport
from statemachines.kernel import ConfigurationError, Superseded
from statemachines.persistent_sessions.client_message import (
    ConnectWanted,
    Delivered,
    Farewell,
    PublishWanted,
    Refused,
    SubscribeWanted,
    UnsubscribeWanted,
    Welcome,
)
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Queued
from statemachines.persistent_sessions.request import PutRow
from statemachines.persistent_sessions.takeover_message import BeginTakeover, TakeoverRefused
from statemachines.persistent_sessions.takeover_record import BeginTimeout
from statemachines.persistent_sessions.times import Times
from statemachines.testing.process_harness import free_port
from statemachines.wire import Packet

QUICK = {"lease_ms": 1_000, "look_ms": 100, "times": Times(marker_ms=400, repeat_ms=100)}


def run(body):
    """To its end, and no test waits for ever."""

    async def bounded():
        async with asyncio.timeout(60):
            await body

    asyncio.run(bounded())


@asynccontextmanager
async def node_of(store, name="a", **given):
    async with SessionNode(store, name=name, listen=("127.0.0.1", 0), **{**QUICK, **given}) as node:
        yield node


def where(*nodes):
    return ["{}:{}".format(*node.address) for node in nodes]


async def take(session, count, acknowledge=True):
    """The next so many messages, by payload."""
    found = []
    while len(found) < count:
        message = await anext(session)
        found.append(message.payload.decode())
        if acknowledge:
            message.acknowledge()
    return found


async def until(holds):
    while not holds():
        await asyncio.sleep(0.01)


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "sessions.db")


@pytest.mark.parametrize("inside", [False, True], ids=["tcp", "inside"])
def test_PS_151_PS_152_what_is_published_comes_in_order(store, inside):
    async def main():
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

    run(main())


def test_PS_151_a_message_is_stored_when_its_publisher_is_answered(store):
    async def main():
        async with node_of(store) as node, SessionPublisher(node=node) as publisher:
            async with PersistentSession("tablet", node=node) as session:
                await session.subscribe("t")
            await publisher.publish("t", b"kept")
        async with node_of(store, "b") as node, PersistentSession("tablet", node=node) as session:
            assert session.present
            assert await take(session, 1) == ["kept"]

    run(main())


@pytest.mark.parametrize(
    ("topic", "payload", "qos", "said"),
    [
        ("a/#", b"", 1, "only filters have"),
        ("", b"", 1, "not empty"),
        ("t", b"", 3, "must be 0, 1 or 2"),
        ("t", bytes(PAYLOAD_MAX + 1), 1, f"at most {PAYLOAD_MAX} bytes"),
    ],
)
def test_PS_151_what_cannot_be_published_is_said(store, topic, payload, qos, said):
    async def main():
        async with node_of(store) as node, SessionPublisher(node=node) as publisher:
            with pytest.raises(ConfigurationError, match=said):
                await publisher.publish(topic, payload, qos)

    run(main())


def test_PS_151_the_largest_payload_arrives(store):
    async def main():
        async with (
            node_of(store) as node,
            SessionPublisher(nodes=where(node)) as publisher,
            PersistentSession("tablet", nodes=where(node)) as session,
        ):
            await session.subscribe("t/#")
            await publisher.publish("t/" + "x" * 60_000, bytes(PAYLOAD_MAX))
            assert len((await anext(session)).payload) == PAYLOAD_MAX

    run(main())


def test_PS_151_so_many_are_under_way_and_the_next_is_refused(store, monkeypatch):
    async def main():
        async with node_of(store) as node, SessionPublisher(node=node) as publisher:
            node.reception._publishes_max = 5
            done = await asyncio.gather(
                *(publisher.publish("t", str(one).encode()) for one in range(8)), return_exceptions=True
            )
            assert [str(one) for one in done] == ["None"] * 5 + ["busy"] * 3
            assert isinstance(done[-1], PublishRefused)
            await publisher.publish("t", b"again")

    run(main())


@pytest.mark.parametrize(("published", "subscribed", "came"), [(2, 1, 1), (1, 2, 1), (2, 2, 2), (0, 2, 0), (2, 0, 0)])
def test_PS_151_a_message_comes_with_the_lower_qos(store, published, subscribed, came):
    async def main():
        async with (
            node_of(store) as node,
            SessionPublisher(node=node) as publisher,
            PersistentSession("tablet", node=node) as session,
        ):
            await session.subscribe("t", qos=subscribed)
            await publisher.publish("t", b"1", qos=published)
            message = await anext(session)
            assert (message.qos, bool(message.packet)) == (came, came > 0)

    run(main())


def test_PS_157_what_waits_for_its_node_fits_into_the_next_connection(store):
    async def main():
        async with (
            node_of(store) as node,
            SessionPublisher(nodes=where(node)) as publisher,
            PersistentSession("tablet", nodes=where(node)) as session,
        ):
            await session.subscribe("t")
            body = bytes(500_000)
            waiting = [asyncio.ensure_future(publisher.publish("t", b"%d:" % n + body)) for n in range(12)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert 0 < len(publisher._unstored) <= WINDOW_BYTES // len(body)
            found = []
            while len(found) < 12:
                message = await anext(session)
                found.append(int(message.payload.partition(b":")[0]))
                message.acknowledge()
            assert found == list(range(12))
            await asyncio.gather(*waiting)
            assert (publisher._size, node.reception._publishing, node.reception._publishing_bytes) == (0, 0, 0)

    run(main())


def test_PS_157_so_many_messages_are_handed_over_at_a_time(store):
    async def main():
        async with node_of(store) as node, SessionPublisher(nodes=where(node)) as publisher:
            most = 0
            waiting = [asyncio.ensure_future(publisher.publish("t", b"")) for _ in range(WINDOW + 500)]
            while not all(one.done() for one in waiting):
                await asyncio.sleep(0)
                most = max(most, len(publisher._unstored))
            assert most == WINDOW

    run(main())


def test_PS_151_so_many_bytes_are_under_way_and_the_next_is_refused(store, monkeypatch):
    monkeypatch.setattr(reception, "PUBLISHED_BYTES_MAX", 10)

    async def main():
        async with node_of(store) as node, SessionPublisher(node=node) as publisher:
            done = await asyncio.gather(*(publisher.publish("t", b"12345") for _ in range(3)), return_exceptions=True)
            assert [str(one) for one in done] == ["None", "None", "busy"]
            await publisher.publish("t", b"1234567890")

    run(main())


def test_PS_151_so_many_subscriptions_are_under_way_and_the_next_is_refused(store, monkeypatch):
    monkeypatch.setattr(reception, "CHANGES_MAX", 2)

    async def main():
        async with node_of(store) as node, PersistentSession("tablet", node=node) as session:
            done = await asyncio.gather(*(session.subscribe(name) for name in "abc"), return_exceptions=True)
            assert [str(one) for one in done] == ["None", "None", "busy"]
            await session.subscribe("c")

    run(main())


def test_PS_159_what_there_is_no_room_for_is_dropped_of_qos_0(store):
    async def main():
        async with (
            node_of(store) as node,
            PersistentSession("tablet", node=node) as session,
            SessionPublisher(node=node) as publisher,
        ):
            await session.subscribe("t")
            visitor = next(one for one in node.reception.visitors.values() if one.owner)
            tried = []
            say, visitor.say = visitor.say, tried.append  # and None is no room
            await publisher.publish("t", b"0", qos=0)
            await until(lambda: any(isinstance(one, Delivered) for one in tried))
            visitor.say = say
            await publisher.publish("t", b"1")
            assert await take(session, 1) == ["1"]

    run(main())


def test_the_log_of_a_node_has_what_its_machines_did(store, tmp_path):
    async def main():
        async with (
            node_of(store, trace=tmp_path / "trace") as node,
            PersistentSession("tablet", nodes=where(node)) as session,
            SessionPublisher(nodes=where(node)) as publisher,
        ):
            await session.subscribe("t")
            await publisher.publish("t", b"1")
            await take(session, 1)

    run(main())
    (log,) = (tmp_path / "trace").iterdir()
    rows = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    machines = {row["machine"] for row in rows if row.get("kind") == "step"}
    assert machines >= {f"persistent_sessions/{one}" for one in ("session_life", "session_resume", "writer")}


def test_PS_151_what_is_stored_is_not_under_way_any_more(store):
    async def main():
        async with (
            node_of(store) as node,
            SessionPublisher(node=node) as publisher,
            PersistentSession("tablet", node=node) as session,
        ):
            node.reception._publishes_max = 2
            await session.subscribe("t")
            for number in range(5):
                await publisher.publish("t", str(number).encode())
            assert await take(session, 5) == ["0", "1", "2", "3", "4"]

    run(main())


def test_PS_151_what_a_node_refuses_is_said(store):
    async def main():
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

    run(main())


def test_PS_153_a_node_that_hears_nothing_of_another_delivers_what_that_stored(store):
    """Nobody is a peer of anybody: all that is common is the store."""

    async def main():
        async with (
            node_of(store) as one,
            node_of(store, "b") as other,
            PersistentSession("tablet", node=one) as session,
            SessionPublisher(node=other) as publisher,
        ):
            await session.subscribe("t")
            for number in range(3):
                await publisher.publish("t", str(number).encode())
            assert await take(session, 3) == ["0", "1", "2"]
            await publisher.publish("t", b"3")
            assert await take(session, 1) == ["3"]

    run(main())


def test_PS_153_PS_147_a_node_that_dies_is_found_dead_and_everything_of_it_is_read(store):
    async def main():
        here, there = ("127.0.0.1", free_port()), ("127.0.0.1", free_port())
        patient = {**QUICK, "times": Times(marker_ms=9_000)}  # it is not its silence that tells
        async with SessionNode(store, name="a", listen=here, peers=[there], **patient) as one:
            other = SessionNode(store, name="b", listen=there, peers=[here], **QUICK)
            await other.__aenter__()
            await until(lambda: "b" in one._transport._peers)
            async with PersistentSession("tablet", node=one) as session, SessionPublisher(node=other) as publisher:
                await session.subscribe("t")
                await publisher.publish("t", b"1")
                assert await take(session, 1) == ["1"]
                flow = one.machines.resume_of(next(iter(one.machines.owners))).flows["b"]
                assert not flow.gone
                await other.abort()
                async with asyncio.timeout(6):
                    await until(lambda: one.machines.resume_of(next(iter(one.machines.owners))).flows["b"].gone)

    run(main())


def test_PS_147_a_node_hears_that_another_can_send_it_nothing_any_more(store):
    async def main():
        async with node_of(store) as one:
            lost = []
            one.machines.lose_link = lambda writer, now_ns: lost.append(writer) or []
            async with node_of(store, "b", peers=[one.address]) as other:
                await until(lambda: "peer:1" in other._transport._peers)
                assert lost == []
            await until(lambda: lost)
            assert lost == ["b"]

    run(main())


def test_PS_153_a_node_lives_as_long_as_it_says_so_and_not_behind_its_end(store):
    async def main():
        async with node_of(store, "b") as other:
            async with node_of(store, lease_ms=400):
                for _ in range(8):
                    await asyncio.sleep(0.1)  # twice its lease
                assert await other._desk.ask(ReadNodes()) == ("a", "b")
            assert await other._desk.ask(ReadNodes()) == ("b",)
            async with node_of(store, "c", lease_ms=60_000):
                assert await other._desk.ask(ReadNodes()) == ("b", "c")
            assert await other._desk.ask(ReadNodes()) == ("b",)

    run(main())


def test_PS_154_a_node_whose_name_a_newer_process_has_ends(store):
    async def main():
        async with node_of(store) as older, node_of(store) as newer:
            with pytest.raises(Superseded, match="another process has this name now"):
                await older.failed()
            assert newer.life.startswith("a~2.")

    run(main())


def test_PS_155_PS_156_a_client_goes_to_the_next_node_and_on(store):
    async def main():
        async with AsyncExitStack() as stack:
            one = SessionNode(store, name="a", listen=("127.0.0.1", 0), **QUICK)
            await one.__aenter__()
            two = await stack.enter_async_context(node_of(store, "b"))
            session = await stack.enter_async_context(PersistentSession("tablet", nodes=where(one, two)))
            publisher = await stack.enter_async_context(SessionPublisher(nodes=where(two)))
            await session.subscribe("t")
            for number in (1, 2, 3):
                await publisher.publish("t", str(number).encode())
            first = [await anext(session) for _ in range(3)]
            await one.abort()
            for number in (4, 5):
                await publisher.publish("t", str(number).encode())
            again = [await anext(session) for _ in range(5)]
            assert [(each.payload, each.dup) for each in again] == [
                (b"1", True), (b"2", True), (b"3", True), (b"4", False), (b"5", False),
            ]  # fmt: skip
            assert [each.packet for each in again[:3]] == [each.packet for each in first]
            first[0].acknowledge()  # over a connection that is gone: its packet may be another's
            again[4].acknowledge()
            owner = next(iter(two.machines.owners))
            await until(lambda: again[4].packet not in two.machines.resume_of(owner).delivery.state.packets)
            assert len(two.machines.resume_of(owner).delivery.state.packets) == 4
            for each in again:
                each.acknowledge()
            await until(lambda: not two.machines.resume_of(owner).delivery.state.packets)

    run(main())


def test_PS_146_what_was_acknowledged_does_not_come_again_from_a_node_that_died(store):
    async def main():
        async with AsyncExitStack() as stack:
            one = SessionNode(store, name="a", listen=("127.0.0.1", 0), **QUICK)
            await one.__aenter__()
            two = await stack.enter_async_context(node_of(store, "b"))
            session = await stack.enter_async_context(PersistentSession("tablet", nodes=where(one, two)))
            publisher = await stack.enter_async_context(SessionPublisher(nodes=where(two)))
            await session.subscribe("t")
            for number in (1, 2, 3):
                await publisher.publish("t", str(number).encode())
            await take(session, 3)
            owner = next(iter(one.machines.owners))
            await until(lambda: not one.machines.resume_of(owner).delivery.state.packets)
            await until(lambda: owner not in one.machines._acknowledged)
            await one._desk.ask(ReadNodes())  # behind the commit
            await one.abort()
            await publisher.publish("t", b"4")
            message = await anext(session)
            assert (message.payload, message.dup) == (b"4", False)

    run(main())


def test_PS_155_a_clean_start_is_clean_once(store):
    async def main():
        async with AsyncExitStack() as stack:
            one = SessionNode(store, name="a", listen=("127.0.0.1", 0), **QUICK)
            await one.__aenter__()
            two = await stack.enter_async_context(node_of(store, "b"))
            session = PersistentSession("tablet", nodes=where(one, two), clean_start=True)
            await stack.enter_async_context(session)
            publisher = await stack.enter_async_context(SessionPublisher(nodes=where(two)))
            await session.subscribe("t")
            await publisher.publish("t", b"1")
            await one.abort()
            assert await take(session, 1) == ["1"]

    run(main())


def test_PS_156_of_qos_2_the_application_has_each_once(store):
    async def main():
        async with AsyncExitStack() as stack:
            one = SessionNode(store, name="a", listen=("127.0.0.1", 0), **QUICK)
            await one.__aenter__()
            two = await stack.enter_async_context(node_of(store, "b"))
            session = await stack.enter_async_context(PersistentSession("tablet", nodes=where(one, two)))
            publisher = await stack.enter_async_context(SessionPublisher(nodes=where(two)))
            await session.subscribe("t", qos=2)
            for number in (1, 2, 3):
                await publisher.publish("t", str(number).encode(), qos=2)
            first = [await anext(session) for _ in range(3)]
            first[0].acknowledge()
            await one.abort()
            await publisher.publish("t", b"4", qos=2)
            assert (await anext(session)).payload == b"4"
            for each in first:
                each.acknowledge()
            owner = next(iter(two.machines.owners))
            await until(lambda: len(two.machines.resume_of(owner).delivery.state.packets) == 1)
            assert not session._waiting

    run(main())


def test_PS_155_a_node_that_says_nothing_is_left(store, monkeypatch):
    monkeypatch.setattr(node_guide, "SILENT_S", 0.3)
    monkeypatch.setattr(node_guide, "PING_S", 0.1)

    async def main():
        async with (
            node_of(store) as one,
            node_of(store, "b") as two,
            PersistentSession("tablet", nodes=where(one, two)) as session,
        ):
            await session.subscribe("t")
            await asyncio.sleep(0.6)
            assert one.machines.owners  # it answers, and is kept
            monkeypatch.setattr(one.reception, "hear", lambda party, message: None)
            await until(lambda: two.machines.owners)

    run(main())


def test_PS_155_a_node_that_ends_in_good_order_says_so(store):
    async def main():
        async with node_of(store, "b") as two:
            async with node_of(store) as one:
                session = PersistentSession("tablet", nodes=where(one, two))
                await session.__aenter__()
                await session.subscribe("t")
            await until(lambda: two.machines.owners)
            async with SessionPublisher(node=two) as publisher:
                await publisher.publish("t", b"1")
            assert await take(session, 1) == ["1"]
            await session.leave()

    run(main())


def test_PS_155_of_two_under_one_client_id_the_last_has_the_session(store):
    async def main():
        async with (
            node_of(store) as one,
            node_of(store, "b") as two,
            SessionPublisher(node=two) as publisher,
            PersistentSession("tablet", nodes=where(one)) as first,
        ):
            await first.subscribe("t")
            async with PersistentSession("tablet", nodes=where(two)) as second:
                assert second.present
                assert second.session == first.session
                await publisher.publish("t", b"1")
                with pytest.raises(SessionTaken, match="superseded"):
                    await anext(first)
                with pytest.raises(SessionTaken):
                    await first.subscribe("more")
                assert await take(second, 1) == ["1"]

    run(main())


def test_PS_103_a_clean_start_shows_nothing_old_nor_does_the_third_connect(store):
    async def main():
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

    run(main())


def test_PS_108_a_client_may_end_its_session_when_it_leaves(store):
    async def main():
        async with node_of(store) as node:
            session = await PersistentSession("tablet", node=node).__aenter__()
            await session.leave(0)
            async with PersistentSession("tablet", node=node) as session:
                assert not session.present

    run(main())


def test_PS_151_who_has_lost_its_session_subscribes_nothing(store):
    async def main():
        async with (
            node_of(store, look_ms=60_000, life_times=LifeTimes(alive_ms=4_000)) as one,
            node_of(store, "b") as two,
            PersistentSession("tablet", node=one) as first,
            PersistentSession("tablet", node=two),
        ):
            with pytest.raises(SubscribeRefused, match="another connection has the session"):
                await first.subscribe("t")

    run(main())


def test_PS_155_a_session_that_has_expired_is_not_given_another_silently(store):
    async def main():
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

    run(main())


def test_a_node_that_is_started_again_finds_all_its_sessions(store):
    async def main():
        clients = [f"c{number}" for number in range(20)]
        async with node_of(store) as node, AsyncExitStack() as stack:
            for client in clients:
                session = await stack.enter_async_context(PersistentSession(client, node=node))
                await session.subscribe("t")
        async with node_of(store) as node, AsyncExitStack() as stack:
            async with SessionPublisher(node=node) as publisher:
                await publisher.publish("t", b"1")
            sessions = [await stack.enter_async_context(PersistentSession(client, node=node)) for client in clients]
            assert all(one.present for one in sessions)
            assert [await take(one, 1) for one in sessions] == [["1"]] * 20

    run(main())


def test_PS_157_what_is_not_answered_goes_to_the_next_node_in_order(store):
    async def main():
        async with node_of(store, "b") as two, PersistentSession("tablet", node=two) as session:
            one = SessionNode(store, name="a", listen=("127.0.0.1", 0), **QUICK)
            await one.__aenter__()
            await session.subscribe("t")
            async with SessionPublisher(nodes=where(one, two)) as publisher:
                await publisher.publish("other", b"so that it is connected")
                one.reception.hear = lambda party, message: None  # nothing is done with what it gets
                waiting = [asyncio.ensure_future(publisher.publish("t", str(n).encode())) for n in range(1, 6)]
                await asyncio.sleep(0.05)
                assert not any(each.done() for each in waiting)
                await one.abort()
                await asyncio.gather(*waiting)
            assert await take(session, 5) == ["1", "2", "3", "4", "5"]

    run(main())


# -- strangers --------------------------------------------------------------------------------------------------------


class Stranger:
    """A peer that says what it likes."""

    def __init__(self, address, role=CLIENT, life="x~1", **given):
        self.heard = []
        self.life = life
        self.transport = TcpTransport(
            life=life, role=role, receive=lambda packet: self.heard.append(packet.message), dial={"node": address},
            **given,
        )  # fmt: skip

    async def __aenter__(self):
        await self.transport.__aenter__()
        await until(lambda: "node" in self.transport._peers)
        return self

    async def __aexit__(self, *_):
        await self.transport.__aexit__(None, None, None)

    def say(self, message, to="node", sender=""):
        self.transport.send(Packet(sender or self.life, to, 0, message))

    async def hears(self, kind):
        await until(lambda: any(isinstance(one, kind) for one in self.heard))
        return next(one for one in self.heard if isinstance(one, kind))


@pytest.mark.parametrize(
    "message",
    [MarkerWanted("s", "x~1", 1, 1), Live("s", "x", 1, Queued(1, "m")), LiveMarker("s", "x", 1, 1, 1, 1)],
    ids=["marker_wanted", "live", "live_marker"],
)
def test_PS_158_a_client_does_not_speak_as_a_node(store, caplog, message):
    async def main():
        async with node_of(store) as node, Stranger(node.address) as stranger:
            stranger.say(message)
            stranger.say(ConnectWanted("c", False, 0, 1))
            await stranger.hears(Welcome)
            assert node.machines.writers == {}

    run(main())
    assert "only nodes say that" in caplog.text


@pytest.mark.parametrize("life", ["a~99", "a~1.0000000000000001"])
def test_PS_158_a_client_that_goes_by_the_name_of_the_node_does_not_speak_as_it(store, caplog, life):
    async def main():
        async with node_of(store) as node, Stranger(node.address, life=life) as stranger:
            stranger.say(Live("s", "a", 1, Queued(1, "m")))
            stranger.say(ConnectWanted("c", False, 0, 1))
            await stranger.hears(Welcome)

    run(main())
    assert "only nodes say that" in caplog.text


def test_PS_164_somebody_who_says_to_be_a_node_takes_no_session_away(store, caplog):
    async def main():
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(node_of(store))
            session = await stack.enter_async_context(PersistentSession("tablet", nodes=where(node)))
            await session.subscribe("t")
            publisher = await stack.enter_async_context(SessionPublisher(nodes=where(node)))
            (owner,) = node.machines.owners
            its = node.machines.resume_of(owner).session
            evil = Stranger(node.address, NODE, "evil~1", store=node._transport.store)
            await stack.enter_async_context(evil)
            evil.say(BeginTakeover("tablet", "evil~1/1", 2**61), owner, "evil~1/1")
            evil.say(MarkerWanted(its, "evil~1/1", 2**61, 1), owner, "evil~1/1")
            evil.say(Live(its, "another", 1, Queued(1, "m")), owner, "evil~1/1")  # it comes last, and is refused aloud
            await until(lambda: "evil~1/1 speaks for another" in caplog.text)
            for number in range(20):
                await publisher.publish("t", str(number).encode())
            assert await take(session, 20) == [str(number) for number in range(20)]

    run(main())


def test_PS_158_a_node_of_another_store_is_refused_and_a_client_is_not(store, tmp_path, caplog):
    async def main():
        async with node_of(store) as node:
            async with SessionNode(
                tmp_path / "other.db", name="b", listen=("127.0.0.1", 0), peers=[node.address], **QUICK
            ):
                await until(lambda: "works on another store" in caplog.text)
            async with Stranger(node.address) as stranger:
                stranger.say(ConnectWanted("c", False, 0, 1))
                await stranger.hears(Welcome)

    run(main())


def test_PS_158_who_does_not_know_the_secret_is_refused(store, monkeypatch):
    monkeypatch.setattr(node_link, "DIAL_S", 0.3)

    async def main():
        known = Credentials(secret=b"a secret that nobody else knows")
        async with node_of(store, credentials=known) as node:
            async with PersistentSession("tablet", nodes=where(node), credentials=known):
                pass
            with pytest.raises(NodeUnreachable, match="no node has connected 'tablet' within"):
                async with PersistentSession("tablet", nodes=where(node), patience_s=0.5):
                    pass

    run(main())


def test_a_client_that_connects_twice_or_nameless_is_refused(store):
    async def main():
        async with node_of(store) as node, Stranger(node.address) as stranger:
            stranger.say(ConnectWanted("", False, 0, 1))
            assert await stranger.hears(Farewell) == Farewell("refused")
            stranger.say(ConnectWanted("c", False, 0, 1))
            await stranger.hears(Welcome)
            stranger.heard.clear()
            stranger.say(ConnectWanted("d", False, 0, 1))
            assert await stranger.hears(Farewell) == Farewell("refused")

    run(main())


def test_PS_155_a_client_hears_that_its_node_ends(store):
    async def main():
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(node_of(store))
            stranger = await AsyncExitStack().enter_async_context(Stranger(node.address))
            stranger.say(ConnectWanted("c", False, 60_000, 1))
            await stranger.hears(Welcome)
            await stack.aclose()
            assert await stranger.hears(Farewell) == Farewell("closing")
            await stranger.__aexit__()

    run(main())


def test_PS_159_a_client_that_says_nothing_is_gone(store, monkeypatch):
    monkeypatch.setattr(reception, "SILENT_NS", 200_000_000)

    async def main():
        async with node_of(store) as node, Stranger(node.address) as stranger:
            stranger.say(ConnectWanted("c", False, 0, 1))
            await stranger.hears(Welcome)
            assert node.machines.owners
            await until(lambda: not node.machines.owners)
            assert node.reception.visitors == {}

    run(main())


@pytest.mark.parametrize("inside", [False, True], ids=["tcp", "inside"])
def test_PS_190_a_client_that_was_given_up_and_is_still_there_hears_it_and_goes_on(store, monkeypatch, inside):
    """As after a stop: what it said meanwhile is read behind the look whether it is silent."""
    monkeypatch.setattr(node_guide, "PING_S", 0.05)

    async def main():
        async with node_of(store) as node:
            given = {"node": node} if inside else {"nodes": where(node)}
            async with PersistentSession("tablet", **given) as session, SessionPublisher(**given) as publisher:
                await session.subscribe("t")
                for visitor in node.reception.visitors.values():
                    visitor.heard_ns -= reception.SILENT_NS + 1
                node.reception.lose_silent()
                assert node.reception.visitors == {}
                await publisher.publish("t", b"1")
                assert await take(session, 1) == ["1"]
            await until(lambda: not node.reception._given_up)

    run(main())


def test_PS_159_a_client_without_room_for_what_it_is_sent_is_gone(store):
    async def main():
        async with node_of(store) as node, Stranger(node.address) as stranger:
            stranger.say(ConnectWanted("c", False, 60_000, 10))
            await stranger.hears(Welcome)
            visitor = next(iter(node.reception.visitors.values()))
            visitor.say = lambda message: False
            node.reception.hear("x~1", ConnectWanted("c", False, 0, 1))
            assert node.reception.visitors == {}
            async with asyncio.timeout(5):  # sooner than its silence would tell
                await until(lambda: not node.machines.owners)

    run(main())


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


def test_roles_know_who_has_a_store():
    assert NODE.has_store(NODE.full_name)
    assert not NODE.has_store(CLIENT.full_name)
    assert not CLIENT.has_store(NODE.full_name)


def test_PS_162_a_message_that_was_deleted_before_its_row_is_there_again(store):
    async def main():
        async with node_of(store) as node, PersistentSession("tablet", node=node) as session:
            await session.subscribe("t", qos=1)
            given = node._store.carry_out

            async def late(life, batch, requests):
                if any(isinstance(one, StoreRow | PutRow) for one in requests):  # a collector came between
                    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
                        connection.execute("DELETE FROM messages")
                return await given(life, batch, requests)

            node._store.carry_out = late
            async with SessionPublisher(node=node) as publisher:
                await publisher.publish("t", b"kept")
        async with node_of(store) as node, PersistentSession("tablet", node=node) as session:
            assert await take(session, 1) == ["kept"]

    run(main())


def test_PS_163_a_session_of_a_node_that_is_gone_is_not_waited_for(store):
    async def main():
        seen = []
        observe = lambda node, event, before, step, now_ns: seen.append(type(event))  # noqa: E731
        async with node_of(store, "a", lease_ms=600_000) as node:
            session = PersistentSession("tablet", nodes=where(node))
            await session.__aenter__()
            await session.subscribe("t")
            await node.abort()
            async with (
                node_of(store, "b", observe=observe) as other,
                PersistentSession("tablet", nodes=where(other)) as again,
            ):
                assert again.present
            assert TakeoverRefused in seen
            assert BeginTimeout not in seen

    run(main())


def test_PS_160_a_live_session_goes_to_another_node_and_nothing_is_lost(store):
    async def main():
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(node_of(store, "a"))
            two = await stack.enter_async_context(node_of(store, "b", peers=[one.address]))
            publisher = await stack.enter_async_context(SessionPublisher(nodes=where(one)))
            first = await stack.enter_async_context(PersistentSession("tablet", nodes=where(one), receive_maximum=5))
            await first.subscribe("t")
            await asyncio.gather(*(publisher.publish("t", str(number).encode()) for number in range(40)))
            taken = await take(first, 20)
            second = await stack.enter_async_context(PersistentSession("tablet", nodes=where(two)))
            found = {}
            while len({*taken, *found}) < 40:
                message = await anext(second)
                found.setdefault(message.payload.decode(), message.dup)
                message.acknowledge()
            assert list(found) == sorted(found, key=int)
            assert all(found[one] for one in found if one in taken)
            with pytest.raises(SessionTaken, match="superseded"):
                await take(first, 40)

    run(main())

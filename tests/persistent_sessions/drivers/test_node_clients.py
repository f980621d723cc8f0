"""Clients of nodes of sessions: they go on with their sessions (PS-103, PS-108, PS-146, PS-155, PS-156)."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from unittest.mock import patch

import pytest
from session_nodes import QUICK, Stranger, lose_store, node_of, run, take, until, where

from statemachines.drivers import complaint_log
from statemachines.drivers.persistent_sessions import (
    NodeUnreachable,
    PersistentSession,
    SessionLost,
    SessionNode,
    SessionPublisher,
    SessionTaken,
    SubscribeRefused,
    node_guide,
    session_node,
    session_server,
)
from statemachines.drivers.persistent_sessions.host_request import ReadNodes
from statemachines.drivers.persistent_sessions.node_guide import NodeGuide
from statemachines.drivers.persistent_sessions.outbox import UNACKNOWLEDGED_MAX
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.kernel import ConfigurationError, Send, Tell
from statemachines.persistent_sessions.acknowledgements import FrontAcknowledged, fold_acknowledgements, list_packets
from statemachines.persistent_sessions.life_record import SessionClosed
from statemachines.persistent_sessions.life_request import SessionLeft
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Delivered,
    Farewell,
    Ping,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Subscribed,
    SubscribeWanted,
    Welcome,
)
from statemachines.persistent_sessions.resume_record import ConnectionLost
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


@asynccontextmanager
async def tablet_at_two(store, **given):
    """A node that is about to die, which has a session, and another, which has a publisher."""
    one = SessionNode(store, name="a", listen=("127.0.0.1", 0), **QUICK)
    await one.__aenter__()
    async with (
        node_of(store, "b") as two,
        PersistentSession("tablet", nodes=where(one, two), **given) as session,
        SessionPublisher(nodes=where(two)) as publisher,
    ):
        yield one, two, session, publisher


async def test_PS_155_PS_156_a_client_goes_to_the_next_node_and_on(store):
    async with tablet_at_two(store) as (one, two, session, publisher):
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


async def test_PS_146_what_was_acknowledged_does_not_come_again_from_a_node_that_died(store):
    async with tablet_at_two(store) as (one, _, session, publisher):
        await session.subscribe("t")
        for number in (1, 2, 3):
            await publisher.publish("t", str(number).encode())
        await take(session, 3)
        owner = next(iter(one.machines.owners))
        await until(lambda: not one.machines.resume_of(owner).delivery.state.packets)
        await until(lambda: owner not in one.machines.record.acknowledged)
        await one._desk.ask(ReadNodes())  # behind the commit
        await one.abort()
        await publisher.publish("t", b"4")
        message = await anext(session)
        assert (message.payload, message.dup) == (b"4", False)


async def publish(publisher, *numbers):
    for number in numbers:
        await publisher.publish("t", str(number).encode())


def acknowledged_of(events):
    return [event for event in events if isinstance(event, Puback)]


async def test_PS_167_what_is_acknowledged_in_one_turn_is_one_step(store):
    events = []
    observe = lambda node, event, before, step, now_ns: events.append(event)  # noqa: E731
    async with tablet_at(store, observe=observe) as (node, publisher, session):
        await publish(publisher, *range(1, 10))
        messages = [await anext(session) for _ in range(9)]
        for message in (*messages[3:8], *messages[:3]):
            message.acknowledge()
        await until(lambda: acknowledged_of(events))
        assert acknowledged_of(events) == [Puback(4, 8), Puback(1, 3)]
        (owner,) = node.machines.owners
        assert set(node.machines.resume_of(owner).delivery.state.packets) == {9}


async def test_PS_167_what_is_acknowledged_before_a_connection_is_lost_is_taken(store):
    events = []
    observe = lambda node, event, before, step, now_ns: events.append(event)  # noqa: E731
    async with tablet_at(store, observe=observe) as (node, publisher, session):
        await publish(publisher, 1)
        await anext(session)
        (life,) = [one for one, visitor in node.reception.visitors.items() if visitor.owner]
        node.reception.hear(life, Puback(1))
        node.reception.lose(life)
        kinds = [type(event) for event in events if isinstance(event, Puback | ConnectionLost)]
        assert kinds[:2] == [Puback, ConnectionLost]
        await session.abort()


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


def test_PS_167_what_is_acknowledged_together_is_folded_and_no_client_says_how_much():
    assert fold_acknowledgements([]) == []
    many = [Puback(4), Puback(5), Puback(7), Puback(6), Pubrec(7), Puback(7), Puback(8), Puback(8), Pubcomp(9)]
    assert fold_acknowledgements(many) == [
        Puback(4, 5), Puback(7), Puback(6), Pubrec(7), Puback(7, 8), Puback(8), Pubcomp(9),
    ]  # fmt: skip
    together = [Puback(4), FrontAcknowledged((5, 6, 9, 3)), FrontAcknowledged(()), Puback(4), Pubrec(5)]
    assert fold_acknowledgements(together) == [Puback(4, 6), Puback(9), Puback(3, 4), Pubrec(5)]
    assert list_packets([*together, Pubcomp(8)]) == [4, 5, 6, 9, 3, 4, 5]
    assert fold_acknowledgements([Puback(1, 60_000), Puback(2), Puback(65_535), Puback(1)]) == [
        Puback(1, 2), Puback(65_535), Puback(1),
    ]  # fmt: skip


async def test_PS_155_a_clean_start_is_clean_once(store):
    async with tablet_at_two(store, clean_start=True) as (one, _, session, publisher):
        await session.subscribe("t")
        await publisher.publish("t", b"1")
        await one.abort()
        assert await take(session, 1) == ["1"]


async def test_PS_156_of_qos_2_the_application_has_each_once(store):
    async with tablet_at_two(store) as (one, two, session, publisher):
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


async def test_PS_155_a_node_that_says_nothing_is_left(store, monkeypatch, caplog):
    monkeypatch.setattr(node_guide, "SILENT_PINGS", 3)
    monkeypatch.setattr(node_guide, "PING_S", 0.05)
    async with (
        node_of(store) as one,
        node_of(store, "b") as two,
        PersistentSession("tablet", nodes=where(one, two)) as session,
    ):
        await session.subscribe("t")
        for _ in range(3):
            await asyncio.sleep(0.07)
            time.sleep(0.3)  # the loop stands still, and nobody is asked meanwhile
        assert "says nothing" not in caplog.text  # it answers, and is kept
        monkeypatch.setattr(one.reception, "hear", lambda party, message: None)
        await until(lambda: two.machines.owners)


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
    assert look(*[hear] * node_guide.SPEAK_PINGS) == [False] * node_guide.SPEAK_PINGS


async def test_PS_463_a_node_with_as_many_connections_as_it_may_have_says_so_to_its_client(store, caplog):
    async with (
        node_of(store, max_connections=1) as node,
        PersistentSession("tablet", nodes=where(node)) as session,
    ):
        others = [NodeGuide([node.address], opened=lambda: None, heard=print, closed=print) for _ in range(3)]
        tasks = [asyncio.ensure_future(one.run()) for one in others]
        await until(lambda: all(one.refusal for one in others))
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
        await until(lambda: sum(one for _, one in other._complaints._complaints.values()) >= 3)
        assert caplog.text.count("refuses this node") == 1
        with patch.object(complaint_log, "REPEAT_S", 0):
            other._complaints._complaints = dict.fromkeys(other._complaints._complaints, (0, 18))
            await until(lambda: "(19 times so far)" in caplog.text)
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

    monkeypatch.setattr(node_guide.NodeLink, "dial", dial)
    monkeypatch.setattr(node_guide, "AGAIN_S", (0.001, 0.001))
    monkeypatch.setattr(node_guide, "PING_S", 0.001)
    places = [("10.0.0.1", 1), ("10.0.0.2", 1)]
    guide = NodeGuide(places, opened=lambda: None, heard=lambda _: None, closed=lambda: None)
    task = asyncio.ensure_future(guide.run())
    await until(lambda: len(patience) >= 10)
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

    monkeypatch.setattr(node_guide.NodeLink, "dial", dial_there)
    guide = NodeGuide(
        [(host, 1) for host in hosts], opened=print, heard=lambda _: guide.leave_node(), closed=lambda: None
    )

    async def main():
        task = asyncio.ensure_future(guide.run())
        await until(until_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())
    return guide


def test_PS_333_a_node_that_is_without_its_store_counts_as_one_that_does_not_answer(monkeypatch):
    """Where all are, each client asks less and less often."""
    dialled, pauses, sleep = [], [], asyncio.sleep

    async def pause(seconds):
        if seconds in (0.001, 0.002, 0.004):
            pauses.append(seconds)
        await sleep(seconds)

    def dial(host, hear):
        dialled.append(host)
        asyncio.get_running_loop().call_soon(hear, Farewell("no_store" if len(dialled) <= 8 else "closing"))
        return Storeless()

    monkeypatch.setattr(node_guide, "AGAIN_S", (0.001, 0.004))
    monkeypatch.setattr(node_guide.asyncio, "sleep", pause)
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

    monkeypatch.setattr(node_guide, "AGAIN_S", (0.001, 0.001))
    guide_through(dial, monkeypatch, hosts="abc", until_s=lambda: len(dialled) >= 9)
    assert "".join(dialled[:9]) == "abccbacba"


def test_PS_562_a_node_that_has_become_silent_is_tried_behind_the_others(monkeypatch):
    dialled = []

    def dial(host, hear):
        dialled.append(host)
        if host == "b":
            asyncio.get_running_loop().call_soon(hear, Farewell("no_store"))
        return Storeless()

    monkeypatch.setattr(node_guide, "AGAIN_S", (0.001, 0.001))
    monkeypatch.setattr(node_guide, "PING_S", 0.001)
    guide_through(dial, monkeypatch, hosts="ab", until_s=lambda: len(dialled) >= 6)
    assert "".join(dialled[:6]) == "abbaba"


def test_PS_563_a_client_says_that_the_store_of_a_node_is_busy(monkeypatch, caplog):
    dialled = []

    def dial(host, hear):
        dialled.append(host)
        if host == "a":
            raise NodeUnreachable("nobody answers")
        asyncio.get_running_loop().call_soon(hear, Farewell("no_store"))
        return Storeless()

    monkeypatch.setattr(node_guide, "AGAIN_S", (0.001, 0.001))
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


async def test_PS_155_a_node_that_ends_in_good_order_says_so(store):
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


async def test_PS_155_of_two_under_one_client_id_the_last_has_the_session(store):
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


async def test_PS_108_a_client_may_end_its_session_when_it_leaves(store):
    async with node_of(store) as node:
        session = await PersistentSession("tablet", node=node).__aenter__()
        await session.leave(0)
        async with PersistentSession("tablet", node=node) as session:
            assert not session.present


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


async def test_a_node_that_is_started_again_finds_all_its_sessions(store):
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


async def test_PS_155_a_client_hears_that_its_node_ends(store):
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(node_of(store))
        stranger = await AsyncExitStack().enter_async_context(Stranger(node.address))
        stranger.say(ConnectWanted("c", False, 60_000, 1))
        await stranger.hears(Welcome)
        await stack.aclose()
        assert await stranger.hears(Farewell) == Farewell("closing")
        await stranger.__aexit__()


async def test_PS_146_what_was_acknowledged_is_committed_before_a_node_that_ends_says_so(store, monkeypatch):
    """Who hears it first locks its session elsewhere, and the commit would come too late."""
    monkeypatch.setattr(session_node, "ACKNOWLEDGED_S", 60)  # no other commit comes
    happened = []
    observe = lambda party, event, before, step, now_ns: happened.append(event)  # noqa: E731
    async with node_of(store, "b") as two, SessionPublisher(node=two) as publisher:
        async with node_of(store, observe=observe) as one:
            one.reception.enter("c~1", lambda message: not happened.append(message))
            one.reception.hear("c~1", ConnectWanted("c", False, 60_000, 9))
            await until(lambda: kinds_of(happened, Welcome))
            one.reception.hear("c~1", SubscribeWanted(1, "t", 1))
            await until(lambda: kinds_of(happened, Subscribed))
            await publisher.publish("t", b"1")
            await until(lambda: kinds_of(happened, Delivered))
            one.reception.hear("c~1", Puback(1))
        assert kinds_of(happened, SessionLeft, Farewell) == [SessionLeft, Farewell]
        async with PersistentSession("c", node=two) as session:
            await publisher.publish("t", b"2")
            message = await anext(session)
            assert (message.payload, message.dup) == (b"2", False)


async def test_PS_155_a_client_hears_that_its_node_ends_though_the_store_does_not_answer(store, monkeypatch):
    monkeypatch.setattr(session_node, "HALT_TURNS", 3)
    happened = []
    async with node_of(store) as node:
        node.reception.enter("c~1", lambda message: not happened.append(message))
        node.reception.hear("c~1", ConnectWanted("c", False, 60_000, 9))
        await until(lambda: kinds_of(happened, Welcome))
        monkeypatch.setattr(node._desk, "serve", lambda *_: None)  # nothing that is asked now is answered
    assert happened[-1] == Farewell("closing")
    assert kinds_of(happened, Farewell) == [Farewell]


async def test_PS_620_messages_of_a_turn_are_one_run_before_what_is_told_behind_them(store):
    happened, runs = [], []

    def deliver(messages):
        runs.append([one.packet for one in messages])
        happened.extend(messages)
        return True

    async with node_of(store) as node:
        node.reception.enter("c~1", lambda message: not happened.append(message), deliver=deliver)
        node.reception.hear("c~1", ConnectWanted("c", False, 60_000, 9))
        await until(lambda: kinds_of(happened, Welcome))
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
    monkeypatch.setattr(node_guide, "PING_S", 0.05)
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
        await until(lambda: not node.reception._given_up)

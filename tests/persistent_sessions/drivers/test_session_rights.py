"""What a node asks its authority, in what order, and what becomes of sessions whose client may less than before."""

import asyncio

import pytest
from certificates import Authority as CertificateAuthority
from session_nodes import node_of, take, where
from waiting import run_async, until_async

from statemachines.drivers.identity import Identity
from statemachines.drivers.permission_file import PermissionFile
from statemachines.drivers.persistent_sessions import (
    AccessDenied,
    PersistentSession,
    SessionPublisher,
)
from statemachines.drivers.persistent_sessions.node_link import Lane
from statemachines.drivers.persistent_sessions.route_rows import ReadFilters
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Delivered,
    Ping,
    PublishStored,
    PublishWanted,
    Refused,
    Subscribed,
    SubscribeWanted,
    UnsubscribeWanted,
)

ALL = "* connect tablet\n* subscribe a/#\n* subscribe b/#\n* publish #\n"


def rights(tmp_path, text=ALL):
    path = tmp_path / "rights.txt"
    path.write_text(text)
    return path


async def test_PS_453_with_certificates_a_client_has_a_name_of_its_own(store, tmp_path):
    authority = CertificateAuthority(tmp_path / "ca")
    client = {"credentials": authority.mutual("tablet-1", "tablet-2"), "name": "tablet-1"}
    async with node_of(store, credentials=authority.mutual("a", unit="node")) as node:
        for client_id in ("tablet-1", "tablet-2"):
            async with PersistentSession(client_id, nodes=where(node), **client) as session:
                await session.subscribe("#")
        with pytest.raises(AccessDenied):
            async with PersistentSession("tablet-3", nodes=where(node), **client):
                pass


async def test_PS_454_PS_455_what_a_client_may_no_more_does_not_come_when_it_resumes(store, tmp_path):
    path = rights(tmp_path)
    async with node_of(store, authorize=PermissionFile(path)) as node:
        async with PersistentSession("tablet", nodes=where(node)) as session:
            await session.subscribe("a/#")
            await session.subscribe("b/#", qos=2)
        async with SessionPublisher(node=node) as publisher:
            for number in range(20):
                for topic in ("a/x", "b/x"):
                    await publisher.publish(topic, f"{topic[0]}{number}".encode(), qos=2)
            rights(tmp_path, ALL.replace("* subscribe b/#\n", ""))
            assert node.authority.reload()
            async with PersistentSession("tablet", nodes=where(node), receive_maximum=5) as session:
                assert await take(session, 20) == [f"a{number}" for number in range(20)]
                await until_async(lambda: node.reception.withheld == 20)
                assert list(session.refused_groups) == ["b/#"]
                await publisher.publish("b/x", b"b20", qos=2)
                await until_async(lambda: node.reception.withheld == 21)
                rights(tmp_path)
                assert node.authority.reload()
                for one in ("b/x", "a/x"):
                    await publisher.publish(one, b"again", qos=2)
                assert await take(session, 2) == ["again", "again"]
            assert not node.machines.owners
        assert await node.request_queue.ask(ReadFilters(session.session)) == ("a/#", "b/#")


async def test_PS_454_a_client_that_may_not_connect_any_more_is_sent_off_and_its_session_stays(store, tmp_path):
    path = rights(tmp_path, ALL)
    async with node_of(store, authorize=PermissionFile(path)) as node:
        async with PersistentSession("tablet", nodes=where(node)) as session:
            await session.subscribe("a/#")
            rights(tmp_path, ALL.replace("* connect tablet", "bad line"))
            assert not node.authority.reload()
            await session.subscribe("b/#")
            rights(tmp_path, ALL.replace("* connect tablet", "* connect phone"))
            assert node.authority.reload()
            with pytest.raises(AccessDenied):
                await anext(session)
        await until_async(lambda: not node.machines.owners)
        rights(tmp_path)
        node.authority.reload()
        async with PersistentSession("tablet", nodes=where(node)) as session:
            assert session.present


class Asker:
    """A client of this process that a hook is asked about, which answers as it is told to."""

    def __init__(self, node):
        self.heard = []
        self.questions = asyncio.Queue()
        self.reception = node.reception
        node.reception.enter("x~1", Lane(self.heard.append).say, Identity(frozenset({"alice"})))

    def say(self, *messages):
        for message in messages:
            self.reception.hear("x~1", message)

    async def authorize(self, identity, action, client_id, topic):
        answer = asyncio.get_running_loop().create_future()
        await self.questions.put((action, topic, answer))
        return await answer

    async def answer(self, action, topic, is_allowed=True):
        asked, about, answer = await self.questions.get()
        assert (asked, about) == (action, topic)
        answer.set_result(is_allowed)

    async def hears(self, *messages):
        await until_async(lambda: len(self.heard) >= len(messages))
        assert self.heard == list(messages)
        self.heard.clear()


def asked_node(store, body):
    """`body(node, asker)` with a client that is connected."""

    async def main():
        made = {}

        async def authorize(*given):
            return await made["asker"].authorize(*given)

        async with node_of(store, authorize=authorize, authorize_s=30) as node:
            asker = made["asker"] = Asker(node)
            asker.say(ConnectWanted("tablet", False, 60_000, 10))
            await asker.answer("connect", "")
            await until_async(lambda: asker.heard)
            asker.heard.clear()
            await body(node, asker)

    run_async(main())


def test_PS_456_what_a_client_wants_is_decided_and_done_in_its_order(store):
    async def body(node, asker):
        asker.say(
            SubscribeWanted(1, "a", 1),
            PublishWanted(2, "a", b"1", 1),
            PublishWanted(3, "c", b"2", 1),
            PublishWanted(4, "a", b"3", 1),
            UnsubscribeWanted(5, "a"),
            PublishWanted(6, "a", b"4", 1),
            Ping(),
        )
        await until_async(lambda: asker.heard)  # the pong: whoever waits for permission is alive
        asker.heard.clear()
        await asker.answer("subscribe", "a")
        await asker.answer("publish", "a")
        await asker.answer("publish", "c", False)
        await until_async(lambda: len(asker.heard) == 8)
        assert [one.payload for one in asker.heard if isinstance(one, Delivered)] == [b"1", b"3"]
        assert {one.n for one in asker.heard if isinstance(one, PublishStored | Subscribed)} == {1, 2, 4, 5, 6}
        assert [one.n for one in asker.heard if isinstance(one, Refused)] == [3]
        assert asker.questions.empty()  # what was allowed is not asked again

    asked_node(store, body)


def test_PS_456_a_client_that_is_gone_gets_nothing_done_and_leaves_nothing_behind(store):
    async def body(node, asker):
        asker.say(PublishWanted(1, "a", b"1", 1), PublishWanted(2, "b", b"2", 1), SubscribeWanted(3, "a", 1))
        _, _, answer = await asker.questions.get()
        assert node.reception.requests._publishing == 2
        node.reception.lose("x~1")
        assert node.reception.requests._publishing == node.reception.requests._publishing_bytes == 0
        answer.set_result(True)
        await until_async(lambda: not node.authority._tasks)
        assert asker.heard == []
        assert asker.questions.empty()

    asked_node(store, body)

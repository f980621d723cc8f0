"""Who says what it likes to a node of sessions (PS-158, PS-159, PS-164)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from session_nodes import QUICK, Stranger, node_of, take, until, where

from statemachines.drivers.credentials import Credentials
from statemachines.drivers.persistent_sessions import (
    NodeUnreachable,
    PersistentSession,
    SessionNode,
    SessionPublisher,
    node_link,
)
from statemachines.drivers.persistent_sessions.node_messages import NODE
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Farewell,
    Live,
    Queued,
    Welcome,
)
from statemachines.testing.process_harness import free_port


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


async def test_PS_159_a_client_without_room_for_what_it_is_sent_is_gone(store):
    async with node_of(store) as node, Stranger(node.address) as stranger:
        stranger.say(ConnectWanted("c", False, 60_000, 10))
        await stranger.hears(Welcome)
        visitor = next(iter(node.reception.visitors.values()))
        visitor.say = lambda message: False
        node.reception.hear("x~1", ConnectWanted("c", False, 0, 1))
        assert node.reception.visitors == {}
        async with asyncio.timeout(5):  # sooner than its silence would tell
            await until(lambda: not node.machines.owners)


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


async def test_PS_165_a_client_that_says_to_be_another_node_puts_no_message_in_the_place_of_a_row(store, caplog):
    """It has the secret of all, and knows the next number of the writer that it says to be."""
    here, there = ("127.0.0.1", free_port()), ("127.0.0.1", free_port())
    ours, its = Credentials(secret=MEMBERS, role_secret=NODES), Credentials(secret=MEMBERS)
    async with AsyncExitStack() as stack:
        node = SessionNode(store, name="a", listen=here, peers=[there], credentials=ours, **QUICK)
        other = SessionNode(store, name="b", listen=there, peers=[here], credentials=ours, **QUICK)
        for each in (node, other):
            await stack.enter_async_context(each)
        await until(lambda: "b" in node._transport._peers and "a" in other._transport._peers)
        session = PersistentSession("tablet", nodes=where(node), credentials=its)
        publisher = SessionPublisher(nodes=where(other), credentials=its)
        for each in (session, publisher):
            await stack.enter_async_context(each)
        await session.subscribe("t")
        await publisher.publish("t", b"1")
        assert await take(session, 1) == ["1"]
        (owner,) = node.machines.owners
        writer = other.machines.nodes[other.machines.writers[node.machines.resume_of(owner).session]].record
        guess = Credentials(secret=MEMBERS, role_secret=b"what a client thinks that it is")
        evil = Stranger(here, NODE, other.life, waits=False, store=node._transport.store, credentials=guess)
        await stack.enter_async_context(evil)
        await until(lambda: "node" in evil.transport._peers or "is cut off" in caplog.text)
        untrue = Live(writer.session, "b", writer.epoch, Queued(writer.last + 1, "no such message"))
        evil.say(untrue, owner, f"{other.life}/1")
        await until(lambda: taken(node, owner) > writer.last or "is cut off" in caplog.text)
        await publisher.publish("t", b"2")
        assert await take(session, 1) == ["2"]
    assert "is cut off: does not know our secret; give both nodes the same --node-secret-file" in caplog.text


def taken(node, owner):
    """The last number that an owner has of writer `b`."""
    return node.machines.resume_of(owner).delivery.state.taken["b"][1]


def test_PS_165_a_node_that_cannot_prove_to_others_that_it_is_one_does_not_start(store):
    alone = {"name": "a", "listen": ("127.0.0.1", 0), "credentials": Credentials(secret=MEMBERS)}
    SessionNode(store, **alone)
    with pytest.raises(ConfigurationError, match=r"peers.*nobody to be a node.*the same --node-secret-file"):
        SessionNode(store, **alone, peers=[("127.0.0.1", 1)])

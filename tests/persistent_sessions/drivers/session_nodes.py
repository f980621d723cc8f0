"""Nodes of sessions and what reaches them, for tests."""

from contextlib import asynccontextmanager

from waiting import until_async

from statemachines.drivers.persistent_sessions import (
    SessionNode,
)
from statemachines.drivers.persistent_sessions.node_messages import CLIENT
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.drivers.tcp import TcpTransport
from statemachines.persistent_sessions.times import Times
from statemachines.wire import Packet

QUICK = {"lease_ms": 3_000, "look_ms": 100, "times": Times(marker_ms=400, repeat_ms=100)}


@asynccontextmanager
async def node_of(store, name="a", **given):
    async with SessionNode(store, name=name, **{**QUICK, "listen": ("127.0.0.1", 0), **given}) as node:
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


def lose_store(node, monkeypatch):
    """What the node asks does not reach its store any more, until the function that this returns is called."""

    async def fail(*_):
        raise StoreUnavailable("the store does not answer")

    before = {name: getattr(node._store, name) for name in ("carry_out", "read")}
    for name in before:
        monkeypatch.setattr(node._store, name, fail)

    def restore():
        for name, method in before.items():
            monkeypatch.setattr(node._store, name, method)

    return restore


# -- strangers --------------------------------------------------------------------------------------------------------


class Stranger:
    """A peer that says what it likes; `waits`: until it is let in."""

    def __init__(self, address, role=CLIENT, life="x~1", waits=True, **given):
        self.heard = []
        self.waits = waits
        self.life = life
        self.transport = TcpTransport(
            life=life, role=role, receive=lambda packet: self.heard.append(packet.message), dial={"node": address},
            **given,
        )  # fmt: skip

    async def __aenter__(self):
        await self.transport.__aenter__()
        if self.waits:
            await until_async(lambda: "node" in self.transport._peers)
        return self

    async def __aexit__(self, *_):
        await self.transport.__aexit__(None, None, None)

    def say(self, message, to="node", sender=""):
        self.transport.send(Packet(sender or self.life, to, 0, message))

    async def hears(self, kind):
        await until_async(lambda: any(isinstance(one, kind) for one in self.heard))
        return next(one for one in self.heard if isinstance(one, kind))

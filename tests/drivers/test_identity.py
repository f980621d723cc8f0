"""Who a peer is, over TCP: a secret, TLS, both; what only one side has is one line on each side, never a hang."""

import asyncio
import logging
from contextlib import asynccontextmanager
from itertools import count

import pytest
from certificates import SECRET, Authority
from waiting import pause_async, run_async, until_async

from statemachines.drivers import tcp
from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.drivers.tcp import TcpTransport
from statemachines.shared_subscriptions.message import BorrowerMessage, LeaderWanted, Undeclared
from statemachines.wire import Frames, Packet, PacketCodec, decode_hello, encode_hello, refusal_in

LOCAL = ("127.0.0.1", 0)
SHARED = Credentials(secret=SECRET)
GUARDED = Credentials(secret=SECRET, role_secret=b"a secret of leader hosts alone")
OTHER = Credentials(secret=b"a secret that somebody else knows")
WANTED = LeaderWanted("c1~1/1", "g", "#")
REFUSES = "({}) refuses this node, of which it says: "


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(tcp, "BACKOFF_S", (0.01, 0.05))


class End:
    """A transport, what it received, and what it was asked to decode."""

    def __init__(self, life, role, **options):
        self.received = []
        self.decoded = 0
        self.codec = role.codec()
        decode = self.codec.decode
        self.codec.decode = lambda body: self.count() or decode(body)
        self.transport = TcpTransport(life=life, role=role, codec=self.codec, receive=self.received.append, **options)

    def count(self):
        self.decoded += 1


@asynccontextmanager
async def pair(ours, theirs, life="c1~1"):
    """A leader host with credentials `ours`, a consumer with `theirs` that dials it."""
    here = End("leader-1~1", LEADER, listen=LOCAL, credentials=ours)
    async with here.transport:
        there = End(life, CONSUMER, dial={"leader": here.transport.address}, credentials=theirs)
        async with there.transport:
            yield here, there


async def exchange(here, there):
    """A packet each way."""
    await until_async(lambda: here.transport._peers and there.transport._peers)
    there.transport.send(Packet("c1~1/1", "leader", 1, WANTED))
    here.transport.send(Packet("leader-1~1", "c1~1/1", 1, Undeclared("c1~1/1")))
    await until_async(lambda: here.received and there.received)


def play(ours, theirs):
    async def test():
        async with pair(ours, theirs) as (here, there):
            await exchange(here, there)

    run_async(test())


def refused(caplog, ours, theirs, we_say, they_say, life="c1~1"):
    """Nothing comes about; each side says why in exactly one line, however often they try."""
    wanted = [we_say, they_say]

    def lines():
        return [record.getMessage() for record in caplog.records]

    async def test():
        async with pair(ours, theirs, life) as (here, there):
            await until_async(lambda: all(any(say in line for line in lines()) for say in wanted))
            for _ in range(10):
                there.transport.send(Packet("c1~1/1", "leader", 1, WANTED))
                await pause_async(0.02, "some more attempts")
            assert (here.received, there.received, here.decoded, there.decoded) == ([], [], 0, 0)
            assert not here.transport._peers
            assert not there.transport._peers

    with caplog.at_level(logging.WARNING, logger="gapless"):
        run_async(test())
    assert len(lines()) == len(wanted), lines()
    assert all("127.0.0.1" in line for line in lines())
    return lines()


def test_tls_on_one_side(caplog, authority):
    with_ca = Credentials(tls_ca=authority.ca)
    refused(caplog, NONE, with_ca, "speaks TLS; start this node with --tls-cert", "it does not speak TLS")
    caplog.clear()
    refused(
        caplog, authority.server(), NONE, "it does not speak TLS", "if it speaks TLS, start this node with --tls-ca"
    )


def test_a_leader_of_another_authority(caplog, authority, stranger):
    theirs = Credentials(tls_ca=authority.ca)
    refused(caplog, stranger.server(), theirs, "it may not accept tls_cert", "its certificate is refused")


def test_a_consumer_under_a_name_that_its_certificate_is_not_for(caplog, authority):
    says = "(c1) is cut off: says it is c1, and its certificate is for c2"
    told = REFUSES.format("leader-1") + "says it is c1, and its certificate is for c2"
    refused(caplog, authority.mutual("leader-1", secret=SECRET), authority.mutual("c2", secret=SECRET), says, told)


def test_SS_252_who_leads_by_another_s_certificate_is_refused_by_members_too(caplog, authority):
    """Its name may be the right one, and the authority the same."""
    cert, key = authority.issue("leader-1", "127.0.0.1", unit="consumer")
    fake = Credentials(tls_cert=cert, tls_key=key, tls_ca=authority.ca, secret=SECRET)
    says = "(leader-1) is cut off: says it is a leader, and its certificate is not for one"
    refused(caplog, fake, authority.mutual("c1", secret=SECRET), REFUSES.format("c1"), says)


@pytest.mark.parametrize("first", ["leader", "member"])
async def test_SS_254_a_member_takes_no_leader_host_s_name(caplog, first):
    """Whoever came first, and whatever numbers their lives have: what goes to leader-2 goes to who was dialled."""

    other = End("leader-2~1", LEADER, listen=LOCAL, credentials=GUARDED)
    here = End("leader-1~1", LEADER, listen=LOCAL, dial={"peer": LOCAL}, credentials=GUARDED)
    fake = End("leader-2~999", CONSUMER, dial={"leader": LOCAL}, credentials=SHARED)
    async with other.transport:
        here.transport._dial["peer"] = other.transport.address if first == "leader" else ("127.0.0.1", 1)
        async with here.transport:
            fake.transport._dial["leader"] = here.transport.address
            async with fake.transport:
                if first == "member":
                    await until_async(lambda: "leader-2" in here.transport._peers)
                    here.transport._dialling[0].cancel()
                    here.transport._dialling = [
                        asyncio.create_task(here.transport._keep("peer", other.transport.address))
                    ]
                await until_async(lambda: "(leader-2) is cut off: goes by the name of leader-2~1, which" in caplog.text)
                number = count(1)
                await until_async(
                    lambda: other.received,
                    meanwhile=lambda: here.transport.send(Packet("leader-1~1/1", "leader-2~1/1", next(number), WANTED)),
                )
                assert fake.received == []
                assert "is an older life" not in caplog.text


async def whole_answer(address, data):
    """All that a stranger who says `data` is told before it is cut off."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    told = b""
    try:
        while some := await reader.read(65_536):
            told += some
    except ConnectionError:
        pass
    writer.close()
    return told


async def test_who_says_nothing_inside_or_before_tls_is_cut_off(monkeypatch, caplog, authority):
    monkeypatch.setattr(tcp, "HELLO_S", 1.0)  # time enough for TLS, on any machine
    here = End("leader-1~1", LEADER, listen=LOCAL, credentials=authority.server())
    async with here.transport:
        assert await whole_answer(here.transport.address, b"") == b""
        context = Credentials(tls_ca=authority.ca).dialling()
        reader, writer = await asyncio.open_connection(*here.transport.address, ssl=context)
        hello, why = Frames().feed(await reader.read())
        assert decode_hello(hello, LEADER.full_name).life == "leader-1~1"
        assert refusal_in(why).startswith("no hello within 1 s")
        writer.close()
        await until_async(lambda: not here.transport._connections)
    assert caplog.text.count("no hello within 1 s") == 1


async def test_a_transport_that_stops_in_the_middle_of_setting_up_tls_leaves_nothing_behind(authority):
    here = End("leader-1~1", LEADER, listen=LOCAL, credentials=authority.server())
    async with here.transport:
        _, writer = await asyncio.open_connection(*here.transport.address)
        await until_async(lambda: here.transport._connections)
    assert not here.transport._connections
    writer.close()


@pytest.mark.parametrize(
    ("packet", "says"),
    [
        (Packet("c2~1/1", "leader", 1, WANTED), "sent a message as c2~1/1, which does not live on it"),
        (Packet("c11~1/1", "leader", 1, WANTED), "sent a message as c11~1/1"),
        (Packet("c1", "leader", 1, WANTED), "sent a message as c1, "),
        (Packet("", "", 1, WANTED), "sent a message as ,"),
        (Packet("c2~1/1", "leader-2~1/1", 1, WANTED), "sent a message as c2~1/1"),
        (Packet("c1~1/1", "leader-2~1/1", 1, WANTED), "sent a message to leader-2~1/1, which does not live here"),
    ],
)
async def test_whoever_speaks_for_another_node_or_to_one_is_cut_off(caplog, packet, says):
    async with pair(NONE, NONE) as (here, there):
        await exchange(here, there)
        stranger = encode_hello(CONSUMER.full_name, "c1~1") + PacketCodec(BorrowerMessage).encode(packet)
        await whole_answer(here.transport.address, stranger)
        assert len(here.received) == 1
    assert says in caplog.text


async def test_SS_262_a_consumer_that_speaks_for_another_s_borrower_is_not_heard(tmp_path, caplog):
    """Its packet is its own, what it says in it is not."""
    wire = PacketCodec(BorrowerMessage)
    async with LeaderNode(listen=LOCAL, store=tmp_path / "m.db") as node:
        _, writer = await asyncio.open_connection(*node.address)
        packet = Packet("evil~1/1", "leader", 1, LeaderWanted("c1~1/1", "g", "#"))
        writer.write(encode_hello(CONSUMER.full_name, "evil~1", store=node._groups.identity) + wire.encode(packet))
        await until_async(lambda: "about another borrower, c1~1/1" in caplog.text)
        assert not node._host.leaders
        writer.close()

"""Who a peer is, over TCP: a secret, TLS, both; what only one side has is one line on each side, never a hang."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from certificates import SECRET, Authority
from msgspec.structs import asdict

from statemachines.drivers import tcp
from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription
from statemachines.drivers.tcp import TcpTransport
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import BorrowerMessage, LeaderWanted, Undeclared
from statemachines.testing.fault_proxy import FaultProxy
from statemachines.wire import Frames, Packet, PacketCodec, decode_hello, encode_hello, frame, refusal_in

LOCAL = ("127.0.0.1", 0)
SHARED = Credentials(secret=SECRET)
GUARDED = Credentials(secret=SECRET, role_secret=b"a secret of leader hosts alone")
OTHER = Credentials(secret=b"a secret that somebody else knows")
WANTED = LeaderWanted("c1~1/1", "g", "#")
WAIT_S = 120
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


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def exchange(here, there):
    """A packet each way."""
    await until(lambda: here.transport._peers and there.transport._peers)
    there.transport.send(Packet("c1~1/1", "leader", 1, WANTED))
    here.transport.send(Packet("leader-1~1", "c1~1/1", 1, Undeclared("c1~1/1")))
    await until(lambda: here.received and there.received)


def play(ours, theirs):
    async def test():
        async with pair(ours, theirs) as (here, there):
            await exchange(here, there)

    asyncio.run(test())


def refused(caplog, ours, theirs, we_say, they_say, life="c1~1"):
    """Nothing comes about; each side says why in exactly one line, however often they try."""
    wanted = [we_say, they_say]

    def lines():
        return [record.getMessage() for record in caplog.records]

    async def test():
        async with pair(ours, theirs, life) as (here, there):
            await until(lambda: all(any(say in line for line in lines()) for say in wanted))
            for _ in range(10):
                there.transport.send(Packet("c1~1/1", "leader", 1, WANTED))
                await asyncio.sleep(0.02)  # some more attempts
            assert (here.received, there.received, here.decoded, there.decoded) == ([], [], 0, 0)
            assert not here.transport._peers
            assert not there.transport._peers

    with caplog.at_level(logging.WARNING, logger="gapless"):
        asyncio.run(test())
    assert len(lines()) == len(wanted), lines()
    assert all("127.0.0.1" in line for line in lines())
    return lines()


def test_who_shares_the_secret_takes_part():
    play(SHARED, SHARED)


def test_tls_of_the_leader_alone(authority):
    play(authority.server(), Credentials(tls_ca=authority.ca))


def test_tls_on_both_sides(authority):
    play(authority.mutual("leader-1"), authority.mutual("c1"))


def test_tls_and_a_secret(authority):
    play(authority.server(secret=SECRET), Credentials(tls_ca=authority.ca, secret=SECRET))


def test_a_common_name_will_do_where_there_is_no_other(authority):
    cert, key = authority.issue(common_name="c1")
    play(authority.mutual("leader-1"), Credentials(tls_cert=cert, tls_key=key, tls_ca=authority.ca))


def test_a_secret_that_differs(caplog):
    lines = refused(caplog, SHARED, OTHER, "(c1) is cut off: does not know our secret", REFUSES.format("leader-1"))
    assert any(line.endswith("give both nodes the same --secret-file") for line in lines if "refuses" in line)
    assert "a secret that" not in caplog.text


def test_a_secret_on_one_side(caplog):
    refused(caplog, SHARED, NONE, "(c1) is cut off: shows no secret", "(leader-1) is cut off: asks for a secret")
    caplog.clear()
    refused(caplog, NONE, SHARED, "(c1) is cut off: asks for a secret", "(leader-1) is cut off: shows no secret")


def test_tls_on_one_side(caplog, authority):
    with_ca = Credentials(tls_ca=authority.ca)
    refused(caplog, NONE, with_ca, "speaks TLS; start this node with --tls-cert", "it does not speak TLS")
    caplog.clear()
    refused(
        caplog, authority.server(), NONE, "it does not speak TLS", "if it speaks TLS, start this node with --tls-ca"
    )


def test_certificates_on_one_side(caplog, authority):
    with_ca = Credentials(tls_ca=authority.ca)
    refused(caplog, authority.mutual("leader-1"), with_ca, "(c1) is cut off: has no cert", "asks for a certificate")
    caplog.clear()
    refused(caplog, authority.server(), authority.mutual("c1"), "not asked for here", "asks for no certificate")


def test_a_leader_of_another_authority(caplog, authority, stranger):
    theirs = Credentials(tls_ca=authority.ca)
    refused(caplog, stranger.server(), theirs, "it may not accept tls_cert", "its certificate is refused")


def test_a_consumer_of_another_authority(caplog, authority, stranger):
    cert, key = stranger.issue("c1")
    theirs = Credentials(tls_cert=cert, tls_key=key, tls_ca=authority.ca)
    refused(caplog, authority.mutual("leader-1"), theirs, "its certificate is refused", "ended the connection")


def test_a_leader_under_another_host_s_name(caplog, authority):
    cert, key = authority.issue("elsewhere.example")
    ours = Credentials(tls_cert=cert, tls_key=key)
    refused(
        caplog, ours, Credentials(tls_ca=authority.ca), "it may not accept tls_cert", "is not valid for '127.0.0.1'"
    )


def test_a_consumer_under_a_name_that_its_certificate_is_not_for(caplog, authority):
    says = "(c1) is cut off: says it is c1, and its certificate is for c2"
    told = REFUSES.format("leader-1") + "says it is c1, and its certificate is for c2"
    refused(caplog, authority.mutual("leader-1", secret=SECRET), authority.mutual("c2", secret=SECRET), says, told)


def test_a_leader_under_a_name_that_its_certificate_is_not_for(caplog, authority):
    says = "(leader-1) is cut off: says it is leader-1, and its certificate is for leader-2"
    told = REFUSES.format("c1") + "says it is leader-1, and its certificate is for leader-2"
    refused(caplog, authority.mutual("leader-2", secret=SECRET), authority.mutual("c1", secret=SECRET), told, says)


async def test_SS_252_a_member_s_certificate_makes_no_leader_host(caplog, authority):
    cert, key = authority.issue("c2", "127.0.0.1")
    member = Credentials(tls_cert=cert, tls_key=key, tls_ca=authority.ca)
    here = End("leader-1~1", LEADER, listen=LOCAL, credentials=authority.mutual("leader-1"))
    async with here.transport:
        there = End("c2~1", LEADER, dial={"leader": here.transport.address}, credentials=member)
        async with there.transport:
            await until(lambda: "(c2) is cut off: says it is a leader, and its certificate is not" in caplog.text)
            assert not here.received


def test_SS_252_who_leads_by_another_s_certificate_is_refused_by_members_too(caplog, authority):
    """Its name may be the right one, and the authority the same."""
    cert, key = authority.issue("leader-1", "127.0.0.1", unit="consumer")
    fake = Credentials(tls_cert=cert, tls_key=key, tls_ca=authority.ca, secret=SECRET)
    says = "(leader-1) is cut off: says it is a leader, and its certificate is not for one"
    refused(caplog, fake, authority.mutual("c1", secret=SECRET), REFUSES.format("c1"), says)


@pytest.mark.parametrize("first", ["leader", "member"])
async def test_SS_254_a_member_takes_no_leader_host_s_name(caplog, first):
    """Whoever came first, and whatever numbers their lives have: what goes to leader-2 goes to who was dialled."""

    async def test():
        other = End("leader-2~1", LEADER, listen=LOCAL, credentials=GUARDED)
        here = End("leader-1~1", LEADER, listen=LOCAL, dial={"peer": LOCAL}, credentials=GUARDED)
        fake = End("leader-2~999", CONSUMER, dial={"leader": LOCAL}, credentials=SHARED)
        async with other.transport:
            here.transport._dial["peer"] = other.transport.address if first == "leader" else ("127.0.0.1", 1)
            async with here.transport:
                fake.transport._dial["leader"] = here.transport.address
                async with fake.transport:
                    if first == "member":
                        await until(lambda: "leader-2" in here.transport._peers)
                        here.transport._dialling[0].cancel()
                        here.transport._dialling = [
                            asyncio.create_task(here.transport._keep("peer", other.transport.address))
                        ]
                    await until(lambda: "(leader-2) is cut off: goes by the name of leader-2~1, which" in caplog.text)
                    number = 0
                    while not other.received:
                        number += 1
                        here.transport.send(Packet("leader-1~1/1", "leader-2~1/1", number, WANTED))
                        await asyncio.sleep(0.01)
                    assert fake.received == []
                    assert "is an older life" not in caplog.text

    async with asyncio.timeout(WAIT_S):
        await test()


async def whole_answer(address, data):
    """All that a stranger who says `data` is told before it is cut off."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    told = b""
    try:
        async with asyncio.timeout(WAIT_S):
            while some := await reader.read(65_536):
                told += some
    except ConnectionError:
        pass
    writer.close()
    return told


async def test_a_stranger_is_refused_before_anything_it_says_is_decoded_and_learns_why_alone():
    packet = PacketCodec(BorrowerMessage).encode(Packet("c1~1/1", "leader", 1, WANTED))
    nonce = b"n" * 32
    async with pair(SHARED, SHARED) as (here, there):
        await exchange(here, there)
        address, decoded = here.transport.address, here.decoded
        for data in (
            packet,
            encode_hello(CONSUMER.full_name, "c1~1") + packet,
            encode_hello(CONSUMER.full_name, "c1~1", nonce=nonce) + packet,
            encode_hello(CONSUMER.full_name, "c1~1", nonce=nonce) + frame(b"\xc4\x20" + bytes(32)) + packet,
            encode_hello(CONSUMER.full_name, "c1~1", nonce=nonce) + frame(b"x" * 2_000),
        ):
            told = await whole_answer(address, data)
            first, *rest = Frames().feed(told)
            assert decode_hello(first, LEADER.full_name).life == "leader-1~1"
            assert [refusal_in(body) != "" for body in rest] in ([], [True]), "no proof"
            assert SECRET not in told
        assert here.decoded == decoded
        there.transport.send(Packet("c1~1/1", "leader", 2, WANTED))
        await until(lambda: len(here.received) == 2)


async def test_who_says_nothing_inside_or_before_tls_is_cut_off(monkeypatch, caplog, authority):
    monkeypatch.setattr(tcp, "HELLO_S", 1.0)  # time enough for TLS, on any machine
    here = End("leader-1~1", LEADER, listen=LOCAL, credentials=authority.server())
    async with here.transport:
        assert await whole_answer(here.transport.address, b"") == b""
        context = Credentials(tls_ca=authority.ca).dialling()
        reader, writer = await asyncio.open_connection(*here.transport.address, ssl=context)
        async with asyncio.timeout(WAIT_S):
            hello, why = Frames().feed(await reader.read())
        assert decode_hello(hello, LEADER.full_name).life == "leader-1~1"
        assert refusal_in(why).startswith("no hello within 1 s")
        writer.close()
        await until(lambda: not here.transport._connections)
    assert caplog.text.count("no hello within 1 s") == 1


async def test_a_transport_that_stops_in_the_middle_of_setting_up_tls_leaves_nothing_behind(authority):
    here = End("leader-1~1", LEADER, listen=LOCAL, credentials=authority.server())
    async with here.transport:
        _, writer = await asyncio.open_connection(*here.transport.address)
        await until(lambda: here.transport._connections)
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
        await until(lambda: "about another borrower, c1~1/1" in caplog.text)
        assert not node._host.leaders
        writer.close()


async def test_an_application_embeds_it(tmp_path, authority):
    """Certificates on both sides and a secret, from files, through the whole of it."""
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    store = tmp_path / "messages.db"
    async with Publisher(store) as publisher:
        await publisher.publish("orders", [b"one", b"two"])
    ours, theirs = authority.mutual("leader-1", secret_file=secret), authority.mutual("c1", secret_file=secret)
    async with LeaderNode(listen=LOCAL, store=store, node="leader-1", credentials=ours) as node:
        address = "{}:{}".format(*node.address)
        got = []
        async with SharedSubscription(
            "$shared/g/#", leader=address, store=store, node="c1", start="beginning", credentials=theirs
        ) as messages:
            async with asyncio.timeout(WAIT_S):
                async for message in messages:
                    got.append(message.payload)
                    await message.ack()
                    if len(got) == 2:
                        break
        assert got == [b"one", b"two"]


async def test_with_tls_nothing_that_was_changed_on_the_way_is_believed(tmp_path, authority):
    """Each time a byte is changed the connection ends and comes back; every message arrives all the same."""
    store, rounds = tmp_path / "messages.db", 6
    times = {key: value // 10 for key, value in asdict(Configuration()).items() if key.endswith("_ms")}
    tenth = Configuration(**times)
    ours, theirs = authority.server(), Credentials(tls_ca=authority.ca)
    got = set()
    async with (
        LeaderNode(listen=LOCAL, store=store, credentials=ours, configuration=tenth) as node,
        FaultProxy(node.address, seed=1) as proxy,
        Publisher(store) as publisher,
        SharedSubscription(
            "$shared/g/#",
            leader="{}:{}".format(*proxy.address),
            store=store,
            credentials=theirs,
            configuration=tenth,
        ) as messages,
        asyncio.timeout(2 * WAIT_S),
    ):
        for number in range(rounds):
            await publisher.publish("orders", [b"%d.%d" % (number, part) for part in range(5)])
            before = proxy.number
            proxy.corrupt(("up", "down")[number % 2])
            await until(lambda before=before: proxy.number > before)
            async for message in messages:
                got.add(message.payload)
                await message.ack()
                if len(got) == 5 * (number + 1):
                    break
        assert node._runtime.failed is None
    assert got == {b"%d.%d" % (number, part) for number in range(rounds) for part in range(5)}

"""TLS handshakes of strangers are bounded in number and in time, and keep nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from asyncio.subprocess import PIPE

import pytest
import trustme
from mqtt_socket import MqttSocket, mqtt_node
from websockets.asyncio.client import connect

from statemachines.drivers.mqtt_connections import mqtt_node as listener
from statemachines.drivers.password_file import hash_password
from statemachines.mqtt_codec import (
    ConnackPacket,
    ConnectPacket,
    Decoder,
    PingreqPacket,
    PingrespPacket,
    PubackPacket,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    encode,
)
from statemachines.mqtt_connections.connection_record import MqttSettings

PLACE = ("127.0.0.1", 0)


class TlsSocket(MqttSocket):
    """A client that sends CONNECT together with the last bytes of its handshake."""

    def __init__(self, address, context):
        super().__init__(address)
        self._context = context

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(*self.address, ssl=self._context)
        return self


@pytest.fixture
def contexts():
    """(of a server, of its clients)."""
    authority, server, client = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


async def serve_both(node, context):
    """A client of each listener is served."""
    async with TlsSocket(node.address, context) as client:
        assert (await client.connect("tcp")).reason_code == 0
        assert await client.ask(PingreqPacket()) == PingrespPacket()
    async with connect("wss://{}:{}".format(*node.ws_address), subprotocols=["mqtt"], ssl=context) as client:
        await client.send(encode(ConnectPacket("web"), 5))
        (answer,) = Decoder(5).feed(await client.recv())
        assert isinstance(answer, ConnackPacket)


async def wait_for_end(reader):
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""


@pytest.mark.parametrize("limit_s", [1, 3_600])
async def test_MQ_205_handshakes_are_bounded_in_number_and_in_time(store, monkeypatch, contexts, limit_s):
    """The oldest one makes room, over both listeners."""
    monkeypatch.setattr(listener, "CONNECTING_MAX", 6)
    settings = MqttSettings(connect_timeout_s=limit_s)
    async with mqtt_node(store, tls=contexts[0], listen=PLACE, ws_listen=PLACE, settings=settings) as node:
        await serve_both(node, contexts[1])
        silent = [await asyncio.open_connection(*place) for place in [node.address, node.ws_address] * 5]
        for reader, _ in silent[: 10 if limit_s == 1 else 4]:
            await wait_for_end(reader)
        await serve_both(node, contexts[1])
        reader, writer = await asyncio.open_connection(*node.address)
        writer.write(b"\x10\x00" * 100)  # no handshake
        await wait_for_end(reader)
        for _, other in (*silent, (reader, writer)):
            other.close()
        while node._gate._open:
            await asyncio.sleep(0.01)


async def test_a_node_that_stops_ends_handshakes(store, contexts):
    async with mqtt_node(store, tls=contexts[0]) as node:
        reader, writer = await asyncio.open_connection(*node.address)
        while not node._gate._open:
            await asyncio.sleep(0.01)
    await wait_for_end(reader)
    writer.close()


class NodeFiles:
    """Certificates and users of a node in `folder`; `trusting` is TLS of a client, and `certified` with a certificate
    for `tablet`; that of the node has these names, and is for a leader host."""

    def __init__(self, folder, names=("a",)):
        authority, issued = trustme.CA(), trustme.CA.issue_cert
        self.ca, self.cert, self.key, self.users = (folder / name for name in ("ca", "cert", "key", "users"))
        authority.cert_pem.write_to_path(str(self.ca))
        server = issued(authority, *names, "127.0.0.1", organization_unit_name="leader")
        client = issued(authority, "tablet")
        self.cert.write_bytes(server.cert_chain_pems[0].bytes())
        server.private_key_pem.write_to_path(str(self.key))
        self.users.write_text(hash_password("ann", "secret"))
        self.key.chmod(0o600)
        self.users.chmod(0o600)
        self.trusting, self.certified = ssl.create_default_context(), ssl.create_default_context()
        for context in (self.trusting, self.certified):
            authority.configure_trust(context)
        client.configure_cert(self.certified)
        self.tls = ("--tls-cert", str(self.cert), "--tls-key", str(self.key))


@pytest.fixture
def files(tmp_path):
    return NodeFiles(tmp_path)


@contextlib.asynccontextmanager
async def run_command(store, *options, refusal=""):
    """`gapless node mqtt`; its address.  `refusal`: what it says in the end about a certificate."""
    said = b""
    command = (sys.executable, "-m", "statemachines", "node", "mqtt", "--store", str(store), "--name", "a")
    child = await asyncio.create_subprocess_exec(
        *command, "--listen", "127.0.0.1:0", *options, stdout=PIPE, stderr=PIPE
    )
    try:
        line = await child.stdout.readline()
        assert line.startswith(b"listening on "), await child.stderr.read()
        host, _, port = line.split()[-1].decode().rpartition(":")
        yield host, int(port)
        while refusal and b"its certificate is for" not in said:
            said += await child.stderr.readline()
    finally:
        child.terminate()
        said += (await child.communicate())[1]
    refused = [line for line in said.splitlines() if b"its certificate is for" in line]
    assert bool(refused) is bool(refusal), said
    assert refusal.encode() in b"".join(refused)


async def connack_without_certificate(address, context):
    """None: the handshake, or the connection behind it, was ended."""
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        async with TlsSocket(address, context) as client:
            return await client.ask(ConnectPacket("tablet"))
    return None


SHARED = SubscribePacket(1, (TopicSubscription("$share/g/jobs/#"),))


async def test_a_node_with_an_authority_and_without_users_lets_nobody_in_without_a_certificate(store, files):
    async with run_command(store, *files.tls, "--tls-ca", str(files.ca)) as address:
        assert await connack_without_certificate(address, files.trusting) is None
        async with TlsSocket(address, files.certified) as client:
            assert (await client.connect("tablet")).reason_code == 0
            assert await client.ask(SHARED) == SubackPacket(1, (0,))


@pytest.mark.parametrize("with_authority", [False, True])
async def test_users_prove_by_passwords_over_tls_and_share_topics(store, files, with_authority):
    authority = ("--tls-ca", str(files.ca)) if with_authority else ()
    async with run_command(store, *files.tls, *authority, "--users", str(files.users)) as address:
        async with TlsSocket(address, files.trusting) as client:
            given = ConnectPacket("tablet", user_name="ann", password=b"secret")
            assert (await client.ask(given)).reason_code == 0
            assert await client.ask(SHARED) == SubackPacket(1, (0,))
        async with TlsSocket(address, files.trusting) as client:
            assert (await client.connect("tablet")).reason_code != 0


@pytest.mark.parametrize("names", [("a", "a-leader", "a-member"), ("a", "a-leader")])
async def test_leader_host_and_members_of_a_node_have_the_names_that_the_page_says(store, tmp_path, names):
    files = NodeFiles(tmp_path, names)
    options = (*files.tls, "--tls-ca", str(files.ca), "--users", str(files.users), "--group-listen", "127.0.0.1:0")
    has_all = "a-member" in names
    refusal = "" if has_all else "says it is a-member, and its certificate is for a, a-leader; give it one for a-member"
    async with (
        run_command(store, *options, refusal=refusal) as address,
        TlsSocket(address, files.trusting) as client,
    ):
        given = ConnectPacket("tablet", user_name="ann", password=b"secret")
        assert (await client.ask(given)).reason_code == 0
        assert await client.ask(SHARED) == SubackPacket(1, (0,))
        if has_all:
            client.send(PublishPacket("jobs/1", b"the fence", 1, packet_id=7))
            assert {type(await client.read()) for _ in range(2)} == {PubackPacket, PublishPacket}


async def test_a_tls_client_at_a_listener_without_tls_is_named_in_the_log(store, caplog, contexts):
    """Once a minute, as every other client that is cut off."""
    async with mqtt_node(store) as node:
        for _ in range(3):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection(*node.address, ssl=contexts[1])
    (line,) = [one.message for one in caplog.records if "was cut off" in one.message]
    assert "it begins with a TLS handshake, and this listener has no TLS; give the node --tls-cert" in line

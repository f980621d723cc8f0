"""What clients do that costs a node much, or that it must not answer: it stays up for others, and says one line.

TLS handshakes of strangers are bounded in number and in time, and keep nobody out.

A node that is attacked stays up for others, in bounded memory, and with few lines in its log.
"""

import asyncio
import contextlib
import random
import resource
import socket
import ssl
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import trustme
from exchanges import MqttSocket, mqtt_node, open_scene
from mqtt_attacks import ATTACKS
from waiting import run_async, turns, until_async
from websockets.asyncio.client import connect

from statemachines.drivers import password_file
from statemachines.drivers.mqtt_connections import MqttNode, PasswordFile, mqtt_session
from statemachines.drivers.mqtt_connections import mqtt_node as listener
from statemachines.drivers.mqtt_connections.client_stream import PACKETS_MAX
from statemachines.drivers.mqtt_connections.mqtt_node import ACCEPTED_MAX
from statemachines.drivers.password_file import hash_password
from statemachines.drivers.payload_buffer import UnfinishedFrames
from statemachines.drivers.persistent_sessions import SessionNode, route_rows
from statemachines.drivers.persistent_sessions import store as store_module
from statemachines.drivers.persistent_sessions.route_rows import FrontSubscribed
from statemachines.kernel import ConfigurationError
from statemachines.mqtt_codec import (
    ConnackPacket,
    ConnectPacket,
    Decoder,
    PingreqPacket,
    PingrespPacket,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    encode,
)
from statemachines.mqtt_connections.connection_record import MqttSettings
from statemachines.mqtt_connections.takeover_limit import CLIENTS_MAX, PERIOD_NS, TAKEOVERS_MAX, TakeoverLimit
from statemachines.persistent_sessions.message import Farewell, Refused


async def test_MQ_246_a_packet_that_is_not_ended_is_cut_off(tmp_path, caplog):
    async with open_scene(tmp_path, log=caplog.records) as scene:
        await scene.play("c PINGREQ")
        scene.nodes["a"]._unfinished = (UnfinishedFrames(sum_max=10), UnfinishedFrames(limit_s=0.05))
        await scene.play("s stranger 10 7f {00*100} -> ends", "log 1 all of them have more than 10 bytes")
        await scene.play("d CONNECT", "d raw c0 -> ends")


async def test_MQ_196_many_messages_at_once_are_handled_in_many_turns_of_the_loop(tmp_path):
    clients, messages = 16, 400
    async with open_scene(tmp_path) as scene:
        await scene.play(f"c{{1..{clients}}} CONNECT")
        node, sockets, counts = scene.nodes["a"], scene.clients.values(), [0]

        async def count_turns():
            while True:
                counts.append(sum(stream.received for stream, _ in node._clients.values()))
                await turns()

        counting = asyncio.ensure_future(count_turns())
        data = encode(PublishPacket("t/1", b"x"), 5) * messages + encode(PingreqPacket(), 5)
        for one in sockets:
            one.writer.write(data)
        for one in sockets:
            assert await one.read() == PingrespPacket()
        counting.cancel()
        assert counts[-1] == clients * (messages + 2)
        assert max(later - earlier for earlier, later in pairwise(counts[1:])) <= PACKETS_MAX


async def guess(users, name, address, count):
    """So many passwords that wait; they are wrong once this is cancelled."""
    guesses = [asyncio.ensure_future(users.check_password(name, b"guess", address)) for _ in range(count)]
    await turns()
    return guesses


@contextlib.asynccontextmanager
async def held_turns(users):
    """No password is verified meanwhile."""
    for _ in range(password_file.VERIFIED_AT_ONCE):
        await users._turn.acquire()
    yield
    for _ in range(password_file.VERIFIED_AT_ONCE):
        users._turn.release()


ANN = "user_name=ann password=secret"


async def test_MQ_194_who_was_right_before_is_let_in_while_guesses_fill_all_places(tmp_path, monkeypatch):
    monkeypatch.setattr(mqtt_session, "REFUSED_S", 0.01)
    async with open_scene(tmp_path) as scene:
        await scene.play("users ann:secret", f"c CONNECT {ANN}; leaves")
        users = scene.given["users"]
        async with held_turns(users):
            guesses = [one for name in "abcdef" for one in await guess(users, name, name, 32)]
            assert users.is_busy("ann", "127.0.0.1")
            await scene.play(f"c CONNECT {ANN}", "d CONNECT user_name=ann password=guess -> ends")
            await scene.play("users ann:other", "c ends 0x87", f"d CONNECT {ANN} -> ends")
            for one in guesses:
                one.cancel()
            await asyncio.gather(*guesses, return_exceptions=True)
        assert not users.is_busy("ann")
        assert await users.check_password("ann", b"other")
        assert not await users.check_password("ann", b"secret")


async def test_MQ_195_guesses_at_one_user_or_from_one_address_leave_places_for_others(tmp_path):
    async with open_scene(tmp_path) as scene:
        await scene.play("users ann:secret")
        users = scene.given["users"]
        async with held_turns(users):
            guesses = await guess(users, "bob", "a", 100)
            assert users.is_busy("bob", "b")
            assert not users.is_busy("ann", "a")
            guesses += await guess(users, "cid", "a", 100)
            assert users.is_busy("ann", "a")
            assert not users.is_busy("ann", "b")
            right = asyncio.ensure_future(users.check_password("ann", b"secret", "b"))
            await turns()
            for one in guesses:
                one.cancel()
            await asyncio.gather(*guesses, return_exceptions=True)
        assert await right
        assert not users._waiting


def test_MQ_124_takeovers_of_one_client_id_are_counted_for_a_period():
    limit = TakeoverLimit()
    for now_ns in range(TAKEOVERS_MAX):
        assert not limit.is_reached("c", now_ns)
        limit.note_takeover("c", now_ns)
    assert [limit.is_reached(*one) for one in (("c", PERIOD_NS - 1), ("c", PERIOD_NS), ("d", 0))] == [
        True,
        False,
        False,
    ]
    limit.note_takeover("c", PERIOD_NS)
    assert not limit.is_reached("c", PERIOD_NS)
    for number in range(CLIENTS_MAX):
        limit.note_takeover(str(number), number)
    assert len(limit._counts) == CLIENTS_MAX


async def test_a_session_that_ends_while_its_options_are_looked_up_is_told_by_its_farewell(tmp_path):
    """The node refuses the look-up, which has no number of a change."""
    async with open_scene(tmp_path) as scene:
        await scene.play("c PINGREQ")
        ((_, session),) = scene.nodes["a"]._clients.values()
        session.take_message(Refused(0, "no session is connected here"))
        await scene.play("c SUBSCRIBE t")
        session.take_message(Farewell("discarded"))
        await scene.play("c ends 0x8e")


async def test_MQ_181_many_connections_at_once_do_not_keep_clients_waiting(store):
    async with mqtt_node(store) as node, contextlib.AsyncExitStack() as stack:
        count = 3 * ACCEPTED_MAX
        for _ in range(count):  # the kernel completes them, and the loop does not turn meanwhile
            stack.enter_context(socket.create_connection(node.address))
        counts = [0]
        while counts[-1] < count:
            await turns()
            counts.append(node.connection_count)
        assert max(after - before for before, after in pairwise(counts)) <= ACCEPTED_MAX


async def test_MQ_125_of_messages_that_are_stored_together_those_that_are_accepted_are_retained(tmp_path, monkeypatch):
    monkeypatch.setattr(route_rows, "RETAINED_MAX", 3)
    async with open_scene(tmp_path) as scene:
        await scene.play("c + PUBLISH t/{1..6} x retain", "c PUBLISH t/7 x retain -> later")
        answers = [await scene.clients["c"].read() for _ in range(7)]
        kept = sorted(one.packet_id for one in answers if one.reason_code == 0x10)
        assert [one.reason_code for one in answers].count(0x97) == 4
        await scene.play("d SUBSCRIBE t/+:0")
        assert sorted([(await scene.clients["d"].read()).topic for _ in range(3)]) == [f"t/{one}" for one in kept]


@pytest.mark.parametrize("line", ["ann", "ann:secret", "ann:$7$x$eA==$eA==", ":$7$1$eA==$eA==", "ann:$7$1$?$eA=="])
def test_a_line_that_is_none_is_named(tmp_path, line):
    path = tmp_path / "users"
    path.touch(0o600)
    path.write_text(f"# people\n{line}\n")
    with pytest.raises(ConfigurationError, match=r"line 2.*mosquitto_passwd"):
        PasswordFile(path)


async def test_a_refused_filter_is_unknown_and_so_many_of_one_packet_are_looked_at(tmp_path):
    """What a client may not have takes no memory, however often it asks."""
    async with open_scene(tmp_path) as scene:
        many = " ".join(f"f/{number}:0" for number in range(1_001))
        await scene.play(f"c SUBSCRIBE {many} -> {'0 ' * 1_000} 0x97", "c SUBSCRIBE f/1000:0 -> 0x97")
        await scene.play("c UNSUBSCRIBE f/1000 f/0 -> 0x11 0; SUBSCRIBE f/1000:0")


def test_a_listener_beyond_loopback_needs_users_or_certificates(store):
    node = SessionNode(store, name="a")
    with pytest.raises(ConfigurationError, match="beyond loopback"):
        MqttNode(node, listen=("0.0.0.0", 1883))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    MqttNode(node, listen=("0.0.0.0", 1883), tls=context)


@pytest.mark.parametrize("qos", [0, 1])
async def test_MQ_244_filters_that_bring_many_retained_messages_wait_for_each_other(tmp_path, qos, monkeypatch):
    monkeypatch.setattr(mqtt_session, "RETAINED_A_SECOND", 20)
    monkeypatch.setattr(mqtt_session, "CHANGES_MAX", 1)
    async with open_scene(tmp_path) as scene:
        await scene.play("w PUBLISH r/{1..10} x retain -> 0x10", "c PINGREQ")
        begin, client = asyncio.get_running_loop().time(), scene.clients["c"]
        await scene.play(*[f"c SUBSCRIBE r/+:{qos} -> later"] * 3, "w PINGREQ")
        found = [await client.read() for _ in range(33)]
        assert asyncio.get_running_loop().time() - begin >= 0.9
        assert [one.packet_id for one in found if isinstance(one, SubackPacket)] == [1, 2, 3]
        topics = Counter(one.topic for one in found if isinstance(one, PublishPacket))
        assert topics == {f"r/{number}": 3 for number in range(1, 11)}


async def test_PS_675_a_subscription_that_brings_many_retained_messages_ends_the_transaction(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "RETAINED_MAX", 5)
    sizes = []
    carry_out = store_module.SessionStore.carry_out

    async def note(self, life, batch, requests):
        answers = await carry_out(self, life, batch, requests)
        sizes.append(sum(isinstance(one, FrontSubscribed) and bool(one.retained) for one in answers))
        return answers

    monkeypatch.setattr(store_module.SessionStore, "carry_out", note)
    async with open_scene(tmp_path) as scene:
        await scene.play("c PUBLISH r/{1..10} x retain -> 0x10", "c SUBSCRIBE r/1 r/2 r/+ r/# none +/3 +/# -> later")
        found = [await scene.clients["c"].read() for _ in range(34)]
        assert [one.reason_codes for one in found if isinstance(one, SubackPacket)] == [(1,) * 7]
        assert Counter(one.topic for one in found if isinstance(one, PublishPacket)) == {
            f"r/{number}": 3 + (number in (1, 2, 3)) for number in range(1, 11)
        }
    assert (sum(sizes), max(sizes) <= 3) == (6, True)


async def test_PS_675_a_subscription_reads_none_of_the_others(tmp_path, monkeypatch):
    monkeypatch.delattr(route_rows.ReadOptions, "answer")
    async with open_scene(tmp_path) as scene:
        await scene.play("c PUBLISH r/1 x retain -> 0x10", "c SUBSCRIBE r/+ retain_handling=1; < r/1 x retain")
        await scene.play("c SUBSCRIBE r/+ retain_handling=1; SUBSCRIBE r/+; < r/1 x retain")


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
        await until_async(lambda: not node._gate._open)


async def test_a_node_that_stops_ends_handshakes(store, contexts):
    async with mqtt_node(store, tls=contexts[0]) as node:
        reader, writer = await asyncio.open_connection(*node.address)
        await until_async(lambda: node._gate._open)
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


@pytest.mark.long
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


async def test_a_tls_client_at_a_listener_without_tls_is_named_in_the_log(store, caplog, contexts):
    """Once a minute, as every other client that is cut off."""
    async with mqtt_node(store) as node:
        for _ in range(3):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection(*node.address, ssl=contexts[1])
    (line,) = [one.message for one in caplog.records if "was cut off" in one.message]
    assert "it begins with a TLS handshake, and this listener has no TLS; give the node --tls-cert" in line


GROWTH_MIB = 150
"""An attack may leave a node no larger than by so much."""

LINES = 3
"""Lines in the log for each attack."""


@contextlib.asynccontextmanager
async def node_process(folder):
    """(address, process) of a node."""
    command = [sys.executable, "-m", "statemachines", "node", "mqtt", "--store", str(folder / "s.db"), "--name", "a"]
    command += ["--listen", "127.0.0.1:0", "--connect-timeout-s", "2", "--receive-maximum", "100"]
    with (folder / "a.log").open("w") as log:
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=log)
        try:
            line = await child.stdout.readline()
            host, _, port = line.decode().split()[-1].rpartition(":")
            yield (host, int(port)), child
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            await child.wait()


def read_rss_mib(pid):
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1_024


async def attack(folder, column):
    """What is wrong after each attack."""
    async with node_process(folder) as (address, child), MqttSocket(address) as good:
        await good.connect("good")
        wrong, lines = [], 0
        begin_mib = read_rss_mib(child.pid)
        for one in ATTACKS:
            found = await one[0](address, one[column])
            if await good.ask(PingreqPacket()) != PingrespPacket():
                found.append("others are not served any more")
            before, lines = lines, len((folder / "a.log").read_text().splitlines())
            if lines - before > LINES:
                found.append(f"{lines - before} lines in the log")
            growth = read_rss_mib(child.pid) - begin_mib
            if growth > GROWTH_MIB:
                found.append(f"{growth:.0f} MiB more")
            wrong += [f"{one[0].__name__}: {what}" for what in found]
        child.terminate()
        assert await child.wait() == 0
    return wrong


@pytest.mark.long
@pytest.mark.parametrize("column", [1, pytest.param(2, marks=pytest.mark.long)], ids=["few", "many"])
def test_a_node_under_attack_serves_others_in_bounded_memory(tmp_path, column):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    try:
        wrong = run_async(attack(tmp_path, column), hangs=15)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert wrong == []


async def test_random_bytes_end_their_connection_alone_and_are_one_line_in_the_log(store, caplog):
    chance = random.Random(7)
    whole = encode(ConnectPacket("x"), 5) + encode(SubscribePacket(1, (TopicSubscription("t"),)), 5)
    async with mqtt_node(store) as node, MqttSocket(node.address) as good:
        await good.connect("good")
        for _ in range(100):
            data = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            async with MqttSocket(node.address) as bad:
                bad.writer.write(bytes(data))
                bad.writer.write_eof()
                await bad.reader.read()
        assert await good.ask(PingreqPacket()) == PingrespPacket()
    assert len([one for one in caplog.records if "was cut off" in one.message]) == 1
    assert not [one for one in caplog.records if one.exc_info]

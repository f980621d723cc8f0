"""What clients send that they must not: the node stays up for others, and says one line."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections import Counter
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest
from mqtt_socket import MqttSocket, mqtt_node, run
from msgspec.structs import replace

from statemachines.drivers import password_file
from statemachines.drivers.mqtt_connections import MqttNode, MqttSettings, PasswordFile, mqtt_session, packet_budget
from statemachines.drivers.mqtt_connections import mqtt_node as module
from statemachines.drivers.mqtt_connections.client_stream import ALIASED_MAX
from statemachines.drivers.mqtt_connections.mqtt_node import ACCEPTED_MAX
from statemachines.drivers.mqtt_connections.packet_budget import PACKETS_MAX
from statemachines.drivers.password_file import hash_password
from statemachines.drivers.permission_file import PermissionFile
from statemachines.drivers.persistent_sessions import SessionNode, host_requests, retained_rows
from statemachines.drivers.persistent_sessions import store as store_module
from statemachines.drivers.persistent_sessions.host_request import FrontSubscribed
from statemachines.drivers.unfinished_frames import UnfinishedFrames
from statemachines.kernel import ConfigurationError
from statemachines.mqtt_codec import (
    ConnectPacket,
    DisconnectPacket,
    PacketProperties,
    PingreqPacket,
    PingrespPacket,
    PubackPacket,
    PubcompPacket,
    PublishPacket,
    PubrecPacket,
    PubrelPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    UnsubackPacket,
    UnsubscribePacket,
    encode,
)
from statemachines.mqtt_codec.packet import WillMessage
from statemachines.mqtt_connections.connection_record import CONNECTED
from statemachines.mqtt_connections.takeover_limit import CLIENTS_MAX, PERIOD_NS, TAKEOVERS_MAX, TakeoverLimit
from statemachines.persistent_sessions.message import Farewell, Refused


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        (b"\x82\x05\x00\x01\x00\x00\x00", 0x81),
        (b"\x30\xff\xff\x7f", 0x95),
        (encode(PublishPacket("t", b"", 1, packet_id=1), 5).replace(b"t", b"#"), 0x90),
        (b"\xf0\x00", 0x82),
        (b"\x36\x05\x00\x01t\x00\x01", 0x81),
    ],
)
async def test_a_violation_is_answered_by_its_reason_code_and_the_node_stays_up(store, packet, code, caplog):
    async with mqtt_node(store) as node, MqttSocket(node.address) as good, MqttSocket(node.address) as bad:
        await good.connect("good")
        await bad.connect("bad")
        bad.writer.write(packet)
        assert await bad.read() == DisconnectPacket(code)
        assert await bad.read() is None
        assert await good.ask(PingreqPacket()) == PingrespPacket()
    assert len([one for one in caplog.records if "was cut off" in one.message]) <= 1


@pytest.mark.parametrize("version", [4, 5])
async def test_MQ_171_an_acknowledgement_of_another_kind_and_a_second_connect_end_the_connection_unsaid(
    store, version, caplog
):
    async with mqtt_node(store) as node, MqttSocket(node.address) as good:
        await good.connect("good")
        for answer in (PubcompPacket, PubrecPacket):
            async with MqttSocket(node.address, version) as bad:
                await bad.connect("bad")
                assert await bad.ask(SubscribePacket(1, (TopicSubscription("t", 1),))) == SubackPacket(1, (1,))
                assert await good.ask(PublishPacket("t", b"x", 1, packet_id=1)) == PubackPacket(1)
                packet = await bad.read()
                assert await bad.ask(answer(packet.packet_id)) is None
        async with MqttSocket(node.address, version) as bad:
            await bad.connect("bad")
            assert await bad.ask(ConnectPacket("bad", bad.version)) is None
        assert await good.ask(PingreqPacket()) == PingrespPacket()
    assert len([one for one in caplog.records if "was cut off: a packet came that may not" in one.message]) == 1


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


async def test_MQ_07_a_client_that_never_says_connect_is_closed(store):
    async with (
        mqtt_node(store, settings=MqttSettings(connect_timeout_s=1)) as node,
        MqttSocket(node.address) as slow,
    ):
        slow.writer.write(encode(ConnectPacket("slow"), 5)[:5])
        assert await slow.read() is None


async def test_MQ_246_a_packet_that_is_not_ended_is_cut_off(store, caplog):
    async with mqtt_node(store) as node:
        node._unfinished = (UnfinishedFrames(sum_max=10), UnfinishedFrames(limit_s=0.05))
        async with MqttSocket(node.address) as stranger, MqttSocket(node.address) as client:
            stranger.writer.write(encode(ConnectPacket("c" * 20), 5)[:-1])
            assert await stranger.read() is None
            assert "all of them have more than 10 bytes" in caplog.text
            await client.connect()
            client.writer.write(encode(PingreqPacket(), 5)[:-1])
            assert await client.read() is None


async def test_a_connect_that_is_too_long_is_not_read(store):
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        client.writer.write(b"\x10\xff\xff\x3f" + bytes(1_000))
        assert await client.read() is None
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        await client.connect()
        assert await client.ask(PublishPacket("t", bytes(2**19), 1, packet_id=1)) == PubackPacket(1, 0x10)


async def test_beyond_the_bound_of_those_before_connect_the_one_that_waits_longest_is_turned_away(
    store, monkeypatch, caplog
):
    monkeypatch.setattr(module, "CONNECTING_MAX", 3)
    async with mqtt_node(store) as node:
        silent = [await MqttSocket(node.address).__aenter__() for _ in range(3)]
        async with MqttSocket(node.address) as one:
            assert (await one.connect()).reason_code == 0
        with contextlib.suppress(ConnectionError):
            assert await silent[0].ask(ConnectPacket("0")) is None
        for number, each in enumerate(silent[1:]):
            await each.connect(str(number))
        async with MqttSocket(node.address) as one:
            assert (await one.connect()).reason_code == 0
        for each in silent:
            await each.__aexit__()
    assert "one is turned away" in caplog.text


async def test_an_answer_of_the_wrong_kind_ends_the_connection_and_the_message_comes_again(store):
    async with mqtt_node(store) as node:
        async with MqttSocket(node.address, 4) as client:
            await client.connect(clean_start=False)
            await client.ask(SubscribePacket(1, (TopicSubscription("t", 1),)))
            client.send(PublishPacket("t", b"1", 1, packet_id=1))
            found = {type(one): one for one in (await client.read(), await client.read())}
            assert found[PubackPacket] == PubackPacket(1)
            client.send(PubrecPacket(found[PublishPacket].packet_id))
            assert await client.read() is None
        async with MqttSocket(node.address, 4) as client:
            assert (await client.connect(clean_start=False)).session_present
            again = await client.read()
            assert (again.payload, again.dup) == (b"1", True)


async def test_PS_774_a_user_who_takes_the_client_id_of_another_gets_and_ends_none_of_its_messages(store, tmp_path):
    users, permissions = tmp_path / "users", tmp_path / "permissions"
    users.touch(0o600)
    users.write_text(hash_password("ann", "1") + "\n" + hash_password("eve", "2") + "\n")
    permissions.write_text("* connect *\n* publish #\n* subscribe public/#\nann subscribe secret/#\n")
    rights = {"authorize": PermissionFile(permissions)}
    async with mqtt_node(store, users=PasswordFile(users), node_options=rights) as node:
        kept = {"clean_start": False, "properties": PacketProperties(session_expiry=100)}
        ann = {"user_name": "ann", "password": b"1", **kept}
        eve = {"user_name": "eve", "password": b"2", **kept}
        async with MqttSocket(node.address) as client:
            await client.connect("tablet", **ann)
            filters = (TopicSubscription("public/#", 1), TopicSubscription("secret/#", 1))
            await client.ask(SubscribePacket(1, filters))
        async with MqttSocket(node.address) as client:
            await client.connect("writer", **eve)
            await client.ask(PublishPacket("secret/a", b"1", 1, packet_id=1))
        async with MqttSocket(node.address) as client:
            assert (await client.connect("tablet", **eve)).reason_code == 0x87
        async with MqttSocket(node.address) as client:
            assert (await client.connect("tablet", **ann)).session_present
            assert (await client.read()).payload == b"1"
            permissions.write_text("* connect *\n")
            node.reload()
            assert type(await client.read()) is DisconnectPacket


async def test_users_of_a_file_connect_and_nobody_else(store, tmp_path, monkeypatch):
    monkeypatch.setattr(mqtt_session, "REFUSED_S", 0.01)
    path = tmp_path / "users"
    path.touch(0o600)
    path.write_text(hash_password("ann", "secret") + "\n")
    users = PasswordFile(path)
    async with mqtt_node(store, users=users) as node:
        for given, code in [
            ({}, 0x87),
            ({"user_name": "ann", "password": b"wrong"}, 0x87),
            ({"user_name": "bob", "password": b"secret"}, 0x87),
            ({"user_name": "ann", "password": b"secret"}, 0),
        ]:
            async with MqttSocket(node.address) as client:
                assert (await client.connect(**given)).reason_code == code
        path.write_text(hash_password("bob", "secret"))
        users.reload()
        async with MqttSocket(node.address) as client:
            assert (await client.connect(user_name="bob", password=b"secret")).reason_code == 0


async def test_MQ_223_a_client_whose_user_is_gone_or_has_another_password_is_disconnected(store, tmp_path):
    path = tmp_path / "users"
    path.touch(0o600)
    lines = {name: hash_password(name, "secret") + "\n" for name in ("ann", "bob", "cat")}
    path.write_text("".join(lines.values()))
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(mqtt_node(store, users=PasswordFile(path), allows_anonymous=True))
        clients = {}
        for name in (*lines, ""):
            clients[name] = client = await stack.enter_async_context(MqttSocket(node.address))
            given = {"user_name": name, "password": b"secret"} if name else {}
            assert (await client.connect(f"c-{name}", **given)).reason_code == 0
        path.write_text("".join(lines.values())[:-40])
        node.reload()
        path.write_text(lines["ann"] + hash_password("bob", "other"))
        for client in clients.values():
            assert await client.ask(PingreqPacket()) == PingrespPacket()
        node.reload()
        for name in ("bob", "cat"):
            assert await clients[name].read() == DisconnectPacket(0x87)
        for name in ("ann", ""):
            assert await clients[name].ask(PingreqPacket()) == PingrespPacket()


async def test_a_wrong_password_is_answered_late_and_keeps_nobody_out(store, tmp_path, monkeypatch):
    monkeypatch.setattr(mqtt_session, "REFUSED_S", 3_600.0)
    path = tmp_path / "users"
    path.touch(0o600)
    path.write_text(hash_password("ann", "secret") + "\n")
    options = {"users": PasswordFile(path), "settings": MqttSettings(connect_timeout_s=3_600)}
    async with mqtt_node(store, **options) as node, AsyncExitStack() as stack:
        guessing = [await stack.enter_async_context(MqttSocket(node.address)) for _ in range(20)]
        for number, one in enumerate(guessing):
            one.send(ConnectPacket("g", user_name="ann", password=b"guess %d" % number))
        for _ in range(3):
            async with MqttSocket(node.address) as client:
                assert (await client.connect(user_name="ann", password=b"secret")).reason_code == 0
        assert not any(one.reader._buffer or one.reader.at_eof() for one in guessing)


def test_MQ_190_guesses_and_takeovers_have_one_line_in_the_log(store, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(mqtt_session, "REFUSED_S", 0.01)
    path = tmp_path / "users"
    path.touch(0o600)
    path.write_text(hash_password("ann", "secret") + "\n")

    async def guess():
        async with mqtt_node(store, users=PasswordFile(path)) as node:
            for number in range(3):
                async with MqttSocket(node.address) as client:
                    answer = await client.connect(user_name="ann", password=b"guess %d" % number)
                    assert answer.reason_code == 0x87

    async def take_over():
        async with mqtt_node(store) as node, AsyncExitStack() as stack:
            codes = []
            for _ in range(14):
                client = await stack.enter_async_context(MqttSocket(node.address))
                codes.append((await client.connect("x")).reason_code)
            assert set(codes[-3:]) == {0x97}

    for attack, why in ((guess, "its user name or password is wrong"), (take_over, "take each other over")):
        caplog.clear()
        run(attack())
        (line,) = [one.message for one in caplog.records if "was cut off" in one.message]
        assert why in line
        assert "guess" not in line


async def test_MQ_174_a_client_whose_password_is_not_verified_is_closed_and_connects_again(
    store, tmp_path, monkeypatch
):
    monkeypatch.setattr(mqtt_session, "REFUSED_S", 0.01)
    path = tmp_path / "users"
    path.touch(0o600)
    path.write_text(hash_password("ann", "secret") + "\n")
    async with mqtt_node(store, users=PasswordFile(path)) as node:
        with monkeypatch.context() as patch:
            patch.setattr(password_file, "WAITING_MAX", 0)
            async with MqttSocket(node.address) as client:
                client.send(ConnectPacket("c", user_name="ann", password=b"secret"))
                assert await client.reader.read() == b""
        async with MqttSocket(node.address) as client:
            assert (await client.connect(user_name="ann", password=b"secret")).reason_code == 0


async def test_MQ_196_many_messages_at_once_are_handled_in_many_turns_of_the_loop(store):
    clients, messages = 16, 400
    async with mqtt_node(store) as node, AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(MqttSocket(node.address)) for _ in range(clients)]
        for number, one in enumerate(sockets):
            await one.connect(f"c{number}")
        counts = [0]

        async def count_turns():
            while True:
                counts.append(sum(stream.received for stream, _ in node._clients.values()))
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count_turns())
        data = encode(PublishPacket("t/1", b"x"), 5) * messages + encode(PingreqPacket(), 5)
        for one in sockets:
            one.writer.write(data)
        for one in sockets:
            assert await one.read() == PingrespPacket()
        counting.cancel()
        assert counts[-1] == clients * (messages + 2)
        assert max(later - earlier for earlier, later in pairwise(counts[1:])) <= PACKETS_MAX


async def test_a_client_that_waits_for_its_turn_and_goes_takes_none(monkeypatch):
    monkeypatch.setattr(packet_budget, "PACKETS_MAX", packet_budget.SHARE_MAX)
    budget = packet_budget.PacketBudget()
    assert budget.count_left() == 50
    budget.take(49)
    assert budget.count_left() == 1
    budget.take(1)
    assert budget.count_left() == 0
    gone, there, later = (asyncio.ensure_future(budget.wait_for_share()) for _ in range(3))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    assert budget.count_left() == 0, "others wait"
    assert await there == 50
    assert not later.done()
    assert await later == 50
    await asyncio.sleep(0)
    assert budget.count_left() == 50


async def guess(users, name, address, count):
    """So many passwords that wait; they are wrong once this is cancelled."""
    guesses = [asyncio.ensure_future(users.check_password(name, b"guess", address)) for _ in range(count)]
    await asyncio.sleep(0)
    return guesses


@contextlib.asynccontextmanager
async def held_turns(users):
    """No password is verified meanwhile."""
    for _ in range(password_file.VERIFIED_AT_ONCE):
        await users._turn.acquire()
    yield
    for _ in range(password_file.VERIFIED_AT_ONCE):
        users._turn.release()


async def test_MQ_194_who_was_right_before_is_let_in_while_guesses_fill_all_places(store, tmp_path, monkeypatch):
    monkeypatch.setattr(mqtt_session, "REFUSED_S", 0.01)
    path = tmp_path / "users"
    path.touch(0o600)
    path.write_text(hash_password("ann", "secret") + "\n")
    users = PasswordFile(path)
    async with mqtt_node(store, users=users) as node:
        async with MqttSocket(node.address) as client:
            assert (await client.connect(user_name="ann", password=b"secret")).reason_code == 0
        async with held_turns(users):
            guesses = [one for name in "abcdef" for one in await guess(users, name, name, 32)]
            assert users.is_busy("ann", "127.0.0.1")
            async with MqttSocket(node.address) as client:
                assert (await client.connect(user_name="ann", password=b"secret")).reason_code == 0
            async with MqttSocket(node.address) as client:
                client.send(ConnectPacket("c", user_name="ann", password=b"guess"))
                assert await client.reader.read() == b""
            path.write_text(hash_password("ann", "other") + "\n")
            assert users.reload()
            async with MqttSocket(node.address) as client:
                client.send(ConnectPacket("c", user_name="ann", password=b"secret"))
                assert await client.reader.read() == b""
            for one in guesses:
                one.cancel()
            await asyncio.gather(*guesses, return_exceptions=True)
        assert not users.is_busy("ann")
        assert await users.check_password("ann", b"other")
        assert not await users.check_password("ann", b"secret")


async def test_MQ_195_guesses_at_one_user_or_from_one_address_leave_places_for_others(tmp_path):
    path = tmp_path / "users"
    path.touch(0o600)
    path.write_text(hash_password("ann", "secret") + "\n")
    users = PasswordFile(path)
    async with held_turns(users):
        guesses = await guess(users, "bob", "a", 100)
        assert users.is_busy("bob", "b")
        assert not users.is_busy("ann", "a")
        guesses += await guess(users, "cid", "a", 100)
        assert users.is_busy("ann", "a")
        assert not users.is_busy("ann", "b")
        right = asyncio.ensure_future(users.check_password("ann", b"secret", "b"))
        await asyncio.sleep(0)
        for one in guesses:
            one.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)
    assert await right
    assert not users._waiting


@pytest.mark.parametrize(("version", "code"), [(4, 2), (5, 0x80)])
async def test_MQ_175_a_node_that_assigns_no_client_ids_refuses_an_empty_one(store, version, code):
    async with mqtt_node(store, settings=MqttSettings(assigns_client_ids=False)) as node:
        for client_id, wanted in [("", code), ("c", 0)]:
            async with MqttSocket(node.address, version) as client:
                assert (await client.connect(client_id)).reason_code == wanted


async def test_MQ_176_clients_publish_nothing_below_sys_but_the_state_of_a_bridge(store):
    async with mqtt_node(store) as node:
        for topic, acknowledged, accepted in [
            ("$SYS/broker/connection/me/state", 0x10, 0),
            ("$SYS/broker/connection/me", 0x87, 0x90),
            ("$SYS/brokers/a/version", 0x87, 0x90),
            ("$share/group/t", 0x87, 0x90),
        ]:
            async with MqttSocket(node.address) as client:
                assert (await client.connect("w", will=WillMessage(topic, b"0"))).reason_code == accepted
            async with MqttSocket(node.address) as client:
                await client.connect("c")
                puback = await client.ask(PublishPacket(topic, b"1", 1, packet_id=1))
                assert puback.reason_code == acknowledged


async def test_PS_450_an_mqtt_client_does_what_it_may_and_its_will_too(store, tmp_path):
    path = tmp_path / "rights"
    path.write_text("ann connect tablet\n* subscribe a/#\n* publish a/{client}/#\n")
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text(hash_password("ann", "secret"))
    ann = {"user_name": "ann", "password": b"secret"}
    async with (
        SessionNode(store, name="a", authorize=PermissionFile(path)) as sessions,
        MqttNode(sessions, listen=("127.0.0.1", 0), users=PasswordFile(users), allows_anonymous=True) as node,
    ):
        for given, client_id, code in [(ann, "other", 0x87), ({}, "tablet", 0x87), (ann, "tablet", 0)]:
            async with MqttSocket(node.address) as client:
                assert (await client.connect(client_id=client_id, **given)).reason_code == code
        async with MqttSocket(node.address) as client:
            await client.connect(client_id="tablet", **ann)
            wanted = SubscribePacket(1, (TopicSubscription("#", 1), TopicSubscription("a/+", 1)))
            assert (await client.ask(wanted)).reason_codes == (0x87, 1)
            for topic, code in [("a/other/x", 0x87), ("a/tablet/x", 0x10)]:
                client.send(PublishPacket(topic, b"", 1, packet_id=2))
                assert (await client.read()).reason_code == code
        before = sessions.authority.refused
        async with MqttSocket(node.address) as client:
            await client.connect(client_id="tablet", will=WillMessage("b", b"gone"), **ann)
        while sessions.authority.refused == before:
            await asyncio.sleep(0.01)


async def test_PS_526_a_retained_message_is_not_sent_when_its_publisher_may_not_publish_it_any_more(store, tmp_path):
    path = tmp_path / "rights"
    path.write_text("* connect *\n* subscribe #\n* publish #\n")
    rights = PermissionFile(path)
    async with mqtt_node(store, node_options={"authorize": rights}) as node, MqttSocket(node.address) as watcher:
        await watcher.connect("w")
        await watcher.ask(SubscribePacket(1, (TopicSubscription("t/will", 0),)))
        async with MqttSocket(node.address) as client:
            await client.connect("c", will=WillMessage("t/will", b"w", retain=True))
            for topic in ("t/kept", "t/taken"):
                assert (await client.ask(PublishPacket(topic, b"x", 1, True, packet_id=1))).reason_code == 0x10
        assert (await watcher.read()).payload == b"w"
        path.write_text("* connect *\n* subscribe #\n* publish t/kept\n")
        rights.reload()
        async with MqttSocket(node.address) as reader:
            await reader.connect("r")
            await reader.ask(SubscribePacket(1, (TopicSubscription("t/+", 1),)))
            found = await reader.read()
            assert (found.topic, found.properties) == ("t/kept", PacketProperties())
            reader.send(PingreqPacket())
            assert await reader.read() == PingrespPacket()


async def test_MQ_124_clients_of_one_id_that_take_each_other_over_without_end_are_refused_late(store, monkeypatch):
    limit = TakeoverLimit()
    for now_ns in range(TAKEOVERS_MAX):
        assert not limit.is_reached("c", now_ns)
        limit.note_takeover("c", now_ns)
    assert limit.is_reached("c", PERIOD_NS - 1)
    assert not limit.is_reached("c", PERIOD_NS)
    assert not limit.is_reached("d", 0)
    limit.note_takeover("c", PERIOD_NS)
    assert not limit.is_reached("c", PERIOD_NS)
    for number in range(CLIENTS_MAX):
        limit.note_takeover(str(number), number)
    assert len(limit._counts) == CLIENTS_MAX

    monkeypatch.setattr(mqtt_session, "REFUSED_S", 0.1)
    async with mqtt_node(store) as node, contextlib.AsyncExitStack() as stack:
        older = None
        for code in [0] * (TAKEOVERS_MAX + 1) + [0x97]:
            client = await stack.enter_async_context(MqttSocket(node.address))
            assert (await client.connect("c", properties=PacketProperties(session_expiry=9))).reason_code == code
            if older is not None and not code:
                assert await older.read() == DisconnectPacket(0x8E)
            older = client
        other = await stack.enter_async_context(MqttSocket(node.address))
        assert (await other.connect("d")).reason_code == 0


@pytest.mark.parametrize("expiry", [0, 9])
async def test_MQ_182_a_connection_that_a_fresh_session_replaces_ends_before_CONNACK_and_counts(
    store, monkeypatch, expiry
):
    monkeypatch.setattr(mqtt_session, "REFUSED_S", 0.1)
    async with mqtt_node(store) as node, contextlib.AsyncExitStack() as stack:
        clients, codes = [], []
        for _ in range(TAKEOVERS_MAX + 3):
            clients.append(await stack.enter_async_context(MqttSocket(node.address)))
            kept = PacketProperties(session_expiry=expiry)
            codes.append((await clients[-1].connect("c", properties=kept)).reason_code)
            statuses = [stream.record.status for stream, _ in node._clients.values()]
            assert statuses.count(CONNECTED) == 1
        assert codes == [0] * (TAKEOVERS_MAX + 1) + [0x97] * 2
        for one in clients[:TAKEOVERS_MAX]:
            assert await one.read() == DisconnectPacket(0x8E)
        *_, live, _, _ = clients
        assert await live.ask(SubscribePacket(1, (TopicSubscription("t", 1),))) == SubackPacket(1, (1,))


async def test_a_session_that_ends_while_its_options_are_looked_up_is_told_by_its_farewell(store):
    """The node refuses the look-up, which has no number of a change."""
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        await client.connect("c")
        ((_, session),) = node._clients.values()
        session.take_message(Refused(0, "no session is connected here"))
        assert await client.ask(SubscribePacket(1, (TopicSubscription("t", 1),))) == SubackPacket(1, (1,))
        session.take_message(Farewell("discarded"))
        assert await client.read() == DisconnectPacket(0x8E)


async def test_MQ_181_many_connections_at_once_do_not_keep_clients_waiting(store):
    async with mqtt_node(store) as node, contextlib.AsyncExitStack() as stack:
        count = 3 * ACCEPTED_MAX
        for _ in range(count):  # the kernel completes them, and the loop does not turn meanwhile
            stack.enter_context(socket.create_connection(node.address))
        counts = [0]
        while counts[-1] < count:
            await asyncio.sleep(0)
            counts.append(node.connection_count)
        assert max(after - before for before, after in pairwise(counts)) <= ACCEPTED_MAX


async def test_MQ_220_the_topics_of_all_aliases_of_a_connection_are_bounded(store):
    """One alias that is bound anew stands for its last topic alone."""

    def bind(alias, letter, size):
        return PublishPacket(letter * size, b"", 1, packet_id=alias, properties=PacketProperties(topic_alias=alias))

    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        await client.connect()
        for letter in "abcd":
            assert await client.ask(bind(1, letter, ALIASED_MAX // 2)) == PubackPacket(1, 0x10)
        assert await client.ask(bind(2, "e", ALIASED_MAX // 2)) == PubackPacket(2, 0x10)
        assert await client.ask(bind(3, "f", 1)) == DisconnectPacket(0x97)
        assert await client.read() is None


async def test_MQ_221_a_filter_that_is_too_long_is_refused_alone(store):
    filters = ["a" * 1_024, "a" * 1_025, "ä" * 513, "b/" + "ä" * 511]
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        await client.connect()
        asked = SubscribePacket(1, tuple(TopicSubscription(one, 1) for one in filters))
        assert await client.ask(asked) == SubackPacket(1, (1, 0x8F, 0x8F, 1))


async def test_MQ_125_retained_messages_beyond_the_bound_are_refused(store, monkeypatch):
    monkeypatch.setattr(retained_rows, "RETAINED_MAX", 2)
    monkeypatch.setattr(retained_rows, "RETAINED_BYTES_MAX", 10_500)
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        await client.connect()
        steps = [("a", b"12345", 0x10), ("b", b"123456", 0x97), ("b", b"12", 0x10), ("c", b"1", 0x97)]
        steps += [("a", b"12345678", 0x10), ("b", b"123", 0x97), ("a", b"", 0x10), ("c", b"1", 0x10)]
        for topic, payload, code in steps:
            for qos in (1, 2):
                answer = await client.ask(PublishPacket(topic, payload * 1_000, qos, True, packet_id=qos))
                assert answer.reason_code == (code if qos == 1 or code >= 0x80 else 0), (topic, payload)
                if answer.reason_code < 0x80 and qos == 2:
                    assert await client.ask(PubrelPacket(2)) == PubcompPacket(2)
        assert await client.ask(SubscribePacket(1, (TopicSubscription("+", 0),))) == SubackPacket(1, (0,))
        assert sorted([len((await client.read()).payload) for _ in range(2)]) == [1_000, 2_000]


async def test_MQ_125_topics_and_properties_of_retained_messages_count(store, monkeypatch):
    monkeypatch.setattr(retained_rows, "RETAINED_BYTES_MAX", 10_500)
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        await client.connect()
        user = PacketProperties(user_properties=(("k", "v" * 9_000),))
        steps = [
            ("a" * 10_000, None, 0x10),
            ("b" * 1_000, None, 0x97),
            ("a" * 10_000, user, 0x97),
            ("b", user, 0x97),
        ]
        for topic, properties, code in steps:
            packet = PublishPacket(topic, b"1", 1, True, packet_id=1)
            asked = packet if properties is None else replace(packet, properties=properties)
            assert (await client.ask(asked)).reason_code == code, topic


async def test_PS_212_a_client_without_a_session_is_refused_where_the_store_is_full(store):
    """The others have theirs again."""
    async with mqtt_node(store, node_options={"max_sessions": 2}) as node:
        for name, code in (("one", 0), ("two", 0), ("three", 0x97), ("one", 0), ("four", 0x97)):
            async with MqttSocket(node.address) as client:
                kept = PacketProperties(session_expiry=100)
                connack = await client.connect(name, clean_start=False, properties=kept)
                assert connack.reason_code == code, name


async def test_MQ_125_of_messages_that_are_stored_together_those_that_are_accepted_are_retained(store, monkeypatch):
    monkeypatch.setattr(retained_rows, "RETAINED_MAX", 3)
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        await client.connect()
        for number in range(1, 8):
            client.send(PublishPacket(f"t/{number}", b"x", 1, True, packet_id=number))
        codes = [(await client.read()).reason_code for _ in range(1, 8)]
        assert codes.count(0x97) == 4
        assert await client.ask(SubscribePacket(9, (TopicSubscription("t/+", 0),))) == SubackPacket(9, (0,))
        for _ in range(3):
            assert isinstance(await client.read(), PublishPacket)
        assert await client.ask(PingreqPacket()) == PingrespPacket()


@pytest.mark.parametrize("line", ["ann", "ann:secret", "ann:$7$x$eA==$eA==", ":$7$1$eA==$eA==", "ann:$7$1$?$eA=="])
def test_a_line_that_is_none_is_named(tmp_path, line):
    path = tmp_path / "users"
    path.touch(0o600)
    path.write_text(f"# people\n{line}\n")
    with pytest.raises(ConfigurationError, match=r"line 2.*mosquitto_passwd"):
        PasswordFile(path)


async def test_a_refused_filter_is_unknown_and_so_many_of_one_packet_are_looked_at(store):
    """What a client may not have takes no memory, however often it asks."""
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        await client.connect()
        many = tuple(TopicSubscription(f"f/{number}") for number in range(1_001))
        assert await client.ask(SubscribePacket(1, many)) == SubackPacket(1, (*(0,) * 1_000, 0x97))
        assert await client.ask(SubscribePacket(2, many[-1:])) == SubackPacket(2, (0x97,))
        assert await client.ask(UnsubscribePacket(3, ("f/1000", "f/0"))) == UnsubackPacket(3, (0x11, 0))
        assert await client.ask(SubscribePacket(4, many[-1:])) == SubackPacket(4, (0,))


def test_a_listener_beyond_loopback_needs_users_or_certificates(store):
    node = SessionNode(store, name="a")
    with pytest.raises(ConfigurationError, match="beyond loopback"):
        MqttNode(node, listen=("0.0.0.0", 1883))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    MqttNode(node, listen=("0.0.0.0", 1883), tls=context)


async def retain(client, count):
    for number in range(1, count + 1):
        assert await client.ask(PublishPacket(f"r/{number}", b"x", 1, True, packet_id=number)) == PubackPacket(
            number, 0x10
        )


@pytest.mark.parametrize("qos", [0, 1])
async def test_MQ_244_filters_that_bring_many_retained_messages_wait_for_each_other(store, qos, monkeypatch):
    monkeypatch.setattr(mqtt_session, "RETAINED_A_SECOND", 20)
    monkeypatch.setattr(mqtt_session, "CHANGES_MAX", 1)
    async with mqtt_node(store) as node, MqttSocket(node.address) as greedy, MqttSocket(node.address) as other:
        await other.connect("other")
        await retain(other, 10)
        await greedy.connect("greedy")
        begin, found = asyncio.get_running_loop().time(), []
        for number in range(1, 4):
            greedy.send(SubscribePacket(number, (TopicSubscription("r/+", qos),)))
        assert await other.ask(PingreqPacket()) == PingrespPacket()
        while len(found) < 33:
            found.append(await greedy.read())
        assert asyncio.get_running_loop().time() - begin >= 0.9
        assert [one.packet_id for one in found if isinstance(one, SubackPacket)] == [1, 2, 3]
        topics = Counter(one.topic for one in found if isinstance(one, PublishPacket))
        assert topics == {f"r/{number}": 3 for number in range(1, 11)}


async def test_PS_675_a_subscription_that_brings_many_retained_messages_ends_the_transaction(store, monkeypatch):
    monkeypatch.setattr(store_module, "RETAINED_MAX", 5)
    sizes = []
    carry_out = store_module.SessionStore.carry_out

    async def note(self, life, batch, requests):
        answers = await carry_out(self, life, batch, requests)
        sizes.append(sum(isinstance(one, FrontSubscribed) and bool(one.retained) for one in answers))
        return answers

    monkeypatch.setattr(store_module.SessionStore, "carry_out", note)
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        await client.connect("greedy")
        await retain(client, 10)
        filters = ("r/1", "r/2", "r/+", "r/#", "none", "+/3", "+/#")
        client.send(SubscribePacket(1, tuple(TopicSubscription(one, 1) for one in filters)))
        found = [await client.read() for _ in range(34)]
        assert [one.reason_codes for one in found if isinstance(one, SubackPacket)] == [(1,) * 7]
        assert Counter(one.topic for one in found if isinstance(one, PublishPacket)) == {
            f"r/{number}": 3 + (number in (1, 2, 3)) for number in range(1, 11)
        }
    assert sum(sizes) == 6
    assert max(sizes) <= 3


async def test_PS_675_a_subscription_reads_none_of_the_others(store, monkeypatch):
    def fail(*given):
        raise AssertionError("all filters of the session are read")

    monkeypatch.setattr(host_requests, "read_options", fail)
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        await client.connect("c")
        await retain(client, 1)
        for number, handling in ((1, 1), (2, 1), (3, 0)):
            client.send(SubscribePacket(number, (TopicSubscription("r/+", 1, retain_handling=handling),)))
        found = [await client.read() for _ in range(5)]
        assert [one.topic for one in found if isinstance(one, PublishPacket)] == ["r/1", "r/1"]


async def test_MQ_245_a_client_without_a_session_is_refused_where_the_store_keeps_as_many_as_it_may(store):
    async with mqtt_node(store, node_options={"max_sessions": 1}) as node:
        for client_id, code in (("one", 0), ("two", 0x97), ("one", 0)):
            async with MqttSocket(node.address) as client:
                given = {"clean_start": False, "properties": PacketProperties(session_expiry=100)}
                assert (await client.connect(client_id, **given)).reason_code == code

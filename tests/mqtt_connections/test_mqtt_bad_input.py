"""What clients do that costs a node much, or that it must not answer: it stays up for others, and says one line."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections import Counter
from itertools import pairwise

import pytest
from exchanges import open_scene
from mqtt_socket import MqttSocket, mqtt_node

from statemachines.drivers import password_file
from statemachines.drivers.mqtt_connections import MqttNode, PasswordFile, mqtt_session, packet_budget
from statemachines.drivers.mqtt_connections.mqtt_node import ACCEPTED_MAX
from statemachines.drivers.mqtt_connections.packet_budget import PACKETS_MAX
from statemachines.drivers.persistent_sessions import SessionNode, host_requests, route_rows
from statemachines.drivers.persistent_sessions import store as store_module
from statemachines.drivers.persistent_sessions.route_rows import FrontSubscribed
from statemachines.drivers.unfinished_frames import UnfinishedFrames
from statemachines.kernel import ConfigurationError
from statemachines.mqtt_codec import (
    ConnectPacket,
    PingreqPacket,
    PingrespPacket,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    encode,
)
from statemachines.mqtt_connections.takeover_limit import CLIENTS_MAX, PERIOD_NS, TAKEOVERS_MAX, TakeoverLimit
from statemachines.persistent_sessions.message import Farewell, Refused


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
            await asyncio.sleep(0)
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
            await asyncio.sleep(0)
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
    monkeypatch.delattr(host_requests, "read_options")
    async with open_scene(tmp_path) as scene:
        await scene.play("c PUBLISH r/1 x retain -> 0x10", "c SUBSCRIBE r/+ retain_handling=1; < r/1 x retain")
        await scene.play("c SUBSCRIBE r/+ retain_handling=1; SUBSCRIBE r/+; < r/1 x retain")

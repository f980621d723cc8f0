"""MQTT clients of others keep their process while their node is killed or stands still: each message once, in order."""

from __future__ import annotations

import asyncio
import socket
from contextlib import nullcontext

import pytest
import trustme
from long_cases import mark_long
from mqtt_clients import PahoPublisher
from mqtt_judge import judge, list_repeats
from mqtt_subscribers import CLIENT_ID, WRITER_ID, ClientFiles, MosquittoSubscriber, Receipt
from run import run_seed

from statemachines.mqtt_codec import ConnackPacket, Decoder, PublishPacket, encode
from statemachines.testing.postgres import PostgresServer

RUNS = {
    # client and faults: faults, whether PostgreSQL is the store, whether by certificates
    "mosquitto3-kill-stop": (("kill", "stop"), False, False),
    "mosquitto5-kill": (("kill",), False, False),
    "paho3-kill": (("kill",), True, False),
    "paho5-stop": (("stop",), False, True),
    "aiomqtt5-kill": (("kill",), False, False),
}


def write_certificates(folder):
    """(client id -> its files, options of the nodes): one authority, and nobody without its certificate."""
    authority, found = trustme.CA(), {}
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name, more, unit in (("node", ("a", "b"), "node"), (CLIENT_ID, (), None), (WRITER_ID, (), None)):
        issued = authority.issue_cert(name, *more, "127.0.0.1", organization_unit_name=unit)
        cert, key = folder / f"{name}.cert", folder / f"{name}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        key.chmod(0o600)
        found[name] = ClientFiles(folder / "ca.pem", cert, key)
    ca, cert, key = map(str, found["node"])
    return found, ("--tls-ca", ca, "--tls-cert", cert, "--tls-key", key)


def run(folder, client, faults, on_postgres, by_certificate, nodes=2):
    files, options = write_certificates(folder) if by_certificate else ({}, ())
    with PostgresServer() if on_postgres else nullcontext() as server:
        store = str(folder / "s.db") if server is None else server.database("sessions")
        given = {"client": client, "kinds": ",".join(faults), "files": files, "node_options": options, "nodes": nodes}
        _, said, wrong = run_seed("mqtt", folder, store, 5, len(faults), **given)
    assert wrong == []
    assert said["met"] == len(faults)
    assert said["messages"] > 10
    assert all("Traceback" not in one.read_text() for one in folder.glob("*.log"))


@pytest.mark.parametrize("client", mark_long(RUNS, "mosquitto5-kill", "paho3-kill", "aiomqtt5-kill"))
def test_a_client_that_keeps_its_process_misses_nothing_when_its_node_is_killed(tmp_path, client):
    run(tmp_path, client.partition("-")[0], *RUNS[client])


@pytest.mark.long
@pytest.mark.parametrize(
    ("client", "on_postgres", "by_certificate", "nodes"),
    [
        ("mqttjs5", False, False, 2),
        ("mqttjs5", True, False, 1),
        ("mqttjs3", True, False, 2),
        ("aiomqtt5", True, False, 2),
        ("paho5", False, True, 2),
    ],
)
def test_twenty_kills_and_stops(tmp_path, client, on_postgres, by_certificate, nodes):
    """MQTT.js comes from npm; a single node comes back while its clients wait."""
    run(tmp_path, client, ("kill", "stop") * 10, on_postgres, by_certificate, nodes)


def test_the_judge_sees_what_is_missing_moved_doubled_and_a_session_that_is_gone():
    one, two, three = (Receipt(number, number, False) for number in (1, 2, 3))
    wanted, sent = {1, 2, 3}, [[1, 2, 3]]
    assert judge(wanted, [one, two, three], [False, True], sent) == []
    assert judge(wanted, [one, two, Receipt(2, 2, True), three], [None, None], sent) == []
    assert judge(wanted, [one, two, two, three], [False], [[1, 2], [2, 3]]) == []
    assert judge(wanted, [one, three, two], [False], [[1], [3, 2]]) == []
    assert "missing" in judge(wanted, [one, three], [False], sent)[0]
    assert "behind" in judge(wanted, [one, three, two], [False], [[1, 2, 3], [2, 3]])[0]
    assert "twice" in judge(wanted, [one, two, two, three], [False], [[1], [1, 2, 3]])[0]
    assert "session present" in judge(wanted, [one, two, three], [False, False], sent)[0]
    assert list_repeats([one, one, Receipt(1, 1, True)]) == [1]
    assert MosquittoSubscriber(5).receipts == []


def test_paho_sends_what_it_is_given_before_connack_ahead_of_what_it_repeats():
    """So an order of receipts that looks wrong is the publisher's, and the judge reads from its log what it sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        publisher = PahoPublisher()
        publisher.start(server.getsockname()[1])
        received = []
        for _ in range(2):
            client, _ = server.accept()
            with client:
                decoder = Decoder()
                read_packets(client, decoder, 1)
                publisher.publish()
                received.append(read_packets(client, decoder, 1))
                client.sendall(encode(ConnackPacket(False, 0), 4))
                if publisher.count == 1:
                    publisher.publish()
                received[-1] += read_packets(client, decoder, publisher.count - len(received[-1]))
        asyncio.run(publisher.end())
    assert received[0] == [(1, False), (2, False)]
    assert received[1] == [(3, False), (1, True), (2, True)]
    first, second = publisher.list_sent()[1:3]
    assert [first, second] == [[1, 2], [3, 1, 2]]
    receipts = [Receipt(number, 1, False) for number in (3, 1, 1, 2)]
    assert judge({1, 2, 3}, receipts, [True], [first, second]) == []
    assert "behind" in judge({1, 2, 3}, receipts, [True], [first])[0]


def read_packets(client, decoder, count):
    """So many packets of paho: of each PUBLISH its number, and whether it is marked."""
    packets = []
    while len(packets) < count:
        packets += decoder.feed(client.recv(65_536))
    return [(int(one.payload), one.dup) for one in packets if isinstance(one, PublishPacket)]

"""MQTT clients of others keep their process while their node is killed or stands still: each message once, in order."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest
import trustme
from mqtt_run import judge, judge_trace, list_repeats, play
from mqtt_subscribers import CLIENT_ID, WRITER_ID, ClientFiles, MosquittoSubscriber, Receipt

from statemachines.testing.postgres import PostgresServer

RUNS = [
    # client, faults, whether PostgreSQL is the store, whether by certificates
    ("mosquitto3", ("kill", "stop"), False, False),
    ("mosquitto5", ("kill",), False, False),
    ("paho3", ("kill",), True, False),
    ("paho5", ("stop",), False, True),
    ("aiomqtt5", ("kill",), False, False),
]


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


def run(folder, client, faults, on_postgres, by_certificate, names="ab"):
    files, options = write_certificates(folder) if by_certificate else (None, ())
    with PostgresServer() if on_postgres else nullcontext() as server:
        store = str(folder / "s.db") if server is None else server.database("sessions")
        played = play(folder, store, client, 5, len(faults), kinds=faults, files=files, options=options, names=names)
        wrong, met, count, _ = asyncio.run(played)
    assert wrong == []
    assert met == len(faults)
    assert count > 10
    assert judge_trace(folder) == []
    assert all("Traceback" not in one.read_text() for one in folder.glob("*.log"))


@pytest.mark.parametrize(
    ("client", "faults", "on_postgres", "by_certificate"), RUNS, ids=[f"{one[0]}-{'-'.join(one[1])}" for one in RUNS]
)
def test_a_client_that_keeps_its_process_misses_nothing_when_its_node_is_killed(
    tmp_path, client, faults, on_postgres, by_certificate
):
    run(tmp_path, client, faults, on_postgres, by_certificate)


@pytest.mark.long
@pytest.mark.parametrize(
    ("client", "on_postgres", "by_certificate", "names"),
    [
        ("mqttjs5", False, False, "ab"),
        ("mqttjs5", True, False, "a"),
        ("mqttjs3", True, False, "ab"),
        ("aiomqtt5", True, False, "ab"),
        ("paho5", False, True, "ab"),
    ],
)
def test_twenty_kills_and_stops(tmp_path, client, on_postgres, by_certificate, names):
    """MQTT.js comes from npm; a single node comes back while its clients wait."""
    run(tmp_path, client, ("kill", "stop") * 10, on_postgres, by_certificate, names)


def test_the_judge_sees_what_is_missing_moved_doubled_and_a_session_that_is_gone():
    one, two, three = (Receipt(number, number, False) for number in (1, 2, 3))
    wanted = {1, 2, 3}
    assert judge(wanted, [one, two, three], [False, True], set()) == []
    assert judge(wanted, [one, two, Receipt(2, 2, True), three], [None, None], set()) == []
    assert judge(wanted, [one, two, two, three], [False], {2}) == []
    assert "missing" in judge(wanted, [one, three], [False], set())[0]
    assert "behind" in judge(wanted, [one, three, two], [False], set())[0]
    assert "twice" in judge(wanted, [one, two, two, three], [False], {1})[0]
    assert "session present" in judge(wanted, [one, two, three], [False, False], set())[0]
    assert list_repeats([one, one, Receipt(1, 1, True)]) == [1]
    assert MosquittoSubscriber(5).receipts == []

"""MQTT clients of others keep their process while their node is killed or stands still: each message once, in order.

Sessions that share streams of groups: nodes are killed and ended, clients leave and are taken over, and what comes
is judged by who knows what publishers and clients know; a longer run is tools/soak.py's.

Members of `$share` that nobody here wrote: their node is killed, and each message comes to one of them.

Wills of MQTT clients whose node is killed: the other node sends each once, after its delay.

Nodes of sessions as processes: names, ends, what is wrong with what they are given, sessions on disk.

A publisher of QoS 2 whose node is killed or stands still between packets of the handshake: each message once.

Ever new client ids with sessions and wills: bounds answer as declared, others are served, all of it ends.

A leading host that members do not reach (page, Reachability); all ways are in `make soak`.
"""

import asyncio
import signal
from collections import Counter
from contextlib import nullcontext

import pytest
import trustme
from carried_workload import CarriedWorkload
from mqtt_subscribers import (
    CLIENT_ID,
    KEPT,
    SPREAD,
    WRITER_ID,
    ClientFiles,
    MemberReceipt,
    MosquittoSubscriber,
    RawClient,
    Receipt,
    count_moved,
    judge,
    judge_once,
    judge_shared,
    list_repeats,
)
from node_processes import mqtt_nodes, until
from run import play, run_seed

from statemachines import cli, mqtt_codec
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


@pytest.mark.long
@pytest.mark.parametrize("client", RUNS)
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


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def stores(request, tmp_path):
    """Of sessions and of streams."""
    if request.param == "sqlite":
        yield str(tmp_path / "sessions.db"), str(tmp_path / "messages.db")
        return
    with PostgresServer() as server:
        yield server.database("sessions"), server.database("streams")


@pytest.mark.parametrize(
    "moves", [["leave", "end"], pytest.param(["leave", "take over", "end"], marks=pytest.mark.long)], ids=len
)
def test_PS_261_PS_264_PS_287_streams_go_on_without_gap_and_in_the_calm_without_repetition(tmp_path, stores, moves):
    sessions, streams = stores
    workload = CarriedWorkload(tmp_path, sessions, 1, streams=streams)
    asyncio.run(play(workload, ["storm", "kill", "calm", *(f"calm {move}" for move in moves)]))
    assert workload.judge() == []
    assert workload.done.total() == 1 + len(moves)
    assert workload.tally()["given"]


def check(folder, store, seed, faults, **given):
    done, said, wrong = run_seed("shared", folder, store, seed, faults, **given)
    assert wrong == []
    assert done["kill"] == faults
    assert said["messages"] > 20
    assert sum(one > 0 for one in said["by member"]) > 1, said
    assert all("Traceback" not in one.read_text() for one in folder.glob("*.log"))


@pytest.mark.long
def test_MQ_100_MQ_102_members_share_topics_and_their_node_is_killed(tmp_path):
    check(tmp_path, str(tmp_path / "s.db"), seed=5, faults=1, moves_publisher=False)


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("version", [5, 3])
def test_MQ_100_MQ_102_nodes_are_killed_again_and_again(tmp_path, database, version):
    given = {"seed": 8, "faults": 10, "moves_publisher": True, "version": version}
    if database == "sqlite":
        check(tmp_path, str(tmp_path / "s.db"), **given)
        return
    with PostgresServer() as server:
        check(tmp_path, server.database("shared"), **given)


def test_the_judge_sees_what_is_missing_moved_doubled_and_given_to_two():
    one, two, three = (MemberReceipt(0, SPREAD + number, number, False) for number in (1, 2, 3))
    wanted = {SPREAD + number for number in (1, 2, 3)}
    assert judge_shared(wanted, [one, two, three], set()) == []
    assert judge_shared(wanted, [one, two, two._replace(dup=True), three], set()) == []
    assert judge_shared(wanted, [one, two._replace(member=1), three], set()) == []
    assert judge_shared(wanted, [one, two, two._replace(member=1), three], {two.number}) == []
    assert "missing" in judge_shared(wanted, [one, three], set())[0]
    assert "behind" in judge_shared(wanted, [one, three, two], set())[0]
    assert "twice" in judge_shared(wanted, [one, two, two, three], set())[0]
    assert "several" in judge_shared(wanted, [one, two, two._replace(member=1), three], set())[0]


COUNT = 20


class LostClient(RawClient):
    """Has a will."""

    def make_connect(self):
        delay = None if int(self.client_id) % 2 else 1
        will = mqtt_codec.WillMessage(
            "wills", self.client_id.encode(), 1, properties=mqtt_codec.PacketProperties(will_delay=delay)
        )
        return mqtt_codec.ConnectPacket(
            self.client_id, mqtt_codec.MqttVersion.V5, clean_start=False, will=will, properties=KEPT
        )


async def take_wills(watcher, found):
    while True:
        packet = await watcher.read()
        if isinstance(packet, mqtt_codec.PublishPacket):
            found[packet.payload.decode()] += 1
            watcher.send(mqtt_codec.PubackPacket(packet.packet_id))


async def play_of_mqtt_wills_killed(folder):
    """How often each will came, after its node was killed and begun anew."""
    found = Counter()
    async with mqtt_nodes(folder, str(folder / "s.db")) as nodes:
        place, spare = nodes
        watcher = RawClient("watcher")
        await watcher.connect(spare.port)
        watcher.send(mqtt_codec.SubscribePacket(1, (mqtt_codec.TopicSubscription("wills", 1),)))
        await watcher.read()
        task = asyncio.ensure_future(take_wills(watcher, found))
        clients = [LostClient(str(number)) for number in range(COUNT)]
        for client in clients:
            await client.connect(place.port)
        await place.end(signal.SIGKILL)
        await clients[0].connect(spare.port)  # before its will is due
        await until(lambda: len(found) >= COUNT - 1)
        await place.start(nodes)
        await clients[0].connect(place.port)
        for client in clients:
            client.close()
        await until(lambda: "0" in found)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        watcher.close()
    return found


@pytest.mark.long
def test_MQ_121_PS_479_the_wills_of_a_killed_nodes_clients_are_sent_once_by_the_other(tmp_path):
    found = asyncio.run(play_of_mqtt_wills_killed(tmp_path))
    assert found == Counter(str(number) for number in range(COUNT))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--store", "s.db"), "Missing option '--name'"),
        (("--store", "s.db", "--name", "a b"), "node = 'a b'"),
        (("--store", "s.db", "--name", "a", "--listen", "nowhere"), "HOST:PORT"),
        (("--store", "s.db", "--name", "a", "--peers", "x"), "HOST:PORT"),
        (("--store", "mysql://x", "--name", "a"), "must be a path, sqlite:///PATH or postgresql://"),
        (("--store", "s.db", "--name", "a", "--marker-ms", "20000"), "marker_ms = 20000: less than resume_ms"),
        (("--store", "s.db", "--name", "a", "--secret-file", "missing"), "missing"),
    ],
)
def test_what_cannot_be_is_said_and_is_wrong_usage(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["node", "sessions", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in " ".join(error.replace("│", " ").split())
    assert "Traceback" not in error


@pytest.mark.long
def test_MQ_120_each_message_comes_once_whenever_the_publishers_node_is_killed(tmp_path):
    met, said, wrong = run_seed("once", tmp_path, str(tmp_path / "s.db"), 5, 4)
    assert wrong == []
    assert met.total() == said["met"] == 4
    assert said["messages"] > 20
    assert all("Traceback" not in one.read_text() for one in tmp_path.glob("*.log"))


def test_the_judge_sees_what_is_missing_doubled_and_moved():
    assert judge_once(6, [1, 2, 3, 5, 4, 6]) == []
    assert "missing" in judge_once(3, [1, 3])[0]
    assert "twice" in judge_once(3, [1, 2, 3, 2])[0]
    assert [count_moved([1, 2, 3, 5, 4]), count_moved([4, 1, 2, 3])] == [0, 1]


QUOTA = 0x97


@pytest.mark.long
@pytest.mark.parametrize(
    ("stored", "ids", "most", "expiry_s"),
    [(300, 200, 400, 5), pytest.param(50_000, 5_000, 53_000, 60, marks=pytest.mark.long)],
    ids=["few", "many"],
)
def test_MQ_245_beyond_the_bound_of_sessions_new_clients_are_refused_and_all_is_collected(
    tmp_path, stored, ids, most, expiry_s
):
    options = {"ids": ids, "expiry_s": expiry_s, "stored": stored, "at_once": 8, "max_sessions": most}
    _, found, wrong = run_seed("crowd", tmp_path, str(tmp_path / "s.db"), 1, 0, **options)
    assert wrong == [], "sessions and wills are collected"
    codes = found["codes"]
    taken = codes[0]
    assert set(codes) == {0, QUOTA}
    assert taken + codes[QUOTA] == ids
    assert taken == most - stored - 2  # those that look have sessions, too
    assert found["wills"] == stored + taken
    assert found["lines"] <= 2
    assert found["memory_mib"] < 200


@pytest.mark.long
def test_members_that_do_not_reach_the_leader_are_served_through_the_other_host(tmp_path):
    """What they say does not arrive there; a third one reaches the leader alone."""
    _, _, wrong = run_seed("unreachable", tmp_path, "", 1, 1, way="up")
    assert wrong == []

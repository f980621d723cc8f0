"""A node's log has the steps of its connections, and the reports judge them."""

from __future__ import annotations

from mqtt_socket import QUICK, MqttSocket, run

from statemachines.drivers.mqtt_connections import MqttNode
from statemachines.drivers.persistent_sessions import SessionNode
from statemachines.mqtt_codec import DisconnectPacket, PacketProperties, PubackPacket, PublishPacket
from statemachines_reports.pipeline import analyze
from statemachines_spec.bug import plant_bug

KEPT = PacketProperties(session_expiry=100)


def play_takeover(store, trace):
    """Two connections of one client id, and a message of each."""

    async def main():
        sessions = SessionNode(store, name="a", trace=trace, **QUICK)
        front = MqttNode(sessions, listen=("127.0.0.1", 0))
        async with sessions, front, MqttSocket(front.address) as one, MqttSocket(front.address) as two:
            for client in (one, two):
                await client.connect(clean_start=False, properties=KEPT)
                answer = await client.ask(PublishPacket("t", b"x", 1, packet_id=1))
                assert answer == PubackPacket(1, 0x10)
            two.send(DisconnectPacket())
            assert await two.read() is None

    run(main())


def judge(trace, folder):
    analysis = analyze(trace, folder / "report", spark=False)
    machines = {one["machine"] for one in analysis.tables["coverage"]}
    assert "mqtt_connections/mqtt_connection" in machines
    return {check.name for check in analysis.checks if not check.held}


def test_ONEOWNER_the_log_of_a_takeover_holds(store, tmp_path):
    play_takeover(store, tmp_path / "trace")
    assert judge(tmp_path / "trace", tmp_path) == set()


def test_ONEOWNER_a_connection_that_goes_on_when_it_is_taken_over_is_found(store, tmp_path):
    with plant_bug("mqtt_connections/taken-goes-on"):
        play_takeover(store, tmp_path / "trace")
        assert judge(tmp_path / "trace", tmp_path) == {"one-owner"}


async def test_a_log_that_began_before_has_no_rows_of_connections(store, tmp_path):
    """Its head names the protocols that are in it, and is written."""
    sessions = SessionNode(store, name="a", trace=tmp_path / "trace", **QUICK)
    async with sessions, MqttNode(sessions, listen=("127.0.0.1", 0)) as front, MqttSocket(front.address) as client:
        await client.connect()
    analysis = analyze(tmp_path / "trace", tmp_path / "report", spark=False)
    assert all(check.held for check in analysis.checks)
    assert {one["machine"].partition("/")[0] for one in analysis.tables["coverage"]} == {"persistent_sessions"}

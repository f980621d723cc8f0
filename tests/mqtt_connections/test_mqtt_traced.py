"""A node's log has the steps of its connections, and the reports judge them."""

import pytest
from exchanges import QUICK, MqttSocket, open_scene

from statemachines.drivers.mqtt_connections import MqttNode
from statemachines.drivers.persistent_sessions import SessionNode
from statemachines_reports.pipeline import analyze
from statemachines_spec.bug import plant_bug


async def play_takeover(store, trace):
    """Two connections of one client id, and a message of each.  The head of a log names protocols that are there."""
    sessions = SessionNode(store, name="a", trace=trace, **QUICK)
    front = MqttNode(sessions, listen=("127.0.0.1", 0))
    async with open_scene(trace.parent, nodes={"a": front}) as scene, sessions, front:
        await scene.play("c PUBLISH t x -> 0x10", "c' PUBLISH t x -> 0x10; leaves", "c lost")


def judge(trace, folder):
    analysis = analyze(trace, folder / "report", spark=False)
    machines = {one["machine"] for one in analysis.tables["coverage"]}
    assert "mqtt_connections/mqtt_connection" in machines
    return {check.name for check in analysis.checks if not check.held}


@pytest.mark.long
async def test_ONEOWNER_the_log_of_a_takeover_holds(store, tmp_path):
    await play_takeover(store, tmp_path / "trace")
    assert judge(tmp_path / "trace", tmp_path) == set()


async def test_ONEOWNER_a_connection_that_goes_on_when_it_is_taken_over_is_found(store, tmp_path):
    with plant_bug("mqtt_connections/taken-goes-on"):
        await play_takeover(store, tmp_path / "trace")
        assert judge(tmp_path / "trace", tmp_path) == {"one-owner"}


async def test_a_log_that_began_before_has_no_rows_of_connections(store, tmp_path):
    """Its head names the protocols that are in it, and is written."""
    sessions = SessionNode(store, name="a", trace=tmp_path / "trace", **QUICK)
    async with sessions, MqttNode(sessions, listen=("127.0.0.1", 0)) as front, MqttSocket(front.address) as client:
        await client.connect()
    analysis = analyze(tmp_path / "trace", tmp_path / "report", spark=False)
    assert all(check.held for check in analysis.checks)
    assert {one["machine"].partition("/")[0] for one in analysis.tables["coverage"]} == {"persistent_sessions"}

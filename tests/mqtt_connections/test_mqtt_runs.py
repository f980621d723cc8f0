"""Simulated MQTT clients: what sessions promise holds for them, and runs repeat."""

from collections import Counter
from contextlib import ExitStack

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.drivers.mqtt_connections.client_decoder import take_message
from statemachines.kernel import ConfigurationError, Tell
from statemachines.mqtt_codec.packet import MqttVersion
from statemachines.mqtt_connections.client_packet import PubackMessage, PublishRun
from statemachines.mqtt_connections.connection import MQTT_CONNECTION
from statemachines.mqtt_connections.connection_actions import ask_session
from statemachines_sim.mqtt_connections import mqtt_process
from statemachines_sim.mqtt_connections.sim import SIM
from statemachines_sim.scenario import check_scenario, find_scenario, from_plain, list_shipped_with
from statemachines_sim.world import World
from statemachines_spec.bug import change_rows, plant_bug

NAMES = sorted(list_shipped_with(SIM.name))
PLAIN = {"name": "x", "protocol": SIM.name, "network": {"fifo": True}}


def play(name, seed, safety_s=6.0):
    scenario = find_scenario(f"{SIM.name}/{name}")
    world = World(replace(scenario, phases=replace(scenario.phases, safety_s=safety_s)), seed)
    return world, world.run()


@pytest.mark.parametrize("seed", mark_long((1, 2), "2"))
@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_of_mqtt_clients_holds(name, seed):
    _, outcome = play(name, seed)
    assert outcome.is_held, (
        f"repeat it with: gapless simulate {SIM.name}/{name} --seed {seed} --set phases.safety_s=6\n{outcome}"
    )
    assert outcome.tally["delivered"] > 20


@pytest.mark.long
def test_sessions_are_taken_from_connections_that_stayed_open_and_handshakes_of_qos_2_are_cut():
    world, outcome = play("lost_connections", 1, 12.0)
    steps = Counter(row[5] for row in world.rows if row[2] == "mqtt_connections/mqtt_connection")
    assert outcome.is_held
    assert steps["mqtt_session_taken"] > 0
    assert steps["transport_lost"] > 3
    assert min(steps[one] for one in ("pubrec_message", "pubrel_message", "pubcomp_message", "release_stored")) > 10


@pytest.mark.long
def test_packets_that_a_client_sends_in_one_moment_are_read_together(monkeypatch):
    runs = Counter()

    def count(*given):
        number, message = take_message(*given)
        runs[type(message)] += number > 1
        return number, message

    monkeypatch.setattr(mqtt_process, "take_message", count)
    for name in ("kept_publishers", "lost_connections"):
        assert play(name, 1)[1].is_held
    assert min(runs[PublishRun], runs[PubackMessage]) > 0


@pytest.mark.long
def test_the_same_seed_is_the_same_run_of_mqtt_clients():
    first, second = play("lost_connections", 3, 4.0), play("lost_connections", 3, 4.0)
    assert first[0].rows == second[0].rows


def test_a_connection_that_acknowledges_at_once_is_found():
    with plant_bug("mqtt_connections/acknowledged-at-once"):
        found = [play("lost_connections", seed)[1] for seed in (1, 2, 3)]
    assert not all(one.is_held for one in found)


@pytest.mark.long
def test_publishers_go_on_with_qos_2_over_a_reconnect_and_a_connection_that_forgets_their_ids_is_found():
    _, outcome = play("kept_publishers", 1, 8.0)
    assert outcome.tally["repeated"] > 0
    with plant_bug("mqtt_connections/received-forgotten"):
        _, outcome = play("kept_publishers", 1, 8.0)
    assert outcome.monitor == "UNSTORED"


def end_with_connection(record, event, now_ns):
    """A session of 3.1.1 ends with its connection."""
    record, (wanted,) = ask_session(record, event, now_ns)
    if record.version is MqttVersion.V5:
        return record, (wanted,)
    return replace(record, expiry_s=0), (Tell(replace(wanted.event, expiry_s=0)),)


def test_clients_of_3_1_1_and_messages_of_qos_0_are_judged():
    _, outcome = play("mixed_clients", 1, 8.0)
    assert outcome.tally["qos_0"] > 10
    with plant_bug("mqtt_connections/qos-0-twice"):
        assert play("mixed_clients", 1, 8.0)[1].monitor == "TWICE"
    with ExitStack() as stack:
        change_rows(MQTT_CONNECTION, "ask_session", do=end_with_connection)(stack)
        assert play("mixed_clients", 1, 8.0)[1].monitor == "FORGOTTEN"


@pytest.mark.parametrize(
    ("keys", "said"),
    [({"levels": [3]}, "4 and 5"), ({"filters": 2}, "must be 1"), ({"half_open": 2}, "half_open")],
)
def test_a_scenario_that_cannot_be_is_refused(keys, said):
    with pytest.raises(ConfigurationError, match=said):
        check_scenario(from_plain({**PLAIN, "mqtt_connections": keys}))


@pytest.mark.long
def test_a_client_of_3_1_1_unsubscribes_and_is_answered_without_codes():
    assert World(find_scenario("mqtt_connections/mixed_clients"), 31).run().is_held

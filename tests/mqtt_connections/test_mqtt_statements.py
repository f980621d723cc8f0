"""Normative statements that a node keeps, and the page that lists all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mqtt_socket import MqttSocket, mqtt_node

from statemachines import mqtt_codec

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mqtt_statements.md"
KEPT = mqtt_codec.PacketProperties(session_expiry=100)
SECTIONS_5 = {
    "1.5.4": 3, "1.5.5": 1, "1.5.7": 1, "2.1.3": 1, "2.2.1": 6, "2.2.2": 1, "3.1.0": 2, "3.1.2": 30, "3.1.3": 12,
    "3.1.4": 6, "3.2.0": 2, "3.2.2": 22, "3.3.1": 13, "3.3.2": 20, "3.3.4": 10, "3.4.2": 3, "3.5.2": 3, "3.6.1": 1,
    "3.6.2": 3, "3.7.2": 3, "3.8.1": 1, "3.8.3": 5, "3.8.4": 8, "3.9.2": 2, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2,
    "3.10.4": 6, "3.11.2": 2, "3.11.3": 2, "3.12.4": 1, "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3,
    "3.15.1": 1, "3.15.2": 3, "4.1.0": 2, "4.2.0": 1, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.5.0": 2,
    "4.6.0": 6, "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3, "4.12.0": 7, "4.12.1": 2,
    "4.13.1": 1, "4.13.2": 1, "6.0.0": 4,
}  # fmt: skip
"""Section -> the number of its last statement; 2.2.1 begins with 2."""
SECTIONS_3 = {
    "1.5.3": 3, "2.2.2": 2, "2.3.1": 7, "3.1.0": 2, "3.1.2": 24, "3.1.3": 11, "3.1.4": 5, "3.2.0": 1, "3.2.2": 6,
    "3.3.1": 12, "3.3.2": 3, "3.3.4": 1, "3.3.5": 2, "3.6.1": 1, "3.8.1": 1, "3.8.3": 4, "3.8.4": 6, "3.9.3": 2,
    "3.10.1": 1, "3.10.3": 2, "3.10.4": 6, "3.12.4": 1, "3.14.1": 1, "3.14.4": 3, "4.1.0": 2, "4.2.0": 1, "4.3.1": 1,
    "4.3.2": 2, "4.3.3": 2, "4.4.0": 1, "4.5.0": 2, "4.6.0": 6, "4.7.1": 3, "4.7.2": 1, "4.7.3": 4, "4.8.0": 2,
    "6.0.0": 4,
}  # fmt: skip


async def subscribe(client, topic_filter, qos=1, **options):
    packet = mqtt_codec.SubscribePacket(1, (mqtt_codec.TopicSubscription(topic_filter, qos, **options),))
    assert await client.ask(packet) == mqtt_codec.SubackPacket(1, (qos,))


async def publish(client, topic, payload, **fields):
    answer = await client.ask(mqtt_codec.PublishPacket(topic, payload, 1, packet_id=1, **fields))
    assert isinstance(answer, mqtt_codec.PubackPacket)


async def receive(client, code=0):
    packet = await client.read()
    assert isinstance(packet, mqtt_codec.PublishPacket)
    if packet.qos:
        client.send(mqtt_codec.PubackPacket(packet.packet_id, code))
    return packet


async def expect_nothing(client):
    assert await client.ask(mqtt_codec.PingreqPacket()) == mqtt_codec.PingrespPacket()


async def test_MQTT_3_8_4_3_the_same_filter_replaces_the_subscription_and_no_form_of_unicode_is_another(store):
    """MQTT-4.7.3-4, and MQTT-3.3.1-8: a message without RETAIN leaves the retained one."""
    async with mqtt_node(store) as node, MqttSocket(node.address) as one, MqttSocket(node.address) as two:
        await one.connect("one")
        await two.connect("two")
        await subscribe(one, "caf\u00e9/#", 1)
        await subscribe(one, "caf\u00e9/#", 0)
        await publish(two, "cafe\u0301/1", b"decomposed")
        await publish(two, "caf\u00e9/1", b"retained", retain=True)
        await publish(two, "caf\u00e9/1", b"plain")
        found = [await receive(one) for _ in range(2)]
        assert [(one.payload, one.qos, one.retain) for one in found] == [
            (b"retained", 0, False),
            (b"plain", 0, False),
        ]
        await expect_nothing(one)
        await subscribe(two, "caf\u00e9/#")
        assert (await receive(two)).payload == b"retained"


@pytest.mark.parametrize("retain", [False, True])
async def test_MQTT_3_1_2_15_a_will_is_retained_if_it_says_so(store, retain):
    async with mqtt_node(store) as node, MqttSocket(node.address) as watching, MqttSocket(node.address) as late:
        await watching.connect("watching")
        await subscribe(watching, "w")
        async with MqttSocket(node.address) as client:
            await client.connect("lost", will=mqtt_codec.WillMessage("w", b"gone", 1, retain))
        assert (await receive(watching)).payload == b"gone"
        await late.connect("late")
        await subscribe(late, "w")
        if retain:
            packet = await receive(late)
            assert (packet.payload, packet.retain) == (b"gone", True)
        await expect_nothing(late)


async def test_MQTT_4_4_0_2_a_refused_message_is_not_sent_again(store):
    async with mqtt_node(store) as node, MqttSocket(node.address) as other:
        await other.connect("other")
        async with MqttSocket(node.address) as client:
            await client.connect(clean_start=False, properties=KEPT)
            await subscribe(client, "t")
            await publish(other, "t", b"refused")
            assert (await receive(client, 0x87)).payload == b"refused"
            await expect_nothing(client)
        async with MqttSocket(node.address) as client:
            assert (await client.connect(clean_start=False, properties=KEPT)).session_present
            await publish(other, "t", b"next")
            assert (await receive(client)).payload == b"next"


# -- the page ---------------------------------------------------------------------------------------------------------


def read_rows(heading):
    """The rows of a section of the page: statement, in short, state, tests or why."""
    text = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    return [row for row in rows if row[0][:1].isdigit()]


@pytest.mark.parametrize(("heading", "sections"), [("MQTT 5", SECTIONS_5), ("MQTT 3.1.1", SECTIONS_3)])
def test_every_numbered_statement_is_on_the_page_once_with_tests_that_exist(heading, sections):
    rows = read_rows(heading)
    first = {"2.2.1": 2} if heading == "MQTT 5" else {}
    wanted = [f"{one}-{n}" for one, last in sections.items() for n in range(first.get(one, 1), last + 1)]
    assert [row[0] for row in rows] == wanted
    there = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    } | {
        clause
        for path in (ROOT / "tests").rglob("steps/*.txt")
        for title in re.findall(r"^[A-Z]+-.*", path.read_text(), re.MULTILINE)
        for clause in re.findall(r"[A-Z]+-\d+", title)
    }
    for statement, words, state, how in rows:
        assert words
        tests = re.findall(r"`(test_\w+|[A-Z]+-\d+)`", how)
        assert state in ("kept", "client", "absent", "not kept"), statement
        assert bool(tests) == (state == "kept"), statement
        assert bool(how) == (state != "client"), statement
        assert [one for one in tests if one not in there] == [], statement

"""The observer of the properties: for each one step that breaks it, and one near it that does not."""

from __future__ import annotations

import pytest
from mqtt_client import SETTINGS

from statemachines.mqtt_codec import (
    ConnackPacket,
    ConnectPacket,
    DisconnectPacket,
    MqttVersion,
    PubackPacket,
    PublishPacket,
    PubrecPacket,
    PubrelPacket,
)
from statemachines.mqtt_connections import client_packet as c
from statemachines.mqtt_connections import session_event as s
from statemachines.mqtt_connections.properties import PROPERTIES
from statemachines.mqtt_connections.properties.connection_history import ConnectionHistory
from statemachines.mqtt_connections.properties.connection_model import ConnectionModel

CONNECT, WANTED = (
    c.ConnectMessage(ConnectPacket("c", MqttVersion.V5)),
    s.SessionWanted("c", True, 0, 0, None, None, None),
)
CONNACK = c.ConnackMessage(ConnackPacket())
OPEN = (CONNECT, (), (WANTED,)), (s.MqttSessionOpened("c", False), (CONNACK,), ())
ONE, TWO = (PublishPacket("t", b"x", qos, packet_id=qos) for qos in (1, 2))
PUBLISHES = [(c.PublishMessage(one), (), (s.MessagePublished(one),)) for one in (ONE, TWO)]
STORED = s.PublishStoredAs(1, 0)
ACK, REC = c.PubackMessage(PubackPacket(1)), c.PubrecMessage(PubrecPacket(2))
OUT = PublishPacket("t", b"x", 2, packet_id=9)
DELIVERS = (s.DeliveryReady(OUT), (c.PublishMessage(OUT),), ())
RECEIVES = (c.PubrecMessage(PubrecPacket(9)), (), (s.DeliveryAnswered(9, "pubrec", 0),))
RELEASES = (s.ReleaseReady(9), (c.PubrelMessage(PubrelPacket(9)),), ())
PING, PONG = c.PingreqMessage(), c.PingrespMessage()
LEAVES, LOST = c.DisconnectMessage(DisconnectPacket()), s.TransportLost()
LATE = s.ServerStopping(0x8B)
"""It ends an open connection by a DISCONNECT with this code."""


def disconnect(code):
    return c.DisconnectMessage(DisconnectPacket(code))


def over(sends_will=True, has_session=True):
    return s.MqttConnectionOver(0, has_session, 0, sends_will)


def play(*steps):
    """The names of what breaks by the last step; nothing breaks before it."""
    seen, broken = ConnectionHistory((ConnectionModel(),)), ()
    for event, sent, told in steps:
        assert broken == ()
        seen, broken = seen.observe(0, event, sent, told, SETTINGS)
    return {one.name for one in broken}


RUNS = {
    "ACKED": (
        ((*OPEN, (STORED, (ACK,), ())),),
        ((*OPEN, PUBLISHES[0], (STORED, (ACK,), ())), (*OPEN, PUBLISHES[1], (s.PublishStoredAs(2, 0), (REC,), ()))),
    ),
    "EXACTLY": (
        (
            (*OPEN, PUBLISHES[1], (c.PublishMessage(TWO), (), (s.MessagePublished(TWO),))),
            (*OPEN, (c.PublishMessage(ONE), (), ())),
        ),
        ((*OPEN, PUBLISHES[1], (c.PublishMessage(TWO), (), ())), (*OPEN, PUBLISHES[0])),
    ),
    "ONEEND": (
        (
            (*OPEN, (LOST, (), ())),
            (*OPEN, (LOST, (), (over(), over()))),
            (*OPEN, (LOST, (), (over(),)), (PING, (PONG,), ())),
        ),
        ((*OPEN, (LOST, (), (over(),))), (*OPEN, (LOST, (), (over(),)), (PING, (), ()))),
    ),
    "VIOLATION": (
        (
            (*OPEN, (LATE, (disconnect(0x82),), (over(),))),
            (*OPEN, (LATE, (), (over(),))),
            (*OPEN, (PING, (disconnect(0x82),), ())),
        ),
        ((*OPEN, (LATE, (disconnect(0x8B),), (over(),))), (*OPEN, (PING, (PONG,), ()))),
    ),
    "SAYABLE": (
        ((*OPEN, PUBLISHES[0], (STORED, (c.PubackMessage(PubackPacket(1, 0x01)),), ())),),
        ((*OPEN, PUBLISHES[0], (STORED, (c.PubackMessage(PubackPacket(1, 0x10)),), ())),),
    ),
    "ANSWERED": (
        ((*OPEN, (PING, (), ())), (*OPEN, (PING, (PONG, PONG), ())), (*OPEN, DELIVERS, (RECEIVES[0], (), ()))),
        ((*OPEN, (PING, (PONG,), ())), (*OPEN, DELIVERS, RECEIVES)),
    ),
    "RELEASED": (
        ((*OPEN, DELIVERS, RELEASES), (*OPEN, DELIVERS, RECEIVES, DELIVERS)),
        ((*OPEN, DELIVERS, RECEIVES, RELEASES), (*OPEN, DELIVERS, DELIVERS)),
    ),
    "WILL": (
        ((*OPEN, (LOST, (), (over(sends_will=False),))), (*OPEN, (LEAVES, (), (over(),))), ((LOST, (), (over(),)),)),
        (
            (*OPEN, (LOST, (), (over(),))),
            (*OPEN, (LEAVES, (), (over(sends_will=False),))),
            ((LOST, (), (over(False, False),)),),
        ),
    ),
}
"""Property -> runs that break it, and runs near them that do not."""


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_step_breaks_what_it_breaks(name):
    breaking, right = RUNS[name]
    assert [name in play(*run) for run in breaking] == [True] * len(breaking)
    assert [play(*run) for run in right] == [set()] * len(right)

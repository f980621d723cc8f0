"""Random packets, lies of the client and failures of the session: what MQTT connections promise.

The observer of the properties: for each one step that breaks it, and one near it that does not.
"""

from random import Random

import pytest
from mqtt_client import SETTINGS, MqttClient

from statemachines.kernel import Send, Tell
from statemachines.mqtt_codec import (
    AuthPacket,
    ConnackPacket,
    ConnectPacket,
    DisconnectPacket,
    MqttVersion,
    PacketProperties,
    PingreqPacket,
    PubackPacket,
    PubcompPacket,
    PublishPacket,
    PubrecPacket,
    PubrelPacket,
    SubscribePacket,
    TopicSubscription,
    UnsubscribePacket,
)
from statemachines.mqtt_connections import client_packet as c
from statemachines.mqtt_connections import session_event as s
from statemachines.mqtt_connections.connection_record import IncomingStage, can_take_packets
from statemachines.mqtt_connections.properties import PROPERTIES
from statemachines.mqtt_connections.properties.connection_history import ConnectionHistory
from statemachines.mqtt_connections.properties.connection_model import ConnectionModel, Phase
from statemachines.mqtt_connections.session_event import (
    DeliveryReady,
    FiltersStored,
    FiltersWanted,
    MessagePublished,
    MessageReleased,
    MqttSessionOpened,
    MqttSessionTaken,
    PublishStoredAs,
    ReleaseReady,
    ReleaseStored,
    ServerStopping,
    SessionRefused,
    SessionWanted,
    TransportLost,
)

ANSWERS_OF_OPENING = (MqttSessionOpened, SessionRefused, MqttSessionTaken, ServerStopping, TransportLost)


class JudgedClient(MqttClient):
    """Each step of its connection is judged, but for RELEASED: its session releases what the client has not received.
    `received`: ids of QoS 2 that the session has from an earlier connection."""

    def __init__(self, version, received):
        super().__init__(version, observe=self.judge)
        self.history = ConnectionHistory((ConnectionModel(),))
        self.received = set(received)

    def judge(self, node, event, before, step, now_ns):
        sent = tuple(effect.message for effect in step.effects if isinstance(effect, Send))
        told = tuple(effect.event for effect in step.effects if isinstance(effect, Tell))
        self.history, broken = self.history.observe(0, event, sent, told, SETTINGS)
        assert [one for one in broken if one.name != "RELEASED"] == []

    @property
    def is_over(self):
        return self.history.models[0].phase is Phase.OVER


def draw_packet(chance, version, record):
    """A packet of a client that the codec writes: mostly a true one."""
    lies = chance.random() < 0.05
    number, known = chance.randint(1, 6), dict(record.incoming)
    if lies:
        lie = PublishPacket("t", b"x", chance.randint(1, 2), packet_id=number)
        alone = PublishPacket("", b"x", properties=PacketProperties(topic_alias=chance.randint(1, 3)))
        of_v5 = [AuthPacket(), alone] if version == 5 else []
        return chance.choice(
            [ConnectPacket("c", version), DisconnectPacket(4 * (version == 5)), b"\xc0\x01", lie, *of_v5]
        )
    received = [one for one, stage in known.items() if stage >= IncomingStage.RECEIVED]
    if received and chance.random() < 0.6:
        again = PublishPacket("t", b"x", 2, dup=chance.random() < 0.5, packet_id=chance.choice(received))
        return chance.choice([again, PubrelPacket(chance.choice(received))])
    has_room = number not in known and len(known) < SETTINGS.receive_maximum
    qos = chance.randint(0, 2) if has_room else 0
    alias = PacketProperties(topic_alias=chance.randint(1, 2) if version == 5 and chance.random() < 0.2 else None)
    topic = "" if alias.topic_alias in record.aliases else "t"
    others = [PubackPacket(9), PubrecPacket(9), PubcompPacket(9), PingreqPacket(), UnsubscribePacket(9, ("a/#",))]
    subscribe = SubscribePacket(9, (TopicSubscription("a/#", 1),))
    publish = PublishPacket(topic, b"x", qos, packet_id=number if qos else 0, properties=alias)
    return publish if chance.random() < 0.7 else chance.choice([*others, subscribe])


def draw_call(chance, client, told):
    """What the session says next: mostly an answer to what it was told."""
    answers = [
        one for one in told if isinstance(one, SessionWanted | MessagePublished | MessageReleased | FiltersWanted)
    ]
    if answers and chance.random() < 0.9:
        asked = chance.choice(answers)
        told.remove(asked)
        match asked:
            case SessionWanted():
                is_refused = chance.random() < 0.1
                return (
                    SessionRefused(0x87) if is_refused else MqttSessionOpened("c", True, tuple(sorted(client.received)))
                )
            case MessagePublished(packet=packet) if packet.qos:
                code = chance.choice([0, 0, 0, 0x10, 0x97])
                return PublishStoredAs(packet.packet_id, code)
            case MessageReleased(packet_id=number):
                client.received.discard(number)
                return ReleaseStored(number)
            case FiltersWanted(packet_id=number):
                return FiltersStored(number, (1,))
    rare = [MqttSessionTaken(), ServerStopping(0x8B), TransportLost()]
    usual = [DeliveryReady(PublishPacket("t", b"y", 1, packet_id=chance.randint(1, 9))), ReleaseReady(3)]
    return chance.choice(rare if chance.random() < 0.02 else usual)


@pytest.mark.parametrize("version", [4, 5])
def test_ACKED_EXACTLY_QUOTA_ONEEND_SAYABLE_hold_under_lies(version):
    """SAYABLE: every packet that is sent goes through the codec, which refuses what it cannot say."""
    ends, stored = 0, 0
    for seed in range(400):
        chance = Random(seed * 10 + version)
        received = chance.sample(range(1, 5), chance.randint(0, 2))
        client = JudgedClient(version, received)
        told = client.send(ConnectPacket("c", MqttVersion(version), False))
        for _ in range(60):
            if can_take_packets(client.node.record) and chance.random() < 0.6:
                packet = draw_packet(chance, MqttVersion(version), client.node.record)
                found = client.send_bytes(packet) if isinstance(packet, bytes) else client.send(packet)
            elif chance.random() < 0.02:
                found = client.wait(chance.choice([1, 11, 700]))
            else:
                call = draw_call(chance, client, told)
                if client.status == "opening" and not isinstance(call, ANSWERS_OF_OPENING):
                    continue  # a host that has no session does not say so
                stored += isinstance(call, PublishStoredAs)
                found = client.feed(call)
            told += found
            record = client.node.record
            assert len(record.incoming) <= SETTINGS.receive_maximum + len(received), "QUOTA"
            assert len(record.aliases) <= SETTINGS.topic_alias_maximum, "QUOTA"
            assert client.is_over == (client.status == "closed")
        ends += client.is_over
    assert 100 < ends < 400
    assert stored > 800


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

"""The clauses of MQTT connections, one by one."""

from __future__ import annotations

from unittest.mock import ANY

import pytest
from mqtt_client import SETTINGS, MqttClient, connect
from msgspec.structs import replace

from statemachines.kernel import InvariantViolated, LocalProtocolError, Node, RemoteProtocolError
from statemachines.kernel.pmap import Map
from statemachines.mqtt_codec import (
    AuthPacket,
    ConnackPacket,
    ConnectPacket,
    DisconnectPacket,
    MqttVersion,
    PacketProperties,
    PingreqPacket,
    PingrespPacket,
    PubackPacket,
    PubcompPacket,
    PublishPacket,
    PubrecPacket,
    PubrelPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    UnsubackPacket,
    UnsubscribePacket,
    WillMessage,
    encode,
)
from statemachines.mqtt_connections.client_packet import (
    BrokenPacket,
    PubackMessage,
    PublishMessage,
    PublishRun,
    wrap_packet,
)
from statemachines.mqtt_connections.connection import MQTT_CONNECTION, ConnectLate, KeepAliveOver
from statemachines.mqtt_connections.connection_record import (
    IncomingStage,
    MqttConnectionRecord,
    MqttConnectionStatus,
    can_take_packets,
)
from statemachines.mqtt_connections.session_event import (
    DeliveryAnswered,
    DeliveryDropped,
    DeliveryReady,
    FiltersRemoved,
    FiltersStored,
    FiltersUnwanted,
    FiltersWanted,
    MessagePublished,
    MessageReleased,
    MessagesPublished,
    MqttConnectionOver,
    MqttSessionOpened,
    MqttSessionTaken,
    PublishesStored,
    PublishStoredAs,
    ReleaseReady,
    ReleaseStored,
    ServerStopping,
    SessionRefused,
    SessionWanted,
    TransportLost,
    UnexpectedAnswer,
)

BOTH = pytest.mark.parametrize("version", [4, 5])
LOST = MqttConnectionOver(0, True, 0, True)
CLIENT_PACKETS = [
    ConnectPacket("c"), PublishPacket("t"), PubackPacket(1), PubrecPacket(1), PubrelPacket(1), PubcompPacket(1),
    SubscribePacket(1, (TopicSubscription("t"),)), UnsubscribePacket(1, ("t",)), PingreqPacket(), DisconnectPacket(),
    AuthPacket(),
]  # fmt: skip
CALLS = [
    MqttSessionOpened("c", True), SessionRefused(0x87), PublishStoredAs(1, 0), ReleaseStored(1), FiltersStored(1, (0,)),
    FiltersRemoved(1, (0,)), DeliveryReady(PublishPacket("t")), ReleaseReady(1), MqttSessionTaken(),
    ServerStopping(0x8B), TransportLost(), UnexpectedAnswer(),
]  # fmt: skip


def over(code, expiry=0, will=True):
    return MqttConnectionOver(code, True, expiry, will)


def closed(code):
    """DISCONNECT with this reason code, and the end."""
    return [DisconnectPacket(code), over(code)]


# -- connecting -------------------------------------------------------------------------------------------------------


def test_MQ_01_connect_asks_for_the_session():
    will = WillMessage("w", b"gone", 1)
    properties = PacketProperties(session_expiry=2**32 - 1, receive_maximum=7)
    packet = ConnectPacket("c", MqttVersion.V5, False, 10, will, "user", b"secret", properties)
    client = MqttClient()
    assert client.send(packet) == [SessionWanted("c", False, 1_000, 7, will, "user", b"secret")]
    assert client.status == "opening"


@pytest.mark.parametrize(("clean", "expiry"), [(True, 0), (False, 86_400)])
def test_MQ_01_a_session_of_3_1_1_has_the_expiry_of_the_settings(clean, expiry):
    packet = ConnectPacket("c", MqttVersion.V3_1_1, clean)
    assert MqttClient(4).send(packet) == [SessionWanted("c", clean, expiry, 65_535, None, None, None)]


@pytest.mark.parametrize("packet", CLIENT_PACKETS[1:], ids=lambda one: type(one).__name__)
def test_MQ_02_any_other_packet_first_closes(packet):
    client = MqttClient()
    assert client.feed(wrap_packet(packet)) == [MqttConnectionOver(0, False, 0, False)]
    assert client.status == "closed"


def test_MQ_03_an_authentication_method_is_refused():
    packet = ConnectPacket("c", properties=PacketProperties(authentication_method="SCRAM"))
    assert MqttClient().send(packet) == [ConnackPacket(False, 0x8C), MqttConnectionOver(0x8C, False, 0, False)]


def test_MQ_04_a_client_of_3_1_is_answered_as_it_understands():
    client = MqttClient()
    raw = bytes.fromhex("100f 0006 4d5149736470 03 02 003c 0001 63")
    assert client.send_bytes(raw) == [ConnackPacket(False, 1), MqttConnectionOver(0x84, False, 0, False)]
    assert client.node.record.version == 4


def test_MQ_04_any_other_level_is_answered_by_0x84():
    raw = bytes.fromhex("100e 0004 4d515454 06 02 003c 00 0001 63")
    assert MqttClient().send_bytes(raw)[0] == ConnackPacket(False, 0x84)


def test_MQ_05_an_empty_client_id_that_is_to_be_kept_is_refused():
    client = MqttClient(4)
    raw = bytes.fromhex("100c 0004 4d515454 04 00 003c 0000")
    assert client.send_bytes(raw) == [ConnackPacket(False, 2), MqttConnectionOver(0x85, False, 0, False)]


def test_MQ_06_bytes_that_are_no_connect_get_no_answer():
    assert MqttClient().send_bytes(b"GET / HTTP/1.1\r\n") == [MqttConnectionOver(0, False, 0, False)]


def test_MQ_07_who_is_not_connected_in_time_is_closed():
    client = MqttClient()
    assert client.wait(9.9) == []
    assert client.wait(0.1) == [MqttConnectionOver(0, False, 0, False)]
    client = MqttClient()
    client.send(ConnectPacket("c"))
    assert client.wait(10) == [MqttConnectionOver(0x88, True, 0, False)]
    client = connect()
    assert client.wait(11) == []


def test_MQ_08_connack_says_what_a_client_of_mqtt_5_must_know():
    client = MqttClient()
    client.send(ConnectPacket("", keep_alive=600, properties=PacketProperties(session_expiry=2_000)))
    properties = PacketProperties(
        session_expiry=1_000,
        receive_maximum=3,
        maximum_packet_size=1_048_576,
        assigned_client_id="made-up",
        topic_alias_maximum=2,
        server_keep_alive=60,
    )
    assert client.feed(MqttSessionOpened("made-up", False)) == [ConnackPacket(False, 0, properties)]
    client = MqttClient(4)
    client.send(ConnectPacket("c", MqttVersion.V3_1_1, False))
    assert client.feed(MqttSessionOpened("c", True)) == [ConnackPacket(True)]


@pytest.mark.parametrize(
    ("version", "code", "answer"),
    [(5, 0x87, 0x87), (4, 0x87, 5), (4, 0x86, 4), (5, 0x8F, 0x80), (5, 0, 0x80)],
)
def test_MQ_09_a_refusal_is_told_in_the_words_of_the_version(version, code, answer):
    client = MqttClient(version)
    client.send(ConnectPacket("c", client.version))
    assert client.feed(SessionRefused(code)) == [
        ConnackPacket(False, answer),
        MqttConnectionOver(code, False, 0, False),
    ]


@pytest.mark.parametrize("version", [MqttVersion.V3_1_1, MqttVersion.V5])
@pytest.mark.parametrize("event", [SessionRefused(0x88), ServerStopping(0x8B)])
def test_MQ_09_where_a_node_serves_nobody_for_now_it_closes_and_says_nothing(version, event):
    """`mosquitto_sub` ends at any CONNACK that refuses."""
    client = MqttClient(version)
    client.send(ConnectPacket("c", version))
    (over,) = client.feed(event)
    assert isinstance(over, MqttConnectionOver)


@pytest.mark.parametrize("code", [0x97, 0x90, 0x80])
def test_MQ_173_where_3_1_1_has_no_return_code_it_is_closed_without_connack(code):
    client = MqttClient(4)
    client.send(ConnectPacket("c", MqttVersion.V3_1_1))
    assert client.feed(SessionRefused(code)) == [MqttConnectionOver(code, False, 0, False)]


def test_MQ_10_no_packet_is_fed_while_the_session_is_being_opened():
    client = MqttClient()
    assert can_take_packets(client.node.record)
    client.send(ConnectPacket("c"))
    assert not can_take_packets(client.node.record)
    for event in (*map(wrap_packet, CLIENT_PACKETS), BrokenPacket(0x81)):
        with pytest.raises(RemoteProtocolError, match="MQ-10"):
            client.feed(event)


def test_MQ_11_a_connection_that_is_lost_early_is_closed():
    assert MqttClient().feed(TransportLost()) == [MqttConnectionOver(0, False, 0, False)]
    assert MqttClient().feed(ServerStopping(0x8B)) == [MqttConnectionOver(0, False, 0, False)]
    client = MqttClient()
    client.send(ConnectPacket("c"))
    assert client.feed(TransportLost()) == [MqttConnectionOver(0, True, 0, False)]


# -- publishing -------------------------------------------------------------------------------------------------------


def aliased(alias, topic="", **fields):
    return PublishPacket(topic, b"x", properties=PacketProperties(topic_alias=alias), **fields)


def test_MQ_20_an_alias_beyond_the_maximum():
    assert connect().send(aliased(3, "t")) == closed(0x94)


def test_MQ_21_an_alias_stands_for_its_topic():
    client = connect()
    assert client.send(aliased(2, "t")) == [MessagePublished(PublishPacket("t", b"x"))]
    assert client.send(aliased(2)) == [MessagePublished(PublishPacket("t", b"x"))]
    assert client.send(aliased(2, "u", qos=1, packet_id=1)) == [
        MessagePublished(PublishPacket("u", b"x", 1, packet_id=1))
    ]
    assert client.send(aliased(2)) == [MessagePublished(PublishPacket("u", b"x"))]
    assert client.send(aliased(1)) == closed(0x82)


def test_MQ_21_a_message_that_comes_again_sets_its_alias_all_the_same():
    client = connect()
    client.send(PublishPacket("t", b"x", 2, packet_id=1))
    assert client.send(aliased(1, "t", qos=2, packet_id=1)) == []
    assert client.send(aliased(1)) == [MessagePublished(PublishPacket("t", b"x"))]
    client.feed(PublishStoredAs(1, 0))
    assert client.send(aliased(2, "u", qos=2, packet_id=1)) == [PubrecPacket(1)]
    assert client.send(aliased(2)) == [MessagePublished(PublishPacket("u", b"x"))]


def test_MQ_22_a_client_sends_no_subscription_identifier():
    assert connect().send(PublishPacket("t", properties=PacketProperties(subscription_ids=(1,)))) == closed(0x82)


def test_MQ_23_more_than_the_receive_maximum():
    client = connect()
    for number in (1, 2, 3):
        client.send(PublishPacket("t", qos=1 + number % 2, packet_id=number))
    assert len(client.send(PublishPacket("t"))) == 1
    assert client.send(PublishPacket("t", qos=1, packet_id=4)) == closed(0x93)


def test_MQ_23_ids_that_an_earlier_connection_received_are_open_until_they_are_released():
    client = connect(received=(7, 8, 9))
    assert client.send(PubrelPacket(7)) == [MessageReleased(7)]
    assert len(client.send(PublishPacket("t", qos=2, packet_id=4))) == 1
    assert client.feed(ReleaseStored(7)) == [PubcompPacket(7)]
    assert client.node.record.releasing_before == 0
    assert client.send(PublishPacket("t", b"x", 2, packet_id=8, dup=True)) == [PubrecPacket(8)]
    assert client.send(PublishPacket("t", qos=1, packet_id=5)) == closed(0x93)


def test_MQ_23_more_ids_than_there_is_room_for_are_noticed():
    ids = Map(dict.fromkeys((1, 2, 3, 4), IncomingStage.RECEIVED))
    record = MqttConnectionRecord("client", SETTINGS, MqttConnectionStatus.CONNECTED, incoming=ids)
    node = Node(MQTT_CONNECTION, record, name="c", now_ns=0, check=True)
    with pytest.raises(InvariantViolated, match="has-room"):
        node.feed(wrap_packet(PingreqPacket()), 0)


@BOTH
def test_MQ_24_a_message_of_qos_0(version):
    packet = PublishPacket("t", b"x", retain=True)
    client = connect(version)
    assert client.send(packet) == [MessagePublished(packet)]
    assert not client.node.record.incoming


@BOTH
def test_MQ_25_MQ_26_a_message_of_qos_1(version):
    client, packet = connect(version), PublishPacket("t", b"x", 1, packet_id=9)
    assert client.send(packet) == [MessagePublished(packet)]
    assert client.feed(PublishStoredAs(9, 0)) == [PubackPacket(9)]
    assert client.send(packet) == [MessagePublished(packet)]  # the id is free


@pytest.mark.parametrize(("code", "answer"), [(0x10, 0x10), (0x97, 0x97), (0x8B, 0x80), (0x03, 0)])
def test_MQ_26_the_reason_code_is_one_that_the_packet_may_have(code, answer):
    client = connect()
    client.send(PublishPacket("t", b"x", 1, packet_id=9))
    assert client.feed(PublishStoredAs(9, code)) == [PubackPacket(9, answer)]


def test_MQ_26_a_refused_message_of_qos_2_is_over():
    client, packet = connect(), PublishPacket("t", b"x", 2, packet_id=9)
    client.send(packet)
    assert client.feed(PublishStoredAs(9, 0x97)) == [PubrecPacket(9, 0x97)]
    assert client.send(packet) == [MessagePublished(packet)]


@pytest.mark.parametrize("qos", [1, 2])
def test_MQ_27_3_1_1_is_closed_where_a_message_is_refused(qos):
    client = connect(4)
    client.send(PublishPacket("t", b"x", qos, packet_id=9))
    assert client.feed(PublishStoredAs(9, 0x97)) == [over(0x97)]


@BOTH
def test_MQ_28_MQ_30_a_message_of_qos_2_is_told_once(version):
    client, packet = connect(version), PublishPacket("t", b"x", 2, packet_id=9)
    again = PublishPacket("t", b"x", 2, dup=True, packet_id=9)
    assert client.send(packet) == [MessagePublished(packet)]
    assert client.send(again) == []
    assert client.feed(PublishStoredAs(9, 0)) == [PubrecPacket(9)]
    assert client.send(again) == [PubrecPacket(9)]
    assert client.send(packet) == [PubrecPacket(9)]
    assert client.send(PubrelPacket(9)) == [MessageReleased(9)]
    assert client.send(again) == [PubrecPacket(9)]
    assert client.send(PubrelPacket(9)) == []
    assert client.feed(ReleaseStored(9)) == [PubcompPacket(9)]
    assert client.send(packet) == [MessagePublished(packet)]


def test_MQ_28_an_id_that_an_earlier_connection_received():
    client = connect(received=(9,))
    assert client.send(PublishPacket("t", b"x", 2, dup=True, packet_id=9)) == [PubrecPacket(9)]
    assert client.send(PubrelPacket(9)) == [MessageReleased(9)]


@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 2), (2, 1)])
def test_MQ_29_an_id_in_use(first, second):
    client = connect()
    client.send(PublishPacket("t", b"x", first, packet_id=9))
    assert client.send(PublishPacket("t", b"x", second, packet_id=9)) == closed(0x82)


@pytest.mark.parametrize(("version", "code"), [(4, 0), (5, 0x92)])
def test_MQ_31_a_pubrel_of_an_id_that_nobody_knows(version, code):
    assert connect(version).send(PubrelPacket(9)) == [PubcompPacket(9, code)]


def plain(packet_id, payload=b"x", qos=1, **fields):
    return PublishPacket("t", payload, qos, packet_id=packet_id, **fields)


@BOTH
def test_MQ_235_MQ_236_messages_that_came_together_are_told_and_acknowledged_together(version):
    client = connect(version)
    packets = tuple(map(plain, (3, 1, 2)))
    assert client.feed(PublishRun(packets)) == [MessagesPublished(packets)]
    assert client.feed(PublishStoredAs(1, 0)) == [PubackPacket(1)]
    assert client.feed(PublishesStored((3, 2))) == [PubackPacket(3), PubackPacket(2)]
    assert client.feed(PublishRun(packets)) == [MessagesPublished(packets)], "the ids are free again"
    assert client.send(plain(3)) == (closed(0x82) if version == 5 else [over(0x82)])


def test_MQ_235_messages_that_came_together_begin_the_keep_alive_anew():
    client = connect(keep_alive=10)
    assert client.wait(14) == []
    client.feed(PublishRun((plain(1),)))
    assert client.wait(14) == []
    assert client.wait(1) == closed(0x8D)


@pytest.mark.parametrize(
    "packets",
    [
        [plain(1), plain(1)],
        [plain(2), plain(9)],
        [plain(1), plain(2), plain(3)],
        [plain(1), plain(2, qos=2)],
        [plain(1), plain(2, retain=True)],
        [plain(1), PublishPacket("", b"x", 1, packet_id=2)],
        [plain(1), plain(2, properties=PacketProperties(message_expiry=1))],
        [plain(1), plain(2, payload=b"long")],
    ],
)
def test_MQ_235_other_messages_come_alone(packets):
    """An id that comes twice or is in use, no room, and whatever is not plain."""
    client = connect(settings=replace(SETTINGS, max_payload=3))
    client.send(plain(9))
    with pytest.raises(RemoteProtocolError, match="MQ-235"):
        client.feed(PublishRun(tuple(packets)))
    assert client.feed(PublishRun(tuple(packets[:1]))) == [MessagesPublished(tuple(packets[:1]))]


@pytest.mark.parametrize("ids", [(), (1, 1), (1, 2), (1, 3)])
def test_MQ_236_only_messages_of_QoS_1_that_are_being_stored_are_stored_together(ids):
    client = connect()
    client.send(plain(1))
    client.send(plain(2, qos=2))
    with pytest.raises(LocalProtocolError, match="MQ-33"):
        client.feed(PublishesStored(ids))


@pytest.mark.parametrize("qos", [1, 2])
def test_MQ_32_a_pubrel_before_pubrec(qos):
    client = connect()
    client.send(PublishPacket("t", b"x", qos, packet_id=9))
    assert client.send(PubrelPacket(9)) == closed(0x82)


@pytest.mark.parametrize(
    "call", [PublishStoredAs(9, 0), ReleaseStored(9), MqttSessionOpened("c", True), SessionRefused(0x87)]
)
def test_MQ_33_an_answer_that_nothing_waits_for(call):
    client = connect()
    with pytest.raises(LocalProtocolError, match="MQ-33"):
        client.feed(call)


def test_MQ_33_answers_before_anything_was_asked():
    client = MqttClient()
    for early in CALLS[:9]:
        with pytest.raises(LocalProtocolError, match="MQ-33"):
            client.feed(early)
    client.send(ConnectPacket("c"))
    for early in CALLS[2:8]:
        with pytest.raises(LocalProtocolError, match="MQ-33"):
            client.feed(early)


# -- subscribing and delivering ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "codes"), [(5, (1, 0x97)), (4, (1, 0x80))])
def test_MQ_40_a_subscribe(version, codes):
    client, wanted = connect(version), (TopicSubscription("a/#", 1), TopicSubscription("b", 2))
    held = PacketProperties(subscription_ids=(5,) if version == 5 else ())
    assert client.send(SubscribePacket(3, wanted, held)) == [FiltersWanted(3, wanted, 5 if version == 5 else None)]
    assert client.feed(FiltersStored(3, (1, 0x97))) == [SubackPacket(3, codes)]


@pytest.mark.parametrize(("version", "codes"), [(5, (0, 0x11)), (4, ())])
def test_MQ_41_an_unsubscribe(version, codes):
    client = connect(version)
    assert client.send(UnsubscribePacket(3, ("a", "b"))) == [FiltersUnwanted(3, ("a", "b"))]
    assert client.feed(FiltersRemoved(3, (0, 0x11))) == [UnsubackPacket(3, codes)]


def test_MQ_42_a_message_that_is_too_large_for_the_client():
    client = connect(properties=PacketProperties(maximum_packet_size=20))
    fits, large = (PublishPacket("t", b"x" * size, 1, packet_id=1) for size in (12, 13))
    assert client.feed(DeliveryReady(fits)) == [fits]
    assert client.feed(DeliveryReady(large)) == [DeliveryDropped(1)]


@pytest.mark.parametrize(("version", "held"), [(5, PacketProperties(content_type="x")), (4, PacketProperties())])
def test_MQ_43_a_message_is_sent_as_the_version_has_it(version, held):
    packet = PublishPacket("t", b"x", 2, True, True, 4, PacketProperties(content_type="x"))
    assert connect(version).feed(DeliveryReady(packet)) == [PublishPacket("t", b"x", 2, True, True, 4, held)]


@BOTH
def test_MQ_44_MQ_45_acknowledgements_of_the_client_are_told(version):
    client = connect(version)
    assert client.send(PubackPacket(4)) == [DeliveryAnswered(4, "puback", 0)]
    assert client.send(PubrecPacket(5)) == [DeliveryAnswered(5, "pubrec", 0)]
    assert client.feed(ReleaseReady(5)) == [PubrelPacket(5)]
    assert client.send(PubcompPacket(5)) == [DeliveryAnswered(5, "pubcomp", 0)]


def test_MQ_210_acknowledgements_that_came_together_are_told_together():
    client = connect()
    together = PubackMessage(PubackPacket(4), (9, 4, 5))
    assert client.feed(together) == [DeliveryAnswered(4, "puback", 0, (9, 4, 5))]
    assert client.wait(59) == []
    assert client.feed(together) == [DeliveryAnswered(4, "puback", 0, (9, 4, 5))]
    assert client.wait(59) == [], "the keep alive has begun anew"


@pytest.mark.parametrize(("version", "held"), [(5, PacketProperties(content_type="x")), (4, PacketProperties())])
def test_MQ_211_messages_that_are_there_together_leave_together(version, held):
    typed = PacketProperties(content_type="x")
    given = [PublishPacket("t", b"x", 1, packet_id=one, properties=typed) for one in (1, 2)]
    plain = PublishPacket("t", b"y", 2, packet_id=3)
    client = connect(version)
    assert client.feed(DeliveryReady(given[0], (plain, given[1]))) == [
        replace(given[0], properties=held), plain, replace(given[1], properties=held),
    ]  # fmt: skip


@BOTH
def test_MQ_211_of_messages_that_are_there_together_each_is_dropped_alone(version):
    client = connect(version)
    record = replace(client.node.record, max_packet=20)
    client.node.record = record
    fits, large = (
        [PublishPacket("t", b"x" * size, 1, packet_id=number) for number in (1, 2)]
        for size in (12, 15)
    )  # fmt: skip
    assert client.feed(DeliveryReady(fits[0], (large[1],))) == [fits[0], DeliveryDropped(2)]
    assert client.feed(DeliveryReady(large[0], (fits[1],))) == [DeliveryDropped(1), fits[1]]


# -- the end ----------------------------------------------------------------------------------------------------------


@BOTH
def test_MQ_50_a_ping(version):
    assert connect(version).send(PingreqPacket()) == [PingrespPacket()]


@pytest.mark.parametrize(
    ("version", "keep_alive", "limit"), [(5, 10, 15), (4, 10, 15), (5, 0, 90), (5, 600, 90), (4, 600, 900)]
)
def test_MQ_51_a_silent_client_is_cut_off(version, keep_alive, limit):
    client = connect(version, keep_alive=keep_alive)
    assert client.wait(limit - 1) == []
    for packet in (PingreqPacket(), PublishPacket("t"), PubackPacket(1), PubrelPacket(1)):
        client.send(packet)
        assert client.wait(limit - 1) == []
    assert client.wait(1) == (closed(0x8D) if version == 5 else [over(0x8D)])


STAYING = [
    # packets of a client that has an id of QoS 2 from before, 9
    PublishPacket("t"), PublishPacket("t", qos=1, packet_id=1), PublishPacket("t", qos=2, packet_id=2),
    PublishPacket("t", qos=2, packet_id=2), PublishPacket("t", qos=2, packet_id=9), PubrelPacket(9), PubrelPacket(9),
    PubrelPacket(5), PubackPacket(1), PubrecPacket(1), PubcompPacket(1), PingreqPacket(),
    SubscribePacket(1, (TopicSubscription("t"),)), UnsubscribePacket(1, ("t",)),
]  # fmt: skip


@pytest.mark.parametrize("count", range(1, len(STAYING) + 1))
def test_MQ_51_each_packet_begins_the_keep_alive_anew(count):
    client = connect(received=(9,), keep_alive=10)
    for packet in STAYING[: count - 1]:
        client.send(packet)
    client.wait(10)
    client.send(STAYING[count - 1])
    assert client.wait(14.9) == []
    assert client.wait(0.2)[0] == DisconnectPacket(0x8D)


def test_MQ_51_a_client_of_3_1_1_may_have_no_keep_alive():
    assert connect(4, keep_alive=0).wait(1e6) == []


@pytest.mark.parametrize(("code", "will"), [(0, False), (4, True), (0x80, True)])
def test_MQ_52_a_disconnect(code, will):
    client = connect(properties=PacketProperties(session_expiry=50))
    assert client.send(DisconnectPacket(code)) == [over(0, 50, will)]
    client = connect(properties=PacketProperties(session_expiry=50))
    assert client.send(DisconnectPacket(0, PacketProperties(session_expiry=2_000))) == [over(0, 1_000, False)]
    client = connect(properties=PacketProperties(session_expiry=50))
    assert client.send(DisconnectPacket(0, PacketProperties(session_expiry=0))) == [over(0, 0, False)]


def test_MQ_53_an_expiry_that_was_none():
    assert connect().send(DisconnectPacket(0, PacketProperties(session_expiry=1))) == closed(0x82)


@pytest.mark.parametrize("packet", [AuthPacket(), ConnackPacket(), SubackPacket(1, (0,)), PingrespPacket()])
def test_MQ_54_packets_that_no_client_may_send(packet):
    assert connect().send(packet) == closed(0x82)


@pytest.mark.parametrize(
    ("raw", "code"),
    [("c001", 0x81), ("3005 0001 23 00 78", 0x90), ("30ffffff7f", 0x95), ("3007 0001 74 03 230000", 0x94)],
)
def test_MQ_54_bytes_that_are_no_packet(raw, code):
    assert connect().send_bytes(bytes.fromhex(raw)) == closed(code)


def test_MQ_54_3_1_1_is_closed_without_a_packet():
    assert connect(4).send_bytes(b"\xc0\x01") == [over(0x81)]
    assert connect(5).send_bytes(bytes.fromhex("100e 0004 4d515454 06 02 003c 00 0001 63")) == closed(0x82)


@pytest.mark.parametrize(("pairs", "filters", "is_refused"), [(9_999, 20_000, False), (10_000, 20_001, True)])
def test_MQ_180_a_packet_of_very_many_texts(pairs, filters, is_refused):
    properties = PacketProperties(user_properties=(("k", "v"),) * pairs)
    names = tuple(map(str, range(filters)))
    for packet in (
        PublishPacket("t", b"x", 1, packet_id=1, properties=properties),
        SubscribePacket(2, tuple(TopicSubscription(name, 1) for name in names)),
        UnsubscribePacket(2, names),
    ):
        assert (connect().send(packet) == closed(0x97)) is is_refused, type(packet)


@BOTH
def test_MQ_55_a_takeover(version):
    assert connect(version).feed(MqttSessionTaken()) == (closed(0x8E) if version == 5 else [over(0x8E)])
    client = MqttClient(version)
    client.send(ConnectPacket("c", client.version))
    assert client.feed(MqttSessionTaken()) == [MqttConnectionOver(0, True, 0, False)]


def test_MQ_56_a_server_that_stops():
    assert connect().feed(ServerStopping(0x8B)) == closed(0x8B)
    client = MqttClient()
    client.send(ConnectPacket("c"))
    assert client.feed(ServerStopping(0x89)) == [ConnackPacket(False, 0x89), MqttConnectionOver(0x89, True, 0, False)]


def test_MQ_57_a_connection_that_is_lost():
    assert connect().feed(TransportLost()) == [LOST]


@pytest.mark.parametrize(
    "event", [*CALLS, *map(wrap_packet, CLIENT_PACKETS), BrokenPacket(0x81)], ids=lambda one: type(one).__name__
)
def test_MQ_58_after_the_end_nothing_happens(event):
    client = connect()
    client.feed(TransportLost())
    assert client.feed(event) == []
    assert client.wait(1e6) == []


@pytest.mark.parametrize("event", [ConnectLate(), KeepAliveOver()])
def test_MQ_07_MQ_51_a_timer_that_was_cancelled_may_fire(event):
    lost = connect()
    lost.feed(TransportLost())
    assert lost.feed(event) == []
    client = MqttClient() if isinstance(event, KeepAliveOver) else connect()
    assert client.feed(event) == []


def test_MQ_59_a_connack_that_the_client_does_not_take_is_not_sent():
    client = MqttClient()
    client.send(ConnectPacket("c", properties=PacketProperties(maximum_packet_size=10)))
    (over,) = client.feed(MqttSessionOpened("c", False))
    assert over == MqttConnectionOver(0, True, 0, False)
    assert client.status == "closed"


def open_with(largest, settings=SETTINGS, client_id="c"):
    """What comes of a CONNECT with this Maximum Packet Size."""
    client = MqttClient(settings=settings)
    client.send(ConnectPacket(client_id, properties=PacketProperties(maximum_packet_size=largest)))
    return client, client.feed(MqttSessionOpened("given", False))


def test_MQ_59_a_connack_may_be_as_large_as_the_client_takes():
    _, (connack,) = open_with(None)
    size = len(encode(connack, 5))
    assert open_with(size) == (ANY, [connack])
    assert [open_with(largest)[0].status for largest in (size - 1, 1)] == ["closed"] * 2


def test_MQ_08_connack_says_the_longest_packet_unless_any_is_taken():
    for largest, said in ((268_435_460, None), (268_435_459, 268_435_459)):
        _, (connack,) = open_with(None, replace(SETTINGS, max_packet=largest))
        assert connack.properties.maximum_packet_size == said


def test_MQ_08_MQ_107_connack_says_that_there_are_no_shared_subscriptions():
    _, (connack,) = open_with(None, replace(SETTINGS, shared_available=False))
    assert connack.properties.shared_available == 0


def test_MQ_08_an_assigned_client_id_is_the_one_of_the_connection():
    client, (connack,) = open_with(None, client_id="")
    assert connack.properties.assigned_client_id == client.node.record.client_id == "given"


def test_MQ_23_a_connection_knows_how_many_ids_its_session_had_open():
    assert connect(received=(1, 2)).node.record.received_before == 2


def test_MQ_21_a_message_without_topic_and_without_alias_has_no_topic():
    client = connect()
    client.send(PublishPacket("t", b"x", properties=PacketProperties(topic_alias=1)))
    assert client.feed(PublishMessage(PublishPacket("", b"x")))[0] == DisconnectPacket(0x82)


@pytest.mark.parametrize("version", [4, 5])
def test_MQ_60_where_nothing_is_retained_that_is_said_and_refused(version):
    settings = replace(SETTINGS, retain_available=False)
    client = MqttClient(version, settings)
    client.send(ConnectPacket("c", client.version))
    (connack,) = client.feed(MqttSessionOpened("c", False))
    assert connack.properties.retain_available == (0 if version == 5 else None)
    found = client.send(PublishPacket("t", b"x", retain=True))
    assert found[-1].reason_code == 0x9A
    assert (DisconnectPacket(0x9A) in found) == (version == 5)

    client = MqttClient(version, settings)
    *connack, over = client.send(ConnectPacket("c", client.version, will=WillMessage("t", b"", retain=True)))
    assert connack == ([ConnackPacket(False, 0x9A)] if version == 5 else [])
    assert isinstance(over, MqttConnectionOver)


# -- payloads that are too large, and violations that are not answered ------------------------------------------------

SMALL = replace(SETTINGS, max_payload=1)


@BOTH
def test_MQ_170_a_payload_that_is_too_large(version):
    client = connect(version, settings=SMALL)
    (told,) = client.send(PublishPacket("t", b"A"))
    assert isinstance(told, MessagePublished)
    assert client.send(PublishPacket("t", b"AB")) == []
    if version == 4:
        assert client.send(PublishPacket("t", b"AB", 2, packet_id=1)) == [over(0x97)]
        return
    assert client.send(PublishPacket("t", b"AB", 1, packet_id=1)) == [PubackPacket(1, 0x97)]
    assert client.send(PublishPacket("t", b"AB", 2, packet_id=1)) == [PubrecPacket(1, 0x97)]
    assert client.status == "connected"
    assert not client.node.record.incoming


def test_MQ_170_the_topic_alias_of_such_a_message_is_known_and_its_packet_id_in_use_is_still_a_violation():
    client = connect(settings=SMALL)
    first, second = PacketProperties(topic_alias=1), PacketProperties(topic_alias=2)
    assert client.send(PublishPacket("t", b"AB", properties=first)) == []
    assert client.send(PublishPacket("u", b"AB", 1, packet_id=1, properties=second)) == [PubackPacket(1, 0x97)]
    for properties, topic in ((first, "t"), (second, "u")):
        (told,) = client.send(PublishPacket("", b"A", properties=properties))
        assert told.packet.topic == topic
    client.send(PublishPacket("t", b"A", 1, packet_id=5))
    assert client.send(PublishPacket("t", b"AB", 1, packet_id=5)) == closed(0x82)


@BOTH
def test_MQ_170_a_will_that_is_too_large(version):
    code = 0x95 if version == 5 else 5
    client = MqttClient(version, SMALL)
    packet = ConnectPacket("c", client.version, will=WillMessage("w", b"AB"))
    assert client.send(packet) == [ConnackPacket(False, code), MqttConnectionOver(0x95, False, 0, False)]
    client = MqttClient(version, SMALL)
    (asked,) = client.send(ConnectPacket("c", client.version, will=WillMessage("w", b"A")))
    assert isinstance(asked, SessionWanted)


@BOTH
def test_MQ_171_a_second_connect_and_an_unexpected_acknowledgement_close_without_a_packet(version):
    client = connect(version)
    assert client.send(ConnectPacket("c", client.version)) == [over(0x82)]
    assert connect(version).feed(UnexpectedAnswer()) == [over(0x82)]


@pytest.mark.parametrize("packet", [PublishPacket("t", b"AB"), PublishPacket("t", b"AB", 1, packet_id=1)])
def test_MQ_51_a_message_that_is_refused_for_its_payload_begins_the_keep_alive_anew(packet):
    client = connect(settings=SMALL, keep_alive=10)
    client.wait(10)
    client.send(packet)
    assert client.wait(14.9) == []
    assert client.wait(0.2)[0] == DisconnectPacket(0x8D)


def test_MQ_26_MQ_27_a_reason_code_from_0x80_on_refuses():
    client = connect(4)
    client.send(PublishPacket("t", b"A", 1, packet_id=1))
    client.send(PublishPacket("t", b"A", 1, packet_id=2))
    assert client.feed(PublishStoredAs(1, 0x7F)) == [PubackPacket(1)]
    assert client.feed(PublishStoredAs(2, 0x80)) == [over(0x80)]


@BOTH
def test_MQ_170_a_limit_is_the_longest_payload_that_is_taken(version):
    client = connect(version, settings=replace(SETTINGS, max_payload=3))
    assert isinstance(client.send(PublishPacket("t", b"ABC"))[0], MessagePublished)
    assert client.send(PublishPacket("t", b"ABCD")) == []
    (told,) = connect(version).send(PublishPacket("t", b"A" * 1_000, 1, packet_id=1))
    assert isinstance(told, MessagePublished)


@BOTH
def test_MQ_51_a_client_that_says_nothing_after_connect_is_cut_off(version):
    client = connect(version, keep_alive=10)
    assert client.wait(14.9) == []
    assert client.wait(0.2)[-1] == over(0x8D)


def test_MQ_07_the_connect_timeout_is_that_of_the_settings():
    client = MqttClient(settings=replace(SETTINGS, connect_timeout_s=10))
    assert client.wait(9.9) == []
    assert client.wait(0.2) == [MqttConnectionOver(0, False, 0, False)]


@pytest.mark.parametrize(("asked", "said"), [(10, None), (60, None), (61, 60), (0, 60)])
def test_MQ_08_MQ_51_connack_says_the_keep_alive_of_the_server_where_it_is_another(asked, said):
    client = MqttClient()
    client.send(ConnectPacket("c", keep_alive=asked))
    (connack,) = client.feed(MqttSessionOpened("c", False))
    assert connack.properties.server_keep_alive == said


def test_MQ_01_the_end_tells_the_expiry_that_the_server_allows():
    long = PacketProperties(session_expiry=2_000)
    for event in (TransportLost(), ServerStopping(0x8B), UnexpectedAnswer()):
        assert connect(properties=long).feed(event)[-1].expiry_s == 1_000
    client = MqttClient()
    client.send(ConnectPacket("c", properties=long))
    assert client.feed(SessionRefused(0x97))[-1].expiry_s == 1_000

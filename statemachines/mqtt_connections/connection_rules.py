"""Guards of a connection: what its table asks of record and event."""

from __future__ import annotations

from functools import partial
from typing import Final

from statemachines.mqtt_codec import NO_PROPERTIES, PacketProperties, PublishPacket, ReasonCode, encode
from statemachines.mqtt_codec.decoder import PACKET_MAX
from statemachines.mqtt_codec.packet import ConnackPacket, MqttVersion
from statemachines.mqtt_connections.client_packet import (
    BrokenPacket,
    ConnectMessage,
    DisconnectMessage,
    PublishMessage,
    PublishRun,
    PubrelMessage,
)
from statemachines.mqtt_connections.connection_record import IncomingStage, MqttConnectionRecord
from statemachines.mqtt_connections.session_event import (
    DeliveryReady,
    MqttSessionOpened,
    PublishesStored,
    PublishStoredAs,
    ReleaseStored,
)

STORED_STAGES: Final = (
    IncomingStage.RECEIVED, IncomingStage.RELEASING, IncomingStage.RECEIVED_BEFORE, IncomingStage.RELEASING_BEFORE,
)  # fmt: skip
"""A message under the packet id is stored, and the id not forgotten."""

WithId = PublishStoredAs | ReleaseStored | PubrelMessage | PublishMessage


def is_refusal(reason_code: int) -> bool:
    """Whether what it answers is not done."""
    return reason_code >= 0x80


def find_stage(record: MqttConnectionRecord, event: WithId) -> IncomingStage | None:
    """What is done with the packet id of this event; None: it is not in use."""
    packet_id = event.packet.packet_id if isinstance(event, (PubrelMessage, PublishMessage)) else event.packet_id
    return record.incoming.get(packet_id)


def has_method(record: MqttConnectionRecord, event: ConnectMessage) -> bool:
    return event.packet.properties.authentication_method is not None


def is_other_version(record: MqttConnectionRecord, event: BrokenPacket) -> bool:
    return event.level is not None


def is_client_id_invalid(record: MqttConnectionRecord, event: BrokenPacket) -> bool:
    return event.reason_code == ReasonCode.CLIENT_ID_INVALID


def is_alias_beyond(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    alias = event.packet.properties.topic_alias
    return alias is not None and not 0 < alias <= record.settings.topic_alias_maximum


def is_alias_unknown(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    packet = event.packet
    return not packet.topic and (packet.properties.topic_alias or 0) not in record.aliases


def has_subscription_id(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    return bool(event.packet.properties.subscription_ids)


def is_qos_0(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    return event.packet.qos == 0


def is_received_again(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    return event.packet.qos == 2 and find_stage(record, event) in STORED_STAGES


def is_storing_again(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    return event.packet.qos == 2 and find_stage(record, event) is IncomingStage.STORING_2


def is_id_in_use(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    return find_stage(record, event) is not None


def is_beyond_quota(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    return count_room(record) <= 0


def count_room(record: MqttConnectionRecord) -> int:
    """How many messages of QoS 1 and 2 the client may send before one is acknowledged."""
    return record.settings.receive_maximum + record.releasing_before - len(record.incoming)


def fits_run(record: MqttConnectionRecord, event: PublishRun) -> bool:
    """Plain messages of QoS 1 under ids that are free, and there is room for all."""
    ids = {one.packet_id for one in event.packets}
    if len(event.packets) > min(len(ids), count_room(record)) or any(map(record.incoming.__contains__, ids)):
        return False
    return all(map(partial(is_plain, record), event.packets))


def is_plain(record: MqttConnectionRecord, packet: PublishPacket) -> bool:
    """A message of QoS 1 without properties, that is not to be retained, with a payload that the server takes."""
    is_bare = packet.qos == 1 and not packet.retain and bool(packet.topic) and packet.properties == NO_PROPERTIES
    return is_bare and not _is_payload_too_large(record, packet.payload)


def are_storing(record: MqttConnectionRecord, event: PublishesStored) -> bool:
    """Each is of QoS 1, and being stored; none comes twice."""
    ids = set(event.packet_ids)
    return len(ids) == len(event.packet_ids) and set(map(record.incoming.get, ids)) == {IncomingStage.STORING_1}


def is_storing(record: MqttConnectionRecord, event: WithId) -> bool:
    return find_stage(record, event) in (IncomingStage.STORING_1, IncomingStage.STORING_2)


def is_refusal_unsayable(record: MqttConnectionRecord, event: PublishStoredAs) -> bool:
    """An acknowledgement of 3.1.1 has no reason code."""
    return is_refusal(event.reason_code) and record.version is MqttVersion.V3_1_1 and is_storing(record, event)


def is_received(record: MqttConnectionRecord, event: PubrelMessage) -> bool:
    return find_stage(record, event) in (IncomingStage.RECEIVED, IncomingStage.RECEIVED_BEFORE)


def is_releasing(record: MqttConnectionRecord, event: PubrelMessage | ReleaseStored) -> bool:
    return find_stage(record, event) in (IncomingStage.RELEASING, IncomingStage.RELEASING_BEFORE)


def fit_version(record: MqttConnectionRecord, packet: PublishPacket) -> PublishPacket:
    """The message as the client's version has it: 3.1.1 has no properties."""
    if record.version is MqttVersion.V5 or packet.properties == NO_PROPERTIES:
        return packet
    return PublishPacket(packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.packet_id)


def is_too_large(record: MqttConnectionRecord, event: DeliveryReady) -> bool:
    """Any of the messages is."""
    if not record.max_packet:
        return False
    return any(is_packet_too_large(record, packet) for packet in (event.packet, *event.more))


def is_packet_too_large(record: MqttConnectionRecord, packet: PublishPacket) -> bool:
    """Whether a client with a Maximum Packet Size does not take it."""
    return record.max_packet < len(encode(fit_version(record, packet), record.version))


def build_connack(record: MqttConnectionRecord, event: MqttSessionOpened) -> ConnackPacket:
    """CONNACK says of the server what is not what a client takes for granted."""
    if record.version is not MqttVersion.V5:
        return ConnackPacket(event.present)
    settings = record.settings
    properties = PacketProperties(
        session_expiry=record.expiry_s if record.expiry_s != record.asked_expiry_s else None,
        receive_maximum=settings.receive_maximum,
        maximum_packet_size=settings.max_packet if settings.max_packet < PACKET_MAX else None,
        assigned_client_id=event.client_id if not record.client_id else None,
        topic_alias_maximum=settings.topic_alias_maximum or None,
        server_keep_alive=record.keep_alive_s if record.keep_alive_s != record.asked_keep_alive_s else None,
        retain_available=None if settings.retain_available else 0,
        shared_available=None if settings.shared_available else 0,
    )
    return ConnackPacket(event.present, 0, properties)


def is_connack_too_large(record: MqttConnectionRecord, event: MqttSessionOpened) -> bool:
    return 0 < record.max_packet < len(encode(build_connack(record, event), record.version))


def is_retain_refused(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    return event.packet.retain and not record.settings.retain_available


def is_will_retain_refused(record: MqttConnectionRecord, event: ConnectMessage) -> bool:
    will = event.packet.will
    return will is not None and will.retain and not record.settings.retain_available


def is_will_too_large(record: MqttConnectionRecord, event: ConnectMessage) -> bool:
    will = event.packet.will
    return will is not None and _is_payload_too_large(record, will.payload)


def _is_payload_too_large(record: MqttConnectionRecord, payload: bytes) -> bool:
    return 0 < record.settings.max_payload < len(payload)


def is_payload_refused(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    return _is_payload_too_large(record, event.packet.payload)


def is_payload_dropped(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    """A message of QoS 0 is not answered."""
    return event.packet.qos == 0 and is_payload_refused(record, event)


def is_payload_unsayable(record: MqttConnectionRecord, event: PublishMessage) -> bool:
    """An acknowledgement of 3.1.1 has no reason code."""
    return record.version is MqttVersion.V3_1_1 and is_payload_refused(record, event)


def is_expiry_forbidden(record: MqttConnectionRecord, event: DisconnectMessage) -> bool:
    return record.asked_expiry_s == 0 and (event.packet.properties.session_expiry or 0) > 0

"""Actions of a connection: what its rows do."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Effect, Effects, Event, Message, Send, SetTimer, Tell
from statemachines.kernel.pmap import Map
from statemachines.mqtt_codec import NO_PROPERTIES
from statemachines.mqtt_codec import packet as p
from statemachines.mqtt_codec.codec_error import ReasonCode
from statemachines.mqtt_codec.packet_rule import CODES
from statemachines.mqtt_connections import client_packet as c
from statemachines.mqtt_connections import session_event as s
from statemachines.mqtt_connections.connection_record import IncomingStage, MqttConnectionRecord, S
from statemachines.mqtt_connections.connection_rules import build_connack, fit_version, is_packet_too_large, is_refusal

Done = tuple[MqttConnectionRecord, Effects]
V3: Final = p.MqttVersion.V3_1_1

CONNACK_CODES: Final = frozenset(filter(is_refusal, CODES[p.ConnackPacket][1]))
"""Those that refuse."""

RETURN_CODES: Final = {0x84: 1, 0x85: 2, 0x86: 4, 0x87: 5, 0x8A: 5, 0x95: 5}
"""The return code of a CONNACK of 3.1.1 for a reason code; for any other there is none, and no CONNACK."""

PASSING: Final = frozenset({ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_SHUTTING_DOWN})
"""The node serves nobody now.  A CONNACK that says so ends clients such as `mosquitto_sub`; after a close they connect
again, maybe to another node."""


def _send(record: MqttConnectionRecord, message: Message) -> Effect:
    return Send(record.party, message)


def _wait(record: MqttConnectionRecord, now_ns: int) -> Effects:
    """A packet came: the keep alive begins anew."""
    if not record.keep_alive_s:
        return ()
    return (SetTimer("keep_alive", now_ns + record.keep_alive_s * 3 * S // 2),)


# -- the handshake ----------------------------------------------------------------------------------------------------


def ask_session(record: MqttConnectionRecord, event: c.ConnectMessage, now_ns: int) -> Done:
    packet, settings = event.packet, record.settings
    properties = packet.properties
    if packet.version is V3:
        asked, keep_alive = 0 if packet.clean_start else settings.expiry_3_s, packet.keep_alive
        expiry = asked
    else:
        asked = properties.session_expiry or 0
        expiry = min(asked, settings.expiry_max_s)
        keep_alive = min(packet.keep_alive or settings.keep_alive_max_s, settings.keep_alive_max_s)
    record = replace(
        record,
        version=packet.version,
        client_id=packet.client_id,
        keep_alive_s=keep_alive,
        asked_keep_alive_s=packet.keep_alive,
        expiry_s=expiry,
        asked_expiry_s=asked,
        max_packet=properties.maximum_packet_size or 0,
    )
    receive_maximum = properties.receive_maximum or 65_535
    wanted = s.SessionWanted(
        packet.client_id,
        packet.clean_start,
        expiry,
        receive_maximum,
        packet.will,
        packet.user_name,
        packet.password,
    )
    return record, (Tell(wanted),)


def accept(record: MqttConnectionRecord, event: s.MqttSessionOpened, now_ns: int) -> Done:
    incoming = Map(dict.fromkeys(event.received, IncomingStage.RECEIVED_BEFORE))
    connack = c.ConnackMessage(build_connack(record, event))
    record = replace(record, client_id=event.client_id, incoming=incoming, received_before=len(incoming))
    return record, (_send(record, connack), *_wait(record, now_ns))


def _find_refusal(record: MqttConnectionRecord, reason_code: int) -> int | None:
    """What CONNACK says; None: the connection is closed without one."""
    if reason_code in PASSING:
        return None
    if record.version is V3:
        return RETURN_CODES.get(reason_code)
    return reason_code if reason_code in CONNACK_CODES else int(ReasonCode.UNSPECIFIED_ERROR)


def _refuse(record: MqttConnectionRecord, reason_code: int, has_session: bool) -> Done:
    over = Tell(s.MqttConnectionOver(reason_code, has_session, record.expiry_s, False))
    code = _find_refusal(record, reason_code)
    if code is None:
        return record, (over,)
    return record, (_send(record, c.ConnackMessage(p.ConnackPacket(False, code))), over)


def refuse(record: MqttConnectionRecord, event: s.SessionRefused, now_ns: int) -> Done:
    return _refuse(record, event.reason_code, False)


def refuse_method(record: MqttConnectionRecord, event: c.ConnectMessage, now_ns: int) -> Done:
    return _refuse(record, ReasonCode.BAD_AUTHENTICATION_METHOD, False)


def refuse_retain(record: MqttConnectionRecord, event: c.ConnectMessage, now_ns: int) -> Done:
    return _refuse(replace(record, version=event.packet.version), ReasonCode.RETAIN_NOT_SUPPORTED, False)


def refuse_will(record: MqttConnectionRecord, event: c.ConnectMessage, now_ns: int) -> Done:
    return _refuse(replace(record, version=event.packet.version), ReasonCode.PACKET_TOO_LARGE, False)


def refuse_version(record: MqttConnectionRecord, event: c.BrokenPacket, now_ns: int) -> Done:
    is_old = event.level is not None and event.level < p.MqttVersion.V3_1_1
    record = replace(record, version=V3 if is_old else p.MqttVersion.V5)
    return _refuse(record, ReasonCode.UNSUPPORTED_VERSION, False)


def refuse_client_id(record: MqttConnectionRecord, event: c.BrokenPacket, now_ns: int) -> Done:
    return _refuse(replace(record, version=V3), ReasonCode.CLIENT_ID_INVALID, False)


def refuse_late(record: MqttConnectionRecord, event: Event, now_ns: int) -> Done:
    return _refuse(record, ReasonCode.SERVER_UNAVAILABLE, True)


def refuse_stopping(record: MqttConnectionRecord, event: s.ServerStopping, now_ns: int) -> Done:
    return _refuse(record, event.reason_code, True)


# -- publishing -------------------------------------------------------------------------------------------------------


def _resolve_alias(
    record: MqttConnectionRecord, packet: p.PublishPacket
) -> tuple[MqttConnectionRecord, p.PublishPacket]:
    """The message under its topic, without its alias, which is known from now on."""
    alias = packet.properties.topic_alias
    if alias is None:
        return record, packet
    topic = packet.topic or record.aliases[alias]
    properties = replace(packet.properties, topic_alias=None)
    return replace(record, aliases=record.aliases.set(alias, topic)), replace(
        packet, topic=topic, properties=properties
    )


def note_packet(record: MqttConnectionRecord, event: Event, now_ns: int) -> Done:
    return record, _wait(record, now_ns)


def note_repeat(record: MqttConnectionRecord, event: c.PublishMessage, now_ns: int) -> Done:
    record, _ = _resolve_alias(record, event.packet)
    return record, _wait(record, now_ns)


def publish_once(record: MqttConnectionRecord, event: c.PublishMessage, now_ns: int) -> Done:
    record, packet = _resolve_alias(record, event.packet)
    return record, (Tell(s.MessagePublished(packet)), *_wait(record, now_ns))


def publish(record: MqttConnectionRecord, event: c.PublishMessage, now_ns: int) -> Done:
    stage = IncomingStage.STORING_1 if event.packet.qos == 1 else IncomingStage.STORING_2
    record, effects = publish_once(record, event, now_ns)
    return replace(record, incoming=record.incoming.set(event.packet.packet_id, stage)), effects


def publish_run(record: MqttConnectionRecord, event: c.PublishRun, now_ns: int) -> Done:
    incoming = record.incoming.mutate()
    for one in event.packets:
        incoming[one.packet_id] = IncomingStage.STORING_1
    record = replace(record, incoming=incoming.finish())
    return record, (Tell(s.MessagesPublished(event.packets)), *_wait(record, now_ns))


def repeat_received(record: MqttConnectionRecord, event: c.PublishMessage, now_ns: int) -> Done:
    record, _ = _resolve_alias(record, event.packet)
    return record, (_send(record, c.PubrecMessage(p.PubrecPacket(event.packet.packet_id))), *_wait(record, now_ns))


def refuse_payload(record: MqttConnectionRecord, event: c.PublishMessage, now_ns: int) -> Done:
    record, packet = _resolve_alias(record, event.packet)
    given = (packet.packet_id, int(ReasonCode.QUOTA_EXCEEDED))
    refusal = c.PubackMessage(p.PubackPacket(*given)) if packet.qos == 1 else c.PubrecMessage(p.PubrecPacket(*given))
    return record, (_send(record, refusal), *_wait(record, now_ns))


def answer_publish(record: MqttConnectionRecord, event: s.PublishStoredAs, now_ns: int) -> Done:
    packet_id, stage = event.packet_id, record.incoming[event.packet_id]
    code = _allow_code(p.PubackPacket, event.reason_code, record)
    if stage is IncomingStage.STORING_1:
        record = replace(record, incoming=record.incoming.delete(packet_id))
        return record, (_send(record, c.PubackMessage(p.PubackPacket(packet_id, code))),)
    incoming = record.incoming
    incoming = incoming.delete(packet_id) if is_refusal(code) else incoming.set(packet_id, IncomingStage.RECEIVED)
    record = replace(record, incoming=incoming)
    return record, (_send(record, c.PubrecMessage(p.PubrecPacket(packet_id, code))),)


def answer_run(record: MqttConnectionRecord, event: s.PublishesStored, now_ns: int) -> Done:
    incoming = record.incoming.mutate()
    for one in event.packet_ids:
        del incoming[one]
    first, *more = event.packet_ids
    packet = c.PubackMessage(p.PubackPacket(first), tuple(more))
    return replace(record, incoming=incoming.finish()), (_send(record, packet),)


def _allow_code(kind: type[Any], code: int, record: MqttConnectionRecord) -> int:
    """This reason code, if the packet may have it; else the plainest that says the same."""
    _, codes, codes_3 = CODES[kind]
    if code in (codes_3 if record.version is V3 else codes):
        return code
    return int(ReasonCode.UNSPECIFIED_ERROR) if is_refusal(code) else 0


def release(record: MqttConnectionRecord, event: c.PubrelMessage, now_ns: int) -> Done:
    packet_id = event.packet.packet_id
    is_before = record.incoming[packet_id] is IncomingStage.RECEIVED_BEFORE
    stage = IncomingStage.RELEASING_BEFORE if is_before else IncomingStage.RELEASING
    incoming = record.incoming.set(packet_id, stage)
    record = replace(record, incoming=incoming, releasing_before=record.releasing_before + is_before)
    return record, (Tell(s.MessageReleased(packet_id)), *_wait(record, now_ns))


def complete(record: MqttConnectionRecord, event: s.ReleaseStored, now_ns: int) -> Done:
    is_before = record.incoming[event.packet_id] is IncomingStage.RELEASING_BEFORE
    incoming = record.incoming.delete(event.packet_id)
    record = replace(record, incoming=incoming, releasing_before=record.releasing_before - is_before)
    return record, (_send(record, c.PubcompMessage(p.PubcompPacket(event.packet_id))),)


def answer_unknown(record: MqttConnectionRecord, event: c.PubrelMessage, now_ns: int) -> Done:
    code = 0 if record.version is V3 else int(ReasonCode.PACKET_ID_NOT_FOUND)
    packet = p.PubcompPacket(event.packet.packet_id, code)
    return record, (_send(record, c.PubcompMessage(packet)), *_wait(record, now_ns))


# -- subscribing, and what is delivered -------------------------------------------------------------------------------


def subscribe(record: MqttConnectionRecord, event: c.SubscribeMessage, now_ns: int) -> Done:
    packet = event.packet
    ids = packet.properties.subscription_ids
    wanted = s.FiltersWanted(packet.packet_id, packet.subscriptions, ids[0] if ids else None)
    return record, (Tell(wanted), *_wait(record, now_ns))


def answer_subscribe(record: MqttConnectionRecord, event: s.FiltersStored, now_ns: int) -> Done:
    codes = tuple(_allow_code(p.SubackPacket, code, record) for code in event.reason_codes)
    return record, (_send(record, c.SubackMessage(p.SubackPacket(event.packet_id, codes))),)


def unsubscribe(record: MqttConnectionRecord, event: c.UnsubscribeMessage, now_ns: int) -> Done:
    return record, (
        Tell(s.FiltersUnwanted(event.packet.packet_id, event.packet.filters)),
        *_wait(record, now_ns),
    )


def answer_unsubscribe(record: MqttConnectionRecord, event: s.FiltersRemoved, now_ns: int) -> Done:
    codes = tuple(_allow_code(p.UnsubackPacket, code, record) for code in event.reason_codes)
    packet = p.UnsubackPacket(event.packet_id, () if record.version is V3 else codes)
    return record, (_send(record, c.UnsubackMessage(packet)),)


def deliver(record: MqttConnectionRecord, event: s.DeliveryReady, now_ns: int) -> Done:
    first, *more = [
        packet if packet.properties is NO_PROPERTIES else fit_version(record, packet)
        for packet in (event.packet, *event.more)
    ]
    return record, (_send(record, c.PublishMessage(first, tuple(more))),)


def drop(record: MqttConnectionRecord, event: s.DeliveryReady, now_ns: int) -> Done:
    """Messages that are too large; the others are sent."""
    return record, tuple(
        Tell(s.DeliveryDropped(packet.packet_id))
        if is_packet_too_large(record, packet)
        else _send(record, c.PublishMessage(fit_version(record, packet)))
        for packet in (event.packet, *event.more)
    )


def deliver_release(record: MqttConnectionRecord, event: s.ReleaseReady, now_ns: int) -> Done:
    return record, (_send(record, c.PubrelMessage(p.PubrelPacket(event.packet_id))),)


def tell_puback(record: MqttConnectionRecord, event: c.PubackMessage, now_ns: int) -> Done:
    answered = s.DeliveryAnswered(event.packet.packet_id, "puback", event.packet.reason_code, event.more)
    return record, (Tell(answered), *_wait(record, now_ns))


def tell_pubrec(record: MqttConnectionRecord, event: c.PubrecMessage, now_ns: int) -> Done:
    return _tell_answer(record, event.packet, "pubrec", now_ns)


def tell_pubcomp(record: MqttConnectionRecord, event: c.PubcompMessage, now_ns: int) -> Done:
    return _tell_answer(record, event.packet, "pubcomp", now_ns)


def _tell_answer(record: MqttConnectionRecord, packet: p.AckPacket, answer: str, now_ns: int) -> Done:
    answered = s.DeliveryAnswered(packet.packet_id, answer, packet.reason_code)
    return record, (Tell(answered), *_wait(record, now_ns))


def answer_ping(record: MqttConnectionRecord, event: c.PingreqMessage, now_ns: int) -> Done:
    return record, (_send(record, c.PingrespMessage()), *_wait(record, now_ns))

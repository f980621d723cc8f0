"""Actions that end a connection: what the client is told, and what the host is."""

from __future__ import annotations

from typing import Final

from statemachines.kernel import Effects, Event, Send, Tell
from statemachines.mqtt_codec.codec_error import ReasonCode
from statemachines.mqtt_codec.packet import DisconnectPacket, MqttVersion
from statemachines.mqtt_codec.packet_rule import CODES
from statemachines.mqtt_connections.client_packet import BrokenPacket, DisconnectMessage
from statemachines.mqtt_connections.connection_record import AWAITING, CONNECTED, MqttConnectionRecord
from statemachines.mqtt_connections.connection_rules import is_refusal
from statemachines.mqtt_connections.session_event import MqttConnectionOver, PublishStoredAs, ServerStopping

DISCONNECT_CODES: Final = frozenset(filter(is_refusal, CODES[DisconnectPacket][1]))
"""Those of an end that is no good one."""

Done = tuple[MqttConnectionRecord, Effects]


def close_silently(record: MqttConnectionRecord, event: Event, now_ns: int) -> Done:
    has_session, is_connected = record.status is not AWAITING, record.status is CONNECTED
    return record, (Tell(MqttConnectionOver(0, has_session, record.expiry_s, is_connected)),)


def _close(record: MqttConnectionRecord, reason_code: int) -> Done:
    """DISCONNECT, which a server of 3.1.1 does not send, and the end."""
    code = reason_code if reason_code in DISCONNECT_CODES else int(ReasonCode.PROTOCOL_ERROR)
    over = Tell(MqttConnectionOver(code, True, record.expiry_s, True))
    if record.version is MqttVersion.V3_1_1:
        return record, (over,)
    return record, (Send(record.party, DisconnectMessage(DisconnectPacket(code))), over)


def close_unsaid(record: MqttConnectionRecord, event: Event, now_ns: int) -> Done:
    """The end, without a packet."""
    return record, (Tell(MqttConnectionOver(ReasonCode.PROTOCOL_ERROR, True, record.expiry_s, True)),)


def close_violation(record: MqttConnectionRecord, event: Event, now_ns: int) -> Done:
    return _close(record, ReasonCode.PROTOCOL_ERROR)


def close_alias(record: MqttConnectionRecord, event: Event, now_ns: int) -> Done:
    return _close(record, ReasonCode.TOPIC_ALIAS_INVALID)


def close_retain(record: MqttConnectionRecord, event: Event, now_ns: int) -> Done:
    return _close(record, ReasonCode.RETAIN_NOT_SUPPORTED)


def close_quota(record: MqttConnectionRecord, event: Event, now_ns: int) -> Done:
    return _close(record, ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)


def close_payload(record: MqttConnectionRecord, event: Event, now_ns: int) -> Done:
    return _close(record, ReasonCode.QUOTA_EXCEEDED)


def close_keep_alive(record: MqttConnectionRecord, event: Event, now_ns: int) -> Done:
    return _close(record, ReasonCode.KEEP_ALIVE_TIMEOUT)


def close_taken(record: MqttConnectionRecord, event: Event, now_ns: int) -> Done:
    return _close(record, ReasonCode.SESSION_TAKEN_OVER)


def close_refused(record: MqttConnectionRecord, event: PublishStoredAs, now_ns: int) -> Done:
    return _close(record, event.reason_code)


def close_broken(record: MqttConnectionRecord, event: BrokenPacket, now_ns: int) -> Done:
    return _close(record, event.reason_code)


def close_stopping(record: MqttConnectionRecord, event: ServerStopping, now_ns: int) -> Done:
    return _close(record, event.reason_code)


def leave(record: MqttConnectionRecord, event: DisconnectMessage, now_ns: int) -> Done:
    asked = event.packet.properties.session_expiry
    expiry = record.expiry_s if asked is None else min(asked, record.settings.expiry_max_s)
    over = MqttConnectionOver(0, True, expiry, event.packet.reason_code != 0)
    return record, (Tell(over),)

"""Errors of the codec: each has the reason code that MQTT 5 names for it (sections 2.4 and 4.13)."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ReasonCode(IntEnum):
    """The result of an operation (2.4); 0x80 and above is a failure.  0 is also QoS 0 and a normal disconnection."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_ERROR = 0x83
    UNSUPPORTED_VERSION = 0x84
    CLIENT_ID_INVALID = 0x85
    BAD_CREDENTIALS = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_ID_IN_USE = 0x91
    PACKET_ID_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDS_NOT_SUPPORTED = 0xA1
    WILDCARDS_NOT_SUPPORTED = 0xA2


class PacketError(ValueError):
    """Bytes that are no packet, or a packet that the standard forbids.

    `reason_code` is what CONNACK or DISCONNECT answers.  `statement` is the normative statement of MQTT 5 that is
    broken (`MQTT-3.3.2-2`), or a section, where no statement has a number.  `level` is the protocol level of a CONNECT
    that is refused for it.
    """

    usual: ClassVar = ReasonCode.UNSPECIFIED_ERROR

    def __init__(self, text: str, statement: str, reason_code: int = 0, level: int | None = None) -> None:
        super().__init__(f"{text} [{statement}]")
        self.statement = statement
        self.reason_code = ReasonCode(reason_code or self.usual)
        self.level = level


class MalformedPacket(PacketError):
    """The bytes cannot be parsed."""

    usual: ClassVar = ReasonCode.MALFORMED_PACKET


class ProtocolViolation(PacketError):
    """The bytes can be parsed, and the protocol does not allow what they say."""

    usual: ClassVar = ReasonCode.PROTOCOL_ERROR

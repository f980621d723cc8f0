"""Errors of the codec: each has the reason code that MQTT 5 names for it."""

from __future__ import annotations

from statemachines.mqtt_codec.reason_code import ReasonCode


class PacketError(ValueError):
    """Bytes that are no packet, or a packet that the standard forbids.

    `reason_code` is what CONNACK or DISCONNECT answers.  `statement` is the normative statement of MQTT 5 that it breaks
    (`MQTT-3.3.2-2`), or the section where the standard has no number.  `level` is the protocol level that a CONNECT
    named, where no other reason than this level refuses it.
    """

    def __init__(self, text: str, statement: str, reason_code: ReasonCode, level: int | None = None) -> None:
        super().__init__(f"{text} [{statement}]")
        self.statement = statement
        self.reason_code = reason_code
        self.level = level


class MalformedPacket(PacketError):
    """The bytes cannot be parsed (section 4.13)."""

    def __init__(
        self, text: str, statement: str, reason_code: ReasonCode = ReasonCode.MALFORMED_PACKET, level: int | None = None
    ) -> None:
        super().__init__(text, statement, reason_code, level)


class ProtocolViolation(PacketError):
    """The bytes can be parsed, and the protocol does not allow what they say (section 4.13)."""

    def __init__(
        self, text: str, statement: str, reason_code: ReasonCode = ReasonCode.PROTOCOL_ERROR, level: int | None = None
    ) -> None:
        super().__init__(text, statement, reason_code, level)

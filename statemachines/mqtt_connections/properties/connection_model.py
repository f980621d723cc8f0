"""What a client of MQTT may expect of one connection, as a model that reads nothing of the machine.

It is made of the packets of the client, and of what the session called; `find_end` says how a step must end.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.mqtt_codec import packet as p
from statemachines.mqtt_connections import client_packet as c
from statemachines.mqtt_connections import session_event as s
from statemachines.mqtt_connections.connection import ConnectLate, KeepAliveOver
from statemachines.mqtt_connections.connection_record import MqttSettings

V3: Final = p.MqttVersion.V3_1_1
CONNACK_MIN: Final = 5
"""Bytes of the shortest CONNACK of MQTT 5: 3.2."""


class Phase(Enum):
    """How far the connection is, as its client sees it."""

    NEW = "new"
    ASKED = "asked"
    OPEN = "open"
    OVER = "over"


NEW, ASKED, OPEN, OVER = Phase


class IdUse(Enum):
    """What a packet id of the client is used for."""

    STORING_1 = 1
    STORING_2 = 2
    RECEIVED = 3
    RELEASING = 4


class ConnectionEndLocal(msgspec.Struct, frozen=True, gc=False):
    """How a connection ends: by CONNACK or DISCONNECT with a code, or by no packet at all."""

    packet: str = ""
    code: int = 0


SILENT: Final = ConnectionEndLocal()


class ConnectionModel(msgspec.Struct, frozen=True, gc=False):
    """`ids` of the client that are in use; `earlier`: those that an earlier connection received; `aliases` that are
    set; `expires`: CONNECT asked for a session that outlives the connection; `largest`: bytes of
    a packet that the client takes (0: any); `deliveries`: packet ids of the session's messages that
    were sent on it; `end`: how it ended."""

    phase: Phase = NEW
    version: p.MqttVersion = p.MqttVersion.V5
    ids: tuple[tuple[int, IdUse], ...] = ()
    earlier: tuple[int, ...] = ()
    aliases: tuple[int, ...] = ()
    expires: bool = False
    largest: int = 0
    deliveries: tuple[int, ...] = ()
    end: ConnectionEndLocal = SILENT

    def find_use(self, packet_id: int) -> IdUse | None:
        """What the id is used for; None: it is free."""
        return dict(self.ids).get(packet_id)

    def set_use(self, packet_id: int, use: IdUse | None) -> ConnectionModel:
        """The model in which it is used so."""
        ids = dict(self.ids)
        ids.pop(packet_id, None)
        ids |= {packet_id: use} if use is not None else {}
        earlier = self.earlier if use is not None else tuple(one for one in self.earlier if one != packet_id)
        return replace(self, ids=tuple(sorted(ids.items())), earlier=earlier)


def find_end(model: ConnectionModel, event: Event, settings: MqttSettings) -> ConnectionEndLocal | None:
    """How this event ends the connection; None: it does not."""
    if isinstance(event, s.TransportLost | s.UnexpectedAnswer):
        return SILENT
    if model.phase is NEW:
        return _refuse_first(event, settings)
    if model.phase is ASKED:
        return _refuse_session(model, event)
    code = _find_code(model, event, settings)
    if code is None:
        return SILENT if isinstance(event, c.DisconnectMessage | c.ConnectMessage) else None
    return SILENT if model.version is V3 else ConnectionEndLocal("disconnect", code)


def _refuse_first(event: Event, settings: MqttSettings) -> ConnectionEndLocal | None:
    match event:
        case c.ConnectMessage(packet) if packet.properties.authentication_method is not None:
            return ConnectionEndLocal("connack", 0x8C)
        case c.ConnectMessage(packet) if packet.will and packet.will.retain and not settings.retain_available:
            return SILENT if packet.version is V3 else ConnectionEndLocal("connack", 0x9A)
        case c.ConnectMessage(packet) if packet.will and 0 < settings.max_payload < len(packet.will.payload):
            return ConnectionEndLocal("connack", 5 if packet.version is V3 else 0x95)
        case c.ConnectMessage():
            return None
        case c.BrokenPacket(_, level) if level is not None:
            return ConnectionEndLocal("connack", 1 if level < 4 else 0x84)
        case c.BrokenPacket(0x85):
            return ConnectionEndLocal("connack", 2)
    return SILENT


def _refuse_session(model: ConnectionModel, event: Event) -> ConnectionEndLocal | None:
    match event:
        case s.SessionRefused(0x88) | s.ServerStopping(0x8B) | ConnectLate():
            return SILENT
        case s.SessionRefused(code) | s.ServerStopping(code):
            pass
        case s.MqttSessionTaken():
            return SILENT
        case s.MqttSessionOpened() if 0 < model.largest < CONNACK_MIN:
            return SILENT
        case _:
            return None
    if model.version is V3:
        return ConnectionEndLocal("connack", 5) if code == 0x87 else SILENT
    return ConnectionEndLocal("connack", code)


def _find_code(model: ConnectionModel, event: Event, settings: MqttSettings) -> int | None:
    """The reason code that an open connection ends with."""
    match event:
        case c.PublishMessage(packet):
            return _find_publish_code(model, packet, settings)
        case c.PubrelMessage(packet) if model.find_use(packet.packet_id) in (IdUse.STORING_1, IdUse.STORING_2):
            return 0x82
        case c.DisconnectMessage(packet) if packet.properties.session_expiry and not model.expires:
            return 0x82
        case c.ForbiddenPacket():
            return 0x82
        case c.BrokenPacket(0x84 | 0x85):
            return 0x82  # only a second CONNECT is broken so
        case c.BrokenPacket(code) | s.ServerStopping(code):
            return code
        case KeepAliveOver():
            return 0x8D
        case s.MqttSessionTaken():
            return 0x8E
        case s.PublishStoredAs(_, code) if code >= 0x80 and model.version is V3:
            return code
    return None


def _find_publish_code(model: ConnectionModel, packet: p.PublishPacket, settings: MqttSettings) -> int | None:
    alias = packet.properties.topic_alias
    if alias is not None and not 1 <= alias <= settings.topic_alias_maximum:
        return 0x94
    if (not packet.topic and alias not in model.aliases) or packet.properties.subscription_ids:
        return 0x82
    if packet.retain and not settings.retain_available:
        return 0x9A
    use = model.find_use(packet.packet_id) if packet.qos else None
    if use is not None:
        return None if packet.qos == 2 and use is not IdUse.STORING_1 else 0x82
    released = [one for one, use in model.ids if one in model.earlier and use is IdUse.RELEASING]
    is_full = len(model.ids) - len(released) >= settings.receive_maximum
    if packet.qos and is_full:
        return 0x93
    is_unsayable = packet.qos and model.version is V3 and 0 < settings.max_payload < len(packet.payload)
    return 0x97 if is_unsayable else None


def is_refused(model: ConnectionModel, event: Event, settings: MqttSettings) -> bool:
    """Whether it is a message with a payload that the server does not take, under an id that is free."""
    if not isinstance(event, c.PublishMessage) or (event.packet.qos and model.find_use(event.packet.packet_id)):
        return False
    return 0 < settings.max_payload < len(event.packet.payload)


def advance_model(
    model: ConnectionModel, event: Event, end: ConnectionEndLocal | None, *, refuses: bool = False
) -> ConnectionModel:
    """The model after this event; `refuses`: a message, for its payload."""
    if end is not None:
        return ConnectionModel(OVER, end=end)
    match event:
        case c.ConnectMessage(packet):
            kept = not packet.clean_start if packet.version is V3 else bool(packet.properties.session_expiry)
            largest = packet.properties.maximum_packet_size or 0
            return replace(model, phase=ASKED, version=packet.version, expires=kept, largest=largest)
        case s.MqttSessionOpened(_, _, received):
            ids = tuple((one, IdUse.RECEIVED) for one in received)
            return replace(model, phase=OPEN, ids=ids, earlier=received)
        case c.PublishMessage(packet):
            alias: Any = packet.properties.topic_alias
            if alias and packet.topic:
                model = replace(model, aliases=tuple(sorted({*model.aliases, alias})))
            if packet.qos and not refuses and model.find_use(packet.packet_id) is None:
                return model.set_use(packet.packet_id, IdUse.STORING_1 if packet.qos == 1 else IdUse.STORING_2)
        case c.PublishRun(packets):
            for packet in packets:
                model = model.set_use(packet.packet_id, IdUse.STORING_1)
        case s.PublishesStored(packet_ids):
            for packet_id in packet_ids:
                model = model.set_use(packet_id, None)
        case s.PublishStoredAs(packet_id, code):
            is_kept = code < 0x80 and model.find_use(packet_id) is IdUse.STORING_2
            return model.set_use(packet_id, IdUse.RECEIVED if is_kept else None)
        case c.PubrelMessage(packet) if model.find_use(packet.packet_id) is IdUse.RECEIVED:
            return model.set_use(packet.packet_id, IdUse.RELEASING)
        case s.ReleaseStored(packet_id):
            return model.set_use(packet_id, None)
        case s.DeliveryReady(packet, more):
            sent = {one.packet_id for one in (packet, *more)}
            return replace(model, deliveries=tuple(sorted({*model.deliveries, *sent})))
    return model

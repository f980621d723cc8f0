"""ConnectionHistory: what the connections of one session did so far, and whether each step of theirs can be so.

    seen = ConnectionHistory((ConnectionModel(),))
    seen, broken = seen.observe(0, event, sent, told, settings)      a step of the first connection took this event

It is fed each event that a connection took, with the messages that it sent and the events that it told its host.  It
reads no record of the machine.  Simulated runs have sessions behind the connections, whose properties judge them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.kernel import BrokenProperty, Event
from statemachines.mqtt_codec import Decoder, encode
from statemachines.mqtt_codec import packet as p
from statemachines.mqtt_connections import client_packet as c
from statemachines.mqtt_connections import session_event as s
from statemachines.mqtt_connections.connection_record import MqttSettings
from statemachines.mqtt_connections.properties.connection_model import (
    NEW,
    OPEN,
    OVER,
    ConnectionEndLocal,
    ConnectionModel,
    IdUse,
    advance_model,
    find_end,
    is_refused,
)


class JudgedStep(msgspec.Struct, frozen=True):
    """One step of a connection: what it took, the model before, how it must end, what was sent (each packet by itself)
    and told, and ids that were `received`.  `is_refused`: a message, for its payload."""

    event: Any
    model: ConnectionModel
    end: ConnectionEndLocal | None
    sent: tuple[Any, ...]
    told: tuple[Any, ...]
    received: tuple[int, ...]
    is_refused: bool


class ConnectionHistory(msgspec.Struct, frozen=True, gc=False):
    """`models`: one for each connection; `received`: packet ids of the session's messages that the client answered by
    PUBREC."""

    models: tuple[ConnectionModel, ...]
    received: tuple[int, ...] = ()

    def observe(
        self, place: int, event: Any, sent: tuple[Event, ...], told: tuple[Event, ...], settings: MqttSettings
    ) -> tuple[ConnectionHistory, tuple[BrokenProperty, ...]]:
        """What is known behind one step, and what it breaks.

        Args:
            place: Which connection took the step.
            event: What it took.
            sent: The messages that it sent, in their order.
            told: The events that it told its host, in their order.
            settings: Those of the connection.
        """
        model = self.models[place]
        end = None if model.phase is OVER else find_end(model, event, settings)
        refuses = model.phase is OPEN and is_refused(model, event, settings)
        alone = tuple(one for message in sent for part in _split(message) for one in list_packets(part))
        step = JudgedStep(event, model, end, alone, told, self.received, refuses)
        broken = tuple(
            BrokenProperty(name, f"{how}: {event}, then {sent} and {told}")
            for name, (how, is_broken) in RULES.items()
            if is_broken(step)
        )
        after = model if model.phase is OVER else advance_model(model, event, end, refuses=refuses)
        is_rec = isinstance(event, c.PubrecMessage) and event.packet.packet_id in model.deliveries
        received = tuple(sorted({*self.received, event.packet.packet_id})) if is_rec else self.received
        return ConnectionHistory((*self.models[:place], after, *self.models[place + 1 :]), received), broken


def _split(message: Any) -> tuple[Any, ...]:
    """PUBACKs that leave together, each alone."""
    if not isinstance(message, c.PubackMessage):
        return (message,)
    return (c.PubackMessage(message.packet), *(c.PubackMessage(p.PubackPacket(one)) for one in message.more))


# -- the rules --------------------------------------------------------------------------------------------------------


def list_packets(message: Any) -> tuple[Any, ...]:
    """The message, and what leaves together with it, each by itself."""
    return (message, *map(c.PublishMessage, message.more)) if isinstance(message, c.PublishMessage) else (message,)


def is_unacked(step: JudgedStep) -> bool:
    """ACKED: only what the session called durable, in this step or before, is acknowledged."""
    for one in step.sent:
        if not isinstance(one, c.PubackMessage | c.PubrecMessage) or one.packet.reason_code >= 0x80:
            continue
        packet_id, event = one.packet.packet_id, step.event
        use = step.model.find_use(packet_id)
        is_again = isinstance(one, c.PubrecMessage) and use in (IdUse.RECEIVED, IdUse.RELEASING)
        is_now = packet_id in _list_durable(event)
        if not (is_again if not is_now else (use is IdUse.STORING_1) == isinstance(one, c.PubackMessage)):
            return True
    return False


def _list_durable(event: Any) -> tuple[int, ...]:
    """The packet ids of messages that the session calls durable."""
    if isinstance(event, s.PublishesStored):
        return event.packet_ids
    return (event.packet_id,) if isinstance(event, s.PublishStoredAs) and event.reason_code < 0x80 else ()


def is_told_wrong(step: JudgedStep) -> bool:
    """EXACTLY: a PUBLISH under a free id, and the PUBREL of one that was received, are told once; nothing else is."""
    event, ends = step.event, step.end is not None or step.model.phase is OVER
    expected: tuple[Any, ...] = ()
    if isinstance(event, c.PublishRun) and not ends:
        expected = event.packets
    elif isinstance(event, c.PublishMessage) and not ends and not step.is_refused:
        is_new = event.packet.qos == 0 or step.model.find_use(event.packet.packet_id) is None
        expected = (event.packet,) if is_new else ()
    is_release = isinstance(event, c.PubrelMessage) and step.model.find_use(event.packet.packet_id) is IdUse.RECEIVED
    published = [packet for one in step.told for packet in _list_published(one)]
    released = [one.packet_id for one in step.told if isinstance(one, s.MessageReleased)]
    if [(one.packet_id, bool(one.topic)) for one in published] != [(one.packet_id, True) for one in expected]:
        return True
    return len(released) != int(is_release and not ends)


def _list_published(event: Any) -> tuple[Any, ...]:
    """The messages that the session is told of."""
    if isinstance(event, s.MessagesPublished):
        return event.packets
    return (event.packet,) if isinstance(event, s.MessagePublished) else ()


def is_end_wrong(step: JudgedStep) -> bool:
    """ONEEND: told once, when the connection ends, and nothing comes after it."""
    if step.model.phase is OVER:
        return bool(step.sent or step.told)
    ends = [one for one in step.told if isinstance(one, s.MqttConnectionOver)]
    return len(ends) != int(step.end is not None) or (bool(ends) and step.told[-1:] != (ends[0],))


def is_ended_otherwise(step: JudgedStep) -> bool:
    """VIOLATION: the packet that ends a connection is the one that stands in the model, and the only one."""
    sent = [_describe_end(one) for one in step.sent]
    if step.end is None:
        return any(one.packet == "disconnect" or (one.packet == "connack" and one.code) for one in sent)
    return sent != ([step.end] if step.end.packet else [])


def _describe_end(message: Any) -> ConnectionEndLocal:
    match message:
        case c.ConnackMessage(packet):
            return ConnectionEndLocal("connack", packet.reason_code)
        case c.DisconnectMessage(packet):
            return ConnectionEndLocal("disconnect", packet.reason_code)
    return ConnectionEndLocal("other")


def is_unsayable(step: JudgedStep) -> bool:
    """SAYABLE: what is sent is a packet of the client's version."""
    version = step.model.version
    match step.event:
        case c.ConnectMessage(packet):
            version = packet.version
        case c.BrokenPacket(code, level) if step.model.phase is NEW and (level is not None or code == 0x85):
            version = type(version)(4 if level is None or level < 4 else 5)
    for one in step.sent:
        try:
            (again,) = Decoder(version).feed(encode(one.packet, version))
        except ValueError:
            return True
        if again != one.packet:
            return True
    return False


def is_answer_wrong(step: JudgedStep) -> bool:
    """ANSWERED: what goes on is answered by the one packet, or told by the one event, that belongs to it."""
    if step.end is not None or step.model.phase is OVER:
        return False
    sent = [(type(one).__name__, getattr(one.packet, "packet_id", 0)) for one in step.sent]
    told = [type(one).__name__ for one in step.told]
    return (sent, told) not in _list_answers(step) or _find_answered(step.told) != _list_answered(step)


def _find_answered(told: tuple[Any, ...]) -> list[tuple[int, ...]]:
    """Packet ids of messages that the session learns something of, in each event."""
    return [
        (one.packet_id, *getattr(one, "more", ()))
        for one in told
        if isinstance(one, s.DeliveryAnswered | s.DeliveryDropped)
    ]


def _list_answered(step: JudgedStep) -> list[tuple[int, ...]]:
    """The same as it must be: what comes together is told together; what is too large, one by one."""
    match step.event:
        case c.PubackMessage(packet, more):
            return [(packet.packet_id, *more)]
        case c.PubrecMessage(packet) | c.PubcompMessage(packet):
            return [(packet.packet_id,)]
        case s.DeliveryReady(packet, more):
            return [(one.packet_id,) for one in (packet, *more) if _is_large(step.model, one)]
    return []


def _is_large(model: ConnectionModel, packet: Any) -> bool:
    """The client does not take it."""
    return 0 < model.largest < len(encode(packet, model.version))


def _list_answers(step: JudgedStep) -> list[tuple[list[tuple[str, int]], list[str]]]:
    """(sent, told) as they may be."""
    event, model = step.event, step.model
    match event:
        case c.ConnectMessage():
            return [([], ["SessionWanted"])]
        case s.MqttSessionOpened():
            return [([("ConnackMessage", 0)], [])]
        case c.PublishMessage(packet) if step.is_refused:
            kind = {1: "PubackMessage", 2: "PubrecMessage"}.get(packet.qos)
            return [([(kind, packet.packet_id)] if kind else [], [])]
        case c.PublishMessage(packet) if not packet.qos or model.find_use(packet.packet_id) is None:
            return [([], ["MessagePublished"])]
        case c.PublishMessage(packet) if model.find_use(packet.packet_id) is not IdUse.STORING_2:
            return [([("PubrecMessage", packet.packet_id)], [])]
        case c.PublishRun():
            return [([], ["MessagesPublished"])]
        case s.PublishesStored(packet_ids):
            return [([("PubackMessage", one) for one in packet_ids], [])]
        case s.PublishStoredAs(packet_id):
            kind = "PubackMessage" if model.find_use(packet_id) is IdUse.STORING_1 else "PubrecMessage"
            return [([(kind, packet_id)], [])]
        case c.PubrelMessage(packet):
            use = model.find_use(packet.packet_id)
            answer = [] if use else [("PubcompMessage", packet.packet_id)]
            return [(answer, ["MessageReleased"] if use is IdUse.RECEIVED else [])]
        case s.ReleaseStored(packet_id):
            return [([("PubcompMessage", packet_id)], [])]
        case c.SubscribeMessage() | c.UnsubscribeMessage():
            return [([], ["FiltersWanted" if isinstance(event, c.SubscribeMessage) else "FiltersUnwanted"])]
        case s.FiltersStored(packet_id):
            return [([("SubackMessage", packet_id)], [])]
        case s.FiltersRemoved(packet_id):
            return [([("UnsubackMessage", packet_id)], [])]
        case s.DeliveryReady(packet, more):
            packets = (packet, *more)
            large = [one for one in packets if _is_large(model, one)]
            sent = [("PublishMessage", one.packet_id) for one in packets if one not in large]
            return [(sent, ["DeliveryDropped"] * len(large))]
        case s.ReleaseReady(packet_id):
            return [([("PubrelMessage", packet_id)], [])]
        case c.PubackMessage() | c.PubrecMessage() | c.PubcompMessage():
            return [([], ["DeliveryAnswered"])]
        case c.PingreqMessage():
            return [([("PingrespMessage", 0)], [])]
    return [([], [])]


def is_released_wrong(step: JudgedStep) -> bool:
    """RELEASED: PUBREL once the client has answered by PUBREC, and no PUBLISH from then on."""
    for one in step.sent:
        is_received = getattr(one.packet, "packet_id", 0) in step.received
        if isinstance(one, c.PubrelMessage) and not is_received:
            return True
        if isinstance(one, c.PublishMessage) and one.packet.qos == 2 and is_received:
            return True
    return False


def is_will_wrong(step: JudgedStep) -> bool:
    """WILL: it is discarded by DISCONNECT 0 alone, and sent only for a connection that was accepted."""
    for over in step.told:
        if isinstance(over, s.MqttConnectionOver) and step.end is not None:
            is_open = step.model.phase is OPEN
            leaves = isinstance(step.event, c.DisconnectMessage) and not step.end.packet and is_open
            is_kept = step.model.version == 5 and leaves and step.event.packet.reason_code == 4
            is_violation = leaves and bool(step.event.packet.properties.session_expiry) and not step.model.expires
            has_session = step.model.phase is not NEW and not isinstance(step.event, s.SessionRefused)
            sends_will = is_open and (not leaves or is_kept or is_violation)
            if (over.sends_will, over.has_session) != (sends_will, has_session):
                return True
    return False


RULES = {
    "ACKED": ("PUBACK or PUBREC of success leaves for a message that is not durable", is_unacked),
    "EXACTLY": ("a message is told to the session twice, or not at all", is_told_wrong),
    "ONEEND": ("the end is told twice, or not at all, or something is sent or told afterwards", is_end_wrong),
    "VIOLATION": (
        "a violation, or what else ends a connection, ends it by another packet or code than its own",
        is_ended_otherwise,
    ),
    "SAYABLE": ("a packet is sent that the client's version does not have", is_unsayable),
    "ANSWERED": ("an answer is missing, or there is one too many", is_answer_wrong),
    "RELEASED": ("PUBREL leaves before PUBREC came, or PUBLISH after it", is_released_wrong),
    "WILL": ("the host is told something wrong of the will or the session", is_will_wrong),
}
"""Property -> what a connection never does, and whether a step did it."""

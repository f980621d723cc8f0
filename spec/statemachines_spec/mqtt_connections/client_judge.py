"""ClientJudge: stands between connections, their clients and the session, and judges each step of a connection.

It carries what is sent, to nobody, and passes what is told on to the session.  It reads no record of the machine.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, name_of
from statemachines.mqtt_codec import Decoder, encode
from statemachines.mqtt_codec import packet as p
from statemachines.mqtt_connections import client_packet as c
from statemachines.mqtt_connections import session_event as s
from statemachines.mqtt_connections.connection_record import MqttSettings
from statemachines_spec.explorer.actor import Envelope, Observer, Reaction, Watch
from statemachines_spec.explorer.post import Carry, MessageTransport
from statemachines_spec.explorer.property import View
from statemachines_spec.mqtt_connections.connection_model import (
    NEW,
    OPEN,
    OVER,
    ConnectionEnd,
    ConnectionModel,
    IdUse,
    Phase,
    advance_model,
    find_end,
    is_refused,
)
from statemachines_spec.mqtt_connections.packet_run import PacketRun
from statemachines_spec.mqtt_connections.session import SESSION

JUDGE, CLIENT = "judge", "client"


class ConnectionFault(Enum):
    """What a connection never does; the value says it."""

    ACKED = "PUBACK or PUBREC of success leaves for a message that is not durable"
    EXACTLY = "a message is told to the session twice, or not at all"
    ONEEND = "the end is told twice, or not at all, or something is sent or told afterwards"
    VIOLATION = "a violation, or what else ends a connection, ends it by another packet or code than its own"
    SAYABLE = "a packet is sent that the client's version does not have"
    ANSWERED = "an answer is missing, or there is one too many"
    RELEASED = "PUBREL leaves before PUBREC came, or PUBLISH after it"
    WILL = "the host is told something wrong of the will or the session"


class StepSeen(Event, frozen=True, gc=False):
    """A connection has taken this event.  `kind`: its type, since two may have the same fields."""

    party: str
    kind: str
    event: Any


class JudgeLocal(msgspec.Struct, frozen=True, gc=False):
    """`models`: one for each connection; `sent` and `told` by the step that is under way; `received`: packet ids of
    the session's messages that the client answered by PUBREC; `faults` that were found."""

    models: tuple[ConnectionModel, ...]
    sent: tuple[Event, ...] = ()
    told: tuple[Event, ...] = ()
    received: tuple[int, ...] = ()
    faults: tuple[str, ...] = ()


class JudgedStep(msgspec.Struct, frozen=True):
    """One step of a connection: what it took, the model before, how it must end, what was sent (each packet by itself)
    and told, and ids that were `received`.  `is_refused`: a message, for its payload."""

    event: Any
    model: ConnectionModel
    end: ConnectionEnd | None
    sent: tuple[Any, ...]
    told: tuple[Any, ...]
    received: tuple[int, ...]
    is_refused: bool


class ClientJudge(MessageTransport, Observer):
    """`connections`: their names; `settings` that they have."""

    def __init__(self, connections: tuple[str, ...], settings: MqttSettings) -> None:
        super().__init__(JUDGE)
        self.connections, self.settings = connections, settings

    def initial(self) -> Any:
        return JudgeLocal((ConnectionModel(),) * len(self.connections))

    def inputs(self, local: Any) -> tuple[Any, ...]:
        return ()

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor not in self.connections or isinstance(event, PacketRun):  # each of its packets is a step
            return None
        return StepSeen(actor, name_of(type(event)), event)

    def react(self, local: JudgeLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Carry(_, sent):
                messages = _split(sent.event) if sent.to == CLIENT else ()
                return Reaction(replace(local, sent=(*local.sent, *messages)))
            case StepSeen(party, _, event):
                return Reaction(self._judge(local, self.connections.index(party), event))
        local = replace(local, told=(*local.told, envelope.event))
        return Reaction(local, (), (replace(envelope, to=SESSION),))

    def _judge(self, local: JudgeLocal, place: int, event: Any) -> JudgeLocal:
        model = local.models[place]
        end = None if model.phase is OVER else find_end(model, event, self.settings)
        refuses = model.phase is OPEN and is_refused(model, event, self.settings)
        sent = tuple(one for message in local.sent for one in list_packets(message))
        step = JudgedStep(event, model, end, sent, local.told, local.received, refuses)
        found = (fault.name for fault, is_broken in RULES.items() if is_broken(step))
        after = model if model.phase is OVER else advance_model(model, event, end, refuses=refuses)
        is_rec = isinstance(event, c.PubrecMessage) and event.packet.packet_id in model.deliveries
        return JudgeLocal(
            (*local.models[:place], after, *local.models[place + 1 :]),
            received=tuple(sorted({*local.received, event.packet.packet_id})) if is_rec else local.received,
            faults=tuple(sorted({*local.faults, *found})),
        )

    def describe(self, local: Any) -> str:
        return ", ".join(f"{one.phase.value} {dict(one.ids) or ''}".strip() for one in local.models)

    # -- reading it ---------------------------------------------------------------------------------------------

    def has_found(self, fault: ConnectionFault) -> View:
        """Whether it found this."""
        return View(JUDGE, 2, lambda local: int(fault.name in local.faults))

    def has_ended(self, packet: str, code: int) -> View:
        """Whether some connection ended so."""
        end = ConnectionEnd(packet, code)
        return View(JUDGE, 2, lambda local: int(any(one.phase is OVER and one.end == end for one in local.models)))

    def is_in(self, place: int, phase: Phase, *uses: IdUse) -> View:
        """Whether this connection is so far, with ids in these uses."""

        def read(local: JudgeLocal) -> int:
            model = local.models[place]
            return int(model.phase is phase and set(uses) <= {use for _, use in model.ids})

        return View(JUDGE, 2, read)


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


def _describe_end(message: Any) -> ConnectionEnd:
    match message:
        case c.ConnackMessage(packet):
            return ConnectionEnd("connack", packet.reason_code)
        case c.DisconnectMessage(packet):
            return ConnectionEnd("disconnect", packet.reason_code)
    return ConnectionEnd("other")


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
    ConnectionFault.ACKED: is_unacked,
    ConnectionFault.EXACTLY: is_told_wrong,
    ConnectionFault.ONEEND: is_end_wrong,
    ConnectionFault.VIOLATION: is_ended_otherwise,
    ConnectionFault.SAYABLE: is_unsayable,
    ConnectionFault.ANSWERED: is_answer_wrong,
    ConnectionFault.RELEASED: is_released_wrong,
    ConnectionFault.WILL: is_will_wrong,
}

"""The session of one client id as an environment: what it answers to connections, one transaction at a time."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Call, Event
from statemachines.mqtt_codec.packet import PublishPacket
from statemachines.mqtt_connections import session_event as s
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch

SESSION = "session"
OUTGOING = 9
"""The packet id of the one message that the session delivers."""
PAYLOAD = b"a payload of 24 bytes..."


class SessionAnswer(Event, frozen=True, gc=False):
    """The session calls the connection `to`; `request` is done with (None: it answers none)."""

    to: str
    call: Call
    request: Event | None = None


class MqttSessionLocal(msgspec.Struct, frozen=True, gc=False):
    """`requests`: (connection, what it asked); `received` ids of QoS 2 that are stored; `stage` of the
    delivery: 1 not acknowledged, 2 received, 3 done; `is_sent`: on the connection of the `owner`."""

    owner: str = ""
    requests: tuple[tuple[str, Event], ...] = ()
    received: tuple[int, ...] = ()
    stage: int = 3
    is_sent: bool = False


class SessionActor(Actor):
    """`refusals`: reason codes that it may answer in place of success; `qos` of its one message (0: it has none)."""

    def __init__(self, refusals: tuple[int, ...] = (), qos: int = 0) -> None:
        super().__init__(SESSION)
        self.refusals, self.qos = refusals, qos

    def initial(self) -> MqttSessionLocal:
        return MqttSessionLocal(stage=1 if self.qos else 3)

    def inputs(self, local: MqttSessionLocal) -> tuple[Any, ...]:
        found = [SessionAnswer(who, call, one) for who, one in local.requests for call in self._list_calls(local, one)]
        if local.owner and not local.is_sent and local.stage < 3:
            packet = PublishPacket("d", PAYLOAD, self.qos, packet_id=OUTGOING)
            call = s.DeliveryReady(packet) if local.stage == 1 else s.ReleaseReady(OUTGOING)
            found.append(SessionAnswer(local.owner, call))
        return tuple(found)

    def _list_calls(self, local: MqttSessionLocal, request: Event) -> list[Call]:
        """What may answer this request; a session is opened once nothing else is under way."""
        codes = (0, *self.refusals)
        match request:
            case s.SessionWanted():
                count = sum(isinstance(one, s.SessionWanted) for _, one in local.requests)
                opened = s.MqttSessionOpened("c", bool(local.received), local.received)
                opens = [opened] if count == len(local.requests) else []
                taken = [s.MqttSessionTaken()] if count > 1 else []
                return [*opens, *taken, *(s.SessionRefused(code) for code in self.refusals)]
            case s.MessagePublished(packet):
                return [s.PublishStoredAs(packet.packet_id, code) for code in codes]
            case s.MessagesPublished(packets):
                return [s.PublishesStored(tuple(one.packet_id for one in packets))]
            case s.MessageReleased(packet_id):
                return [s.ReleaseStored(packet_id)]
            case s.FiltersWanted(packet_id):
                return [s.FiltersStored(packet_id, (code,)) for code in codes]
            case s.FiltersUnwanted(packet_id):
                return [s.FiltersRemoved(packet_id, (code,)) for code in codes]
        raise TypeError(f"the session does not take {request!r}")

    def react(self, local: MqttSessionLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event, who = envelope.event, envelope.sender
        match event:
            case SessionAnswer():
                return _answer(local, event)
            case s.MqttConnectionOver():
                kept = tuple(one for one in local.requests if one[0] != who or not isinstance(one[1], s.SessionWanted))
                return Reaction(replace(local, owner="" if local.owner == who else local.owner, requests=kept))
            case s.DeliveryAnswered() | s.DeliveryDropped() if who != local.owner:
                return Reaction(local)
            case s.DeliveryAnswered() if is_unexpected(local, event):
                return Reaction(local, (), (Envelope(SESSION, who, s.UnexpectedAnswer()),))
            case s.DeliveryAnswered() | s.DeliveryDropped():
                return Reaction(_advance(local, event))
            case s.MessagePublished(packet) if packet.qos == 0:
                return Reaction(local)
        requests = sorted({*local.requests, (who, event)}, key=repr)
        return Reaction(replace(local, requests=tuple(requests)))


def _answer(local: MqttSessionLocal, answer: SessionAnswer) -> Reaction:
    to, call, request = answer.to, answer.call, answer.request
    calls = [Envelope(SESSION, to, call)]
    local = replace(local, requests=tuple(one for one in local.requests if one != (to, request)))
    match call:
        case s.MqttSessionOpened():
            calls = [*([Envelope(SESSION, local.owner, s.MqttSessionTaken())] if local.owner else []), *calls]
            local = replace(local, owner=to, is_sent=False)
        case s.DeliveryReady() | s.ReleaseReady():
            local = replace(local, is_sent=True)
        case s.PublishStoredAs(packet_id, code) if code < 0x80 and request.packet.qos == 2:  # type: ignore[union-attr]
            local = replace(local, received=(*local.received, packet_id))
        case s.ReleaseStored(packet_id):
            local = replace(local, received=tuple(one for one in local.received if one != packet_id))
    return Reaction(local, (), tuple(calls))


def is_unexpected(local: MqttSessionLocal, event: s.DeliveryAnswered) -> bool:
    """Whether the client answers the message by an acknowledgement of another kind.  PUBREC may come again."""
    expected = {1: ("pubrec",), 2: ("pubcomp", "pubrec")}.get(local.stage, ())
    return event.packet_id == OUTGOING and local.is_sent and event.answer not in expected


def _advance(local: MqttSessionLocal, event: s.DeliveryAnswered | s.DeliveryDropped) -> MqttSessionLocal:
    """The delivery once the client has answered; what answers nothing changes nothing."""
    answer = "dropped" if isinstance(event, s.DeliveryDropped) else event.answer
    if event.packet_id != OUTGOING or not local.is_sent:
        return local
    if local.stage == 1 and answer == "pubrec":
        return replace(local, stage=2, is_sent=False)
    is_done = (local.stage, answer) in ((1, "dropped"), (2, "pubcomp"))
    return replace(local, stage=3, is_sent=False) if is_done else local

"""The session of one client id as an environment: what it answers to connections, one transaction at a time."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Call, Event
from statemachines.mqtt_codec.packet import PublishPacket
from statemachines.mqtt_connections import session_event as s
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.environment import Environment
from statemachines_spec.explorer.property import View

SESSION = "session"
OUTGOING = 9
"""The packet id of the first message that the session delivers."""
PAYLOAD = b"a payload of 24 bytes..."


class SessionAnswer(Event, frozen=True, gc=False):
    """The session calls the connection `to`; `request` is done with (None: it answers none)."""

    to: str
    call: Call
    request: Event | None = None


class OutgoingMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that is not acknowledged; `is_received`: by PUBREC; `is_sent`: what is due is, on the connection of the
    owner."""

    packet_id: int
    is_received: bool = False
    is_sent: bool = False


class MqttSessionLocal(msgspec.Struct, frozen=True, gc=False):
    """`requests`: (connection, what it asked); `received` ids of QoS 2 that are stored; `outgoing`: what is not
    acknowledged, in its order."""

    owner: str = ""
    requests: tuple[tuple[str, Event], ...] = ()
    received: tuple[int, ...] = ()
    outgoing: tuple[OutgoingMessage, ...] = ()


class SessionActor(Actor):
    """`refusals`: reason codes that it may answer in place of success; `messages` that it delivers, of QoS 1 and 2,
    under their packet ids: any number of them together."""

    def __init__(self, refusals: tuple[int, ...] = (), messages: tuple[PublishPacket, ...] = ()) -> None:
        super().__init__(SESSION)
        self.refusals = refusals
        self.messages = {one.packet_id: one for one in messages}

    def initial(self) -> MqttSessionLocal:
        return MqttSessionLocal(outgoing=tuple(map(OutgoingMessage, self.messages)))

    def has_settled(self) -> View:
        """Nothing is to be delivered any more."""
        return View(SESSION, 2, lambda local: int(not local.outgoing))

    def inputs(self, local: MqttSessionLocal) -> tuple[Any, ...]:
        found = [SessionAnswer(who, call, one) for who, one in local.requests for call in self._list_calls(local, one)]
        if local.owner:
            found += [SessionAnswer(local.owner, call) for call in self._list_deliveries(local)]
        return tuple(found)

    def _list_deliveries(self, local: MqttSessionLocal) -> list[Call]:
        """What may be sent next: the first messages, or any PUBREL."""
        due = [one for one in local.outgoing if not one.is_sent]
        packets = tuple(self.messages[one.packet_id] for one in due if not one.is_received)
        together = [s.DeliveryReady(packets[0], packets[1:count]) for count in range(1, len(packets) + 1)]
        return [*together, *(s.ReleaseReady(one.packet_id) for one in due if one.is_received)]

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
                refused = [s.PublishStoredAs(packets[0].packet_id, code) for code in self.refusals]
                return [s.PublishesStored(tuple(one.packet_id for one in packets)), *refused]
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
            case s.DeliveryDropped(packet_id):
                return Reaction(_settle(local, packet_id))
            case s.DeliveryAnswered():
                return self._take_answers(local, who, event)
            case s.MessagePublished(packet) if packet.qos == 0:
                return Reaction(local)
        requests = sorted({*local.requests, (who, event)}, key=repr)
        return Reaction(replace(local, requests=tuple(requests)))

    def _take_answers(self, local: MqttSessionLocal, who: str, event: s.DeliveryAnswered) -> Reaction:
        """In their order; nothing behind an unexpected one counts."""
        for packet_id in (event.packet_id, *event.more):
            sent = next((one for one in local.outgoing if one.packet_id == packet_id and one.is_sent), None)
            if sent is None:
                continue  # of an earlier connection, or of none
            first = "puback" if self.messages[packet_id].qos == 1 else "pubrec"
            if event.answer not in (("pubcomp", "pubrec") if sent.is_received else (first,)):
                return Reaction(local, (), (Envelope(SESSION, who, s.UnexpectedAnswer()),))
            if event.answer != "pubrec":
                local = _settle(local, packet_id)
            elif not sent.is_received:
                local = _note(local, (packet_id,), is_received=True, is_sent=False)
        return Reaction(local)


def _answer(local: MqttSessionLocal, answer: SessionAnswer) -> Reaction:
    to, call, request = answer.to, answer.call, answer.request
    calls = [Envelope(SESSION, to, call)]
    local = replace(local, requests=tuple(one for one in local.requests if one != (to, request)))
    if isinstance(call, s.PublishStoredAs) and isinstance(request, s.MessagesPublished) and request.packets[1:]:
        rest = (to, s.MessagesPublished(request.packets[1:]))
        local = replace(local, requests=tuple(sorted((*local.requests, rest), key=repr)))
    match call:
        case s.MqttSessionOpened():
            calls = [*([Envelope(SESSION, local.owner, s.MqttSessionTaken())] if local.owner else []), *calls]
            local = _note(replace(local, owner=to), tuple(one.packet_id for one in local.outgoing), is_sent=False)
        case s.DeliveryReady(packet, more):
            local = _note(local, tuple(one.packet_id for one in (packet, *more)), is_sent=True)
        case s.ReleaseReady(packet_id):
            local = _note(local, (packet_id,), is_sent=True)
        case s.PublishStoredAs(packet_id, code) if code < 0x80 and request.packet.qos == 2:  # type: ignore[union-attr]
            local = replace(local, received=(*local.received, packet_id))
        case s.ReleaseStored(packet_id):
            local = replace(local, received=tuple(one for one in local.received if one != packet_id))
    return Reaction(local, (), tuple(calls))


def _note(local: MqttSessionLocal, packet_ids: tuple[int, ...], **fields: bool) -> MqttSessionLocal:
    """With these messages so."""
    changed = (replace(one, **fields) if one.packet_id in packet_ids else one for one in local.outgoing)
    return replace(local, outgoing=tuple(changed))


def _settle(local: MqttSessionLocal, packet_id: int) -> MqttSessionLocal:
    """Without a message that is acknowledged."""
    return replace(local, outgoing=tuple(one for one in local.outgoing if one.packet_id != packet_id))


SessionActor.environments = (
    Environment(
        "the node of sessions",
        "it answers one request at a time, in any order, and delivers its messages in order, some of them together",
        (SessionActor, _answer, _note, _settle),
    ),
)

"""Systems: connections of one client id whose client says anything at any time, and the session behind them.

ClientJudge: stands between connections, their clients and the session, and feeds each step of a connection to
`ConnectionHistory`.

It carries what is sent, to nobody, and passes what is told on to the session.  It reads no record of the machine.

PacketRun: packets of a client that are there together, and a connection that takes them one behind the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, name_of
from statemachines.mqtt_codec import PacketProperties
from statemachines.mqtt_codec import packet as p
from statemachines.mqtt_connections import client_packet as c
from statemachines.mqtt_connections import session_event as s
from statemachines.mqtt_connections.connection import MQTT_CONNECTION
from statemachines.mqtt_connections.connection_record import (
    AWAITING,
    CLOSED,
    CONNECTED,
    OPENING,
    MqttConnectionRecord,
    MqttSettings,
)
from statemachines.mqtt_connections.connection_rules import fits_run
from statemachines.mqtt_connections.properties.connection_history import RULES, ConnectionHistory
from statemachines.mqtt_connections.properties.connection_model import (
    OPEN,
    OVER,
    ConnectionEndLocal,
    ConnectionModel,
    IdUse,
    Phase,
)
from statemachines_spec.explorer.actor import Envelope, Observer, Reaction, Watch
from statemachines_spec.explorer.fsm_actor import FsmActor, FsmLocal
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.post import Carry, MessageTransport
from statemachines_spec.explorer.property import Always, Property, Sometimes, View
from statemachines_spec.explorer.system import System
from statemachines_spec.mqtt_connections.session import OUTGOING, PAYLOAD, SESSION, SessionActor

CALLS_BETWEEN: Final = 2
"""What a packet tells reaches the session, and its answer at once the connection, before the next packet is taken."""


class PacketRun(Event, frozen=True, gc=False):
    """These `packets` come together.  `kinds`: their types, since two may have the same fields; `wait`: calls that come
    first."""

    kinds: tuple[str, ...]
    packets: tuple[Any, ...]
    wait: int = 0


def run_of(*packets: Any) -> PacketRun:
    """These packets together."""
    return PacketRun(tuple(name_of(type(one)) for one in packets), packets)


class RunActor(FsmActor):
    """A connection whose client may send a `PacketRun`: nothing else happens from its first packet to its last."""

    def react(self, local: FsmLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        run = envelope.event
        if not isinstance(run, PacketRun):
            return super().react(local, envelope, watch)
        if run.wait:
            return Reaction(local, (), (Envelope("", self.name, replace(run, wait=run.wait - 1)),))
        rest = PacketRun(run.kinds[1:], run.packets[1:], CALLS_BETWEEN)
        events = (run.packets[0], *((rest,) if rest.packets else ()))
        return Reaction(local, (), tuple(Envelope("", self.name, one) for one in events))


JUDGE, CLIENT = "judge", "client"


class StepSeen(Event, frozen=True, gc=False):
    """A connection has taken this event.  `kind`: its type, since two may have the same fields."""

    party: str
    kind: str
    event: Any


class JudgeLocal(msgspec.Struct, frozen=True, gc=False):
    """`history` of the connections; `sent` and `told` by the step that is under way; `broken`: names of properties."""

    history: ConnectionHistory
    sent: tuple[Event, ...] = ()
    told: tuple[Event, ...] = ()
    broken: tuple[str, ...] = ()


class ClientJudge(MessageTransport, Observer):
    """`connections`: their names; `settings` that they have."""

    def __init__(self, connections: tuple[str, ...], settings: MqttSettings) -> None:
        super().__init__(JUDGE)
        self.connections, self.settings = connections, settings

    def initial(self) -> Any:
        return JudgeLocal(ConnectionHistory((ConnectionModel(),) * len(self.connections)))

    def inputs(self, local: Any) -> tuple[Any, ...]:
        return ()

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor not in self.connections or isinstance(event, PacketRun):  # each of its packets is a step
            return None
        return StepSeen(actor, name_of(type(event)), event)

    def react(self, local: JudgeLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Carry(_, sent):
                return Reaction(replace(local, sent=(*local.sent, sent.event)) if sent.to == CLIENT else local)
            case StepSeen(party, _, event):
                return Reaction(self._judge(local, self.connections.index(party), event))
        local = replace(local, told=(*local.told, envelope.event))
        return Reaction(local, (), (replace(envelope, to=SESSION),))

    def _judge(self, local: JudgeLocal, place: int, event: Any) -> JudgeLocal:
        history, broken = local.history.observe(place, event, local.sent, local.told, self.settings)
        return JudgeLocal(history, broken=tuple(sorted({*local.broken, *(one.name for one in broken)})))

    def describe(self, local: Any) -> str:
        return ", ".join(f"{one.phase.value} {dict(one.ids) or ''}".strip() for one in local.history.models)

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_broken(self, name: str) -> View:
        """Whether a step broke this property."""
        return View(JUDGE, 2, lambda local: int(name in local.broken))

    def has_ended(self, packet: str, code: int) -> View:
        """Whether some connection ended so."""
        end = ConnectionEndLocal(packet, code)
        return View(
            JUDGE, 2, lambda local: int(any(one.phase is OVER and one.end == end for one in local.history.models))
        )

    def is_in(self, place: int, phase: Phase, *uses: IdUse) -> View:
        """Whether this connection is so far, with ids in these uses."""

        def read(local: JudgeLocal) -> int:
            model = local.history.models[place]
            return int(model.phase is phase and set(uses) <= {use for _, use in model.ids})

        return View(JUDGE, 2, read)


V3, V5 = p.MqttVersion
SETTINGS = MqttSettings(receive_maximum=1, topic_alias_maximum=1, max_payload=1)

TOLD = (
    s.SessionWanted, s.MessagePublished, s.MessagesPublished, s.MessageReleased, s.FiltersWanted, s.FiltersUnwanted,
    s.DeliveryAnswered, s.DeliveryDropped, s.MqttConnectionOver,
)  # fmt: skip


def connect(version: p.MqttVersion = V5, expiry: int = 60, largest: int | None = None) -> c.ConnectMessage:
    """CONNECT for a session that is kept (expiry 0: that is not)."""
    properties = PacketProperties(session_expiry=expiry or None, maximum_packet_size=largest)
    given = properties if version is V5 else PacketProperties()
    return c.ConnectMessage(p.ConnectPacket("c", version, expiry == 0, 10, properties=given))


def publish(
    qos: int, packet_id: int = 0, topic: str = "t", retain: bool = False, payload: bytes = b"", **properties: object
) -> Event:
    """PUBLISH of the client."""
    given = PacketProperties(**properties)  # type: ignore[arg-type]
    return c.PublishMessage(p.PublishPacket(topic, payload, qos, retain, packet_id=packet_id, properties=given))


def publish_run(*ids: int) -> Event:
    """PUBLISHes of QoS 1 that come together."""
    return c.PublishRun(tuple(p.PublishPacket("t", b"", 1, packet_id=one) for one in ids))


def disconnect(code: int = 0, expiry: int | None = None) -> Event:
    """DISCONNECT of the client."""
    return c.DisconnectMessage(p.DisconnectPacket(code, PacketProperties(session_expiry=expiry)))


BROKEN = (c.BrokenPacket(0x81), c.BrokenPacket(0x84, 3), c.BrokenPacket(0x84, 6), c.BrokenPacket(0x85))
METHOD = c.ConnectMessage(p.ConnectPacket("c", properties=PacketProperties(authentication_method="m")))
RETAINED_WILL = tuple(
    c.ConnectMessage(p.ConnectPacket("c", version, will=p.WillMessage("w", b"", retain=True))) for version in (V3, V5)
)
ALIASES = (
    publish(0, topic_alias=1),
    publish(0, topic="", topic_alias=1),
    publish(0, topic_alias=2),
    publish(0, topic_alias=0),
)  # fmt: skip
ODD = (publish(0, subscription_ids=(1,)), publish(0, retain=True), publish(1, 1, retain=True))
LARGE_WILL = tuple(
    c.ConnectMessage(p.ConnectPacket("c", version, will=p.WillMessage("w", b"12"))) for version in (V3, V5)
)
LARGE = (
    publish(0, payload=b"12", topic_alias=1),
    publish(0, payload=b"12"),
    publish(1, 1, payload=b"12"),
    publish(2, 1, payload=b"12"),
)
FILTERS = (
    c.SubscribeMessage(p.SubscribePacket(7, (p.TopicSubscription("a"),))),
    c.UnsubscribeMessage(p.UnsubscribePacket(7, ("a",))),
)
OTHERS = (c.PingreqMessage(), c.ForbiddenPacket("AuthPacket"), s.TransportLost())
ANSWERS = (
    c.PubackMessage(p.PubackPacket(OUTGOING)),
    c.PubrecMessage(p.PubrecPacket(OUTGOING)),
    c.PubcompMessage(p.PubcompPacket(OUTGOING)),
)
DELIVERED = p.PublishPacket("d", PAYLOAD, 2, packet_id=OUTGOING)
LARGEST = 30
TOGETHER = (
    p.PublishPacket("d", b"", 1, packet_id=OUTGOING),
    p.PublishPacket("d", PAYLOAD, 1, packet_id=OUTGOING + 1),
    p.PublishPacket("d", b"", 2, packet_id=OUTGOING + 2, properties=PacketProperties(content_type="c" * 19)),
)
"""In MQTT 5 the second is larger than `LARGEST`, and the third is just as large."""
LEAVES = (disconnect(), disconnect(4), disconnect(0, 60))
STOPS = (s.ServerStopping(0x8B),)


def pubacks(*packet_ids: int) -> Event:
    """PUBACKs of success that come together."""
    return c.PubackMessage(p.PubackPacket(packet_ids[0]), packet_ids[1:])


def pubrel(packet_id: int) -> Event:
    """PUBREL of the client."""
    return c.PubrelMessage(p.PubrelPacket(packet_id))


UNKNOWN = 77
"""A packet id under which nothing was sent."""
FIRST, SECOND, EXACTLY = (one.packet_id for one in TOGETHER)
PUBACK_RUNS = (
    pubacks(FIRST, UNKNOWN, SECOND),
    pubacks(SECOND, FIRST, FIRST),
    pubacks(FIRST, EXACTLY, SECOND),
    run_of(pubacks(FIRST, SECOND), disconnect()),
    run_of(c.PubrecMessage(p.PubrecPacket(EXACTLY)), pubacks(SECOND)),
    run_of(pubacks(EXACTLY), c.PingreqMessage()),
    c.PubcompMessage(p.PubcompPacket(EXACTLY)),
)
PUBLISH_RUNS = (
    run_of(publish(1, 1), publish(1, 2)),
    run_of(publish(2, 1), publish(1, 2)),
    run_of(publish(2, 1), pubrel(1)),
    run_of(publish(2, 1), publish(2, 1), publish(0)),
    run_of(pubrel(1), publish(1, 1)),
    run_of(pubrel(1), pubrel(1), publish(2, 2), disconnect()),
    run_of(publish(1, 1), publish(2, 2), publish(1, 3)),
)


def publishes(*ids: int) -> tuple[Event, ...]:
    """Messages of all QoS under these packet ids, and their PUBREL."""
    found: list[Event] = [publish(0)]
    for one in ids:
        found += [publish(1, one), publish(2, one), pubrel(one)]
    return tuple(found)


class ConnectionBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds a system: `connects` that each connection may begin with; the packets of `clients` after that; the
    session's `refusals` and its `messages`; `shows`: ends that must happen (packet, code); `carried`: the
    second connection releases an id that the first received; `settled`: the client acknowledges all messages."""

    connects: tuple[tuple[Event, ...], ...]
    packets: tuple[Event, ...]
    settings: MqttSettings = SETTINGS
    refusals: tuple[int, ...] = ()
    messages: tuple[p.PublishPacket, ...] = ()
    shows: tuple[tuple[str, int], ...] = ()
    carried: bool = False
    settled: bool = False


SYSTEMS: dict[str, tuple[str, ConnectionBounds]] = {
    "handshake": (
        "a client that says anything first, a session that refuses, and a server that stops",
        ConnectionBounds(
            connects=((connect(), connect(V3), connect(largest=2), METHOD, *RETAINED_WILL, *LARGE_WILL),),
            packets=(*BROKEN, *ODD, *OTHERS, *LEAVES, *STOPS, *ANSWERS, *FILTERS, *publishes(1)),
            settings=replace(SETTINGS, retain_available=False),
            refusals=(0x87, 0x88, 0x97),
            shows=(("connack", 0x8C), ("connack", 0x9A), ("connack", 1), ("connack", 2), ("connack", 5),
                   ("connack", 0x95), ("connack", 0x97), ("disconnect", 0x9A), ("disconnect", 0x8B)),
        ),
    ),
    "publishing": (
        "a client that uses packet ids and aliases as it likes, and a session that refuses some of its messages",
        ConnectionBounds(
            connects=((connect(), connect(V3), connect(expiry=0)),),
            packets=(*publishes(1, 2), publish_run(1), *ALIASES, *ODD, *LARGE, *LEAVES, *OTHERS),
            refusals=(0x97,),
            shows=(("disconnect", 0x82), ("disconnect", 0x93), ("disconnect", 0x94), ("disconnect", 0x8D)),
        ),
    ),
    "together": (
        "a client whose messages of QoS 1 come together, and a session that stores them together, or refuses one",
        ConnectionBounds(
            connects=((connect(), connect(V3)),),
            packets=(publish_run(1, 2), publish_run(2), publish(1, 1), publish(1, 2), s.TransportLost(), disconnect()),
            settings=replace(SETTINGS, receive_maximum=2),
            refusals=(0x97,),
            shows=(("disconnect", 0x82),),
        ),
    ),
    "takeover": (
        "two connections of one client id, which take the session from each other amid messages of QoS 2",
        ConnectionBounds(
            connects=((connect(),), (connect(), connect(V3))),
            packets=(*publishes(1, 2), s.TransportLost(), disconnect()),
            shows=(("disconnect", 0x8E), ("disconnect", 0x93)),
            carried=True,
        ),
    ),
    "delivering": (
        "two connections of one client id, to which the session delivers a message of QoS 2; the client lies",
        ConnectionBounds(
            connects=((connect(), connect(largest=LARGEST)), (connect(V3),)),
            packets=(*ANSWERS, *FILTERS, *OTHERS, *LEAVES, c.BrokenPacket(0x81), *STOPS),
            refusals=(0x80,),
            messages=(DELIVERED,),
            shows=(("disconnect", 0x8E), ("disconnect", 0x82)),
        ),
    ),
    "acknowledged-runs": (
        "two connections to which messages are delivered together; the client acknowledges in runs, and lies",
        ConnectionBounds(
            connects=((connect(), connect(largest=LARGEST)), (connect(V3),)),
            packets=(*PUBACK_RUNS, s.TransportLost()),
            messages=TOGETHER,
            shows=(("disconnect", 0x8E),),
            settled=True,
        ),
    ),
    "published-runs": (
        "two connections of one client id, whose client publishes, releases and leaves in runs",
        ConnectionBounds(
            connects=((connect(),), (connect(V3),)),
            packets=(*PUBLISH_RUNS, s.TransportLost()),
            settings=replace(SETTINGS, receive_maximum=2),
            refusals=(0x97,),
            shows=(("disconnect", 0x82), ("disconnect", 0x8E), ("disconnect", 0x93)),
        ),
    ),
}  # fmt: skip
"""Name -> (about, bounds)."""

ABOUT = {name: about for name, (about, _) in SYSTEMS.items()}


def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so."""
    about, bounds = SYSTEMS[name]
    names = tuple(f"connection-{number}" for number in range(1, len(bounds.connects) + 1))
    judge, session = ClientJudge(names, bounds.settings), SessionActor(bounds.refusals, bounds.messages)
    connections = tuple(
        make_connection(one, bounds, connects) for one, connects in zip(names, bounds.connects, strict=True)
    )
    return System(
        name,
        about,
        (*connections, judge, session),
        Network(1, lossy=False, duplicating=False),
        properties=tuple(list_properties(connections, judge, session, bounds)),
        bounds={"the session": "answers one transaction at a time, and opens for a connection when none is under way"},
    )


def make_connection(name: str, bounds: ConnectionBounds, connects: tuple[Event, ...]) -> RunActor:
    """A connection whose client may send each of these packets at any time."""
    fresh = MqttConnectionRecord(CLIENT, bounds.settings)

    def forget(record: MqttConnectionRecord) -> MqttConnectionRecord:
        return replace(fresh, status=CLOSED) if record.status is CLOSED else record

    return RunActor(
        name,
        MQTT_CONNECTION,
        fresh,
        calls=make_calls(bounds, connects),
        tells=dict.fromkeys(TOLD, JUDGE),
        late=len(bounds.connects) == 1,
        canonical=forget,
    )


def make_calls(
    bounds: ConnectionBounds, connects: tuple[Event, ...]
) -> Callable[[MqttConnectionRecord], tuple[Event, ...]]:
    """What a client, its network and the server's operator do in each state.  While the session is being opened the
    host reads no packet; after the end a few come all the same."""
    not_packets = tuple(one for one in bounds.packets if isinstance(one, s.TransportLost | s.ServerStopping))

    def calls(record: MqttConnectionRecord) -> tuple[Event, ...]:
        if record.status is OPENING:
            return not_packets
        if record.status is CLOSED:
            return (connects[0], *bounds.packets)
        packets = tuple(
            one for one in bounds.packets if not isinstance(one, c.PublishRun) or fits_run(record, one)
        )  # the driver asks that, too
        if record.version is V3 and record.status is CONNECTED:
            packets = tuple(one for one in packets if is_sayable(one))
        return (*connects, *packets) if record.status is AWAITING else (connects[0], *packets)

    return calls


def is_sayable(event: Event) -> bool:
    """Whether a client of 3.1.1 can send this packet."""
    packet = getattr(event, "packet", None)
    plain = getattr(packet, "properties", PacketProperties()) == PacketProperties()
    return plain and not getattr(packet, "reason_code", 0) and not isinstance(event, c.ForbiddenPacket)


def list_properties(
    connections: tuple[RunActor, ...], judge: ClientJudge, session: SessionActor, bounds: ConnectionBounds
) -> list[Property]:
    """What must hold, and what must happen sometimes."""
    found: list[Property] = [
        Always(name, f"never: {how}", (judge.is_broken(name),), lambda is_broken: not is_broken)
        for name, (how, _) in RULES.items()
    ]
    connected = tuple(one.is_in(CONNECTED) for one in connections)
    text = "at most one connection of a session is connected"
    if len(connections) > 1:
        found.append(Always("ONEOWNER", text, connected, lambda *each: sum(each) < 2))
    found.append(Sometimes("connected at last", "", connected, lambda *each: bool(each[-1])))
    for packet, code in bounds.shows:
        found.append(Sometimes(f"{packet} {code:#04x}", "", (judge.has_ended(packet, code),), bool))
    if bounds.settled:
        found.append(Sometimes("all messages are acknowledged", "", (session.has_settled(),), bool))
    if bounds.carried:
        view = judge.is_in(1, OPEN, IdUse.RELEASING, IdUse.STORING_2)
        found.append(Sometimes("an id that is carried over is released, beside a new one", "", (view,), bool))
    return found

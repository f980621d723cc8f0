"""MqttConnection: the server's side of one MQTT connection, from CONNECT to closed."""

from __future__ import annotations

from typing import Final

from statemachines.kernel import STAY, Fsm, Ignore, Invariant, Refuse, Row, Timer, TimerFired
from statemachines.mqtt_connections import connection_actions as a
from statemachines.mqtt_connections import connection_end as e
from statemachines.mqtt_connections import connection_rules as r
from statemachines.mqtt_connections.client_packet import (
    BrokenPacket,
    ConnectMessage,
    DisconnectMessage,
    ForbiddenPacket,
    PingreqMessage,
    PubackMessage,
    PubcompMessage,
    PublishMessage,
    PublishRun,
    PubrecMessage,
    PubrelMessage,
    SubscribeMessage,
    UnsubscribeMessage,
)
from statemachines.mqtt_connections.connection_record import (
    AWAITING,
    CLOSED,
    CONNECTED,
    OPENING,
    MqttConnectionRecord,
    MqttConnectionStatus,
    S,
)
from statemachines.mqtt_connections.session_event import (
    DeliveryReady,
    FiltersRemoved,
    FiltersStored,
    MqttSessionOpened,
    MqttSessionTaken,
    PublishesStored,
    PublishStoredAs,
    ReleaseReady,
    ReleaseStored,
    ServerStopping,
    SessionRefused,
    TransportLost,
    UnexpectedAnswer,
)


class ConnectLate(TimerFired, frozen=True, gc=False):
    """The client is not connected in time."""


class KeepAliveOver(TimerFired, frozen=True, gc=False):
    """Nothing came from the client for one and a half times its keep alive."""


NOT_CONNECT: Final = (
    PublishMessage, PublishRun, PubackMessage, PubrecMessage, PubrelMessage, PubcompMessage, SubscribeMessage,
    UnsubscribeMessage, PingreqMessage, DisconnectMessage, ForbiddenPacket,
)  # fmt: skip
PACKETS: Final = (ConnectMessage, *NOT_CONNECT, BrokenPacket)
STORED: Final = (
    PublishStoredAs,
    PublishesStored,
    ReleaseStored,
    FiltersStored,
    FiltersRemoved,
    DeliveryReady,
    ReleaseReady,
    UnexpectedAnswer,
)

# fmt: off
ROWS: Final[tuple[Row | Ignore, ...]] = (
    #   on                  from       to         do                     when                         clause
    Row(ConnectMessage,     AWAITING,  CLOSED,    a.refuse_method,       r.has_method,                "MQ-03"),
    Row(ConnectMessage,     AWAITING,  CLOSED,    a.refuse_retain,       r.is_will_retain_refused,    "MQ-60"),
    Row(ConnectMessage,     AWAITING,  CLOSED,    a.refuse_will,         r.is_will_too_large,         "MQ-170"),
    Row(ConnectMessage,     AWAITING,  OPENING,   a.ask_session,         None,                        "MQ-01"),
    *(Row(kind,             AWAITING,  CLOSED,    e.close_silently,      None,                        "MQ-02")
      for kind in NOT_CONNECT),
    Row(BrokenPacket,       AWAITING,  CLOSED,    a.refuse_version,      r.is_other_version,          "MQ-04"),
    Row(BrokenPacket,       AWAITING,  CLOSED,    a.refuse_client_id,    r.is_client_id_invalid,      "MQ-05"),
    Row(BrokenPacket,       AWAITING,  CLOSED,    e.close_silently,      None,                        "MQ-06"),
    Row(ConnectLate,        AWAITING,  CLOSED,    e.close_silently,      None,                        "MQ-07"),
    Row(TransportLost,      AWAITING,  CLOSED,    e.close_silently,      None,                        "MQ-11"),
    Row(ServerStopping,     AWAITING,  CLOSED,    e.close_silently,      None,                        "MQ-11"),

    Row(MqttSessionOpened,      OPENING,   CLOSED,    e.close_silently,      r.is_connack_too_large,      "MQ-59"),
    Row(MqttSessionOpened,      OPENING,   CONNECTED, a.accept,              None,                        "MQ-08"),
    Row(SessionRefused,     OPENING,   CLOSED,    a.refuse,              None,                        "MQ-09"),
    Row(ServerStopping,     OPENING,   CLOSED,    a.refuse_stopping,     None,                        "MQ-56"),
    Row(ConnectLate,        OPENING,   CLOSED,    a.refuse_late,         None,                        "MQ-07"),
    Row(MqttSessionTaken,       OPENING,   CLOSED,    e.close_silently,      None,                        "MQ-55"),
    Row(TransportLost,      OPENING,   CLOSED,    e.close_silently,      None,                        "MQ-11"),

    Row(PublishMessage,     CONNECTED, CLOSED,    e.close_alias,         r.is_alias_beyond,           "MQ-20"),
    Row(PublishMessage,     CONNECTED, CLOSED,    e.close_violation,     r.is_alias_unknown,          "MQ-21"),
    Row(PublishMessage,     CONNECTED, CLOSED,    e.close_violation,     r.has_subscription_id,       "MQ-22"),
    Row(PublishMessage,     CONNECTED, CLOSED,    e.close_retain,        r.is_retain_refused,         "MQ-60"),
    Row(PublishMessage,     CONNECTED, STAY,      a.note_repeat,         r.is_payload_dropped,        "MQ-170"),
    Row(PublishMessage,     CONNECTED, STAY,      a.publish_once,        r.is_qos_0,                  "MQ-24"),
    Row(PublishMessage,     CONNECTED, STAY,      a.repeat_received,     r.is_received_again,         "MQ-28"),
    Row(PublishMessage,     CONNECTED, STAY,      a.note_repeat,         r.is_storing_again,          "MQ-28"),
    Row(PublishMessage,     CONNECTED, CLOSED,    e.close_violation,     r.is_id_in_use,              "MQ-29"),
    Row(PublishMessage,     CONNECTED, CLOSED,    e.close_quota,         r.is_beyond_quota,           "MQ-23"),
    Row(PublishMessage,     CONNECTED, CLOSED,    e.close_payload,       r.is_payload_unsayable,      "MQ-170"),
    Row(PublishMessage,     CONNECTED, STAY,      a.refuse_payload,      r.is_payload_refused,        "MQ-170"),
    Row(PublishMessage,     CONNECTED, STAY,      a.publish,             None,                        "MQ-25"),
    Row(PublishRun,         CONNECTED, STAY,      a.publish_run,         r.fits_run,                  "MQ-235"),
    Refuse((PublishRun,),   CONNECTED,                                                                "MQ-235"),
    Row(PublishStoredAs,    CONNECTED, CLOSED,    e.close_refused,       r.is_refusal_unsayable,      "MQ-27"),
    Row(PublishStoredAs,    CONNECTED, STAY,      a.answer_publish,      r.is_storing,                "MQ-26"),
    Row(PublishesStored,    CONNECTED, STAY,      a.answer_run,          r.are_storing,               "MQ-236"),
    Refuse((PublishStoredAs, PublishesStored), CONNECTED,                                             "MQ-33"),
    Row(PubrelMessage,      CONNECTED, STAY,      a.release,             r.is_received,               "MQ-30"),
    Row(PubrelMessage,      CONNECTED, STAY,      a.note_packet,         r.is_releasing,              "MQ-30"),
    Row(PubrelMessage,      CONNECTED, CLOSED,    e.close_violation,     r.is_storing,                "MQ-32"),
    Row(PubrelMessage,      CONNECTED, STAY,      a.answer_unknown,      None,                        "MQ-31"),
    Row(ReleaseStored,      CONNECTED, STAY,      a.complete,            r.is_releasing,              "MQ-30"),
    Refuse((ReleaseStored,), CONNECTED,                                                               "MQ-33"),

    Row(SubscribeMessage,   CONNECTED, STAY,      a.subscribe,           None,                        "MQ-40"),
    Row(FiltersStored,      CONNECTED, STAY,      a.answer_subscribe,    None,                        "MQ-40"),
    Row(UnsubscribeMessage, CONNECTED, STAY,      a.unsubscribe,         None,                        "MQ-41"),
    Row(FiltersRemoved,     CONNECTED, STAY,      a.answer_unsubscribe,  None,                        "MQ-41"),
    Row(DeliveryReady,      CONNECTED, STAY,      a.drop,                r.is_too_large,              "MQ-42"),
    Row(DeliveryReady,      CONNECTED, STAY,      a.deliver,             None,                        "MQ-43"),
    Row(ReleaseReady,       CONNECTED, STAY,      a.deliver_release,     None,                        "MQ-44"),
    Row(PubackMessage,      CONNECTED, STAY,      a.tell_puback,         None,                        "MQ-45"),
    Row(PubrecMessage,      CONNECTED, STAY,      a.tell_pubrec,         None,                        "MQ-45"),
    Row(PubcompMessage,     CONNECTED, STAY,      a.tell_pubcomp,        None,                        "MQ-45"),

    Row(PingreqMessage,     CONNECTED, STAY,      a.answer_ping,         None,                        "MQ-50"),
    Row(KeepAliveOver,      CONNECTED, CLOSED,    e.close_keep_alive,    None,                        "MQ-51"),
    Row(DisconnectMessage,  CONNECTED, CLOSED,    e.close_violation,     r.is_expiry_forbidden,       "MQ-53"),
    Row(DisconnectMessage,  CONNECTED, CLOSED,    e.leave,               None,                        "MQ-52"),
    Row(ConnectMessage,     CONNECTED, CLOSED,    e.close_unsaid,        None,                        "MQ-171"),
    Row(UnexpectedAnswer,   CONNECTED, CLOSED,    e.close_unsaid,        None,                        "MQ-171"),
    Row(ForbiddenPacket,    CONNECTED, CLOSED,    e.close_violation,     None,                        "MQ-54"),
    Row(BrokenPacket,       CONNECTED, CLOSED,    e.close_broken,        None,                        "MQ-54"),
    Row(MqttSessionTaken,       CONNECTED, CLOSED,    e.close_taken,         None,                        "MQ-55"),
    Row(ServerStopping,     CONNECTED, CLOSED,    e.close_stopping,      None,                        "MQ-56"),
    Row(TransportLost,      CONNECTED, CLOSED,    e.close_silently,      None,                        "MQ-57"),

    Refuse(PACKETS,                                     OPENING,                                      "MQ-10"),
    Refuse((MqttSessionOpened, SessionRefused),             (AWAITING, CONNECTED),                        "MQ-33"),
    Refuse(STORED,                                      (AWAITING, OPENING),                          "MQ-33"),
    Refuse((MqttSessionTaken,),                             AWAITING,                                     "MQ-33"),
    Ignore((ConnectLate,),                              CONNECTED,                                    "MQ-07"),
    Ignore((KeepAliveOver,),                            (AWAITING, OPENING),                          "MQ-51"),
    Ignore((*PACKETS, *STORED, MqttSessionOpened, SessionRefused, MqttSessionTaken, ServerStopping, TransportLost,
            ConnectLate, KeepAliveOver),                CLOSED,                                       "MQ-58"),
)
# fmt: on

TIMERS = (
    Timer("connect", ConnectLate, (AWAITING, OPENING), lambda record: record.settings.connect_timeout_s * S, once=True),
    Timer("keep_alive", KeepAliveOver, (CONNECTED,), on_entry=False),
)


def has_room(record: MqttConnectionRecord) -> bool:
    """Aliases and packet ids stay within what the client was told."""
    settings = record.settings
    ids_max = max(settings.receive_maximum, record.received_before) + record.releasing_before
    return len(record.aliases) <= settings.topic_alias_maximum and len(record.incoming) <= ids_max


MQTT_CONNECTION = Fsm(
    "mqtt_connection",
    protocol="mqtt_connections",
    record=MqttConnectionRecord,
    states=MqttConnectionStatus,
    initial=AWAITING,
    rows=ROWS,
    timers=TIMERS,
    key=lambda record: record.party,
    invariants=(Invariant("has-room", "MQ-23", has_room),),
)

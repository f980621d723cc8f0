"""Bugs: mistakes that can be planted in the machine of MQTT connections; each is found by exploring."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import STAY, Event, Row, Send, Tell
from statemachines.kernel.row import AnyRow
from statemachines.mqtt_codec import packet as p
from statemachines.mqtt_connections import client_packet as c
from statemachines.mqtt_connections import connection_actions, connection_end
from statemachines.mqtt_connections.connection import MQTT_CONNECTION
from statemachines.mqtt_connections.connection_record import IncomingStage
from statemachines.mqtt_connections.session_event import MqttConnectionOver, MqttSessionTaken
from statemachines_spec.bug import Bug, action_of, change_rows, redeclare

STORING_1, STORING_2 = IncomingStage.STORING_1, IncomingStage.STORING_2


def drop_row(action: str) -> Any:
    """The rows whose action is called so are not there."""

    def change(row: AnyRow) -> list[AnyRow]:
        return [] if isinstance(row, Row) and action_of(row) == action else [row]

    return lambda stack: redeclare(stack, MQTT_CONNECTION, change)


def publish_and_acknowledge(record: Any, event: Any, now_ns: int) -> Any:
    """PUBACK or PUBREC at once."""
    record, effects = connection_actions.publish(record, event, now_ns)
    packet_id = event.packet.packet_id
    is_1 = event.packet.qos == 1
    answer: Any = c.PubackMessage(p.PubackPacket(packet_id)) if is_1 else c.PubrecMessage(p.PubrecPacket(packet_id))
    return record, (*effects, Send(record.party, answer))


def run_and_acknowledge(record: Any, event: Any, now_ns: int) -> Any:
    """PUBACKs of a run at once."""
    record, effects = connection_actions.publish_run(record, event, now_ns)
    first, *more = (one.packet_id for one in event.packets)
    return record, (*effects, Send(record.party, c.PubackMessage(p.PubackPacket(first), tuple(more))))


def acknowledge_at_once(stack: ExitStack) -> None:
    """Messages that come alone, and those that come together."""
    change_rows(MQTT_CONNECTION, "publish", do=publish_and_acknowledge)(stack)
    change_rows(MQTT_CONNECTION, "publish_run", do=run_and_acknowledge)(stack)


def tell_again(record: Any, event: Any, now_ns: int) -> Any:
    """The message is told once more, and PUBREC is sent."""
    record, effects = connection_actions.repeat_received(record, event, now_ns)
    _, told = connection_actions.publish_once(record, event, now_ns)
    return record, (*told[:1], *effects)


def close_without_packet(record: Any, event: Event, now_ns: int) -> Any:
    """The end, and no DISCONNECT."""
    record, effects = connection_end.close_violation(record, event, now_ns)
    return record, effects[-1:]


def disconnect_twice(record: Any, event: Event, now_ns: int) -> Any:
    record, effects = connection_end.close_keep_alive(record, event, now_ns)
    return record, (effects[0], *effects)


def deliver_and_release(record: Any, event: Any, now_ns: int) -> Any:
    record, effects = connection_actions.deliver(record, event, now_ns)
    return record, (*effects, Send(record.party, c.PubrelMessage(p.PubrelPacket(event.packet.packet_id))))


def keep_earlier_ids(record: Any, event: Any, now_ns: int) -> Any:
    """An id of an earlier connection makes room although it is free."""
    after, effects = connection_actions.complete(record, event, now_ns)
    return replace(after, releasing_before=record.releasing_before), effects


def leave_with_will(record: Any, event: Any, now_ns: int) -> Any:
    record, (over,) = connection_end.leave(record, event, now_ns)
    assert isinstance(over, Tell)
    assert isinstance(over.event, MqttConnectionOver)
    return record, (Tell(replace(over.event, sends_will=True)),)


def accept_without_ids(record: Any, event: Any, now_ns: int) -> Any:
    """The packet ids that the client has not released are forgotten."""
    return connection_actions.accept(record, replace(event, received=()), now_ns)


def publish_twice(record: Any, event: Any, now_ns: int) -> Any:
    """A message of QoS 0 is told twice."""
    record, effects = connection_actions.publish_once(record, event, now_ns)
    return record, (effects[0], *effects)


def tell_all_but_last(record: Any, event: Any, now_ns: int) -> Any:
    """Of PUBACKs that come together the last one is lost."""
    return connection_actions.tell_puback(record, replace(event, more=event.more[:-1]), now_ns)


def drop_rest(record: Any, event: Any, now_ns: int) -> Any:
    """What leaves behind a message that is too large is lost with it."""
    record, effects = connection_actions.drop(record, event, now_ns)
    first = next(place for place, one in enumerate(effects) if isinstance(one, Tell))
    return record, effects[: first + 1]


def answer_first(record: Any, event: Any, now_ns: int) -> Any:
    """The message that came first under an id in use has the answer of another one."""
    first = next(one for one, stage in record.incoming.items() if stage in (STORING_1, STORING_2))
    return connection_actions.answer_publish(record, replace(event, packet_id=first), now_ns)


def acknowledge_behind(record: Any, event: Any, now_ns: int) -> Any:
    """PUBACK or PUBREC at once, where another message is being stored."""
    is_alone = not any(stage in (STORING_1, STORING_2) for _, stage in record.incoming.items())
    return (connection_actions.publish if is_alone else publish_and_acknowledge)(record, event, now_ns)


def stay_when_taken(row: AnyRow) -> list[AnyRow]:
    """Another connection takes the session, and this one goes on."""
    if not isinstance(row, Row) or row.on is not MqttSessionTaken or action_of(row) != "close_taken":
        return [row]
    return [Row(row.on, row.source, STAY, None, row.when, row.clause)]


M = MQTT_CONNECTION
BUGS = (
    Bug("acknowledged-at-once", "a message is acknowledged before it is durable", "MQ-26", "the answer of the session",
        acknowledge_at_once),
    Bug("repeat-is-told", "a message of QoS 2 that comes again is told to the session again", "MQ-28", "the packet id",
        change_rows(M, "repeat_received", do=tell_again)),
    Bug("taken-goes-on", "a connection whose session was taken goes on", "MQ-55", "the end",
        lambda stack: redeclare(stack, M, stay_when_taken)),
    Bug("violation-in-silence", "a violation ends the connection without DISCONNECT", "MQ-54", "DISCONNECT",
        change_rows(M, "close_violation", do=close_without_packet)),
    Bug("disconnect-twice", "a client that says nothing gets DISCONNECT twice", "MQ-51", "DISCONNECT",
        change_rows(M, "close_keep_alive", do=disconnect_twice)),
    Bug("released-at-once", "PUBREL leaves with its PUBLISH", "MQ-44", "PUBREC",
        change_rows(M, "deliver", do=deliver_and_release)),
    Bug("earlier-ids-stay", "an id of an earlier connection makes room for ever", "MQ-23", "the ids in use",
        change_rows(M, "complete", do=keep_earlier_ids)),
    Bug("refusal-is-said", "3.1.1 gets an acknowledgement with a reason code", "MQ-27", "the version",
        drop_row("close_refused")),
    Bug("received-forgotten", "a connection does not know the packet ids of the one before", "MQ-31", "the ids in use",
        change_rows(M, "accept", do=accept_without_ids)),
    Bug("qos-0-twice", "a message of QoS 0 is told twice", "MQ-24", "the message",
        change_rows(M, "publish_once", do=publish_twice)),
    Bug("run-loses-last", "of PUBACKs that come together the last one is not told", "MQ-210", "all packet ids",
        change_rows(M, "tell_puback", do=tell_all_but_last)),
    Bug("rest-is-dropped", "what leaves behind a message that is too large is not sent", "MQ-211", "each by itself",
        change_rows(M, "drop", do=drop_rest)),
    Bug("answer-of-another", "of two messages that are stored the first has the answer of the second", "MQ-26",
        "the packet id", change_rows(M, "answer_publish", do=answer_first)),
    Bug("acknowledged-behind", "a message that comes while another is stored is acknowledged at once", "MQ-26",
        "the answer of the session", change_rows(M, "publish", do=acknowledge_behind)),
    Bug("leaves-with-will", "the will of a client that leaves in peace is sent", "MQ-52", "the reason code",
        change_rows(M, "leave", do=leave_with_will)),
)  # fmt: skip
"""Each with a sentence of its own."""

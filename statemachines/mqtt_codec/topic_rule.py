"""Topic names and filters (section 4.7), and filters of shared subscriptions (section 4.8.2)."""

from __future__ import annotations

from statemachines.mqtt_codec.codec_error import ProtocolViolation, ReasonCode


def check_topic(topic: str) -> None:
    """Raises `ProtocolViolation` (0x90) unless a message can be published to this topic."""
    if not topic:
        raise ProtocolViolation("the topic is empty", "MQTT-4.7.3-1", ReasonCode.TOPIC_NAME_INVALID)
    if "+" in topic or "#" in topic:
        raise ProtocolViolation("the topic has a wildcard", "MQTT-3.3.2-2", ReasonCode.TOPIC_NAME_INVALID)


def check_filter(topic_filter: str) -> None:
    """Raises `ProtocolViolation` (0x8F) unless it is a topic filter, shared or not."""
    statement = _find_broken_statement(topic_filter)
    if statement:
        text = f"{topic_filter[:40]!r} is no topic filter"
        raise ProtocolViolation(text, statement, ReasonCode.TOPIC_FILTER_INVALID)


def is_shared_filter(topic_filter: str) -> bool:
    """Whether it is of a shared subscription, or would be if it were a filter."""
    return topic_filter == "$share" or topic_filter.startswith("$share/")


def _find_broken_statement(topic_filter: str) -> str:
    if is_shared_filter(topic_filter):
        name, slash, topic_filter = topic_filter.removeprefix("$share").removeprefix("/").partition("/")
        if not name:
            return "MQTT-4.8.2-1"
        if not slash or "+" in name or "#" in name:
            return "MQTT-4.8.2-2"
    if not topic_filter:
        return "MQTT-4.7.3-1"
    if "#" in topic_filter.removesuffix("#") or (topic_filter[-1] == "#" and topic_filter[-2:] not in ("#", "/#")):
        return "MQTT-4.7.1-1"
    if "+" in topic_filter and any("+" in level and level != "+" for level in topic_filter.split("/")):
        return "MQTT-4.7.1-2"
    return ""

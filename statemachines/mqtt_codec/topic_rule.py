"""Topic names and filters (section 4.7), and filters of shared subscriptions (section 4.8.2)."""

from __future__ import annotations

from statemachines.mqtt_codec.codec_error import ProtocolViolation
from statemachines.mqtt_codec.reason_code import ReasonCode


def check_topic(topic: str) -> None:
    """Raises `ProtocolViolation` (0x90) unless a message can be published to this topic."""
    if not topic:
        raise _topic_error("the topic is empty", "MQTT-4.7.3-1")
    if "+" in topic or "#" in topic:
        raise _topic_error("the topic has a wildcard", "MQTT-3.3.2-2")


def check_filter(topic_filter: str) -> None:
    """Raises `ProtocolViolation` (0x8F) unless it is a topic filter, shared or not."""
    if topic_filter.startswith("$share/"):
        name, slash, topic_filter = topic_filter[len("$share/") :].partition("/")
        if not name:
            raise _filter_error("the share name is empty", "MQTT-4.8.2-1")
        if not slash or "+" in name or "#" in name:
            raise _filter_error("the share name has a wildcard, or no filter follows it", "MQTT-4.8.2-2")
    if not topic_filter:
        raise _filter_error("the filter is empty", "MQTT-4.7.3-1")
    if "#" in topic_filter and (
        topic_filter.index("#") != len(topic_filter) - 1 or (topic_filter != "#" and topic_filter[-2] != "/")
    ):
        raise _filter_error("'#' is not the whole last level", "MQTT-4.7.1-1")
    if "+" in topic_filter and any("+" in level and level != "+" for level in topic_filter.split("/")):
        raise _filter_error("'+' is not a whole level", "MQTT-4.7.1-2")


def _topic_error(text: str, statement: str) -> ProtocolViolation:
    return ProtocolViolation(text, statement, ReasonCode.TOPIC_NAME_INVALID)


def _filter_error(text: str, statement: str) -> ProtocolViolation:
    return ProtocolViolation(text, statement, ReasonCode.TOPIC_FILTER_INVALID)

"""Topic: what messages are published to, and the filters that are subscribed (MQTT 5, section 4.7).

Topic filters: whether one contains another (MQTT 5, sections 4.7 and 4.8).

contains_filter("a/#", "a/+/b")      True: whatever the second matches, the first matches
contains_filter("a/#", "#")          False
contains_filter("a/+", "a/b")        True: a topic is a filter that matches itself alone
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from statemachines.kernel import ConfigurationError

GROUP_PREFIXES: Final = ("$share/", "$shared/", "$queue/")
"""How filters of groups begin; all three mean the same."""


def contains_filter(outer: str, inner: str) -> bool:
    """Whether `outer` matches every topic that `inner` matches.

    A filter of a group is contained by filters of groups alone: of the same one, or of all (`$share/+/jobs/#`).
    """
    outer_group, outer_filter = _split_group(outer)
    inner_group, inner_filter = _split_group(inner)
    is_any = outer_group == "+" and inner_group is not None
    return (is_any or outer_group == inner_group) and _contains_levels(outer_filter.split("/"), inner_filter.split("/"))


def _split_group(topic_filter: str) -> tuple[str | None, str]:
    """The group that it is of (None: of none), and the filter of its topics."""
    if not topic_filter.startswith(GROUP_PREFIXES):
        return None, topic_filter
    group, _, rest = topic_filter.partition("/")[2].partition("/")
    return group, rest


def _contains_levels(outer: list[str], inner: list[str]) -> bool:
    if inner == ["#"]:
        inner = ["+", "#"]  # a topic has one level at least
    if inner[0].startswith("$") and outer[0] in ("+", "#"):
        return False  # no wildcard of the first level matches what belongs to the server
    for place, level in enumerate(outer):
        if level == "#":
            return True
        if place == len(inner) or inner[place] == "#":
            return False
        if level not in ("+", inner[place]):
            return False
    return len(inner) == len(outer)


TOPIC_MAX: Final = 65_535
"""Bytes of the longest topic or filter."""

TOPICS_MAX: Final = 256
"""Topics that are remembered to be right."""

LEVELS_MAX: Final = 128
"""Levels of the deepest topic or filter."""


def check_topic(topic: str) -> str:
    """Itself; raises `ConfigurationError` where it cannot be published to."""
    return check_topic_text(topic) if isinstance(topic, str) else check_name("topic", topic)


@lru_cache(TOPICS_MAX)
def check_topic_text(topic: str) -> str:
    """The same of what is known to be a text."""
    _check_text("topic", topic)
    if "+" in topic or "#" in topic:
        raise ConfigurationError("topic", topic, "has a wildcard; only filters have")
    if is_shared(topic):
        raise ConfigurationError("topic", topic, "begins as filters of groups do, and is none that anybody can read")
    return topic


def check_filter(topic_filter: str) -> str:
    """Itself; raises `ConfigurationError` where it is no topic filter."""
    _check_text("filter", topic_filter)
    levels = topic_filter.split("/")
    for place, level in enumerate(levels, 1):
        if len(level) > 1 and ("+" in level or "#" in level):
            raise ConfigurationError("filter", topic_filter, f"level {level!r}: a wildcard stands for a whole level")
        if level == "#" and place < len(levels):
            raise ConfigurationError("filter", topic_filter, "has '#' before its last level")
    return topic_filter


def is_shared(topic_filter: str) -> bool:
    """Whether it is of a group, or would be if it were a filter."""
    return topic_filter.startswith(GROUP_PREFIXES)


def check_name(key: str, name: str) -> str:
    """Itself; raises `ConfigurationError` unless it is a text that a database keeps and a person can read."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(key, name, "must be a text that is not empty")
    if len(_encoded(key, name)) > TOPIC_MAX:
        raise ConfigurationError(key, f"{name[:40]}...", f"must have at most {TOPIC_MAX} bytes")
    return name


def _check_text(key: str, text: str) -> None:
    check_name(key, text)
    if "\0" in text:
        raise ConfigurationError(key, text, "has a character of number 0, which MQTT forbids")
    if text.count("/") >= LEVELS_MAX:
        raise ConfigurationError(key, f"{text[:40]}...", f"must have at most {LEVELS_MAX} levels")


def _encoded(key: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(key, text, "has half of a surrogate pair, which no UTF-8 has") from error

"""Names: what groups, topics and filters may be called, and the keys of a group's records.

Names come from applications, from files and from peers; they are checked where they enter, each time by the rules here.
Keys of records are injective by construction: of two different groups, filters, or names of records no key is the same,
and no key of one group begins like those of another, whatever the names are.
"""

from __future__ import annotations

import unicodedata
from typing import Final, NamedTuple

from statemachines.kernel import ConfigurationError

GROUP_MAX: Final = 256
"""Bytes of the longest name of a group."""

TOPIC_MAX: Final = 1_024
"""Bytes of the longest topic, and of the longest topic filter."""

KEY_MAX: Final = 2_600
"""Bytes of the longest key of a record: databases index no more than a little above."""

SHARED_LEVELS: Final = ("$shared", "$share", "$queue")
"""First levels of the names of shared subscriptions; no topic begins with one."""

NO_TOPIC: Final = "must not begin with $shared/, $share/ or $queue/: no topic does"

CLAIM: Final = "claim"
ROOT: Final = "root"
PROPERTIES: Final = "properties"
PROGRESS: Final = "progress:"
FAILING: Final = "progress-failing:"
"""Names of a group's records; those of a stream's progress, and of its next message if that fails, go on with the
stream."""

OF_STREAMS: Final = "progress"
"""How the names of all records of streams begin."""


# -- names ----------------------------------------------------------------------------------------------------------


def check_text(key: str, value: str, most: int) -> None:
    """Raises `ConfigurationError` unless `value` is 1 to `most` bytes of UTF-8 without control characters."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError(key, value, f"must be text that UTF-8 can express: {error.reason}") from error
    if not 1 <= size <= most:
        shown = f"{value[:40]}..." if value else value
        raise ConfigurationError(key, shown, f"must have 1 to {most} bytes in UTF-8, and has {size}")
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise ConfigurationError(key, value, "must have no control characters")


def check_group(group: str, key: str = "group") -> None:
    """Raises `ConfigurationError` unless a group can be called so."""
    check_text(key, group, GROUP_MAX)
    if set(group) & set("/+#"):
        raise ConfigurationError(key, group, "must have no '/', '+' or '#'")


def check_topic(topic: str) -> None:
    """Raises `ConfigurationError` unless messages can be published to `topic`."""
    check_text("topic", topic, TOPIC_MAX)
    if set(topic) & set("+#"):
        raise ConfigurationError("topic", topic, "must have no '+' or '#'")
    if topic.partition("/")[0] in SHARED_LEVELS:
        raise ConfigurationError("topic", topic, NO_TOPIC)


def check_filter(topic_filter: str, subscription: str) -> None:
    """Raises `ConfigurationError` unless it is a topic filter: its wildcards stand where MQTT lets them."""
    check_text("subscription", topic_filter, TOPIC_MAX)
    levels = topic_filter.split("/")
    if levels[0] in SHARED_LEVELS:
        raise ConfigurationError("filter", topic_filter, NO_TOPIC)
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            raise ConfigurationError("subscription", subscription, "'#' must be the whole last level of the filter")
        if "+" in level and level != "+":
            raise ConfigurationError("subscription", subscription, "'+' must be a whole level of the filter")


# -- keys -----------------------------------------------------------------------------------------------------------


class RecordName(NamedTuple):
    """What a key says: the record `name` (`claim`, `root`, `properties`, `progress:STREAM`) of a group and filter."""

    group: str
    filter: str
    name: str

    @property
    def stream(self) -> str:
        """The stream whose progress it is; "": it is another record."""
        return self.name.removeprefix(PROGRESS) if self.name.startswith(PROGRESS) else ""


NOTHING: Final = RecordName("", "", "")


def record_key(group: str, topic_filter: str, name: str) -> str:
    """The key of one of a group's records: its claim, root, properties, or progress:STREAM.

    The lengths come first, so whatever the names contain, no other names give the same key.
    """
    return f"/{len(group)}.{len(topic_filter)}/{group}/{topic_filter}:{name}"


def life_keys(node: str) -> tuple[str, str, str]:
    """The keys of the records that say who goes by a node's name: the number of its newest life, its bits, and the
    store's time when it took the name.  No key of a group begins so."""
    return f"~/{node}:life", f"~/{node}:bits", f"~/{node}:taken"


def record_name(key: str) -> RecordName:
    """What a key of a group's record says; `NOTHING` for a text that is none."""
    head, _, rest = key.removeprefix("/").partition("/")
    lengths = head.split(".")
    if not key.startswith("/") or len(lengths) != 2 or not all(one.isascii() and one.isdigit() for one in lengths):
        return NOTHING
    group_size, filter_size = map(int, lengths)
    group, topic_filter = rest[:group_size], rest[group_size + 1 : group_size + 1 + filter_size]
    name = rest[group_size + filter_size + 2 :]
    return RecordName(group, topic_filter, name) if key == record_key(group, topic_filter, name) else NOTHING

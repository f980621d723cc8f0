"""Old keys: what the keys of records meant before they began with the lengths of their names.

They were `GROUP/FILTER:NAME`, and two groups could write the same one: `g/a:progress:x:claim` is a record of the filter
`a:progress:x`, and begins as the progress of streams of the filter `a` did.  What a record holds, whether a stream can
be of a filter, and which groups were ever led tell nearly all of them apart; the others are listed, and left where no
program reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.group_store import Claim, Value, is_value_of
from statemachines.shared_subscriptions.names import (
    CLAIM,
    PROGRESS,
    PROPERTIES,
    ROOT,
    RecordName,
    check_filter,
    check_group,
    record_key,
)
from statemachines.shared_subscriptions.stream_store import matches
from statemachines.wire import quote_for_log

STREAM: Final = re.compile(r"[0-9]+\.[0-9]+/")
"""How the id of a stream begins."""

LEFT: Final = "left_records"
"""The table of those that were left."""


class Translated(NamedTuple):
    """Old key -> new key; and the old keys that have none."""

    keys: dict[str, str]
    left: list[str]


def translate(encoded: Mapping[str, bytes]) -> Translated:
    """The new keys of all records of a database."""
    decoder = msgspec.msgpack.Decoder[Value](Value)
    records: dict[str, Value] = {}
    for key, value in encoded.items():
        try:
            records[key] = decoder.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    keys = {key: record_key(*found[0]) for key in records if len(found := meanings(key, records)) == 1}
    return Translated(keys, sorted(key for key in encoded if key not in keys))


def meanings(key: str, records: Mapping[str, Value]) -> list[RecordName]:
    """What an old key can mean: more than one where two groups were led that could both have written it."""
    found = list(readings(key, records[key]))
    if len(found) < 2:
        return found
    return [one for one in found if isinstance(records.get(f"{one.group}/{one.filter}:{CLAIM}"), Claim)]


def readings(key: str, value: Value) -> Iterator[RecordName]:
    """Every way to read an old key that its value and the names allow."""
    group, _, rest = key.partition("/")
    for name in (CLAIM, ROOT, PROPERTIES):
        topic_filter = rest.removesuffix(f":{name}")
        if topic_filter != rest and is_value_of(name, value) and can_be(group, topic_filter):
            yield RecordName(group, topic_filter, name)
    for found in re.finditer(f":{PROGRESS}", rest):
        topic_filter, stream = rest[: found.start()], rest[found.end() :]
        topic = stream.partition("/")[2]
        of_stream = STREAM.match(stream) and isinstance(value, int)
        if of_stream and can_be(group, topic_filter) and matches(topic_filter, topic):
            yield RecordName(group, topic_filter, f"{PROGRESS}{stream}")


def can_be(group: str, topic_filter: str) -> bool:
    """Whether there can be a group of that name and filter."""
    try:
        check_group(group)
        check_filter(topic_filter, topic_filter)
    except ConfigurationError:
        return False
    return True


def say_left(left: list[str]) -> tuple[str, ...]:
    """What a log says about those that were left."""
    why = "may be of two groups or of none, and is left in the table"
    return tuple(f"the record {quote_for_log(key)} of an earlier version {why} {LEFT}" for key in left)

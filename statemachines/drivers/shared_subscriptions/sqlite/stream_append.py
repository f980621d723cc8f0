"""StreamAppend: appends to the stream of a topic, in a transaction that is open: of this store or of its host's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count as count_from
from typing import Any, Final, Protocol

from statemachines.drivers.shared_subscriptions.store import OFFSET_BITS, Heads, has_ended
from statemachines.shared_subscriptions.stream_store import Appended, shard_of, stream_id

ADD: Final = "INSERT INTO @messages (place, payload) VALUES (?, ?)"
ADD_HEADED: Final = "INSERT INTO @messages (place, payload, head) VALUES (?, ?, ?)"
BEGIN: Final = "INSERT INTO @streams (id, topic, shard, generation, count, ended) VALUES (?, ?, ?, ?, 0, 0)"
NOTE: Final = "INSERT INTO @appends (stream, time_ns, first) VALUES (?, ?, ?)"
KNOWN: Final = "SELECT number, count, ended FROM @streams WHERE id = ?"


class Executes(Protocol):
    """A connection whose statements say `@table`."""

    def execute(self, statement: str, values: Any = (), /) -> Any:
        """As of every connection."""

    def executemany(self, statement: str, rows: Iterable[Any], /) -> Any:
        """As of every connection."""


def append_to_stream(
    connection: Executes, shards: int, now_ns: int, topic: str, payloads: Sequence[bytes], heads: Heads
) -> Appended:
    """`now_ns`: the store's time of this transaction; raises `ConfigurationError` for a stream that has ended."""
    (generation,) = connection.execute("SELECT generation FROM @store").fetchone()
    stream = stream_id(topic, shards, generation)
    known = connection.execute(KNOWN, (stream,)).fetchone()
    if known is None:
        row = (stream, topic, shard_of(topic, shards), generation)
        made = connection.execute(BEGIN, row)
        known = (made.lastrowid, 0, 0)
    number, first, ended = known
    if ended:
        raise has_ended(topic)
    base = (number << OFFSET_BITS) + first
    if heads:
        connection.executemany(ADD_HEADED, zip(count_from(base), payloads, heads, strict=False))
    else:
        connection.executemany(ADD, enumerate(payloads, base))
    connection.execute(NOTE, (number, now_ns, first))
    connection.execute("UPDATE @streams SET count = ? WHERE number = ?", (first + len(payloads), number))
    return Appended(0, stream, first, first + len(payloads) - 1)

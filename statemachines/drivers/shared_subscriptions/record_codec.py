"""Record codec: a group's records as the bytes that a database keeps.

What cannot be read (another program wrote it, or it is broken) is named in the log, once, and left alone: it never ends
a host.
"""

from __future__ import annotations

import logging

import msgspec

from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.shared_subscriptions.group_store import Stored, Value, is_value_of
from statemachines.shared_subscriptions.names import record_name
from statemachines.wire import shown

logger = logging.getLogger("gapless")

NAMED_MAX = 1_000
"""Records that were named so far, so that each is named once; beyond that they are named again."""


class RecordUnreadable(StoreUnavailable):
    """A record that a request needs is none of ours."""


class RecordCodec:
    """`where`: the database, as a log shows it."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Value] = msgspec.msgpack.Decoder(Value)
        self._named: set[str] = set()

    def encode(self, value: Value) -> bytes:
        """The bytes of a value."""
        return self._encoder.encode(value)

    def read(self, key: str, value: bytes, stamp: int) -> Stored:
        """The record under `key`; raises `RecordUnreadable`, which names it."""
        try:
            return Stored(self._decoder.decode(value), stamp)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordUnreadable(
                f"{self._where}: the record {shown(key)} cannot be read ({error}); {MEND}"
            ) from error

    def read_all(self, found: list[tuple[str, bytes, int]]) -> list[tuple[str, Stored]]:
        """Those that can be read, in order; the others are named in the log."""
        records = []
        for key, value, stamp in found:
            try:
                stored = self.read(key, value, stamp)
            except RecordUnreadable as error:
                self._name(key, str(error))
                continue
            name = record_name(key).name
            if name and not is_value_of(name, stored.value):
                self._name(key, f"{self._where}: the record {shown(key)} holds a {type(stored.value).__name__}; {MEND}")
            records.append((key, stored))
        return records

    def _name(self, key: str, what: str) -> None:
        if key in self._named:
            return
        if len(self._named) >= NAMED_MAX:
            self._named.clear()
        self._named.add(key)
        logger.warning("group store: %s", what)


MEND = "it is left alone; find out which program wrote it"

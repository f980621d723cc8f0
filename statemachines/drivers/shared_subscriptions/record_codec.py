"""Record codec: a group's records as the bytes that a database keeps.

What cannot be read (another program wrote it, or it is broken, or it is no such record as its key names) is named in
the log, once, and left alone: it never ends a host.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.shared_subscriptions.failed_deliveries import COUNT_MAX
from statemachines.shared_subscriptions.group_store import Claim, FailingMessage, StoredRecord, Value, is_value_of
from statemachines.shared_subscriptions.names import ROOT, record_name
from statemachines.wire import quote_for_log

logger = logging.getLogger("gapless")

NAMED_MAX = 1_000
"""Records that were named so far, so that each is named once; beyond that they are named again."""


NUMBER_MAX: Final = 2**63 - 1
"""The greatest number of a record: the end of a stream; an epoch, or a root, is less, since one more follows it."""


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

    def read(self, key: str, value: bytes, stamp: int) -> StoredRecord:
        """The record under `key`; raises `RecordUnreadable`, which names it, also where it is another kind of record
        than its key says."""
        stored = self._decode(key, value, stamp)
        name = record_name(key).name
        if name and not is_value_of(name, stored.value):
            raise self._unreadable(key, f"holds a {type(stored.value).__name__}")
        return stored

    def read_all(self, found: list[tuple[str, bytes, int]]) -> list[tuple[str, StoredRecord]]:
        """Those that can be read, in order; the others are named in the log.  A record of another kind than its key
        says is one of them: who destroys a group removes it."""
        records = []
        for key, value, stamp in found:
            try:
                stored = self._decode(key, value, stamp)
            except RecordUnreadable as error:
                self._name(key, str(error))
                continue
            name = record_name(key).name
            if name and not is_value_of(name, stored.value):
                self._name(key, str(self._unreadable(key, f"holds a {type(stored.value).__name__}")))
            records.append((key, stored))
        return records

    def _decode(self, key: str, value: bytes, stamp: int) -> StoredRecord:
        try:
            stored = StoredRecord(self._decoder.decode(value), stamp)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._unreadable(key, f"cannot be read ({error})") from error
        if not is_possible(record_name(key).name, stored.value):
            raise self._unreadable(key, "holds a number that none can be")
        return stored

    def _unreadable(self, key: str, what: str) -> RecordUnreadable:
        return RecordUnreadable(f"{self._where}: the record {quote_for_log(key)} {what}; {MEND}")

    def _name(self, key: str, what: str) -> None:
        if key in self._named:
            return
        if len(self._named) >= NAMED_MAX:
            self._named.clear()
        self._named.add(key)
        logger.warning("group store: %s", what)


def is_possible(name: str, value: Value) -> bool:
    """Whether the numbers of a group's record fit messages, and one more does where one more follows."""
    if isinstance(value, Claim):
        return 0 <= value.epoch < NUMBER_MAX
    if isinstance(value, FailingMessage):
        acked_most = max((last for _, last in value.acked), default=0)
        return 0 <= value.progress < NUMBER_MAX and 0 <= value.count <= COUNT_MAX and acked_most < NUMBER_MAX - 1
    if isinstance(value, int) and name:
        return 0 <= value <= NUMBER_MAX - (name == ROOT)
    return True


MEND = "it is left alone; find out which program wrote it"

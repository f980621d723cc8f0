"""BatchFunction: what the function of PostgreSQL is made of that stores a batch in one statement (PS-512)."""

from __future__ import annotations

import struct
from typing import Any, Final

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from statemachines.drivers.persistent_sessions.stored_batch import StoredBatch

NULL: Final = struct.pack("!i", -1)
HEAD: Final = struct.Struct("!iiIii")
NUMBER: Final = struct.Struct("!iq")


class Column(list[Any]):
    """The values of one column of many rows, as an array of the server."""


class ByteColumn(Column):
    """Of bytes, or None."""


class NumberColumn(Column):
    """Of integers."""


class ByteDumper(Dumper):
    """In the binary form of the server: a head, then length and bytes of each."""

    format = Format.BINARY
    oid = 1001  # bytea[]

    def dump(self, obj: Column) -> bytes:
        parts = [HEAD.pack(1, 1, 17, len(obj), 1)]
        for one in obj:
            parts += (NULL,) if one is None else (struct.pack("!i", len(one)), one)
        return b"".join(parts)


class NumberDumper(Dumper):
    """The same of eight bytes each."""

    format = Format.BINARY
    oid = 1016  # bigint[]

    def dump(self, obj: Column) -> bytes:
        return b"".join((HEAD.pack(1, 0, 20, len(obj), 1), *(NUMBER.pack(8, one) for one in obj)))


psycopg.adapters.register_dumper(ByteColumn, ByteDumper)
psycopg.adapters.register_dumper(NumberColumn, NumberDumper)


def list_values(batch: StoredBatch) -> tuple[Any, ...]:
    """The arguments of the function, behind the clock."""
    messages, ranges, rows = (list(zip(*found, strict=True)) for found in (batch.messages, batch.ranges, batch.rows))
    ids, topics, payloads, qualities, heads = messages or [()] * 5
    sessions, epochs, firsts, lasts = ranges or [()] * 4
    row_sessions, row_epochs, numbers, row_messages, filters, row_qualities, untils, mores = rows or [()] * 8
    return (
        batch.identity, batch.node, batch.life, batch.batch, batch.routes,
        ByteColumn(ids), ByteColumn(topics), ByteColumn(payloads), NumberColumn(qualities), ByteColumn(heads),
        ByteColumn(batch.needed),
        ByteColumn(sessions), NumberColumn(epochs), NumberColumn(firsts), NumberColumn(lasts),
        ByteColumn(row_sessions), NumberColumn(row_epochs), NumberColumn(numbers), ByteColumn(row_messages),
        ByteColumn(filters), NumberColumn(row_qualities), NumberColumn(untils), ByteColumn(mores),
        batch.is_ahead,
    )  # fmt: skip

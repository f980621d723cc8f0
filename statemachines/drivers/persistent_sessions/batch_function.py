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
LENGTH: Final = struct.Struct("!i")


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
            parts += (NULL,) if one is None else (LENGTH.pack(len(one)), one)
        return b"".join(parts)


class NumberDumper(Dumper):
    """The same of eight bytes each."""

    format = Format.BINARY
    oid = 1016  # bigint[]

    def dump(self, obj: Column) -> bytes:
        values = [8] * (2 * len(obj))
        values[1::2] = obj
        return HEAD.pack(1, 0, 20, len(obj), 1) + struct.pack("!" + "iq" * len(obj), *values)


psycopg.adapters.register_dumper(ByteColumn, ByteDumper)
psycopg.adapters.register_dumper(NumberColumn, NumberDumper)


def list_values(batch: StoredBatch) -> tuple[Any, ...]:
    """The arguments of the function, behind the clock."""
    messages, ranges, hands = (list(zip(*found, strict=True)) for found in (batch.messages, batch.ranges, batch.hands))
    ids, topics, payloads, qualities, heads = messages or [()] * 5
    sessions, epochs, firsts, lasts, kinds = ranges or [()] * 5
    hand_kinds, places, of_messages, filters, hand_qualities, untils, mores = hands or [()] * 7
    return (
        batch.identity, batch.node, batch.life, batch.batch, batch.routes,
        ByteColumn(ids), ByteColumn(topics), ByteColumn(payloads), NumberColumn(qualities), ByteColumn(heads),
        ByteColumn(batch.needed),
        ByteColumn(sessions), NumberColumn(epochs), NumberColumn(firsts), NumberColumn(lasts), NumberColumn(kinds),
        NumberColumn(hand_kinds), NumberColumn(places), ByteColumn(of_messages), ByteColumn(filters),
        NumberColumn(hand_qualities), NumberColumn(untils), ByteColumn(mores),
    )  # fmt: skip

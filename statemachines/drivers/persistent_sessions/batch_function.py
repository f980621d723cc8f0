"""BatchFunction: how the function of PostgreSQL is called that stores a batch in one statement (PS-512)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from statemachines.drivers.persistent_sessions.stored_batch import StoredBatch
from statemachines.drivers.persistent_sessions.tables import ARGUMENTS, TURN, on_postgres
from statemachines.drivers.sql.loop_connection import Statement

BYTES: Final = 17
NUMBER: Final = 20
TYPES: Final = {"BYTES": BYTES, "NUMBER": NUMBER, "BYTES[]": 1001, "NUMBER[]": 1016}
"""As the server numbers them."""

STORE_BATCH: Final = Statement(
    b"store_batch",
    on_postgres(f"SELECT @store_batch({', '.join(f'${place}' for place in range(1, len(ARGUMENTS) + 1))})").encode(),
    tuple(TYPES[one.split()[1]] for one in ARGUMENTS),
)
CHECK_ROUTES: Final = Statement(
    b"check_routes",
    on_postgres(
        f"SELECT turn.last_value + 1 FROM @store AS store, @nodes AS nodes, @{TURN} AS turn WHERE nodes.name = $1"
        " AND nodes.life = $2 AND nodes.batch = $3 AND store.identity = $4"
        " AND store.routes = coalesce($5, store.routes)"
    ).encode(),
    (BYTES, NUMBER, NUMBER, BYTES, NUMBER),
)

_NULL: Final = struct.pack("!i", -1)
_HEAD: Final = struct.Struct("!iiIii")
_LENGTH: Final = struct.Struct("!i")
_NUMBER: Final = struct.Struct("!q")


def encode_number(value: int | None) -> bytes | None:
    """In the binary form of the server, as all of these."""
    return None if value is None else _NUMBER.pack(value)


def decode_number(value: bytes | None) -> int | None:
    """What the server has sent."""
    found: int | None = None if value is None else _NUMBER.unpack(value)[0]
    return found


def encode_bytes_array(values: Sequence[bytes | None]) -> bytes:
    """A head, then length and bytes of each."""
    parts = [_HEAD.pack(1, 1, BYTES, len(values), 1)]
    for one in values:
        parts += (_NULL,) if one is None else (_LENGTH.pack(len(one)), one)
    return b"".join(parts)


def encode_numbers(values: Sequence[int]) -> bytes:
    """The same of eight bytes each."""
    parts = [8] * (2 * len(values))
    parts[1::2] = values
    return _HEAD.pack(1, 0, NUMBER, len(values), 1) + struct.pack("!" + "iq" * len(values), *parts)


def encode_batch(batch: StoredBatch, clock: int | None) -> tuple[bytes | None, ...]:
    """The arguments of the function."""
    messages, ranges, hands = (list(zip(*found, strict=True)) for found in (batch.messages, batch.ranges, batch.hands))
    ids, topics, payloads, qualities, heads = messages or [()] * 5
    sessions, epochs, firsts, lasts, kinds = ranges or [()] * 5
    hand_kinds, places, of_messages, filters, hand_qualities, untils, mores = hands or [()] * 7
    return (
        encode_number(clock), batch.identity, batch.node, encode_number(batch.life), encode_number(batch.batch),
        encode_number(batch.routes),
        encode_bytes_array(ids), encode_bytes_array(topics), encode_bytes_array(payloads), encode_numbers(qualities),
        encode_bytes_array(heads), encode_bytes_array(batch.needed),
        encode_bytes_array(sessions), encode_numbers(epochs), encode_numbers(firsts), encode_numbers(lasts),
        encode_numbers(kinds),
        encode_numbers(hand_kinds), encode_numbers(places), encode_bytes_array(of_messages),
        encode_bytes_array(filters), encode_numbers(hand_qualities), encode_numbers(untils), encode_bytes_array(mores),
    )  # fmt: skip


def encode_check(batch: StoredBatch) -> tuple[bytes | None, ...]:
    """The values of the question whether its node, its routes and the batch before it are those of the database."""
    life, number, routes = map(encode_number, (batch.life, batch.batch, batch.routes))
    return batch.node, life, number, batch.identity, routes

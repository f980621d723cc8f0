"""Store: what the group store and the stream store are to a driver, whatever database is behind them.

`open_stores.py` opens them; `sqlite/` and `postgres/` are the databases, and `sql_stores.py` is what these share.  The
meaning of a request is that of the pure services (`shared_subscriptions.group_store` and its `stream_store`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from statemachines.drivers.message_head import decode_head
from statemachines.kernel import Answer, ConfigurationError
from statemachines.shared_subscriptions.dead_letter import DeadLetter, StoreLetter
from statemachines.shared_subscriptions.group_store import Commit, Read, Scan
from statemachines.shared_subscriptions.names import FAILING, PROGRESS, record_key
from statemachines.shared_subscriptions.stream_store import Appended, Fetch, Fetched, FetchFailed, ListStreams, Measure

PAYLOAD_MAX: Final = 2**20
"""Bytes of the largest message."""

ANSWER_MAX: Final = 16 * 2**20
"""Bytes after which a fetch answers with fewer messages than it was asked for; the rest is asked for again."""

OFFSET_BITS: Final = 36
"""A message's place: its offset in the low bits, the number of its stream above (27 bits are left)."""

StoredPayload = tuple[bytes, bytes | None]
"""The payload of a message, and its encoded head (None: it has none)."""

Payloads = list[list[StoredPayload]]
"""For each slice of a fetch, the messages."""

Heads = Sequence[bytes | None]
"""Encoded heads of the messages of an append, one each; empty: none has one."""


class RecordDatabase(Protocol):
    """Small records with atomic preconditions."""

    identity: str
    """What the database was called by chance when it was made; no other has it, but for its copies."""

    async def ask(self, request: Read | Scan | Commit) -> tuple[Answer, ...]:
        """The answers; `StoreFailed` where the database did not carry it out, or the outcome is open (logged)."""

    async def close(self) -> None:
        """No more requests."""


class MessageDatabase(Protocol):
    """Streams of messages."""

    @property
    def identity(self) -> str:
        """That of the database, as of its `GroupStore`."""

    async def ask(self, request: ListStreams | Measure | Fetch | StoreLetter) -> tuple[Answer, ...]:
        """The answers, without payloads; `FetchFailed` where the database did not carry it out (logged).

        A dead letter and the progress of its group are one batch: both are written, or `LetterRefused` says why not."""

    async def fetch(self, request: Fetch, room: int = ANSWER_MAX) -> tuple[Fetched | FetchFailed, Payloads]:
        """The answer, and beside it the payloads of each batch; no more than `room` bytes, but always some."""

    async def append(self, topic: str, payloads: Sequence[bytes], heads: Heads = ()) -> Appended:
        """Append to the topic's current stream, all or nothing; committed when this returns.

        Raises `ConfigurationError` for a payload above 1 MiB, a head that is none, a topic that is none, or one that
        has ended;
        `StoreUnavailable` where nothing was written, `OutcomeOpen` where that is not known.
        """

    async def end(self, stream: str) -> None:
        """Nothing will be appended to `stream` (an id, as in `Appended`) any more.

        Raises `ConfigurationError` where there is no such stream, `StoreUnavailable` as `append` does.
        """

    async def rotate(self) -> int:
        """Begin a new generation: every stream so far has ended; returns its number.  Raises as `append` does."""

    async def drop(self, oldest: int, *, force: bool = False) -> int:
        """Drop every generation before `oldest` (at most the current one) with its messages; returns the oldest that is
        left.

        Raises `ConfigurationError` where a group has not read all of these messages, unless `force`; as `append` does.
        """

    async def close(self) -> None:
        """No more requests."""


def literal_prefix(topic_filter: str) -> str:
    """What every topic that matches begins with: the levels before the first wildcard ("a/#" matches "a", too)."""
    head, wildcard, _ = topic_filter.partition("+")
    if wildcard:
        return head
    head, wildcard, _ = topic_filter.partition("#")
    return head.removesuffix("/") if wildcard else topic_filter


def ids_of(shards: int, generation: int) -> list[tuple[str, str]]:
    """Where the ids of a generation's streams stand: of each shard the first that may be, and what is behind the last
    ("0" follows "/")."""
    return [(f"{shard}.{generation}/", f"{shard}.{generation}0") for shard in range(shards)]


def check_payload(payload: bytes) -> None:
    """Raises `ConfigurationError` unless it is bytes, and not too many."""
    if not isinstance(payload, bytes):
        raise ConfigurationError("payload", payload, f"must be bytes, not {type(payload).__name__}; encode it first")
    if len(payload) > PAYLOAD_MAX:
        rule = f"must have at most {PAYLOAD_MAX} bytes; split it, or store it elsewhere and publish where"
        raise ConfigurationError("payload", f"{len(payload)} bytes", rule)


def check_heads(heads: Heads, payloads: Sequence[bytes]) -> None:
    """Raises `ConfigurationError` unless there is one for each payload, or none at all, and each is the head of a
    message."""
    if heads and len(heads) != len(payloads):
        raise ConfigurationError("heads", f"{len(heads)} heads", f"must be one for each of {len(payloads)} payloads")
    for head in heads:
        decode_head(head)


def size_of(message: StoredPayload) -> int:
    """Bytes of its payload and head."""
    payload, head = message
    return len(payload) + (len(head) if head else 0)


def has_ended(topic: str) -> ConfigurationError:
    """What an append to a stream that has ended raises."""
    return ConfigurationError("topic", topic, "has ended, nothing can be appended; publish to another topic")


def has_no_stream(stream: str) -> ConfigurationError:
    """What ending a stream that is not there raises."""
    return ConfigurationError("stream", stream, "is not in the store; give an id as `append` returns it")


def has_no_message(letter: DeadLetter) -> ConfigurationError:
    """What a dead letter of a message that is not there raises."""
    return ConfigurationError("offset", letter.offset, f"is of no message in the store (of {letter.stream})")


def records_of(letter: DeadLetter) -> tuple[str, str]:
    """The keys of the group's records of that stream: its progress, and the count of its next message."""
    names = f"{PROGRESS}{letter.stream}", f"{FAILING}{letter.stream}"
    progress, failing = (record_key(letter.group, letter.filter, name) for name in names)
    return progress, failing


def agree_on_shards(shards: int, known: int) -> None:
    """The first stream store of a database decides; another number would find other streams for the same topics."""
    if known != shards:
        raise ConfigurationError("shards", shards, f"the store was made with {known}; give that number")


def check_shards(shards: int) -> int:
    """Itself; raises `ConfigurationError` unless it is a number of shards."""
    if shards < 1:
        raise ConfigurationError("shards", shards, "must be at least 1")
    return shards

"""What the stores of groups and streams on SQLite and on PostgreSQL share: requests, their checks and their failures.

A database carries out one request at a time in its worker; the statements of each stand in `sqlite/` and `postgres/`.

Record codec: a group's records as the bytes that a database keeps.

What cannot be read (another program wrote it, or it is broken, or it is no such record as its key names) is named in
the log, once, and left alone: it never ends a host.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import msgspec

from statemachines.drivers.shared_subscriptions.store import (
    ANSWER_MAX,
    Heads,
    Payloads,
    check_heads,
    check_payload,
    check_shards,
    literal_prefix,
)
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.kernel import Answer, ConfigurationError
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.dead_letter import LetterRefused, LetterStored, StoreLetter
from statemachines.shared_subscriptions.failed_deliveries import COUNT_MAX
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    Committed,
    FailingMessage,
    Read,
    ReadDone,
    Refused,
    Scan,
    Scanned,
    StoredRecord,
    Value,
    is_value_of,
)
from statemachines.shared_subscriptions.names import ROOT, check_topic, record_name
from statemachines.shared_subscriptions.stream_store import (
    Appended,
    Fetch,
    Fetched,
    FetchFailed,
    ListStreams,
    Measure,
    Measured,
    StreamInfo,
    StreamsListed,
)
from statemachines.shared_subscriptions.unread_streams import check_read
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


T = TypeVar("T")
D = TypeVar("D", bound="Worker")


class Worker(Protocol):
    """A database: it does one piece of work after another in a thread of its own."""

    def snapshot(self) -> AbstractContextManager[Any]:
        """A connection that reads one state; in the worker."""

    async def run(self, work: Callable[[], T]) -> T:
        """What `work()` returns; raises `StoreUnavailable` where the database did not carry it out."""

    async def close(self) -> None:
        """No more work."""


class SqlGroupStore(ABC, Generic[D]):
    """Records in a database."""

    name = group_store.SERVICE
    identity: str
    _database: D
    _codec: RecordCodec

    @classmethod
    def share(cls, database: D, codec: RecordCodec) -> Self:
        """The records of a database that is open already."""
        store = cls.__new__(cls)
        store._database, store._codec = database, codec
        return store

    async def ask(self, request: Read | Scan | Commit) -> tuple[Answer, ...]:
        """The answers; `StoreFailed` where the database did not carry it out, or the outcome is open (logged)."""
        try:
            return (await self._database.run(lambda: self._apply(request)),)
        except StoreUnavailable as error:
            logger.warning("group store: %s", error)
            return (group_store.StoreFailed(request.n),)

    async def close(self) -> None:
        """No more requests."""
        await self._database.close()

    def _apply(self, request: Read | Scan | Commit) -> Answer:
        match request:
            case Read():
                return self._read(request)
            case Scan():
                return self._scan(request)
            case Commit():
                return self._commit(request)
        raise TypeError(f"{self.name} does not take a {type(request).__name__}")

    # -- in the worker ------------------------------------------------------------------------------------------

    def _scan(self, scan: Scan) -> Scanned:
        """Until there are enough that can be read: what cannot is passed by."""
        records: list[tuple[str, group_store.StoredRecord]] = []
        after = scan.after
        with self._database.snapshot() as connection:
            while len(records) <= scan.limit:
                wanted = scan.limit + 1 - len(records)
                found = self._find(connection, scan.prefix, after, wanted)
                records += self._codec.read_all(found)
                if len(found) < wanted:
                    break
                after = found[-1][0]
        return Scanned(scan.n, tuple(records[: scan.limit]), len(records) > scan.limit)

    @abstractmethod
    def _find(self, connection: Any, prefix: str, after: str, limit: int) -> list[tuple[str, bytes, int]]:
        """Key, value and time of the first records behind `after` whose key begins so."""

    @abstractmethod
    def _read(self, read: Read) -> ReadDone: ...

    @abstractmethod
    def _commit(self, commit: Commit) -> Committed | Refused: ...


class SqlStreamStore(ABC, Generic[D]):
    """Streams in a database, of topics spread over `shards`; raises `ConfigurationError` for a number out of range."""

    name = stream_store.SERVICE
    _database: D
    _codec: RecordCodec

    def __init__(self, shards: int) -> None:
        self.identity = ""
        self._shards = check_shards(shards)

    async def ask(self, request: ListStreams | Measure | Fetch | StoreLetter) -> tuple[Answer, ...]:
        """The answers, without payloads; `FetchFailed` where the database did not carry it out (logged)."""
        if isinstance(request, Fetch):
            return ((await self.fetch(request))[0],)
        if isinstance(request, StoreLetter):
            return (await self._answer_letter(request),)
        if not isinstance(request, ListStreams | Measure):
            raise TypeError(f"{self.name} does not take a {type(request).__name__}: messages go to `append`")
        try:
            return (await self._database.run(lambda: self._look(request)),)
        except StoreUnavailable as error:
            logger.warning("stream store: %s", error)
            return (FetchFailed(request.n),)

    async def _answer_letter(self, request: StoreLetter) -> LetterStored | LetterRefused:
        try:
            return LetterStored(request.n, await self._database.run(lambda: self._store_letter(request)))
        except (StoreUnavailable, ConfigurationError) as error:
            return LetterRefused(request.n, str(error))

    async def fetch(self, request: Fetch, room: int = ANSWER_MAX) -> tuple[Fetched | FetchFailed, Payloads]:
        """The answer, and beside it the payloads of each batch; no more than `room` bytes, but always some."""
        try:
            return await self._database.run(lambda: self._fetch(request, room))
        except StoreUnavailable as error:
            logger.warning("stream store: %s", error)
            return FetchFailed(request.n), []

    async def append(self, topic: str, payloads: Sequence[bytes], heads: Heads = ()) -> Appended:
        """Append to the topic's current stream, all or nothing; committed when this returns.

        Raises as `store.StreamStore.append` says.
        """
        check_topic(topic)
        for payload in payloads:
            check_payload(payload)
        check_heads(heads, payloads)
        return await self._database.run(lambda: self._append(topic, payloads, heads))

    async def end(self, stream: str) -> None:
        """Nothing will be appended to `stream` (an id, as in `Appended`) any more.

        Raises `ConfigurationError` where there is no such stream, `StoreUnavailable` as `append` does.
        """
        await self._database.run(lambda: self._end(stream))

    async def rotate(self) -> int:
        """Begin a new generation: every stream so far has ended; returns its number.  Raises as `append` does."""
        return await self._database.run(self._rotate)

    async def drop(self, oldest: int, *, force: bool = False) -> int:
        """Drop every generation before `oldest` with its messages; returns the oldest that is left.

        Raises as `store.MessageDatabase.drop` says.
        """
        groups = self._share_groups()
        find = partial(check_read, groups=groups._apply, streams=self._list)
        return await self._database.run(lambda: self._drop(oldest if force else find(oldest)))

    async def close(self) -> None:
        """No more requests."""
        await self._database.close()

    # -- in the worker ------------------------------------------------------------------------------------------

    @abstractmethod
    def _share_groups(self) -> SqlGroupStore[D]:
        """The records in the same database."""

    def _look(self, request: ListStreams | Measure) -> StreamsListed | Measured:
        return self._list(request) if isinstance(request, ListStreams) else self._measure(request)

    def _list(self, request: ListStreams) -> StreamsListed:
        """By id.  Ids begin with shard and generation, so a filter's literal beginning is looked up in each of these
        (there are few): topics that begin otherwise cost nothing."""
        literal = literal_prefix(request.filter)
        found: list[StreamInfo] = []
        after = request.after
        with self._database.snapshot() as connection:
            generation, oldest = self._generations(connection)
            while len(found) <= request.limit:
                following = self._following(connection, after)
                if following is None:
                    break
                place = following.partition("/")[0]
                matching = self._matching(connection, request, f"{place}/{literal}", after)
                found += islice(matching, request.limit + 1 - len(found))
                after = place + "0"  # "0" follows "/"
        more = len(found) > request.limit
        return StreamsListed(request.n, tuple(found[: request.limit]), more, generation, oldest)

    @abstractmethod
    def _generations(self, connection: Any) -> tuple[int, int]:
        """The current generation, and the oldest that is left."""

    @abstractmethod
    def _following(self, connection: Any, after: str) -> str | None:
        """The id of the first stream behind `after`."""

    @abstractmethod
    def _matching(self, connection: Any, request: ListStreams, begin: str, after: str) -> Iterator[StreamInfo]:
        """Streams after `after` whose id begins so and whose topic matches, by id; `limit` and one more are enough."""

    @abstractmethod
    def _measure(self, request: Measure) -> Measured: ...

    @abstractmethod
    def _fetch(self, request: Fetch, room: int) -> tuple[Fetched, Payloads]: ...

    @abstractmethod
    def _append(self, topic: str, payloads: Sequence[bytes], heads: Heads) -> Appended: ...

    @abstractmethod
    def _store_letter(self, request: StoreLetter) -> bool:
        """The copy and the progress behind the message, in one batch; whether it was not there before."""

    @abstractmethod
    def _end(self, stream: str) -> None: ...

    @abstractmethod
    def _rotate(self) -> int: ...

    @abstractmethod
    def _drop(self, oldest: int) -> int: ...

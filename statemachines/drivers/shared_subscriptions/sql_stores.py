"""What the stores of groups and streams on SQLite and on PostgreSQL share: requests, their checks and their failures.

A database carries out one request at a time in its worker; the statements of each stand in `sqlite/` and `postgres/`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeVar

from statemachines.drivers.shared_subscriptions.record_codec import RecordCodec
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
from statemachines.shared_subscriptions.group_store import Commit, Committed, Read, ReadDone, Refused, Scan, Scanned
from statemachines.shared_subscriptions.names import check_topic
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

T = TypeVar("T")
D = TypeVar("D", bound="Worker")

logger = logging.getLogger("gapless")


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

"""StoredBatch: a batch that only stores messages and rows, as one statement of PostgreSQL says it (PS-512).

The statement calls a function of the database, which checks what the batch expects: the life and the last batch of its
node, the version of its routes, the epochs and numbers of its writer, and that the messages of its rows are there.
Where all is so it stores the batch and gives its number; else it writes nothing, and the batch is carried out step by
step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from statemachines.drivers.persistent_sessions.host_request import (
    HostRequest,
    PutMessage,
    ReadStoreTime,
    Routes,
    StoreRows,
)
from statemachines.drivers.persistent_sessions.operator_request import OperatorRequest
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.route_trie import of_sessions
from statemachines.drivers.persistent_sessions.row_hands import Hand, encode_hand
from statemachines.kernel import Request
from statemachines.persistent_sessions.fan_out import find_volatile
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import PutRows, RowStored

Asked = Request | HostRequest | OperatorRequest


class BatchMessage(NamedTuple):
    """A row of `messages`, but for its time."""

    id: bytes
    topic: bytes
    payload: bytes
    qos: int
    head: bytes | None


class BatchRange(NamedTuple):
    """Rows `first` to `last` of the node's writer."""

    session: bytes
    epoch: int
    first: int
    last: int
    kind: int = 0
    """Which hands are its rows."""


class BatchHand(NamedTuple):
    """A row of each range of a `kind`, so far behind the first: what all of these have in common."""

    kind: int
    place: int
    message: bytes
    filter: bytes
    qos: int
    until_ns: int
    more: bytes


Hands = tuple[Hand, ...]
"""Of rows that follow each other."""


class StoredBatch(NamedTuple):
    """`routes`: the version of those by which messages were matched (None: none was); `needed`: messages that are
    there.  The database multiplies ranges by hands (PS-540)."""

    node: bytes
    life: int
    batch: int
    identity: bytes
    routes: int | None
    messages: list[BatchMessage]
    needed: list[bytes]
    ranges: list[BatchRange]
    hands: list[BatchHand]


class BatchReader:
    """It reads the requests of a node: `match` finds the routes of a message, of `version`; `unstored`: messages that
    were matched and are not stored."""

    def __init__(self, match: Callable[[PutMessage], Routes], version: int, unstored: Collection[str] = ()) -> None:
        self._match = match
        self._version = version
        self._unstored = unstored
        self._node = ""
        self._messages: dict[bytes, BatchMessage] = {}
        self._needed: dict[bytes, None] = {}
        self._ranges: dict[bytes, BatchRange] = {}
        self._hands: dict[bytes, Hands] = {}
        self._read_hands: dict[int, Hands] = {}
        self._looked_at: Mapping[str, Payload] = {}
        self._routes: list[Routes] = []
        self._adds: dict[type[Any], Callable[[Any], bool]] = {
            PutMessage: self._add_message,
            StoreRows: self._add_rows,
            PutRows: self._add_range,
            ReadStoreTime: lambda asked: True,
        }

    def read(self, life: tuple[str, int, bytes], batch: int, requests: Sequence[Asked]) -> StoredBatch | None:
        """None: it is more than rows and messages."""
        self._node, number, identity = life
        for one in requests:
            add = self._adds.get(type(one))
            if add is None or not add(one):
                return None
        routes = self._version if self._routes else None
        needed = [one for one in self._needed if one not in self._messages]
        messages = list(self._messages.values())
        return StoredBatch(self._node.encode(), number, batch, identity, routes, messages, needed, *self._multiply())

    def _multiply(self) -> tuple[list[BatchRange], list[BatchHand]]:
        """Ranges, and the hands of each kind once."""
        kinds: dict[Hands, int] = {}
        ranges = [
            one._replace(kind=kinds.setdefault(self._hands[session], len(kinds)))
            for session, one in self._ranges.items()
        ]
        hands = [BatchHand(kind, place, *hand) for of_kind, kind in kinds.items() for place, hand in enumerate(of_kind)]
        return ranges, hands

    def answer(self, requests: Sequence[Asked], number: int) -> list[Any]:
        """What each is answered with; the batch has this number."""
        routes = iter(self._routes)
        answers: list[Any] = []
        for one in requests:
            if isinstance(one, PutMessage):
                answers.append(next(routes))
            elif isinstance(one, ReadStoreTime):
                answers.append(number)
            else:
                answers.append((RowStored(number),))
        return answers

    def _add_message(self, asked: PutMessage) -> bool:
        """False: it is over some time, or for connected clients alone: the statement knows neither."""
        routes = self._match(asked)
        self._routes.append(routes)
        if of_sessions(routes):
            self._add(asked.id.encode(), Payload(asked.topic, asked.payload, asked.head), asked.qos)
        return asked.expiry_ms is None and not find_volatile(routes, asked.qos)

    def _add(self, message: bytes, payload: Payload, qos: int) -> None:
        self._messages[message] = BatchMessage(message, payload.topic.encode(), payload.data, qos, payload.head)

    def _add_rows(self, asked: StoreRows) -> bool:
        if asked.payloads is not self._looked_at:  # else the same messages for another session
            self._looked_at = asked.payloads
            for row in asked.put.rows:
                if row.message in self._unstored and row.message in asked.payloads:
                    self._add(row.message.encode(), asked.payloads[row.message], row.qos)
            self._needed |= dict.fromkeys(list_payloads(asked))
        return self._add_range(asked.put)

    def _add_range(self, put: PutRows) -> bool:
        """False: it is another writer's, or does not follow the one before."""
        session = put.session.encode()
        first = BatchRange(session, put.epoch, put.first_number, put.first_number - 1)
        before = self._ranges.get(session, first)
        self._ranges[session] = before._replace(last=put.last_number)
        self._hands[session] = self._hands.get(session, ()) + self._hands_of(put.rows)
        return (self._node, before.epoch, before.last + 1) == (put.writer, put.epoch, put.first_number)

    def _hands_of(self, rows: tuple[Queued, ...]) -> Hands:
        """Sessions with the same subscription share the tuple of their rows."""
        found = self._read_hands.get(id(rows))
        if found is None:
            found = tuple(map(encode_hand, rows))
            self._read_hands[id(rows)] = found
        return found


def list_payloads(asked: StoreRows) -> list[bytes]:
    """The messages of its rows whose payloads it has."""
    return sorted(message.encode() for message in asked.payloads.keys() & {row.message for row in asked.put.rows})

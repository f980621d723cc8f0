"""StoredBatch: a batch that only stores messages and rows, as one statement of PostgreSQL says it (PS-512).

The statement calls a function of the database, which checks what the batch expects: the life and the last batch of its
node, the version of its routes, the epochs and numbers of its writer, and that the messages of its rows are there.
Where all is so it stores the batch and gives its number; else it writes nothing, and the batch is carried out step by
step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from statemachines.drivers.persistent_sessions.host_request import (
    HostRequest,
    PutMessage,
    ReadStoreTime,
    Routes,
    StoreRows,
)
from statemachines.drivers.persistent_sessions.operator_request import OperatorRequest
from statemachines.drivers.persistent_sessions.route_trie import of_sessions
from statemachines.drivers.persistent_sessions.row_products import encode_hand
from statemachines.kernel import Request
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


class BatchRow(NamedTuple):
    """A row of `session_rows`, but for what all have."""

    session: bytes
    epoch: int
    number: int
    message: bytes
    filter: bytes
    qos: int
    until_ns: int
    more: bytes


class StoredBatch(NamedTuple):
    """`routes`: the version of those by which the messages were matched (None: there are none); `needed`: messages
    that are there; `is_ahead`: it has no number, and is flushed with the next that has one."""

    node: bytes
    life: int
    batch: int
    identity: bytes
    routes: int | None
    messages: list[BatchMessage]
    needed: list[bytes]
    ranges: list[BatchRange]
    rows: list[BatchRow]
    is_ahead: bool = False


class BatchReader:
    """It reads the requests of a node: `match` finds the routes of a message, of `version`."""

    def __init__(self, match: Callable[[PutMessage], Routes], version: int) -> None:
        self._match = match
        self._version = version
        self._node = ""
        self._messages: list[BatchMessage] = []
        self._needed: dict[bytes, None] = {}
        self._ranges: dict[bytes, BatchRange] = {}
        self._rows: list[BatchRow] = []
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
        found = self._messages, list(self._needed), list(self._ranges.values()), self._rows
        return StoredBatch(self._node.encode(), number, batch, identity, routes, *found)

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
        """False: it is over some time, which the statement does not know."""
        routes = self._match(asked)
        self._routes.append(routes)
        if of_sessions(routes):
            topic, message = asked.topic.encode(), asked.id.encode()
            self._messages.append(BatchMessage(message, topic, asked.payload, asked.qos, asked.head))
        return asked.expiry_ms is None

    def _add_rows(self, asked: StoreRows) -> bool:
        self._needed |= dict.fromkeys(list_payloads(asked))
        return self._add_range(asked.put)

    def _add_range(self, put: PutRows) -> bool:
        """False: it is another writer's, or does not follow the one before."""
        session = put.session.encode()
        first = BatchRange(session, put.epoch, put.first_number, put.first_number - 1)
        before = self._ranges.get(session, first)
        self._ranges[session] = before._replace(last=put.last_number)
        self._rows += [BatchRow(session, put.epoch, row.number, *encode_hand(row)) for row in put.rows]
        return (self._node, before.epoch, before.last + 1) == (put.writer, put.epoch, put.first_number)


def list_payloads(asked: StoreRows) -> list[bytes]:
    """The messages of its rows whose payloads it has."""
    return sorted(message.encode() for message in asked.payloads.keys() & {row.message for row in asked.put.rows})

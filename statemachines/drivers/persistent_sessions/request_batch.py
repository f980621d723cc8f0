"""Request batch: which requests of a node become one transaction, and how.

Runs are requests that stand one behind the other and become few statements together.

A batch may share its turn with others of its kind (PS-511) if it stores messages and rows of this node's writer, or
what an owner has taken.  What it depends on is changed only by transactions that are alone: tokens, epochs that are
fenced, routes, what is deleted.  A row that is marked may be deleted beside others (PS-660): nothing that shares its
turn reads a row that the state has taken.

BatchReader: reads a batch that only stores messages and rows as one statement of PostgreSQL (PS-512).  The statement
calls a function of the database, which checks what the batch expects: the life and the last batch of its node, the
version of its routes, the epochs and numbers of its writer, and that the messages of its rows are there.  Where all is
so it stores the batch and gives its number; else it writes nothing, and the batch is carried out step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from statemachines.drivers.persistent_sessions.host_requests import (
    ROUTES,
    Beat,
    Look,
    ReadNodes,
    ReadPayloads,
    ReadStoreTime,
)
from statemachines.drivers.persistent_sessions.life_requests import FindDueWills
from statemachines.drivers.persistent_sessions.machine_requests import (
    EPOCHS,
    Hand,
    StoreRows,
    encode_hand,
    group_sessions,
)
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.route_rows import THERE, PutMessage, ReadUnfinished, Routes
from statemachines.drivers.persistent_sessions.route_trie import of_sessions
from statemachines.drivers.persistent_sessions.session_row import TOKEN
from statemachines.drivers.persistent_sessions.sql import (
    Asked,
    BatchHand,
    BatchMessage,
    BatchRange,
    Sql,
    StoredBatch,
    expect_all_of,
)
from statemachines.persistent_sessions.collector import DeletePage
from statemachines.persistent_sessions.life_request import KeepAlive
from statemachines.persistent_sessions.message import Queued, find_volatile
from statemachines.persistent_sessions.request import CommitState, MarkDelivered, PutRows, RowStored

T = TypeVar("T")

RANGES: Final = (PutRows, StoreRows)
"""Rows to be stored."""


def joins(one: object, other: object) -> bool:
    """Whether both are carried out together: marks of rows that follow each other, rows to be stored, and messages."""
    if isinstance(one, RANGES):
        return isinstance(other, RANGES)
    if isinstance(one, PutMessage):
        return isinstance(other, PutMessage)
    return follows(one, other)


def follows(one: object, other: object) -> bool:
    """Whether `other` marks the row behind that which `one` marks."""
    if not isinstance(one, MarkDelivered) or not isinstance(other, MarkDelivered):
        return False
    same = (one.session, one.writer, one.epoch) == (other.session, other.writer, other.epoch)
    return same and other.number == one.until + 1


def runs_of(requests: Sequence[T], are_joined: Callable[[T, T], bool] = joins) -> Iterator[Sequence[T]]:
    """The requests in their order, each alone but for neighbours that are joined."""
    begin = 0
    for place in range(1, len(requests) + 1):
        if place == len(requests) or not are_joined(requests[place - 1], requests[place]):
            yield requests[begin:place]
            begin = place


Hands = tuple[Hand, ...]
"""Of rows that follow each other."""


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


ALWAYS: Final = (PutRows, MarkDelivered, CommitState, ReadStoreTime, ReadPayloads)

PERIODIC: Final = (KeepAlive, Beat, Look, ReadNodes, ReadUnfinished, FindDueWills)
"""Signs of life and looks that a node makes again and again; none changes routes."""


def may_share(request: Asked) -> bool:
    """Whether its transaction may share its turn."""
    if isinstance(request, PutMessage):
        return request.has_rows_alone
    if isinstance(request, StoreRows):
        return not (request.origins or request.once)
    return isinstance(request, ALWAYS)


def is_ahead(request: Asked) -> bool:
    """Whether it may be stored ahead of others that may share their turn: its rows come later, and nobody is told of it
    before (D-632)."""
    if isinstance(request, PutMessage):
        return request.expiry_ms is None and request.has_rows_alone
    return isinstance(request, ReadStoreTime)


def may_be_passed(request: Asked) -> bool:
    """Whether messages behind it may be matched ahead of it: messages keep their order."""
    return isinstance(request, PERIODIC) or (may_share(request) and not isinstance(request, PutMessage))


def kind_of(request: Asked) -> int:
    """Which of those that become few statements together."""
    if isinstance(request, RANGES):
        return 0
    return 1 if isinstance(request, PutMessage) else 2


def expect_queries(sql: Sql, requests: Sequence[Asked]) -> None:
    """Have go out at once what the requests of a batch will ask."""
    if any(isinstance(one, PutMessage) for one in requests):
        sql.expect(ROUTES)
    ranges = [one.put if isinstance(one, StoreRows) else one for one in requests if isinstance(one, RANGES)]
    for writer, sessions in group_sessions(ranges).items():
        expect_all_of(sql, EPOCHS, sessions, writer=writer.encode())
    messages = [message for one in requests if isinstance(one, StoreRows) for message in list_payloads(one)]
    expect_all_of(sql, THERE, list(dict.fromkeys(messages)))
    for session in dict.fromkeys(one.session for one in requests if isinstance(one, CommitState)):
        sql.expect(TOKEN, session=session)


def count_rows(request: Asked) -> int:
    """How many rows a request of these kinds touches; of others: more than any batch has."""
    count = _ROWS.get(type(request))
    return MANY if count is None else count(request)


MANY: Final = 2**62

QUICK_BYTES: Final = 16_384
"""Payload of a message beyond which it counts as many rows."""

_ROWS: Final[dict[type[Any], Callable[[Any], int]]] = {
    PutMessage: lambda asked: 1 + len(asked.payload) // QUICK_BYTES * MANY + asked.is_appended * MANY,
    StoreRows: lambda asked: len(asked.put.rows) + len(asked.origins or ()) * MANY,
    PutRows: lambda asked: len(asked.rows),
    MarkDelivered: lambda asked: asked.until - asked.number + 1,
    CommitState: lambda asked: sum(map(len, (asked.change.ended, asked.change.packets, asked.change.queued))),
    ReadStoreTime: lambda asked: 0,
    DeletePage: lambda asked: len(asked.rows) + len(asked.messages),
}

"""SharedTurn: batches whose transactions may be committed beside others of their kind (PS-511).

Such a batch stores messages and rows of this node's writer, or what an owner has taken.  What it depends on is changed
only by transactions that are alone: tokens, epochs that are fenced, routes, what is deleted.  A row that is marked may
be deleted beside others (PS-660): nothing that shares its turn reads a row that the state has taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from statemachines.drivers.persistent_sessions.host_request import (
    Beat,
    FindDueWills,
    HostRequest,
    Look,
    PutMessage,
    ReadNodes,
    ReadPayloads,
    ReadStoreTime,
    ReadUnfinished,
    StoreRows,
)
from statemachines.drivers.persistent_sessions.host_requests import ROUTES, THERE
from statemachines.drivers.persistent_sessions.machine_requests import TOKEN
from statemachines.drivers.persistent_sessions.operator_request import OperatorRequest
from statemachines.drivers.persistent_sessions.request_runs import RANGES
from statemachines.drivers.persistent_sessions.row_ranges import EPOCHS
from statemachines.drivers.persistent_sessions.sql import Sql, expect_all_of
from statemachines.drivers.persistent_sessions.stored_batch import list_payloads
from statemachines.kernel import Request
from statemachines.persistent_sessions.collector_request import DeletePage
from statemachines.persistent_sessions.life_request import KeepAlive
from statemachines.persistent_sessions.request import CommitState, MarkDelivered, PutRows

ALWAYS: Final = (PutRows, MarkDelivered, CommitState, ReadStoreTime, ReadPayloads)

PERIODIC: Final = (KeepAlive, Beat, Look, ReadNodes, ReadUnfinished, FindDueWills)
"""Signs of life and looks that a node makes again and again; none changes routes."""

Asked = Request | HostRequest | OperatorRequest


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


class ExpectedQueries:
    """What the requests of a batch will ask, so that it goes out at once."""

    def __init__(self, requests: Sequence[Asked]) -> None:
        self._sessions: dict[str, dict[bytes, None]] = {}
        self._messages: dict[bytes, None] = {}
        self._tokens: dict[bytes, None] = {}
        self._queries: dict[str, None] = {}
        adds: dict[type[Any], Callable[[Any], None]] = {
            PutMessage: lambda asked: self._queries.update({ROUTES: None}),
            StoreRows: self._add_rows,
            PutRows: self._add_range,
            CommitState: lambda asked: self._tokens.update({asked.session.encode(): None}),
        }
        for one in requests:
            add = adds.get(type(one))
            if add is not None:
                add(one)

    def expect(self, sql: Sql) -> None:
        """Have it go out."""
        for query in self._queries:
            sql.expect(query)
        for writer, its in self._sessions.items():
            expect_all_of(sql, EPOCHS, list(its), writer=writer.encode())
        expect_all_of(sql, THERE, list(self._messages))
        for session in self._tokens:
            sql.expect(TOKEN, session=session)

    def _add_rows(self, asked: StoreRows) -> None:
        self._messages |= dict.fromkeys(list_payloads(asked))
        self._add_range(asked.put)

    def _add_range(self, put: PutRows) -> None:
        self._sessions.setdefault(put.writer, {})[put.session.encode()] = None


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

"""SharedTurn: batches whose transactions may be committed beside others of their kind (PS-511).

Such a batch stores messages and rows of this node's writer, or what an owner has taken.  What it depends on is changed
only by transactions that are alone: tokens, epochs that are fenced, routes, what is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from statemachines.drivers.persistent_sessions.host_request import (
    HostRequest,
    PutMessage,
    ReadMessages,
    ReadStoreTime,
    StoreRows,
)
from statemachines.drivers.persistent_sessions.host_requests import ROUTES, THERE
from statemachines.drivers.persistent_sessions.machine_requests import TOKEN
from statemachines.drivers.persistent_sessions.operator_request import OperatorRequest
from statemachines.drivers.persistent_sessions.request_runs import RANGES
from statemachines.drivers.persistent_sessions.row_ranges import EPOCHS
from statemachines.drivers.persistent_sessions.sql import Sql, expect_all_of
from statemachines.kernel import Request
from statemachines.persistent_sessions.request import CommitState, MarkDelivered, PutRows

ALWAYS: Final = (PutRows, MarkDelivered, CommitState, ReadStoreTime, ReadMessages)

Asked = Request | HostRequest | OperatorRequest


def may_share(request: Asked) -> bool:
    """Whether its transaction may share its turn."""
    if isinstance(request, PutMessage):
        is_more = request.retain or request.is_once or request.is_appended or request.will or request.packet
        return not is_more
    if isinstance(request, StoreRows):
        return not (request.origins or request.once)
    return isinstance(request, ALWAYS)


def is_ahead(request: Asked) -> bool:
    """Whether it may be stored ahead of others that may share their turn: its rows come later, and nobody is told of it
    before (D-632)."""
    if isinstance(request, PutMessage):
        return request.expiry_ms is None and may_share(request)
    return isinstance(request, ReadStoreTime)


def kind_of(request: Asked) -> int:
    """Which of those that become few statements together."""
    if isinstance(request, RANGES):
        return 0
    return 1 if isinstance(request, PutMessage) else 2


def expect_queries(sql: Sql, requests: Sequence[Asked]) -> None:
    """Have go out at once what these will ask."""
    sessions: dict[str, dict[bytes, None]] = {}
    messages: dict[bytes, None] = {}
    tokens: dict[bytes, None] = {}
    for one in requests:
        if isinstance(one, StoreRows):
            messages |= dict.fromkeys(row.message.encode() for row in one.put.rows if row.message in one.payloads)
        put = one.put if isinstance(one, StoreRows) else one
        if isinstance(put, PutRows):
            sessions.setdefault(put.writer, {})[put.session.encode()] = None
        elif isinstance(put, CommitState):
            tokens[put.session.encode()] = None
    if any(isinstance(one, PutMessage) for one in requests):
        sql.expect(ROUTES)
    for writer, its in sessions.items():
        expect_all_of(sql, EPOCHS, list(its), writer=writer.encode())
    expect_all_of(sql, THERE, list(messages))
    for session in tokens:
        sql.expect(TOKEN, session=session)

"""Group rows: what of a session came from streams of groups, and is in no client's hands yet."""

from __future__ import annotations

import logging
from typing import Final

from statemachines.drivers.persistent_sessions.sql import Sql, one
from statemachines.drivers.persistent_sessions.tables import DELIVERED, UNDELIVERED
from statemachines.drivers.persistent_sessions.topic import is_shared

logger = logging.getLogger("gapless")

FILTERS: Final = (
    "SELECT filter FROM @routes WHERE session = :session AND filter >= :first AND filter < :last AND gone = 0"
    " ORDER BY filter"
)
"""All that may be of groups, by the key of the table: a session may subscribe thousands that are not."""

WAITING: Final = (
    "SELECT (SELECT count(*) FROM @session_rows AS rows WHERE session = :session AND filter = :filter"
    f" AND tag = {UNDELIVERED} AND NOT EXISTS (SELECT 1 FROM @session_rows AS marks WHERE marks.session = rows.session"
    " AND marks.writer = rows.writer AND marks.epoch = rows.epoch AND marks.number = rows.number"
    f" AND marks.tag = {DELIVERED})) + (SELECT count(*) FROM @queued WHERE session = :session AND filter = :filter)"
)


def group_filters(sql: Sql, session: bytes) -> tuple[str, ...]:
    """The filters of groups that it subscribes."""
    found = sql.all(FILTERS, session=session, first=b"$", last=b"%")
    return tuple(each.decode() for (each,) in found if is_shared(each.decode()))


def count_waiting(sql: Sql, session: bytes, topic_filter: str) -> int:
    """How many messages that came by this filter wait in the database."""
    found = one(sql, WAITING, session=session, filter=topic_filter.encode())
    assert found is not None
    return int(found[0])


def log_lost(sql: Sql, session: bytes) -> None:
    """The session ends: what it has of groups nobody else gets."""
    for each in group_filters(sql, session):
        count = count_waiting(sql, session, each)
        if count:
            what = "session %s has ended, and %d messages of %s with it that were not sent: no other member gets them"
            logger.warning(what, session.decode(), count, each)

"""Rules of the collector: what is garbage, and on what its deletion depends (source: "Garbage collection of
persistent data")."""

from __future__ import annotations

from statemachines.persistent_sessions.collector_request import (
    MessageDeletion,
    Only,
    RowDeletion,
    StoredMessage,
    StoredRow,
    Tag,
)
from statemachines.persistent_sessions.graces import Graces


def row_garbage(row: StoredRow, graces: Graces) -> RowDeletion | None:
    """How the row is deleted; None: it is needed, or may be.

    That a session is abandoned, a row delivered or taken, or old, stays so: nothing is asked again.
    """
    match row.key.tag:
        case Tag.UNDELIVERED:
            is_due, only = not row.waits, Only.ALWAYS
        case Tag.DELIVERED:
            is_due = row.abandoned or row.paired or row.age_ms >= graces.message_ms
            only = Only.ALWAYS if row.abandoned else Only.UNPAIRED
        case Tag.MARKER:
            is_due, only = row.abandoned or row.age_ms >= graces.marker_ms, Only.ALWAYS
        case Tag.ABANDONED:
            is_due = row.alone and row.age_ms >= graces.abandon_ms
            only = Only.ALONE
    return RowDeletion(row.key, only) if is_due else None


def message_garbage(one: StoredMessage, graces: Graces) -> MessageDeletion | None:
    """How the message is deleted; None: it is needed, or may be."""
    if one.held:
        return None
    if one.age_ms >= graces.retention_ms:
        return MessageDeletion(one.message, Only.UNHELD)
    if one.age_ms < graces.message_ms or (one.referenced and not one.over):
        return None
    return MessageDeletion(one.message, Only.OVER if one.over else Only.UNREFERENCED)

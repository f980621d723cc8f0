"""What a collector may delete: rows and messages that nobody needs any more (KEPT)."""

from __future__ import annotations

import msgspec

from statemachines.kernel import BrokenProperty
from statemachines.persistent_sessions.collector import RowKey, Tag


class RowNeeds(msgspec.Struct, frozen=True, gc=False):
    """What speaks of a row: the session has taken its message; the other row of its place is there; a resume waits for
    it as a marker; its session has other rows."""

    is_taken: bool = False
    is_paired: bool = False
    is_awaited: bool = False
    has_others: bool = False

    def is_needed(self, tag: Tag) -> bool:
        """Whether a row of this tag is."""
        match tag:
            case Tag.UNDELIVERED:
                return not self.is_taken
            case Tag.DELIVERED:
                return self.is_paired
            case Tag.MARKER:
                return self.is_awaited
        return self.has_others


def judge_deleted_row(row: RowKey, needs: RowNeeds) -> tuple[BrokenProperty, ...]:
    """A row is deleted."""
    if not needs.is_needed(row.tag):
        return ()
    text = f"{row.session}: {row.tag.value} row {row.epoch}.{row.number} of {row.writer} is deleted, and is needed"
    return (BrokenProperty("KEPT", text),)


def judge_deleted_message(
    message: str, *, is_held: bool = False, is_wanted: bool = False, is_early: bool = False
) -> tuple[BrokenProperty, ...]:
    """A message is deleted that a state holds, or a row still brings, or whose age has not come."""
    reasons = {"it is not over": is_early, "a session holds it": is_held, "a session has not taken it": is_wanted}
    return tuple(
        BrokenProperty("KEPT", f"{message} is deleted, and {reason}") for reason, holds in reasons.items() if holds
    )

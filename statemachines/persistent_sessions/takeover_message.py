"""What an owner and the owner of before say to each other when a session that is live is taken over (source: "Current
implementation")."""

from __future__ import annotations

from typing import ClassVar, Final

from statemachines.kernel import Message, TraceColumns
from statemachines.persistent_sessions.message import Count
from statemachines.persistent_sessions.request import EpochRows

BEYOND = 2**62
"""Epochs and numbers are below it."""


class BeginTakeover(Message, frozen=True, gc=False):
    """To the owner of before: yield; `token` of the new owner, `to` which the answer goes."""

    columns: ClassVar = TraceColumns(key="client", term="token")

    client: str
    to: str
    token: Count


class TakeoverBegun(Message, frozen=True, gc=False):
    """To `BeginTakeover`: from now on nothing is changed, asked or sent here."""

    columns: ClassVar = TraceColumns(key="client", term="token")

    client: str
    token: Count


class EndTakeover(Message, frozen=True, gc=False):
    """To the owner of before: the new one is subscribed; give what you have, and end."""

    columns: ClassVar = TraceColumns(key="client", term="token")

    client: str
    to: str
    token: Count


class TakeoverEnded(Message, frozen=True, gc=False):
    """To `EndTakeover`: what was not committed, and what came since, as far as it is kept."""

    columns: ClassVar = TraceColumns(key="client", term="token")

    client: str
    token: Count
    found: tuple[EpochRows, ...] = ()


class TakeoverRefused(Message, frozen=True, gc=False):
    """To either: this owner does not yield to you, or (from the host) there is no such owner here.  `is_gone`: it comes
    from the node of the owner that asks, since the other node cannot be reached."""

    columns: ClassVar = TraceColumns(key="client", term="token")

    client: str
    token: Count
    is_gone: bool = False


ANSWERED: Final = frozenset((BeginTakeover, EndTakeover))
"""Who says this waits for an answer, and is told where it does not go."""


class OwnerReplaced(Message, frozen=True, gc=False):
    """To an owner: its client has a fresh session, live at the owner `to`, and yours is gone."""

    columns: ClassVar = TraceColumns(key="client", term="token")

    client: str
    to: str
    token: Count


def limit_rows(found: tuple[EpochRows, ...], limit: int) -> tuple[EpochRows, ...]:
    """The first rows, of `limit` copies, without what can be no row: numbers and epochs that no database counts to."""
    kept: list[EpochRows] = []
    for one in found:
        can_be = 0 < one.epoch < BEYOND
        rows = []
        for row in one.rows if can_be else ():
            if 0 < row.number < BEYOND:
                limit -= row.copies
                if limit < 0:
                    break
                rows.append(row)
        if rows:
            kept.append(EpochRows(one.writer, one.epoch, tuple(rows)))
    return tuple(kept)

"""LagMonitor: what a node finds in the database that nobody has told it.

Live messages may be lost without a trace: a full buffer, a link that nobody made.  From time to time a node looks for
rows of other writers behind those that its owners have taken.  What follows from that its process decides (`RowsSeen`).
"""

from __future__ import annotations

from typing import Final

from statemachines.drivers.persistent_sessions.host_request import LagAnswer, WatchedSession
from statemachines.kernel import Map, Outgoing
from statemachines.persistent_sessions.session_host import SessionHost
from statemachines.persistent_sessions.session_host_record import Position, RowsSeen

LOOK_MAX: Final = 1_000
"""Sessions in one look; the others have theirs at the next."""


class LagMonitor:
    """It looks for the owners of `host`."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self._asked: dict[str, str] = {}
        """Session -> the owner for which it is looked."""
        self._last = ""

    def list_watched(self) -> tuple[WatchedSession, ...]:
        """What to ask for at this look."""
        resumes = ((owner, self._host.resume_of(owner)) for owner in sorted(self._host.owners))
        live = {owner: resume for owner, resume in resumes if resume is not None and resume.session}
        turns = [*(owner for owner in live if owner > self._last), *(owner for owner in live if owner <= self._last)]
        turns = turns[:LOOK_MAX]
        self._last = turns[-1] if turns else ""
        self._asked = {live[owner].session: owner for owner in turns}
        return tuple(
            WatchedSession(live[owner].session, live[owner].token, self._host.list_followed(owner)) for owner in turns
        )

    def take(self, seen: tuple[LagAnswer, ...], now_ns: int) -> list[Outgoing]:
        """What was found, in the order of `list_watched`."""
        out: list[Outgoing] = []
        for one in seen:
            owner = self._asked.get(one.session, "")
            out += self._host.take_look(seen_of(owner, one), now_ns)
        return out


def seen_of(owner: str, one: LagAnswer) -> RowsSeen:
    """With the last of the rows that were found of each writer."""
    last: dict[str, Position] = {}
    for writer, epoch, row in one.rows:
        last[writer] = max(last.get(writer, (0, 0)), (epoch, row.number))
    return RowsSeen(owner, superseded=one.superseded, writers=one.writers, rows=Map(last))

"""LagMonitor: what a node finds in the database that nobody has told it.

Live messages may be lost without a trace: a full buffer, a link that nobody made.  From time to time a node looks for
rows of other writers behind those that its owners have taken.  A row that was there at one look, and is not taken at
the next, was lost on its way: the owner asks its writer for a fresh marker.  So it learns, too, of writers that it
never heard of, and that somebody else has its session.
"""

from __future__ import annotations

from typing import Final

from statemachines.drivers.persistent_sessions.host_request import LagAnswer, Watched
from statemachines.kernel import Outgoing
from statemachines.persistent_sessions.session_host import SessionHost
from statemachines.persistent_sessions.writer_flow_record import DONE, LinkLost

LOOK_MAX: Final = 1_000
"""Sessions in one look; the others have theirs at the next."""

Position = tuple[int, int]


class LagMonitor:
    """It looks for the owners of `host`."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self._behind: dict[str, dict[str, Position]] = {}
        """Owner -> writer -> the last row that was there at the last look."""
        self._asked: list[str] = []
        self._last = ""

    def list_watched(self) -> tuple[Watched, ...]:
        """What to ask for at this look."""
        owners = [owner for owner in sorted(self._host.owners) if self._host.resume_of(owner) is not None]
        later = owners[owners.index(self._last) + 1 :] if self._last in owners else owners
        self._asked = [*later, *owners[: len(owners) - len(later)]][:LOOK_MAX]
        self._last = self._asked[-1] if self._asked else ""
        return tuple(self._watched(owner) for owner in self._asked if self._is_live(owner))

    def take(self, seen: tuple[LagAnswer, ...], now_ns: int) -> list[Outgoing]:
        """What was found, in the order of `watched`."""
        out: list[Outgoing] = []
        by_session = {one.session: one for one in seen}
        for owner in self._asked:
            resume = self._host.resume_of(owner)
            one = None if resume is None else by_session.get(resume.session)
            if one is not None:
                out += self._take_one(owner, one, now_ns)
        self._behind = {owner: found for owner, found in self._behind.items() if owner in self._host.owners}
        return out

    def _take_one(self, owner: str, one: LagAnswer, now_ns: int) -> list[Outgoing]:
        if one.superseded:
            return self._host.supersede(owner, now_ns)
        out = self._mend(owner, now_ns)
        for writer in one.writers:
            out += self._host.meet_writer(owner, writer, now_ns)
        behind = self._behind[owner] = {}
        for writer, epoch, row in one.rows:
            behind[writer] = max(behind.get(writer, (0, 0)), (epoch, row.number))
        return out

    def _mend(self, owner: str, now_ns: int) -> list[Outgoing]:
        """What was there at the last look, and is not taken yet, does not come any more."""
        out: list[Outgoing] = []
        for writer, at in self._behind.get(owner, {}).items():
            resume = self._host.resume_of(owner)
            flow = None if resume is None else resume.flows.get(writer)
            if flow is not None and flow.status is DONE and (flow.epoch, flow.taken) < at:
                out += self._host.feed(owner, LinkLost(writer), now_ns)
        return out

    def _is_live(self, owner: str) -> bool:
        resume = self._host.resume_of(owner)
        return resume is not None and bool(resume.session)

    def _watched(self, owner: str) -> Watched:
        resume = self._host.resume_of(owner)
        assert resume is not None
        followed = tuple(
            (writer, flow.epoch, flow.taken)
            for writer, flow in sorted(resume.flows.items())
            if flow.status is DONE and writer != self._host.node
        )
        return Watched(resume.session, resume.token, followed)

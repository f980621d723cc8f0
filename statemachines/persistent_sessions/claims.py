"""Claims: what other nodes say of sessions that they have, until the database says the same.

A node may lie, or be one that was put back or woken up.  A request for a marker moves the live messages of a session to
who asks, and a request to begin a takeover makes its owner fall silent; so neither counts before the database names
that owner, or its token.  One look is open for a session at a time; whoever is not heard by then asks again.  Of each
node the last word of a kind waits, so that one that claims much takes nobody else's place.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from statemachines.kernel import node_of
from statemachines.persistent_sessions.message import MarkerWanted
from statemachines.persistent_sessions.owner_request import OwnerFound
from statemachines.persistent_sessions.takeover_message import BeginTakeover

SESSIONS_MAX: Final = 10_000
"""Sessions that are looked for at once."""
CLAIMS_MAX: Final = 32
"""Claims that wait for one session at once: two of a node at most."""


class Claim(NamedTuple):
    """A message that is not believed yet, and whom it was sent `to`."""

    to: str
    message: MarkerWanted | BeginTakeover


class Claims:
    """Bounded: what there is no room for is dropped, and said again."""

    def __init__(self) -> None:
        self._open: dict[str, dict[tuple[str, bool], Claim]] = {}

    def hold(self, session: str, claim: Claim) -> bool:
        """Keep it; whether the database is to be asked for the owner of the session."""
        waiting = self._open.get(session)
        slot = (node_of(claim.message.to), isinstance(claim.message, MarkerWanted))
        if waiting is None:
            if len(self._open) >= SESSIONS_MAX:
                return False
            self._open[session] = {slot: claim}
            return True
        if slot in waiting or len(waiting) < CLAIMS_MAX:
            waiting[slot] = claim
        return False

    def judge(self, session: str, found: OwnerFound) -> list[Claim]:
        """Those that the database bears out."""
        return [one for one in self._open.pop(session, {}).values() if _is_true(one.message, found)]


def _is_true(said: MarkerWanted | BeginTakeover, found: OwnerFound) -> bool:
    """Who asks for a marker is subscribed; who takes over has opened the session, and is not subscribed yet."""
    if isinstance(said, MarkerWanted):
        return (said.to, said.token) == (found.owner, found.token)
    return said.token == found.token

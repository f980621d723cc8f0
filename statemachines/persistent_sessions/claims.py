"""Claims: what other nodes say of sessions that they have, until the database says the same.

A node may lie, or be one that was put back or woken up.  A request for a marker moves the live messages of a session to
the node that asks, a request to begin a takeover makes its owner fall silent, and word of a fresh session ends it.  So
none of them counts before the database names that owner, or its token, or no longer the owner that is said to be
replaced.  One look is open for a session at a time; a claim that is not heard by then is
made again.  Of each node the last word of a kind waits, so that a node that claims much takes nobody else's place.
"""

from __future__ import annotations

from typing import Final

import msgspec

from statemachines.kernel import Map, node_of
from statemachines.persistent_sessions.message import MarkerWanted
from statemachines.persistent_sessions.owner_request import OwnerFound
from statemachines.persistent_sessions.takeover_message import BeginTakeover, OwnerReplaced

SESSIONS_MAX: Final = 10_000
"""Sessions that are looked for at once."""
CLAIMS_MAX: Final = 32
"""Claims that wait for one session at once: three of a node at most."""

Claiming = MarkerWanted | BeginTakeover | OwnerReplaced


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A message that is not believed yet, and the party that it was sent `to`."""

    to: str
    message: Claiming

    def replaces(self, other: Claim) -> bool:
        """It is the later word of the same node, of the same kind."""
        same_kind = type(self.message) is type(other.message)
        return same_kind and node_of(self.message.to) == node_of(other.message.to)


class Claims(msgspec.Struct, frozen=True, gc=False):
    """Bounded: what there is no room for is dropped, and said again.  `of`: session -> its claims, the first one
    first."""

    of: Map[str, tuple[Claim, ...]] = Map()

    def has_open(self, session: str) -> bool:
        """The database is being asked for the owner of the session because of a claim."""
        return session in self.of

    def hold(self, session: str, claim: Claim) -> Claims:
        """With this claim, if there is room."""
        waiting = self.of.get(session, ())
        if not waiting and len(self.of) >= SESSIONS_MAX:
            return self
        place = next((at for at, one in enumerate(waiting) if claim.replaces(one)), len(waiting))
        if place >= CLAIMS_MAX:
            return self
        return Claims(self.of.set(session, (*waiting[:place], claim, *waiting[place + 1 :])))

    def without(self, session: str) -> Claims:
        """They were judged."""
        return Claims(self.of.delete(session)) if session in self.of else self

    def proved_by(self, found: OwnerFound) -> tuple[Claim, ...]:
        """Those of its session that the database bears out."""
        return tuple(one for one in self.of.get(found.session, ()) if is_true(one, found))


def is_true(claim: Claim, found: OwnerFound) -> bool:
    """An owner that asks for a marker is subscribed.  One that takes over has opened the session, and is not
    subscribed yet.  One that is replaced has it no more."""
    said = claim.message
    if isinstance(said, MarkerWanted):
        return (said.to, said.token) == (found.owner, found.token)
    return claim.to != found.owner if isinstance(said, OwnerReplaced) else said.token == found.token

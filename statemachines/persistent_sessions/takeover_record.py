"""TakeoverRecord: what a new owner keeps of the owner that it takes the session over from.

What an owner and the owner of before say to each other when a session that is live is taken over (source: "Current
implementation").

What a node asks the database of a session: where it is live.

Claims: what other nodes say of sessions that they have, until the database says the same.

A node may lie, or be one that was put back or woken up.  A request for a marker moves the live messages of a session to
the node that asks, a request to begin a takeover makes its owner fall silent, and word of a fresh session ends it.  So
none of them counts before the database names that owner, or its token, or no longer the owner that is said to be
replaced.  One look of a session is open for claims at a time.  It judges those that came before it was asked for, and
later ones wait for the next look.  Of each node one claim of a kind waits, so that a node that claims much takes
nobody else's place.  It is the latest: links between nodes may reorder messages, and tokens say which is later.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from statemachines.kernel import (
    Answer,
    Call,
    Effects,
    Event,
    Map,
    Message,
    Request,
    Status,
    TimerFired,
    TraceColumns,
    node_of,
)
from statemachines.persistent_sessions.message import Count, MarkerWanted
from statemachines.persistent_sessions.request import EpochRows
from statemachines.persistent_sessions.times import Times


class StartTakeover(Call, frozen=True, gc=False):
    """The state is loaded under our token: whatever the owner of before still asks is refused."""


class FinishTakeover(Call, frozen=True, gc=False):
    """We are subscribed, and that is known everywhere."""


class SayAgain(TimerFired, frozen=True, gc=False):
    """The owner of before has not answered yet."""


class BeginTimeout(TimerFired, frozen=True, gc=False):
    """It has not answered in time that it yields."""


class EndTimeout(TimerFired, frozen=True, gc=False):
    """What it hands over has not come, or was not confirmed, in time."""


class HandedOver(Event, frozen=True, gc=False):
    """To the resume: what was handed over, and the database has exactly so."""

    found: tuple[EpochRows, ...]


class TakenOver(Event, frozen=True, gc=False):
    """To the host: the takeover from the owner `old` is over.  `why`: handed; refused (there is none, or it does not
    yield), silent: what it would have handed over comes from the database; one that is silent should be stopped."""

    columns: ClassVar = TraceColumns(key="why")

    session: str
    old: str
    why: str


class TakeoverStatus(Status):
    """`beginning` and `ending` wait for the owner of before, `begun` for our subscription, `confirming` for the
    database."""

    NEW = "new"
    BEGINNING = "beginning"
    BEGUN = "begun"
    ENDING = "ending"
    CONFIRMING = "confirming"
    OVER = "over"


NEW, BEGINNING, BEGUN, ENDING, CONFIRMING, OVER = TakeoverStatus


class TakeoverRecord(msgspec.Struct, frozen=True, gc=False):
    """The `session` of `client` goes from the owner `old` to `owner`, which has this `token`; `left`: the client has
    left the old owner."""

    session: str
    client: str
    owner: str
    token: int
    old: str
    times: Times
    status: TakeoverStatus = NEW
    left: bool = False


Done = tuple[TakeoverRecord, Effects]


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


class FindOwner(Request, frozen=True, gc=False):
    """Where is the session live?  Asked when a writer begins, in the transaction that begins its epoch or behind it,
    and when another node claims the session."""

    columns: ClassVar = TraceColumns(key="session")

    session: str
    look: int = 0
    """For claims: which look of the session it is, from 1 on.  0: for its writer, which begins."""


class OwnerFound(Answer, frozen=True, gc=False):
    """To `FindOwner`: the `owner` of the session ("": nobody), its token, and the `look` that it answers."""

    columns: ClassVar = TraceColumns(key="session", term="token")

    owner: str
    token: int
    session: str
    look: int = 0


SESSIONS_MAX: Final = 10_000
"""Sessions that are looked for at once."""
CLAIMS_MAX: Final = 32
"""Claims that wait for one session at once: three of a node at most."""

Claiming = MarkerWanted | BeginTakeover | OwnerReplaced


class SessionClaim(msgspec.Struct, frozen=True, gc=False):
    """A message that is not believed yet, the party that it was sent `to`, and the `look` that judges it."""

    to: str
    message: Claiming
    look: int = 0

    def replaces(self, other: SessionClaim) -> bool:
        """It is of the same node, and of the same kind."""
        same_kind = type(self.message) is type(other.message)
        return same_kind and node_of(self.message.to) == node_of(other.message.to)

    def repeats(self, other: SessionClaim) -> bool:
        """It says of the same owner what the other one has said."""
        return (self.to, self.message.to, self.message.token) == (other.to, other.message.to, other.message.token)


class SessionClaims(msgspec.Struct, frozen=True, gc=False):
    """Those of one session, the first one first, and the `look` that is open for them."""

    look: int = 0
    waiting: tuple[SessionClaim, ...] = ()


NO_CLAIMS: Final = SessionClaims()


class Claims(msgspec.Struct, frozen=True, gc=False):
    """Bounded: what there is no room for is dropped, and said again.  `of`: session -> its claims."""

    of: Map[str, SessionClaims] = Map()

    def look_of(self, session: str) -> int:
        """The look that the database is being asked for because of claims (0: none)."""
        return self.of.get(session, NO_CLAIMS).look

    def hold(self, session: str, claim: SessionClaim) -> Claims:
        """With this claim, if there is room, and no later one of its node waits.  What is said again keeps its look."""
        had = self.of.get(session, NO_CLAIMS)
        if not had.look and len(self.of) >= SESSIONS_MAX:
            return self
        waiting = had.waiting
        place = next((at for at, one in enumerate(waiting) if claim.replaces(one)), len(waiting))
        is_held = place < len(waiting)
        if place >= CLAIMS_MAX or (is_held and is_older(claim.message, waiting[place].message)):
            return self
        again = is_held and claim.repeats(waiting[place])
        held = SessionClaim(claim.to, claim.message, waiting[place].look if again else had.look + 1)
        kept = (*waiting[:place], held, *waiting[place + 1 :])
        return Claims(self.of.set(session, SessionClaims(had.look or 1, kept)))

    def without(self, found: OwnerFound) -> Claims:
        """Those that this look was for were judged."""
        session, look = found.session, found.look
        if not look or look != self.look_of(session):
            return self
        later = tuple(one for one in self.of[session].waiting if one.look > look)
        return Claims(self.of.set(session, SessionClaims(look + 1, later)) if later else self.of.delete(session))

    def proved_by(self, found: OwnerFound) -> tuple[SessionClaim, ...]:
        """Those of its session that this look was for, and that the database bears out."""
        waiting = self.of.get(found.session, NO_CLAIMS).waiting
        return tuple(one for one in waiting if one.look <= found.look and is_true(one, found))


def is_older(said: Claiming, held: Claiming) -> bool:
    """What is said was sent before what is held: of an earlier owner, or for an earlier marker of the same one."""
    return order_of(said) < order_of(held)


def order_of(said: Claiming) -> tuple[int, int]:
    """The token of its owner; of a request for a marker also which one it is."""
    return said.token, said.n if isinstance(said, MarkerWanted) else 0


def is_true(claim: SessionClaim, found: OwnerFound) -> bool:
    """An owner that asks for a marker is subscribed.  One that takes over has opened the session, and is not
    subscribed yet.  One that is replaced has it no more."""
    said = claim.message
    if isinstance(said, MarkerWanted):
        return (said.to, said.token) == (found.owner, found.token)
    return claim.to != found.owner if isinstance(said, OwnerReplaced) else said.token == found.token

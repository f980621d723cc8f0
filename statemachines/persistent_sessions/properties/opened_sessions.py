"""OpenedSessions: which sessions the clients have had, and what is promised of the one that a client is given.

seen, broken = seen.observe_opened("client", "s1")      REUSED: the id was given before
seen = seen.observe_ended("client")                     its session is over
"""

from __future__ import annotations

from enum import Enum

import msgspec

from statemachines.kernel import BrokenProperty, Map

Broken = tuple[BrokenProperty, ...]


class SessionProperty(Enum):
    """What is promised of sessions; the value says how it breaks."""

    OLD = "what was routed for an old session reaches a new one"
    REUSED = "a session id is given again"
    FORGOTTEN = "a session is gone that its client still had"
    EXPIRED = "a session goes on that has expired"
    LITTER = "a session is replaced and not abandoned"
    PRESENT = "a client is told of a session that it has not, or not of one that it has"
    RAISED = "an expiry of 0 is raised when the client leaves"
    STOLEN = "a session is touched by a connection that does not have it any more"

    def breaks(self, detail: str = "", *, unless: bool = False) -> Broken:
        """It breaks, unless it holds."""
        return () if unless else (BrokenProperty(self.name, detail or self.value),)


class OpenedSessions(msgspec.Struct, frozen=True, gc=False):
    """The `places` of all sessions in the order in which they were opened, from 0 on; the `current` one by client."""

    places: Map[str, int] = Map()
    current: Map[str, str] = Map()

    def observe_opened(self, client: str, session: str) -> tuple[OpenedSessions, Broken]:
        """A client is given its session again, or one that nobody had."""
        if self.current.get(client) == session:
            return self, ()
        text = f"{session} is opened for {client}, and was there"
        broken = SessionProperty.REUSED.breaks(text, unless=session not in self.places)
        places = self.places if broken else self.places.set(session, len(self.places))
        return OpenedSessions(places, self.current.set(client, session)), broken

    def observe_ended(self, client: str) -> OpenedSessions:
        """Its session is over."""
        return OpenedSessions(self.places, self.current.delete(client)) if client in self.current else self

    def judge_given(self, session: str) -> Broken:
        """A client is told that it has this session (STRANGER)."""
        if session in self.places:
            return ()
        return (BrokenProperty("STRANGER", f"{session} is given, which nobody has opened"),)

    def was_there(self, session: str, count: int) -> bool:
        """It is one of the first so many."""
        return self.places.get(session, count) < count


def judge_return(before: str, given: str, *, may_end: bool = False, has_expired: bool = False) -> Broken:
    """A client that had one session ("": none) is given one ("": none): another one only if the first `may_end`, and
    not the first if it `has_expired`."""
    text = f"the client had {before}, and is given {given or 'nothing'}"
    forgotten = SessionProperty.FORGOTTEN.breaks(text, unless=may_end or before in ("", given))
    text = f"the client is given {given}, which had expired"
    return forgotten + SessionProperty.EXPIRED.breaks(text, unless=not has_expired or before != given)


def judge_welcome(session: str, *, is_present: bool, was_there: bool, is_clean: bool) -> Broken:
    """A client is told whether its session was there before; one that begins clean has a fresh one."""
    text = f"the client is told present = {is_present} of {session}"
    broken = SessionProperty.PRESENT.breaks(text, unless=is_present == was_there)
    text = f"the client begins clean, and is given {session}"
    return broken + SessionProperty.PRESENT.breaks(text, unless=not (is_present and is_clean))


def judge_route(session: str, others: list[str]) -> Broken:
    """What comes in a session was stored for these other ones of the same client."""
    return SessionProperty.OLD.breaks(f"what was for {others} comes in {session}", unless=not others)


def judge_touch(what: str, *, has_session: bool) -> Broken:
    """A connection does something to a session, which it has or not."""
    return SessionProperty.STOLEN.breaks(what, unless=has_session)

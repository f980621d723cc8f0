"""What a connection owes its client, its host and the database, whatever it is told (PS-100 to PS-116)."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Ask, Stop, Tell
from statemachines.persistent_sessions import life_record as life
from statemachines.persistent_sessions import life_request as asked
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.request import DATABASE, NotOwner
from statemachines.persistent_sessions.resume_record import ConnectionLost, Discarded
from statemachines.persistent_sessions.session_life import SESSION_LIFE
from statemachines.persistent_sessions.times import MS
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.actor import Move, Stamp, Timing
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.table_contract import Duty, PhaseClock, TableContract, TableFacts, say_nothing

ID: Final = "connection"
CLIENT: Final = "client"
OLD_SESSION: Final = "old session"
OLD_OWNER: Final = "old owner"
TOKEN: Final = 3
TOKENS_MET: Final = (1, 2)
"""Tokens of others that have the client id locked."""
MOST: Final = 9
EXPIRY_MS: Final = 5
TICK_MS: Final = 4
RETRY, ALIVE, LEASE = 2, 3, 4
"""Ticks between two questions for the lock, between two signs of life, and of a lease."""
TIMES: Final = LifeTimes(LEASE * TICK_MS, RETRY * TICK_MS, ALIVE * TICK_MS, 10 * TICK_MS)
CONNECTS: Final = (life.Connect(False, EXPIRY_MS, "instance", 1), life.Connect(True, 0, "instance", 2))
FOUND: Final = (
    asked.ClientFound("", False, ""), asked.ClientFound(OLD_SESSION, False, OLD_OWNER),
    asked.ClientFound(OLD_SESSION, True, ""),
)  # fmt: skip
Said = tuple[Any, ...]


class ConnectionFacts(TableFacts, frozen=True, gc=False):
    """The client has said `connect`, and at last this `expiry_ms`.  The lock of another was `met`.  The client has left
    an earlier connection (`again`).  Its `session` was there before (`present`), at the owner `live`; it ends for this
    reason (`why`)."""

    connect: life.Connect | None = None
    expiry_ms: int = 0
    met: int = 0
    again: bool = False
    session: str = ""
    present: bool = False
    live: str = ""
    why: str = ""


class ClientAndDatabase(TableContract):
    """a client, a host and a database that say anything at any time, also answers that nobody waits for"""

    def can_say(self, known: ConnectionFacts, word: Any) -> bool:
        """While it asks for the lock its timer is not set; nobody can see that it rests then."""
        return super().can_say(known, word) and (known.phase != "lock" or not isinstance(word, life.LockDue))


FRESH_SESSION: Final = f"{CLIENT}@{ID}"
"""Nobody ever had a session of this name, since nobody ever had the id of the connection."""


def find(known: ConnectionFacts, event: asked.ClientFound) -> ConnectionFacts:
    """The session that was found, or a fresh one in its place."""
    assert known.connect is not None
    is_fresh = known.connect.clean or not event.session or event.expired
    session = FRESH_SESSION if is_fresh else event.session
    return replace(known, session=session, present=not is_fresh, live=event.live)


def leave(known: ConnectionFacts, event: Any) -> ConnectionFacts:
    """What is known when its client has gone; while the session is opened it is left later."""
    if isinstance(event, ConnectionLost):
        return replace(known, why="lost")
    raises = known.expiry_ms == 0 and event.expiry_ms > 0
    expiry_ms = known.expiry_ms if raises or event.expiry_ms == life.KEEP else event.expiry_ms
    return replace(known, why="refused" if raises and known.phase != "open" else "left", expiry_ms=expiry_ms)


def ask(request: Any) -> Said:
    return (Ask(DATABASE, request),)


def ask_for_lock(known: ConnectionFacts, event: Any) -> Said:
    """A lock that was met unchanged for a lease is aged."""
    assert known.connect is not None
    aged = known.met if known.passed[AGED] == LEASE else 0
    return ask(asked.LockClient(CLIENT, ID, TIMES.lock_ms, aged, known.connect.instance, known.connect.attempt))


def ask_to_open(known: ConnectionFacts, event: asked.ClientFound) -> Said:
    replaces = "" if known.present else event.session
    return ask(asked.OpenSession(CLIENT, ID, TOKEN, known.session, replaces, known.expiry_ms, MOST))


def ask_to_leave(known: ConnectionFacts, event: Any) -> Said:
    return ask(asked.LeaveSession(CLIENT, known.session, TOKEN, known.expiry_ms))


def unlock(known: ConnectionFacts) -> Said:
    return ask(asked.UnlockClient(CLIENT, ID)) if known.phase != "new" else ()


def close(why: str) -> Any:
    """It unlocks the client id and closes for this reason ("": the one that is known)."""
    return lambda known, event: (*unlock(known), Tell(life.SessionClosed(known.session, why or known.why)), Stop())


GONE: Final = life.Disconnect | ConnectionLost
# fmt: off
ROWS: Final = (
    Duty("locks", "PS-100", "it locks the client id first",
         life.Connect, "new", ask_for_lock, "lock",
         then=lambda known, event: replace(known, connect=event, expiry_ms=event.expiry_ms)),
    Duty("waits", "PS-101", "it says nothing at once when another has the client id locked",
         asked.ClientBusy, "lock rest", say_nothing, "rest",
         then=lambda known, event: replace(known, met=event.token)),
    Duty("asks again", "PS-101, PS-116", "it asks again after retry_ms, and says which lock has aged for a lease",
         life.LockDue, "rest", ask_for_lock, "lock"),
    Duty("looks up", "PS-102", "it looks up the session of its client under the token of the lock",
         asked.ClientLocked, "lock rest", lambda known, event: ask(asked.LookUp(CLIENT, TOKEN, TIMES.dead_ms)), "look",
         then=lambda known, event: replace(known, again=event.again, met=0)),
    Duty("opens", "PS-103, PS-104", "it opens the session of its client, or a fresh one in its place",
         asked.ClientFound, "look", ask_to_open, "open", then=find),
    Duty("is opened", "PS-105, PS-109", "it tells its host of the session, or leaves it if the client has gone",
         asked.SessionOpen, "open", ask_to_leave, "leave", lambda known, event: bool(known.why)),
    Duty("is opened", "", "", asked.SessionOpen, "open", lambda known, event: (
        Tell(life.SessionOpened(known.session, TOKEN, known.present, known.live, known.again)),), "settle"),
    Duty("is full", "PS-212", "it closes when the store keeps no more sessions",
         asked.StoreFull, "open", close("full")),
    Duty("accepts", "PS-106", "it unlocks the client id, and tells its host to accept the client",
         life.Attach, "settle",
         lambda known, event: (*unlock(known), Tell(life.Accepted(known.session, known.present))), "connected"),
    Duty("lives", "PS-107", "it says every alive_ms that its session lives",
         life.AliveDue, "settle connected", lambda known, event: ask(asked.KeepAlive(CLIENT, known.session, TOKEN))),
    Duty("leaves", "PS-108, PS-109", "it leaves its session as the client said last, and never raises an expiry of 0",
         GONE, "lock rest look", close("lost")),
    Duty("leaves", "", "", ConnectionLost, "new", close("lost")),
    Duty("leaves", "", "", GONE, "open", then=leave),
    Duty("leaves", "", "", GONE, "settle connected", ask_to_leave, "leave", then=leave),
    Duty("gives up", "PS-110", "it gives up a connect at the end of the lease that it asked for last",
         life.ConnectTimeout, "lock rest look open", close("timeout")),
    Duty("gives up", "", "", life.ConnectTimeout, "settle", ask_to_leave, "leave",
         then=lambda known, event: replace(known, why="timeout")),
    Duty("has left", "PS-108", "it closes when its session is left, and says why",
         asked.SessionLeft, "leave", close("")),
    Duty("is superseded", "PS-111", "it closes when another has its session", NotOwner, said=close("superseded")),
    Duty("is discarded", "PS-111", "it closes when its session is discarded", Discarded, said=close("discarded")),
    Duty("fails", "PS-112, PS-202", "it closes when nobody knows what became of its request",
         asked.LifeFailed, "lock rest look open leave", close("failed")),
    Duty("ignores", "PS-113", "it does nothing for what it does not wait for", GONE | life.Attach, "leave"),
    Duty("ignores", "", "", object),
)
CLOCKS: Final = (
    PhaseClock(life.LockDue, "rest", RETRY, "asks again", lambda known, event: isinstance(event, asked.ClientBusy)),
    PhaseClock(life.ConnectTimeout, "lock rest look open settle", LEASE, "gives up",
          lambda known, event: isinstance(event, life.LockDue)),
    PhaseClock(life.AliveDue, "settle connected", ALIVE, "lives"),
    PhaseClock((), "lock rest", LEASE, "",
          lambda known, event: isinstance(event, asked.ClientBusy) and event.token != known.met),
)
AGED: Final = 3
"""The clock of the lock of another that was met."""
WORDS: Final = (
    *CONNECTS, *(life.Disconnect(expiry_ms) for expiry_ms in (life.KEEP, 0, EXPIRY_MS)), life.Attach(),
    ConnectionLost(), Discarded(), NotOwner(), asked.LifeFailed(), *(asked.ClientBusy(token) for token in TOKENS_MET),
    *(asked.ClientLocked(TOKEN, again) for again in (False, True)), *FOUND, asked.SessionOpen(), asked.StoreFull(MOST),
    asked.SessionLeft(), life.LockDue(""), life.AliveDue(""), life.ConnectTimeout(""),
)
# fmt: on

SYSTEMS: Final[dict[str, tuple[str]]] = {
    "life-told": ("what a connection owes its client, its host and the database",),
}
"""Name -> (about)."""


def move_met(record: life.LifeRecord, live: Move, dead: Move) -> Any:
    """Since when the lock of another was met: read while the lock is asked for again."""
    move = live if record.status is life.LOCKING and record.met else dead
    return replace(record, met_ns=move(record.met_ns))


def system(name: str) -> System:
    """The system called so."""
    record = life.LifeRecord(ID, CLIENT, TIMES, most=MOST)
    stamp = Stamp("met_ns", TIMES.lock_ms * MS, move_met)
    timing = Timing(TICK_MS * MS, ("deadline", "lock", "alive"), (stamp,))
    machine = Machine(SESSION_LIFE, record, timing=timing, says_so=False)
    counterpart = ClientAndDatabase(ROWS, CLOCKS, WORDS, ConnectionFacts())
    return contract(name, *SYSTEMS[name], machine, counterpart, TickClock(TICK_MS * MS))

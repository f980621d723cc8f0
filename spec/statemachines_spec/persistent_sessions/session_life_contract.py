"""What a connection owes its client, its host and the database, whatever it is told (PS-100 to PS-116)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Stop, Tell
from statemachines.persistent_sessions import life_record as life
from statemachines.persistent_sessions import life_request as asked
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.request import DATABASE, NotOwner
from statemachines.persistent_sessions.resume_record import ConnectionLost, Discarded
from statemachines.persistent_sessions.session_life import SESSION_LIFE
from statemachines.persistent_sessions.times import MS
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.explorer.timing import Move, Stamp, Timing

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
ASKING: Final = ("lock", "look", "open", "leave")
OPEN: Final = ("settle", "connected")
Said = tuple[Any, ...]


class ConnectionFacts(msgspec.Struct, frozen=True, gc=False):
    """The `phase`: what it waits for.  The client has said `connect`, and at last this `expiry_ms`.  The lock of
    another was `met`, `aged` ticks ago.  It asked for the lock (`waited`), was told to ask later (`rested`; -1: it was
    not), and said that it lives (`lived`) so many ticks ago.  The client has left an earlier connection (`again`).  Its
    `session` was there before (`present`), at the owner `live`; it ends for this reason (`why`)."""

    phase: str = "new"
    connect: life.Connect | None = None
    expiry_ms: int = 0
    met: int = 0
    aged: int = 0
    waited: int = 0
    rested: int = -1
    lived: int = 0
    again: bool = False
    session: str = ""
    present: bool = False
    live: str = ""
    why: str = ""


class ClientAndDatabase(Counterpart):
    """a client, a host and a database that say anything at any time, also answers that nobody waits for"""

    owes, ends = "OWES", "OWES an end"

    def __init__(self) -> None:
        super().__init__(RULES)

    def begins(self) -> ConnectionFacts:
        return ConnectionFacts()

    def says(self, known: ConnectionFacts) -> Iterator[Any]:
        if known.phase == "closed":
            return
        yield from (ConnectionLost(), Discarded(), NotOwner(), asked.LifeFailed())
        if known.phase == "new":
            yield from CONNECTS
        else:
            yield from (life.Disconnect(expiry_ms) for expiry_ms in (life.KEEP, 0, EXPIRY_MS))
        if known.phase in ("settle", "leave"):
            yield life.Attach()
        yield from (asked.ClientBusy(token) for token in TOKENS_MET)
        yield from (asked.ClientLocked(TOKEN, again) for again in (False, True))
        yield from (*FOUND, asked.SessionOpen(), asked.StoreFull(MOST), asked.SessionLeft())
        if known.phase != "lock":
            yield life.LockDue("")
        if known.phase not in OPEN:
            yield life.AliveDue("")
        if known.phase in ("new", "connected", "leave"):
            yield life.ConnectTimeout("")

    def learns(self, known: ConnectionFacts, event: Any, said: Said) -> ConnectionFacts:
        if Stop() in said:
            return ConnectionFacts("closed")
        return hear(known, event) if is_wanted(known, event) else known

    def ages(self, known: ConnectionFacts, ticks: int) -> ConnectionFacts:
        connecting = known.phase in ("lock", "look", "open", "settle")
        return replace(
            known,
            waited=min(known.waited + ticks, LEASE + 1) if connecting else 0,
            rested=min(known.rested + ticks, RETRY + 1) if known.rested >= 0 else known.rested,
            aged=min(known.aged + ticks, LEASE) if known.met else 0,
            lived=min(known.lived + ticks, ALIVE + 1) if known.phase in OPEN else 0,
        )

    def is_late(self, known: ConnectionFacts) -> int:
        for name, passed, most in (
            ("asks again", known.rested, RETRY),
            ("gives up", known.waited, LEASE),
            ("lives", known.lived, ALIVE),
        ):
            if passed > most:
                return NAMES.index(name) + 1
        return 0


CONNECTED: Final = ("lock", "look", "open", "settle", "connected", "leave")
WANTED: Final[dict[type[Any], tuple[str, ...]]] = {
    life.Connect: ("new",),
    asked.ClientBusy: ("lock",),
    life.LockDue: ("lock",),
    asked.ClientLocked: ("lock",),
    asked.ClientFound: ("look",),
    asked.SessionOpen: ("open",),
    asked.StoreFull: ("open",),
    life.Attach: ("settle",),
    life.AliveDue: OPEN,
    life.Disconnect: ("lock", "look", "open", *OPEN),
    ConnectionLost: ("new", "lock", "look", "open", *OPEN),
    life.ConnectTimeout: ("lock", "look", "open", "settle"),
    asked.SessionLeft: ("leave",),
    asked.LifeFailed: ASKING,
    NotOwner: ("new", *CONNECTED),
    Discarded: ("new", *CONNECTED),
}
"""What is said -> the phases in which it counts."""


def is_wanted(known: ConnectionFacts, event: Any) -> bool:
    """Whether it waits for this."""
    return known.phase in WANTED[type(event)]


def hear(known: ConnectionFacts, event: Any) -> ConnectionFacts:
    """What is known with an event that it waits for."""
    match event:
        case life.Connect():
            return ConnectionFacts("lock", event, event.expiry_ms)
        case asked.ClientBusy(token):
            aged = known.aged if token == known.met else 0
            return replace(known, met=token, aged=aged, rested=0)
        case life.LockDue():
            return replace(known, rested=-1, waited=0)
        case asked.ClientLocked(_, again):
            return replace(known, phase="look", again=again, met=0, aged=0, rested=-1)
        case asked.ClientFound(session, _, live):
            is_fresh = needs_fresh(known, event)
            return replace(
                known, phase="open", session=FRESH_SESSION if is_fresh else session, present=not is_fresh, live=live
            )
        case asked.SessionOpen() if not known.why:
            return replace(known, phase="settle")
        case life.Attach():
            return replace(known, phase="connected", waited=0)
        case life.AliveDue():
            return replace(known, lived=0)
    return leave(known, event)


def leave(known: ConnectionFacts, event: Any) -> ConnectionFacts:
    """What is known when its client has gone; while the session is opened it is left later."""
    match event:
        case ConnectionLost():
            why = "lost"
        case life.Disconnect(expiry_ms):
            raises = known.expiry_ms == 0 and expiry_ms > 0
            why = "refused" if raises and known.phase != "open" else "left"
            known = known if raises or expiry_ms == life.KEEP else replace(known, expiry_ms=expiry_ms)
        case life.ConnectTimeout():
            why = "timeout"
        case _:
            why = known.why
    if known.phase == "open" and not isinstance(event, asked.SessionOpen):
        return replace(known, why=why)
    return replace(known, phase="leave", why=why, waited=0, lived=0)


FRESH_SESSION: Final = f"{CLIENT}@{ID}"
"""Nobody ever had a session of this name, since nobody ever had the id of the connection."""


def needs_fresh(known: ConnectionFacts, event: asked.ClientFound) -> bool:
    assert known.connect is not None
    return known.connect.clean or not event.session or event.expired


# -- what it must say -----------------------------------------------------------------------------------------------


def ask(request: Any) -> Said:
    return (Ask(DATABASE, request),)


def ask_for_lock(connect: life.Connect, aged: int) -> Said:
    return ask(asked.LockClient(CLIENT, ID, TIMES.lock_ms, aged, connect.instance, connect.attempt))


def unlock(known: ConnectionFacts) -> Said:
    return ask(asked.UnlockClient(CLIENT, ID)) if known.phase != "new" else ()


def close(known: ConnectionFacts, why: str) -> Said:
    return (*unlock(known), Tell(life.SessionClosed(known.session, why)), Stop())


def ask_to_leave(known: ConnectionFacts) -> Said:
    return ask(asked.LeaveSession(CLIENT, known.session, TOKEN, known.expiry_ms))


def locks(known: ConnectionFacts, event: life.Connect, said: Said) -> bool:
    return said == ask_for_lock(event, 0)


def asks_again(known: ConnectionFacts, event: life.LockDue, said: Said) -> bool:
    """A lock that was met unchanged for a lease is aged."""
    assert known.connect is not None
    return known.rested == RETRY and said == ask_for_lock(known.connect, known.met if known.aged >= LEASE else 0)


def opens(known: ConnectionFacts, event: asked.ClientFound, said: Said) -> bool:
    then = hear(known, event)
    replaces = "" if then.present else event.session
    return said == ask(asked.OpenSession(CLIENT, ID, TOKEN, then.session, replaces, known.expiry_ms, MOST))


def is_opened(known: ConnectionFacts, event: asked.SessionOpen, said: Said) -> bool:
    if known.why:
        return said == ask_to_leave(known)
    return said == (Tell(life.SessionOpened(known.session, TOKEN, known.present, known.live, known.again)),)


def accepts(known: ConnectionFacts, event: life.Attach, said: Said) -> bool:
    return said == (*unlock(known), Tell(life.Accepted(known.session, known.present)))


def lives(known: ConnectionFacts, event: life.AliveDue, said: Said) -> bool:
    return known.lived == ALIVE and said == ask(asked.KeepAlive(CLIENT, known.session, TOKEN))


def leaves(known: ConnectionFacts, event: Any, said: Said) -> bool:
    if known.phase in OPEN:
        return said == ask_to_leave(leave(known, event))
    return said == (() if known.phase == "open" else close(known, "lost"))


def gives_up(known: ConnectionFacts, event: life.ConnectTimeout, said: Said) -> bool:
    ends = ask_to_leave(known) if known.phase == "settle" else close(known, "timeout")
    return known.waited == LEASE and said == ends


def rule(name: str, clause: str, text: str, keeps: Any, *kinds: type[Any]) -> Rule:
    """The rule that binds the connection when it waits for an event of these kinds."""
    return Rule(name, clause, text, lambda known, event: isinstance(event, kinds) and is_wanted(known, event), keeps)


RULES: Final = (
    rule("locks", "PS-100", "it locks the client id first",
         locks, life.Connect),
    rule("waits", "PS-101", "it says nothing at once when another has the client id locked",
         lambda known, event, said: said == (), asked.ClientBusy),
    rule("asks again", "PS-101, PS-116", "it asks again after retry_ms, and says which lock has aged for a lease",
         asks_again, life.LockDue),
    rule("looks up", "PS-102", "it looks up the session of its client under the token of the lock",
         lambda known, event, said: said == ask(asked.LookUp(CLIENT, TOKEN, TIMES.dead_ms)),
         asked.ClientLocked),
    rule("opens", "PS-103, PS-104", "it opens the session of its client, or a fresh one in its place",
         opens, asked.ClientFound),
    rule("is opened", "PS-105, PS-109", "it tells its host of the session, or leaves it if the client has gone",
         is_opened, asked.SessionOpen),
    rule("is full", "PS-212", "it closes when the store keeps no more sessions",
         lambda known, event, said: said == close(known, "full"), asked.StoreFull),
    rule("accepts", "PS-106", "it unlocks the client id, and tells its host to accept the client",
         accepts, life.Attach),
    rule("lives", "PS-107", "it says every alive_ms that its session lives",
         lives, life.AliveDue),
    rule("leaves", "PS-108, PS-109", "it leaves its session as the client said last, and never raises an expiry of 0",
         leaves, life.Disconnect, ConnectionLost),
    rule("gives up", "PS-110", "it gives up a connect at the end of the lease that it asked for last",
         gives_up, life.ConnectTimeout),
    rule("has left", "PS-108", "it closes when its session is left, and says why",
         lambda known, event, said: said == close(known, known.why), asked.SessionLeft),
    rule("is superseded", "PS-111", "it closes when another has its session",
         lambda known, event, said: said == close(known, "superseded"), NotOwner),
    rule("is discarded", "PS-111", "it closes when its session is discarded",
         lambda known, event, said: said == close(known, "discarded"), Discarded),
    rule("fails", "PS-112, PS-202", "it closes when nobody knows what became of its request",
         lambda known, event, said: said == close(known, "failed"), asked.LifeFailed),
    Rule("ignores", "PS-113", "it does nothing for what it does not wait for",
         lambda known, event: not is_wanted(known, event), lambda known, event, said: said == ()),
)  # fmt: skip
NAMES: Final = tuple(one.name for one in RULES)

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
    return contract(name, *SYSTEMS[name], machine, ClientAndDatabase(), TickClock(TICK_MS * MS))

"""SessionLife: one connection of a client, and what becomes of its session (page: "Connect, clean start, expiry").

`new -> locking -> looking -> opening -> settling -> connected -> leaving -> closed`.  The client id is locked while it
is decided whether there is a session, and until that is live here; the token of the lock refuses whatever a connection
of before asks later.  A clean start, and a session that has expired, give a session id that nobody ever had.

What an event makes of a SessionLife: the guards and actions of its table (`session_life`).
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import (
    ANY,
    STAY,
    Ask,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Refuse,
    Row,
    SetTimer,
    Tell,
    Timer,
)
from statemachines.persistent_sessions.life_record import (
    CLOSED,
    CONNECTED,
    KEEP,
    LEAVING,
    LOCKING,
    LOOKING,
    NEW,
    OPENING,
    SETTLING,
    Accepted,
    AliveDue,
    Attach,
    Connect,
    ConnectTimeout,
    Disconnect,
    Done,
    LifeRecord,
    LifeStatus,
    LockDue,
    SessionClosed,
    SessionOpened,
)
from statemachines.persistent_sessions.life_request import (
    ClientBusy,
    ClientFound,
    ClientLocked,
    KeepAlive,
    LeaveSession,
    LifeFailed,
    LockClient,
    LookUp,
    OpenSession,
    SessionLeft,
    SessionOpen,
    StoreFull,
    UnlockClient,
)
from statemachines.persistent_sessions.request import DATABASE, NotOwner
from statemachines.persistent_sessions.resume_record import ConnectionLost, Discarded
from statemachines.persistent_sessions.times import MS


def fresh_session(record: LifeRecord) -> str:
    """A session id that nobody ever had, since nobody ever had the id of the connection."""
    return f"{record.client}@{record.id}"


# -- guards ---------------------------------------------------------------------------------------------------------


def needs_fresh_session(record: LifeRecord, event: ClientFound) -> bool:
    """It starts clean, or what there was is over."""
    return record.clean or not event.session or event.expired


def has_ended(record: LifeRecord, event: Event) -> bool:
    """The client has gone while its session was opened."""
    return bool(record.why)


def raises_from_zero(record: LifeRecord, event: Disconnect) -> bool:
    return record.expiry_ms == 0 and event.expiry_ms > 0


# -- connecting -----------------------------------------------------------------------------------------------------


def ask_for_lock(record: LifeRecord, aged: int) -> Ask:
    lease_ms = record.times.lock_ms
    return Ask(DATABASE, LockClient(record.client, record.id, lease_ms, aged, record.instance, record.attempt))


def lock(record: LifeRecord, event: Connect, now_ns: int) -> Done:
    record = replace(
        record, clean=event.clean, expiry_ms=event.expiry_ms, instance=event.instance, attempt=event.attempt
    )
    return record, (ask_for_lock(record, 0),)


def lock_again(record: LifeRecord, event: Event, now_ns: int) -> Done:
    """The time of the database may stand still, and no lease ends by it then: a lock ages by our own clock, too."""
    lease_ns = record.times.lock_ms * MS
    aged = record.met if now_ns - record.met_ns >= lease_ns else 0
    return record, (SetTimer("deadline", now_ns + lease_ns), ask_for_lock(record, aged))


def wait_for_lock(record: LifeRecord, event: ClientBusy, now_ns: int) -> Done:
    if event.token != record.met:
        record = replace(record, met=event.token, met_ns=now_ns)
    return record, (SetTimer("lock", now_ns + record.times.retry_ms * MS),)


def look_up(record: LifeRecord, event: ClientLocked, now_ns: int) -> Done:
    request = LookUp(record.client, event.token, record.times.dead_ms)
    return replace(record, token=event.token, again=event.again, met=0, met_ns=0), (Ask(DATABASE, request),)


def ask_to_open(record: LifeRecord, replaces: str) -> Done:
    request = OpenSession(
        record.client, record.id, record.token, record.session, replaces, record.expiry_ms, record.most
    )  # fmt: skip
    return record, (Ask(DATABASE, request),)


def open_fresh(record: LifeRecord, event: ClientFound, now_ns: int) -> Done:
    """The session of before is abandoned in the same transaction; whoever has it live is told to end."""
    record = replace(record, session=fresh_session(record), live=event.live)
    return ask_to_open(record, event.session)


def open_again(record: LifeRecord, event: ClientFound, now_ns: int) -> Done:
    return ask_to_open(replace(record, session=event.session, present=True, live=event.live), "")


def tell_opened(record: LifeRecord, event: Event, now_ns: int) -> Done:
    opened = SessionOpened(record.session, record.token, record.present, record.live, record.again)
    return record, (Tell(opened),)


def unlock(record: LifeRecord) -> Effects:
    """Nothing is left to be decided about the client.  The lock may be ours without our knowing it: nobody would give
    it back, and the client would be kept out for a lease."""
    return (Ask(DATABASE, UnlockClient(record.client, record.id)),) if record.status is not NEW else ()


def accept(record: LifeRecord, event: Event, now_ns: int) -> Done:
    return record, (*unlock(record), Tell(Accepted(record.session, record.present)))


def keep_alive(record: LifeRecord, event: Event, now_ns: int) -> Done:
    again = SetTimer("alive", now_ns + record.times.alive_ms * MS)
    return record, (again, Ask(DATABASE, KeepAlive(record.client, record.session, record.token)))


# -- leaving --------------------------------------------------------------------------------------------------------


def leave(record: LifeRecord, why: str, expiry_ms: int) -> Done:
    record = replace(record, why=why, expiry_ms=expiry_ms)
    return record, (Ask(DATABASE, LeaveSession(record.client, record.session, record.token, expiry_ms)),)


def expiry_of(record: LifeRecord, event: Disconnect) -> int:
    """As the client says now, or said first; from 0 it is not raised."""
    is_kept = event.expiry_ms == KEEP or raises_from_zero(record, event)
    return record.expiry_ms if is_kept else event.expiry_ms


def leave_as_said(record: LifeRecord, event: Disconnect, now_ns: int) -> Done:
    return leave(record, "left", expiry_of(record, event))


def leave_refused(record: LifeRecord, event: Disconnect, now_ns: int) -> Done:
    """What a client may not say is not done; its session ends as it was said first."""
    return leave(record, "refused", expiry_of(record, event))


def leave_lost(record: LifeRecord, event: Event, now_ns: int) -> Done:
    return leave(record, "lost", record.expiry_ms)


def leave_late(record: LifeRecord, event: Event, now_ns: int) -> Done:
    return leave(record, "timeout", record.expiry_ms)


def leave_at_once(record: LifeRecord, event: Event, now_ns: int) -> Done:
    return leave(record, record.why, record.expiry_ms)


def note_end(record: LifeRecord, event: Event, now_ns: int) -> Done:
    """The session may be open already: it is left when that is known."""
    return replace(record, why="lost"), ()


def note_leave(record: LifeRecord, event: Disconnect, now_ns: int) -> Done:
    return replace(record, why="left", expiry_ms=expiry_of(record, event)), ()


# -- the end --------------------------------------------------------------------------------------------------------


def close(record: LifeRecord, why: str) -> Done:
    record = replace(record, why=why)
    return record, (*unlock(record), Tell(SessionClosed(record.session, why)))


def close_left(record: LifeRecord, event: Event, now_ns: int) -> Done:
    return close(record, record.why)


def close_lost(record: LifeRecord, event: Event, now_ns: int) -> Done:
    return close(record, "lost")


def close_late(record: LifeRecord, event: Event, now_ns: int) -> Done:
    return close(record, "timeout")


def close_failed(record: LifeRecord, event: Event, now_ns: int) -> Done:
    return close(record, "failed")


def close_full(record: LifeRecord, event: Event, now_ns: int) -> Done:
    return close(record, "full")


def close_superseded(record: LifeRecord, event: Event, now_ns: int) -> Done:
    return close(record, "superseded")


def close_discarded(record: LifeRecord, event: Event, now_ns: int) -> Done:
    """Whoever discards it has the session, or has abandoned it: nothing of it is touched."""
    return close(record, "discarded")


CONNECTING = (LOCKING, LOOKING, OPENING, SETTLING)
OPEN = (SETTLING, CONNECTED)
ASKING = (LOCKING, LOOKING, OPENING, LEAVING)

# fmt: off
ROWS = (
    #   on              from                to         do                when                 clause
    Row(Connect,        NEW,                LOCKING,   lock,             None,                "PS-100"),
    Row(ClientBusy,     LOCKING,            STAY,      wait_for_lock,    None,                "PS-101"),
    Row(LockDue,        LOCKING,            STAY,      lock_again,       None,                "PS-101"),
    Row(ClientLocked,   LOCKING,            LOOKING,   look_up,          None,                "PS-102"),
    Row(ClientFound,    LOOKING,            OPENING,   open_fresh,       needs_fresh_session, "PS-103"),
    Row(ClientFound,    LOOKING,            OPENING,   open_again,       None,                "PS-104"),
    Row(SessionOpen,    OPENING,            LEAVING,   leave_at_once,    has_ended,           "PS-109"),
    Row(SessionOpen,    OPENING,            SETTLING,  tell_opened,      None,                "PS-105"),
    Row(StoreFull,      OPENING,            CLOSED,    close_full,       None,                "PS-212"),
    Row(Attach,         SETTLING,           CONNECTED, accept,           None,                "PS-106"),
    Row(AliveDue,       OPEN,               STAY,      keep_alive,       None,                "PS-107"),
    Row(Disconnect,     OPEN,               LEAVING,   leave_refused,    raises_from_zero,    "PS-108"),
    Row(Disconnect,     OPEN,               LEAVING,   leave_as_said,    None,                "PS-108"),
    Row(ConnectionLost, OPEN,               LEAVING,   leave_lost,       None,                "PS-109"),
    Row(ConnectTimeout, SETTLING,           LEAVING,   leave_late,       None,                "PS-110"),
    Row(ConnectionLost, OPENING,            STAY,      note_end,         None,                "PS-109"),
    Row(Disconnect,     OPENING,            STAY,      note_leave,        None,                "PS-109"),
    Row(SessionLeft,    LEAVING,            CLOSED,    close_left,       None,                "PS-108"),
    Row(NotOwner,       ANY,                CLOSED,    close_superseded, None,                "PS-111"),
    Row(Discarded,      ANY,                CLOSED,    close_discarded,  None,                "PS-111"),
    Row(LifeFailed,     ASKING,             CLOSED,    close_failed,     None,                "PS-112"),
    Row(ConnectTimeout, (LOCKING, LOOKING, OPENING), CLOSED, close_late, None,                "PS-110"),
    Row(ConnectionLost, (NEW, LOCKING, LOOKING), CLOSED, close_lost,     None,                "PS-109"),
    Row(Disconnect,     (LOCKING, LOOKING), CLOSED,    close_lost,       None,                "PS-109"),
    Ignore((ConnectionLost, Disconnect),    LEAVING,                                          "PS-109"),
    Ignore((LockDue, AliveDue, ConnectTimeout), (NEW, LEAVING),                               "PS-113"),
    Ignore((LockDue,),                      (LOOKING, OPENING, *OPEN),                        "PS-113"),
    Ignore((AliveDue,),                     (LOCKING, LOOKING, OPENING),                      "PS-113"),
    Ignore((ConnectTimeout,),               CONNECTED,                                        "PS-113"),
    Ignore((LifeFailed,),                   (NEW, *OPEN),                                     "PS-113"),
    Ignore((ClientLocked, ClientBusy),      (NEW, LOOKING, OPENING, *OPEN, LEAVING),          "PS-113"),
    Ignore((ClientFound,),                  (NEW, LOCKING, OPENING, *OPEN, LEAVING),          "PS-113"),
    Ignore((SessionOpen, StoreFull),        (NEW, LOCKING, LOOKING, *OPEN, LEAVING),          "PS-113"),
    Ignore((SessionLeft,),                  (NEW, *CONNECTING, CONNECTED),                    "PS-113"),
    Ignore((Attach,),                       LEAVING,                                          "PS-106"),
    Refuse((Attach,),                       (NEW, LOCKING, LOOKING, OPENING, CONNECTED),      "PS-106"),
    Refuse((Connect,),                      (*CONNECTING, CONNECTED, LEAVING),                "PS-100"),
    Refuse((Disconnect,),                   NEW,                                              "PS-100"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def has_what_it_opened(record: LifeRecord) -> bool:
    """Whoever has a session has it under a token, and with a clean start it was not there before; a client that has
    gone has no session live."""
    if record.status is CLOSED:
        return True
    has_token = bool(record.token) == (record.status in (LOOKING, OPENING, SETTLING, CONNECTED, LEAVING))
    has_session = bool(record.session) == (record.status in (OPENING, SETTLING, CONNECTED, LEAVING))
    is_live = record.status in OPEN and bool(record.why)
    return has_token and has_session and not (record.clean and record.present) and not is_live


SESSION_LIFE = Fsm(
    "session_life",
    protocol="persistent_sessions",
    record=LifeRecord,
    states=LifeStatus,
    initial=NEW,
    final=(CLOSED,),
    rows=ROWS,
    timers=(
        Timer("deadline", ConnectTimeout, CONNECTING, lambda record: record.times.lock_ms * MS),
        Timer("lock", LockDue, (LOCKING,), lambda record: record.times.retry_ms * MS, on_entry=False),
        Timer("alive", AliveDue, OPEN, lambda record: record.times.alive_ms * MS),
    ),
    invariants=(Invariant("has-what-it-opened", "PS-114", has_what_it_opened),),
)

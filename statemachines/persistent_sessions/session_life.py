"""SessionLife: one connection of a client, and what becomes of its session (page: "Connect, clean start, expiry").

`new -> locking -> looking -> opening -> settling -> connected -> leaving -> closed`.  The client id is locked while it
is decided whether there is a session, and until that is live here; the token of the lock refuses whatever a connection
of before asks later.  A clean start, and a session that has expired, give a session id that nobody ever had.
"""

from __future__ import annotations

from statemachines.kernel import ANY, STAY, Fsm, Ignore, Invariant, Refuse, Row, Timer
from statemachines.persistent_sessions.life_actions import (
    accept,
    close_discarded,
    close_failed,
    close_full,
    close_late,
    close_left,
    close_lost,
    close_superseded,
    has_ended,
    keep_alive,
    leave_as_said,
    leave_at_once,
    leave_late,
    leave_lost,
    leave_refused,
    lock,
    lock_again,
    look_up,
    needs_fresh_session,
    note_end,
    note_leave,
    open_again,
    open_fresh,
    raises_from_zero,
    tell_opened,
    wait_for_lock,
)
from statemachines.persistent_sessions.life_record import (
    CLOSED,
    CONNECTED,
    LEAVING,
    LOCKING,
    LOOKING,
    NEW,
    OPENING,
    SETTLING,
    AliveDue,
    Attach,
    Connect,
    ConnectTimeout,
    Disconnect,
    LifeRecord,
    LifeStatus,
    LockDue,
)
from statemachines.persistent_sessions.life_request import (
    ClientBusy,
    ClientFound,
    ClientLocked,
    LifeFailed,
    SessionLeft,
    SessionOpen,
    StoreFull,
)
from statemachines.persistent_sessions.request import NotOwner
from statemachines.persistent_sessions.resume_record import ConnectionLost, Discarded
from statemachines.persistent_sessions.times import MS

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

"""What an event makes of a SessionLife: the guards and actions of its table (`session_life`)."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Ask, Effects, Event, SetTimer, Tell
from statemachines.persistent_sessions.life_record import (
    KEEP,
    NEW,
    Accepted,
    Connect,
    Disconnect,
    Done,
    LifeRecord,
    SessionClosed,
    SessionOpened,
)
from statemachines.persistent_sessions.life_request import (
    ClientBusy,
    ClientFound,
    ClientLocked,
    KeepAlive,
    LeaveSession,
    LockClient,
    LookUp,
    OpenSession,
    UnlockClient,
)
from statemachines.persistent_sessions.request import DATABASE
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

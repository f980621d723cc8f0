"""What a node of sessions decides about its writers: which one gets a message, which one begins, and which one
goes."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import (
    Ask,
    Begin,
    Effect,
    Effects,
    Feed,
    Forget,
)
from statemachines.persistent_sessions.message import Written
from statemachines.persistent_sessions.owner_request import FindOwner
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.session_host_parties import WRITERS, Done, Record
from statemachines.persistent_sessions.session_host_record import (
    ForgetIdle,
    HandMessages,
    LookForOwner,
)
from statemachines.persistent_sessions.writer_record import IDLE, Hand, Start, WriterRecord

# -- messages and writers -------------------------------------------------------------------------------------------


def hand_over(record: Record, event: HandMessages, now_ns: int) -> Done:
    """To the writer of each session, which gets all that is for it at once; the application hears of the last row of
    each message alone."""
    begun: list[Effect] = []
    hands: dict[str, list[Hand]] = {}
    for message in event.messages:
        for one in message.handed:
            record, party, began = with_writer(record, one.session)
            begun += began
            hands.setdefault(party, []).append(
                Hand(message.id, one.filter, one.qos, one.until_ns, one.since_ns, more=True)
            )
        if len(message.handed) > 1:
            record = replace(record, unwritten=record.unwritten.set(message.id, len(message.handed) - 1))
    fed = (Feed(party, one) for party, its in hands.items() for one in (*its[:-1], replace(its[-1], more=False)))
    return record, (*begun, *fed, *make_room(record))


def is_not_last(record: Record, event: Written) -> bool:
    """Other rows of the message are not stored yet."""
    return event.message in record.unwritten


def count_row(record: Record, event: Written, now_ns: int) -> Done:
    left = record.unwritten[event.message] - 1
    unwritten = record.unwritten.set(event.message, left) if left else record.unwritten.delete(event.message)
    return replace(record, unwritten=unwritten), ()


def with_writer(record: Record, session: str) -> tuple[Record, str, Effects]:
    """With the writer of the session; one that begins asks for its epoch, and then where the session is live."""
    known = record.writers.get(session)
    if known is not None:
        return record, known, ()
    number = record.number + 1
    party = WRITERS.id_of(record.id, number)
    began: Effects = (
        Begin(party, WRITERS.name, WriterRecord(session, record.node)),
        Feed(party, Start()),
        Feed(record.id, LookForOwner(session)),
    )
    writers, turns = record.writers.set(session, party), record.turns.push(session)
    return replace(record, number=number, writers=writers, turns=turns), party, began


def make_room(record: Record, left: int | None = None) -> Effects:
    """While there is one writer too many the one whose turn it is goes, if it is idle; `left` are looked at."""
    left = len(record.writers) if left is None else left
    if len(record.writers) <= record.writers_max or not left:
        return ()
    session = record.turns.pop()[0]
    return (Feed(record.id, ForgetIdle(record.writers[session], session=session, left=left)),)


def look_for_owner(record: Record, event: LookForOwner, now_ns: int) -> Done:
    return record, (Ask(DATABASE, FindOwner(event.session)),)


def is_turn(record: Record, event: ForgetIdle) -> bool:
    """It is still the first."""
    return bool(record.turns) and record.turns.pop()[0] == event.session


def is_idle(record: Record, event: ForgetIdle) -> bool:
    return is_turn(record, event) and event.seen.status is IDLE


def forget_writer(record: Record, event: ForgetIdle, now_ns: int) -> Done:
    """If it is needed again it has the next epoch."""
    writers, turns = record.writers.delete(event.session), record.turns.pop()[1]
    record = replace(record, writers=writers, turns=turns)
    return record, (Forget(event.party), *make_room(record, event.left - 1))


def look_on(record: Record, event: ForgetIdle, now_ns: int) -> Done:
    """A writer that is busy stays."""
    record = replace(record, turns=record.turns.pop()[1].push(event.session))
    return record, make_room(record, event.left - 1)

"""What a node of sessions decides about its writers: which one gets a message, which one begins, and which one
goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from statemachines.kernel import (
    Ask,
    Begin,
    Effect,
    Effects,
    Feed,
    Forget,
    Tell,
)
from statemachines.persistent_sessions.message import Written
from statemachines.persistent_sessions.owner_request import FindOwner
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.session_host_parties import WRITERS, Done, Record
from statemachines.persistent_sessions.session_host_record import (
    ForgetIdle,
    HandMessages,
    LookForOwner,
    MatchedMessage,
    RoutedMessage,
)
from statemachines.persistent_sessions.writer_record import (
    IDLE,
    Hand,
    HandRange,
    RangeWritten,
    Start,
    WriterRecord,
)

Terms = tuple[str, int, int, tuple[str, ...]]
"""(filter, QoS, until_ns, other filters): by which a session gets a message in one row."""

FILTER_BYTES_MAX: Final = 65_536
"""Of the filters that one row lists: a row fits into a frame."""

# -- messages and writers -------------------------------------------------------------------------------------------


def hand_over(record: Record, event: HandMessages, now_ns: int) -> Done:
    """To the writer of each session, which gets all that is for it at once; the application hears of the last row of
    each message alone."""
    begun: list[Effect] = []
    hands: dict[str, tuple[Hand, ...]] = {}
    left: dict[str, int] = {}
    for alike in group_alike(event.messages):
        found = hands_of(alike)
        rows = sum(map(len, found.values())) // len(alike)
        if rows > 1:
            left.update((one.id, rows - 1) for one in alike)
        for session, its in found.items():
            record, party, began = with_writer(record, session)
            begun += began
            hands[party] = hands.get(party, ()) + its
    fed = (Feed(party, its[0] if len(its) == 1 else HandRange(its)) for party, its in hands.items())
    record = replace(record, unwritten=record.unwritten.update(left))
    return record, (*begun, *fed, *make_room(record))


def group_alike(messages: Iterable[RoutedMessage]) -> Iterator[tuple[RoutedMessage, ...]]:
    """Messages that follow each other and are for the same subscriptions."""
    return (tuple(its) for _, its in groupby(messages, attrgetter("handed")))


def hands_of(alike: Sequence[RoutedMessage]) -> dict[str, tuple[Hand, ...]]:
    """What each session gets of messages that are for the same subscriptions: sessions that get the same share it."""
    routes: dict[str, list[MatchedMessage]] = {}
    for one in alike[0].handed:
        routes.setdefault(one.session, []).append(one)
    terms = {session: fold_routes(its) for session, its in routes.items()}
    made = {
        its: tuple(
            Hand(one.id, topic_filter, qos, until_ns, one.since_ns, more)
            for one in alike
            for topic_filter, qos, until_ns, more in its
        )
        for its in set(terms.values())
    }
    return {session: made[its] for session, its in terms.items()}


def fold_routes(routes: Sequence[MatchedMessage]) -> tuple[Terms, ...]:
    """One row for all subscriptions of a session that have the same quality, as far as their filters have room in
    one."""
    if len(routes) == 1:
        return ((routes[0].filter, routes[0].qos, routes[0].until_ns, ()),)
    rows: list[Terms] = []
    for (qos, until_ns), alike in groupby(sorted(routes, key=quality_of), quality_of):
        filters: list[str] = []
        size = 0
        for one in alike:
            size += len(one.filter.encode())
            if filters and size > FILTER_BYTES_MAX:
                rows.append((filters[0], qos, until_ns, tuple(filters[1:])))
                filters, size = [], len(one.filter.encode())
            filters.append(one.filter)
        rows.append((filters[0], qos, until_ns, tuple(filters[1:])))
    return tuple(rows)


def quality_of(route: MatchedMessage) -> tuple[int, int]:
    """What the copies of one row have in common."""
    return route.qos, route.until_ns


def is_not_last(record: Record, event: Written) -> bool:
    """Other rows of the message are not stored yet."""
    return event.message in record.unwritten


def count_row(record: Record, event: Written, now_ns: int) -> Done:
    left = record.unwritten[event.message] - 1
    unwritten = record.unwritten.set(event.message, left) if left else record.unwritten.delete(event.message)
    return replace(record, unwritten=unwritten), ()


def count_range(record: Record, event: RangeWritten, now_ns: int) -> Done:
    """The application hears of those whose last row this is."""
    unwritten = record.unwritten.mutate()
    written: list[Effect] = []
    for one in event.hands:
        left = unwritten.get(one.message)
        if left is None:
            written.append(Tell(Written(one.message, one.filter)))
        elif left > 1:
            unwritten[one.message] = left - 1
        else:
            del unwritten[one.message]
    return replace(record, unwritten=unwritten.finish()), tuple(written)


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

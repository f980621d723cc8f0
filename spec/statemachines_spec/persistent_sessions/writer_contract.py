"""What a writer owes publishers, owners and the database, whatever it is told (PS-01 to PS-12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Map, Send, Tell
from statemachines.persistent_sessions import request as asked
from statemachines.persistent_sessions import writer_record as writer
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Queued, Written
from statemachines.persistent_sessions.writer import WRITER
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System

SESSION: Final = "session"
NAME: Final = "writer"
OWNERS: Final = ("nobody", "owner", "next owner")
"""By their tokens."""
HAND: Final = writer.Hand("message", "filter")
STORED_NS: Final = 7
EPOCHS: Final = 2
RANGE: Final = 2
"""Rows of a range, at most."""
Said = tuple[Any, ...]


class WriterBounds(msgspec.Struct, frozen=True):
    """Messages come in `ranges` of so many, under numbers up to `rows`, and so many may be `waiting`; markers and
    tokens are counted up to `markers` and `tokens`."""

    ranges: tuple[int, ...]
    rows: int
    waiting: int
    markers: int
    tokens: int


class WriterFacts(msgspec.Struct, frozen=True, gc=False):
    """The `phase`: what the writer waits for.  It has stored `last` rows of its `epoch`, and stores so many (`rows`).
    Other messages are `waiting`; of them so many come `before` the marker that waits.  It has taken up marker `mark`,
    which shows `k`.  The owner with this `token` is subscribed (`live`), or not."""

    phase: str = "new"
    epoch: int = 0
    last: int = 0
    rows: int = 0
    waiting: int = 0
    marker: int = 0
    before: int = 0
    mark: int = 0
    k: int = 0
    token: int = 0
    live: bool = False


class PublishersAndStore(Counterpart):
    """publishers, owners and a database that say anything at any time, also answers that nobody waits for"""

    owes, ends = "OWES", "OWES an end"

    def __init__(self, bounds: WriterBounds, idle: tuple[str, ...]) -> None:
        super().__init__(RULES, idle)
        self.said_within = bounds

    def begins(self) -> WriterFacts:
        return WriterFacts()

    def says(self, known: WriterFacts) -> Iterator[Any]:
        if known.phase == "new":
            yield writer.Start()
        stored_at_once = RANGE if known.phase == "idle" else 0
        for size in self.said_within.ranges:
            if known.waiting + max(0, size - stored_at_once) <= self.said_within.waiting:
                yield HAND if size == 1 else writer.HandRange((HAND,) * size)
        yield from (asked.EpochBegun(1), asked.RowStored(STORED_NS), asked.RowUnclear())
        yield from (asked.RowRead(found, STORED_NS) for found in (False, True))
        if known.epoch < EPOCHS:
            yield asked.RowFenced(EPOCHS)
        for stored in range(known.rows + 1):
            yield asked.RowsDuplicate(tuple(range(known.last + 1, known.last + stored + 1)))
        yield from (MarkerWanted(SESSION, OWNERS[1], 1, n) for n in range(1, self.said_within.markers + 1))
        for token in range(1, self.said_within.tokens + 1):
            yield from (writer.LiveKnown(OWNERS[token], token), writer.LiveGone(token))

    def learns(self, known: WriterFacts, event: Any, said: Said) -> WriterFacts:
        return expect(known, event)[0]


WANTED: Final[dict[type[Any], tuple[str, ...]]] = {
    asked.EpochBegun: ("begin",),
    asked.RowStored: ("store", "mark"),
    asked.RowUnclear: ("store", "mark"),
    asked.RowFenced: ("store", "mark"),
    asked.RowsDuplicate: ("store",),
    asked.RowRead: ("read",),
}
"""Answer -> the phases in which it counts."""


def is_wanted(known: WriterFacts, event: Any) -> bool:
    """Whether the writer waits for it; what is no answer always counts."""
    return type(event) not in WANTED or known.phase in WANTED[type(event)]


# -- what it must say, and what is known then -----------------------------------------------------------------------

Next = tuple[WriterFacts, Said]


def ask(request: Any) -> Said:
    return (Ask(asked.DATABASE, request),)


def list_rows(known: WriterFacts, stored_ns: int = 0) -> tuple[Queued, ...]:
    """Those that it stores, with the next numbers."""
    numbers = range(known.last + 1, known.last + known.rows + 1)
    return tuple(Queued(number, HAND.message, HAND.filter, stored_ns=stored_ns) for number in numbers)


def put(known: WriterFacts) -> Next:
    """It asks for what is under way."""
    if known.phase == "mark":
        return known, ask(asked.PutMarker(SESSION, NAME, known.epoch, known.last + 1, 1, known.mark))
    known = replace(known, phase="store")
    return known, ask(asked.PutRows(SESSION, NAME, known.epoch, list_rows(known)))


def begin_next(known: WriterFacts) -> Next:
    """The marker, if it is its turn, or all messages that wait before it, as far as a range may have rows."""
    if known.marker and not known.before:
        return put(replace(known, phase="mark", rows=0, mark=known.marker, marker=0, k=0))
    rows = min(known.before if known.marker else known.waiting, RANGE)
    left = known.waiting - rows
    known = replace(known, phase="idle", rows=rows, waiting=left, before=max(0, known.before - rows))
    return put(known) if rows else (known, ())


def follow(done: Said, then: Next) -> Next:
    """First this is said, then that."""
    return then[0], (*done, *then[1])


def answer(rows: int) -> Said:
    """The publishers of these messages."""
    return (Tell(writer.RangeWritten((HAND,) * rows)),) if rows > 1 else (Tell(Written("message", "filter")),) * rows


def finish(known: WriterFacts) -> Next:
    """What is under way is stored."""
    if known.phase == "mark":
        known = replace(known, k=known.last + 1)
        return follow(show_marker(known), begin_next(known))
    rows = list_rows(known, STORED_NS)
    sent = tuple(Send(OWNERS[known.token], Live(SESSION, NAME, known.epoch, row)) for row in rows if known.live)
    return follow((*sent, *answer(known.rows)), begin_next(replace(known, last=known.last + known.rows)))


def show_marker(known: WriterFacts) -> Said:
    return (Send(OWNERS[1], LiveMarker(SESSION, NAME, known.epoch, known.k, 1, known.mark)),)


def hear_marker(known: WriterFacts, n: int) -> Next:
    """One that was shown is shown again; one that is later has its turn; others are dropped."""
    if n == known.mark and known.k:
        return known, show_marker(known)
    if known.phase == "idle":
        return begin_next(replace(known, marker=n)) if n >= known.mark else (known, ())
    if n > max(known.mark, known.marker):
        return replace(known, marker=n, before=known.waiting), ()
    return known, ()


def expect(known: WriterFacts, event: Any) -> Next:
    """What is known when the writer has taken the event, and what it must have said."""
    if not is_wanted(known, event):
        return known, ()
    match event:
        case writer.Start():
            return replace(known, phase="begin"), ask(asked.BeginEpoch(SESSION, NAME))
        case writer.Hand() | writer.HandRange():
            size = len(event.hands) if isinstance(event, writer.HandRange) else 1
            known = replace(known, waiting=known.waiting + size)
            return begin_next(known) if known.phase == "idle" else (known, ())
        case asked.EpochBegun(epoch):
            return begin_next(replace(known, epoch=epoch))
        case asked.RowStored():
            return finish(known)
        case asked.RowRead(found):
            return finish(known) if found else put(known)
        case asked.RowUnclear() if known.phase == "store":
            read = asked.ReadRow(SESSION, NAME, known.epoch, known.last + 1)
            return replace(known, phase="read"), ask(read)
        case asked.RowsDuplicate(numbers):
            known = replace(known, rows=known.rows - len(numbers))
            return follow(answer(len(numbers)), put(known) if known.rows else begin_next(known))
        case asked.RowFenced(epoch):
            return put(replace(known, epoch=epoch, last=0, k=0))
        case MarkerWanted(n=n):
            return hear_marker(known, n)
        case writer.LiveKnown(_, token):
            return (replace(known, token=token, live=True) if token >= known.token else known), ()
        case writer.LiveGone(token):
            return (replace(known, live=False) if token == known.token else known), ()
    return put(known)


def rule(name: str, clause: str, text: str, *kinds: type[Any]) -> Rule:
    """The rule that binds the writer when it waits for an event of these kinds."""
    return Rule(name, clause, text, lambda known, event: isinstance(event, kinds) and is_wanted(known, event),
                lambda known, event, said: said == expect(known, event)[1])  # fmt: skip


RULES: Final = (
    rule("begins", "PS-01", "it asks for an epoch, and then for what has waited", writer.Start, asked.EpochBegun),
    rule("stores", "PS-02, PS-03", "it stores a message at once, or lets it wait", writer.Hand),
    rule("stores a range", "PS-400, PS-491", "it stores messages together, as many as a range has", writer.HandRange),
    rule("goes on", "PS-04, PS-07", "it sends what is stored, answers, and goes on in turn", asked.RowStored),
    rule("drops duplicates", "PS-475", "it answers for rows that another has stored, and stores the others",
         asked.RowsDuplicate),
    rule("reads back", "PS-05", "it reads back a row of unknown fate, and asks for a marker again", asked.RowUnclear),
    rule("believes what it reads", "PS-05", "it goes on if the row is there, and else stores it again", asked.RowRead),
    rule("begins anew", "PS-06", "it stores what is refused under the next epoch, numbered from 1", asked.RowFenced),
    rule("marks", "PS-07, PS-08, PS-10", "it shows the latest marker in its turn, and again when asked", MarkerWanted),
    rule("follows its owner", "PS-09", "it says nothing when an owner is subscribed, or not any more",
         writer.LiveKnown, writer.LiveGone),
    Rule("ignores", "PS-11", "it does nothing for an answer that it does not wait for",
         lambda known, event: not is_wanted(known, event), lambda known, event, said: said == ()),
)  # fmt: skip


def shift_places(record: writer.WriterRecord) -> writer.WriterRecord:
    """The same, and the places of what waits begin with 0."""
    head = record.head
    inbox = Map({place - head: hand for place, hand in record.inbox.items()})
    place = record.place - head if record.waiting is not None else 0
    return replace(record, inbox=inbox, head=0, place=place)


SYSTEMS: Final[dict[str, tuple[str, WriterBounds]]] = {
    "writer-told": ("what a writer owes publishers, owners and the database", WriterBounds((1,), 1, 2, 2, 0)),
    "writer-ranges": ("the same, of messages that are handed over together", WriterBounds((1, 2, 3), 3, 2, 0, 1)),
    "writer-owners": ("the same, while one owner takes over from another", WriterBounds((1,), 1, 1, 1, 2)),
}
"""Name -> (about, what may be said)."""


def system(name: str) -> System:
    """The system called so."""
    about, bounds = SYSTEMS[name]
    idle = tuple(
        name
        for name, never in (
            ("stores a range", max(bounds.ranges) == 1),
            ("marks", not bounds.markers),
            ("follows its owner", not bounds.tokens),
        )
        if never
    )
    machine = Machine(
        WRITER,
        writer.WriterRecord(SESSION, NAME, range_max=RANGE),
        kept=shift_places,
        bound=lambda record: record.last <= bounds.rows,
        says_so=False,
    )
    return contract(name, about, machine, PublishersAndStore(bounds, idle))

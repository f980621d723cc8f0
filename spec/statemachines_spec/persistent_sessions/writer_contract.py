"""What a writer owes publishers, owners and the database, whatever it is told (PS-01 to PS-12)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Map, Send, Tell
from statemachines.persistent_sessions import request as asked
from statemachines.persistent_sessions import writer_record as writer
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Queued, Written
from statemachines.persistent_sessions.writer import WRITER
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.table_contract import Duty, TableContract, TableFacts

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


class WriterFacts(TableFacts, frozen=True, gc=False):
    """Up to `most` messages may be waiting.  The writer has stored `last` rows of its `epoch`, and stores so many
    (`rows`).  Other messages are `waiting`; of them so many come `before` the marker that waits.  It has taken up
    marker `mark`, which shows `k`.  The owner with this `token` is subscribed (`live`), or not."""

    most: int = 0
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


class PublishersAndStore(TableContract):
    """publishers, owners and a database that say anything at any time, also answers that nobody waits for"""

    def can_say(self, known: WriterFacts, word: Any) -> bool:
        """So many messages may be waiting, epochs are counted, and rows are duplicates that the writer stores."""
        match word:
            case writer.Hand() | writer.HandRange():
                stored_at_once = RANGE if known.phase == "idle" else 0
                return known.waiting + max(0, count_hands(word) - stored_at_once) <= known.most
            case asked.RowFenced():
                return known.epoch < EPOCHS
            case asked.RowsDuplicate(numbers):
                return len(numbers) <= known.rows and numbers[:1] in ((), (known.last + 1,))
        return super().can_say(known, word)


def count_hands(event: Any) -> int:
    return len(event.hands) if isinstance(event, writer.HandRange) else 1


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


def show_marker(known: WriterFacts, event: Any = None) -> Said:
    return (Send(OWNERS[1], LiveMarker(SESSION, NAME, known.epoch, known.k, 1, known.mark)),)


def wait(known: WriterFacts, event: Any) -> WriterFacts:
    """So many more messages wait."""
    return replace(known, waiting=known.waiting + count_hands(event))


def drop(known: WriterFacts, event: asked.RowsDuplicate) -> Next:
    """Another has stored these rows."""
    known = replace(known, rows=known.rows - len(event.numbers))
    return follow(answer(len(event.numbers)), put(known) if known.rows else begin_next(known))


# fmt: off
ROWS: Final = (
    Duty("begins", "PS-01", "it asks for an epoch, and then for what has waited",
         writer.Start, "new", lambda known, event: ask(asked.BeginEpoch(SESSION, NAME)), "begin"),
    Duty("begins", "", "", asked.EpochBegun, "begin",
         step=lambda known, event: begin_next(replace(known, epoch=event.epoch))),
    Duty("stores", "PS-02, PS-03", "it stores a message at once, or lets it wait",
         writer.Hand, "idle", step=lambda known, event: begin_next(wait(known, event))),
    Duty("stores", "", "", writer.Hand, then=wait),
    Duty("stores a range", "PS-400, PS-491", "it stores messages together, as many as a range has",
         writer.HandRange, "idle", step=lambda known, event: begin_next(wait(known, event))),
    Duty("stores a range", "", "", writer.HandRange, then=wait),
    Duty("goes on", "PS-04, PS-07", "it sends what is stored, answers, and goes on in turn",
         asked.RowStored, "store mark", step=lambda known, event: finish(known)),
    Duty("drops duplicates", "PS-475", "it answers for rows that another has stored, and stores the others",
         asked.RowsDuplicate, "store", step=drop),
    Duty("reads back", "PS-05", "it reads back a row of unknown fate, and asks for a marker again",
         asked.RowUnclear, "store",
         lambda known, event: ask(asked.ReadRow(SESSION, NAME, known.epoch, known.last + 1)), "read"),
    Duty("reads back", "", "", asked.RowUnclear, "mark", step=lambda known, event: put(known)),
    Duty("believes what it reads", "PS-05", "it goes on if the row is there, and else stores it again",
         asked.RowRead, "read", step=lambda known, event: finish(known) if event.found else put(known)),
    Duty("begins anew", "PS-06", "it stores what is refused under the next epoch, numbered from 1",
         asked.RowFenced, "store mark",
         step=lambda known, event: put(replace(known, epoch=event.epoch, last=0, k=0))),
    Duty("marks", "PS-07, PS-08, PS-10", "it shows the latest marker in its turn, and again when asked",
         MarkerWanted, said=show_marker, when=lambda known, event: known.k and event.n == known.mark),
    Duty("marks", "", "", MarkerWanted, "idle", when=lambda known, event: event.n >= known.mark,
         step=lambda known, event: begin_next(replace(known, marker=event.n))),
    Duty("marks", "", "", MarkerWanted, "new begin store mark read",
         when=lambda known, event: event.n > max(known.mark, known.marker),
         then=lambda known, event: replace(known, marker=event.n, before=known.waiting)),
    Duty("marks", "", "", MarkerWanted),
    Duty("follows its owner", "PS-09", "it says nothing when an owner is subscribed, or not any more",
         writer.LiveKnown, when=lambda known, event: event.token >= known.token,
         then=lambda known, event: replace(known, token=event.token, live=True)),
    Duty("follows its owner", "", "", writer.LiveGone, when=lambda known, event: event.token == known.token,
         then=lambda known, event: replace(known, live=False)),
    Duty("follows its owner", "", "", writer.LiveKnown | writer.LiveGone),
    Duty("ignores", "PS-11", "it does nothing for an answer that it does not wait for", object),
)
# fmt: on


def list_words(bounds: WriterBounds) -> list[Any]:
    numbers = [tuple(range(first, first + size)) for first in range(1, bounds.rows + 2) for size in range(1, RANGE + 1)]
    return [
        writer.Start(), *(HAND if size == 1 else writer.HandRange((HAND,) * size) for size in bounds.ranges),
        asked.EpochBegun(1), asked.RowStored(STORED_NS), asked.RowUnclear(), asked.RowFenced(EPOCHS),
        asked.RowRead(False, STORED_NS), asked.RowRead(True, STORED_NS),
        *map(asked.RowsDuplicate, ((), *numbers)),
        *(MarkerWanted(SESSION, OWNERS[1], 1, n) for n in range(1, bounds.markers + 1)),
        *(one for token in range(1, bounds.tokens + 1)
          for one in (writer.LiveKnown(OWNERS[token], token), writer.LiveGone(token))),
    ]  # fmt: skip


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
    counterpart = PublishersAndStore(ROWS, (), list_words(bounds), WriterFacts(most=bounds.waiting), idle=idle)
    return contract(name, about, machine, counterpart)

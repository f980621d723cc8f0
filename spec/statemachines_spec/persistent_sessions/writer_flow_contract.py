"""What the flow of one writer owes that writer, the database and its session, whatever it is told (PS-20 to PS-37)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Send, Tell
from statemachines.persistent_sessions import writer_flow as flow
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Queued
from statemachines.persistent_sessions.request import DATABASE, EpochRows, Fence, FencedRows, Polled, ReadPending
from statemachines.persistent_sessions.times import MS, Times
from statemachines.persistent_sessions.writer_flow import WRITER_FLOW
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.actor import Timing
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.table_contract import Duty, PhaseClock, TableContract, TableFacts

SESSION: Final = "session"
WRITER: Final = "writer"
OWNER: Final = "owner"
TOKEN: Final = 2
PAGE, ROOM = 1, 2
"""Rows that are read at once, and rows that there is room for later."""
BUFFER: Final = 1
"""Live messages that are kept."""
TICK_MS: Final = 4
POLL, REPEAT, PATIENCE = 2, 2, 5
"""Ticks between two reads, between two requests for a marker, and until a writer is fenced."""
TIMES: Final = Times(
    poll_ms=POLL * TICK_MS, repeat_ms=REPEAT * TICK_MS, marker_ms=PATIENCE * TICK_MS, resume_buffer=BUFFER,
    receive_maximum=2 * PAGE,
)  # fmt: skip
KEEPING: Final = "behind sync look final"
"""It waits for its session, for the database, to look again, or for its session to settle."""
FOLLOWING: Final = f"wait {KEEPING} done"
FENCED: Final = "fence drain"
Said = tuple[Any, ...]


class FlowBounds(msgspec.Struct, frozen=True):
    """Numbers, epochs and questions are counted up to these; `timed`: time passes."""

    numbers: int
    epochs: int
    questions: int
    timed: bool = False


class FlowFacts(TableFacts, frozen=True, gc=False):
    """It has taken the rows of `epoch` up to `taken`, and asked question `n`.  Its marker shows `k`, and was `seen` in
    the database; behind it so many messages are `kept`.  `heard`: the highest number, or epoch, that was dropped.  A
    fence asks for `below`, of a writer that is `gone`."""

    epoch: int = 1
    taken: int = 0
    n: int = 0
    k: int = 0
    seen: bool = False
    kept: int = 0
    heard: int = 0
    below: int = 0
    gone: bool = False


class WriterAndSession(TableContract):
    """a writer, a database and a session that say anything at any time, also answers that nobody waits for"""

    def __init__(self, bounds: FlowBounds) -> None:
        idle = ("reads what is fenced",) if bounds.timed else ()
        super().__init__(ROWS, CLOCKS if bounds.timed else UNTIMED, WORDS, FlowFacts(), idle=idle)
        self.said_within = bounds

    def says(self, known: FlowFacts) -> Iterator[Any]:
        timed = self.said_within.timed
        if timed and known.phase in FENCED.split():
            return  # no time is counted there
        yield from super().says(known)
        if known.phase == "new":
            return
        yield from self._say_live(known)
        found = tuple(self._list_found(known))
        yield from (Polled(WRITER, some) for some in found)
        for n in {known.n - 1, known.n}:
            yield Polled(WRITER, (EpochRows(WRITER, known.epoch, (), ((TOKEN, n),)),))
        if not timed:
            yield from self._say_found(known, found)

    def _say_found(self, known: FlowFacts, found: tuple[tuple[EpochRows, ...], ...]) -> Iterator[Any]:
        yield from (flow.Handed(some) for some in found)
        yield from (flow.CatchUp(some, 0) for some in found)
        for n, more in product({known.n - 1, known.n}, (False, True)):
            fenced = (some for some in found if some[0].epoch == known.epoch)
            yield from (FencedRows(WRITER, known.epoch + 1, n, some, more) for some in fenced)
        if known.phase in (*KEEPING.split(), "done") and known.taken < self.said_within.numbers:
            yield flow.Starve(known.epoch, known.taken + 1)

    def _say_live(self, known: FlowFacts) -> Iterator[Any]:
        for epoch in range(1, self.said_within.epochs + 1):
            for number in range(1, self.said_within.numbers + 1):
                yield Live(SESSION, WRITER, epoch, row(number))
                for n in {known.n - 1, known.n}:
                    yield LiveMarker(SESSION, WRITER, epoch, number, TOKEN, n)

    def _list_found(self, known: FlowFacts) -> Iterator[tuple[EpochRows, ...]]:
        """Nothing, the next rows, rows behind a hole, and rows of the next epoch."""
        left = self.said_within.numbers - known.taken
        for first, size in ((1, 0), (1, 1), (1, 2), (2, 1)):
            if first + size - 1 <= left:
                rows = tuple(row(known.taken + first + number) for number in range(size))
                yield (EpochRows(WRITER, known.epoch, rows),)
        if known.epoch < self.said_within.epochs:
            yield (EpochRows(WRITER, known.epoch + 1, (row(1),)),)

    def can_say(self, known: FlowFacts, word: Any) -> bool:
        """While it reads no timer is set to read again; nobody can see that it waits then."""
        if known.phase == "new":
            return isinstance(word, flow.Begin)
        is_reading = isinstance(word, flow.PollDue) and known.phase == "sync"
        return not is_reading and super().can_say(known, word)


def row(number: int) -> Queued:
    return Queued(number, f"message {number}")


# -- what it must say, and what is known then -----------------------------------------------------------------------

Next = tuple[FlowFacts, Said]


def send_wanted(known: FlowFacts, event: Any = None) -> Said:
    """It wants a marker."""
    return (Send(WRITER, MarkerWanted(SESSION, OWNER, TOKEN, known.n)),)


def ask_marker(known: FlowFacts, event: Any = None) -> Next:
    """It asks for a fresh marker, and waits as long as before."""
    known = FlowFacts("wait", known.passed, known.epoch, known.taken, known.n + 1)
    return known, send_wanted(known)


def ask_fresh(known: FlowFacts, event: Any = None) -> Next:
    """It asks for a fresh marker, and waits anew."""
    return ask_marker(replace(known, passed=(0,) * len(CLOCKS)))


def read(known: FlowFacts, rows: int) -> Next:
    """It reads the database behind what it has taken."""
    place = (known.epoch, known.taken)
    return replace(known, phase="sync"), (Ask(DATABASE, ReadPending(SESSION, WRITER, rows, place)),)


def fence(known: FlowFacts, below: int, gone: bool) -> Next:
    """It fences the epochs below, and reads what is in them."""
    known = FlowFacts("fence", known.passed, known.epoch, known.taken, known.n + 1, below=below, gone=gone)
    return known, ask_fence(known, PAGE)


def fence_gone(known: FlowFacts, event: Any) -> Next:
    """It fences a writer that is gone."""
    return fence(known, 0, True)


def ask_fence(known: FlowFacts, rows: int) -> Said:
    place = (known.epoch, known.taken)
    return (Ask(DATABASE, Fence(SESSION, WRITER, place, known.below, TOKEN, known.n, rows)),)


def take(known: FlowFacts, found: tuple[EpochRows, ...], below: int = 0) -> Next:
    """It takes what follows without a hole: of its epoch, and below this number (0: all)."""
    rows: list[Queued] = []
    for one in (one for some in found if some.epoch == known.epoch for one in some.rows):
        if one.number == known.taken + len(rows) + 1 and (not below or one.number < below):
            rows.append(one)
    taken = (Tell(flow.Take(WRITER, known.epoch, tuple(rows))),) if rows else ()
    return replace(known, taken=known.taken + len(rows)), taken


def take_rows(known: FlowFacts, first: int, size: int) -> Next:
    """It takes rows of its epoch that came live."""
    return take(known, (EpochRows(WRITER, known.epoch, tuple(row(first + place) for place in range(size))),))


def hear_read(known: FlowFacts, event: Polled) -> Next:
    """It takes a page below its marker, and is behind, or done with it, or looks again."""
    then, taken = take(see(known, event), event.found, known.k)
    if then.seen and then.taken == then.k - 1:
        return replace(then, phase="final"), taken
    return replace(then, phase="behind" if taken else "look"), taken


def see(known: FlowFacts, event: Polled) -> FlowFacts:
    """The database shows its marker, or does not."""
    shows = any((TOKEN, known.n) in one.markers for one in event.found)
    return replace(known, seen=known.seen or shows)


def hear_fenced(known: FlowFacts, event: FencedRows) -> Next:
    """What is in the epochs that are fenced."""
    then, taken = take(known, event.found)
    if event.more:
        return replace(then, phase="drain", below=event.below), taken
    stays_gone = known.gone and known.heard < event.below
    then = FlowFacts("done", known.passed, event.below, 0, known.n)
    if stays_gone:
        return then, taken
    then, asks = ask_marker(then)
    return then, (*taken, *asks)


def catch_up(known: FlowFacts, event: flow.CatchUp) -> Next:
    newer = [one.epoch for one in event.found if one.rows and one.epoch > known.epoch]
    return fence(known, max(newer), False) if newer else take(known, event.found)


def is_newer(known: FlowFacts, event: Live | LiveMarker) -> bool:
    """It is of a later epoch than that which is followed."""
    return event.epoch > known.epoch


def is_answer(known: FlowFacts, event: Any) -> bool:
    """It answers the last question."""
    return bool(event.n == known.n)


# fmt: off
ROWS: Final = (
    Duty("begins", "PS-20", "it asks the writer for a marker", flow.Begin, "new", step=ask_marker),
    Duty("asks again", "PS-20, PS-35", "it asks again every repeat_ms until the marker comes",
         flow.AskAgain, "wait", send_wanted),
    Duty("hears the writer", "PS-21 to PS-31", "it drops, keeps or takes what comes live, by its number and epoch",
         Live | LiveMarker, FENCED, when=is_newer,
         then=lambda known, event: replace(known, heard=max(known.heard, event.epoch))),
    Duty("hears the writer", "", "", Live | LiveMarker, FOLLOWING, when=is_newer,
         step=lambda known, event: fence(known, event.epoch, False)),
    Duty("hears the writer", "", "", Live | LiveMarker, when=lambda known, event: event.epoch != known.epoch),
    Duty("hears the writer", "", "", Live, "wait",
         then=lambda known, event: replace(known, heard=max(known.heard, event.number))),
    Duty("hears the writer", "", "", Live, "done", when=lambda known, event: event.number == known.taken + 1,
         step=lambda known, event: take_rows(known, event.number, 1)),
    Duty("hears the writer", "", "", Live, "done", when=lambda known, event: event.number > known.taken,
         step=ask_fresh),
    Duty("hears the writer", "", "", Live, KEEPING,
         when=lambda known, event: event.number == known.k + known.kept and known.kept < BUFFER,
         then=lambda known, event: replace(known, kept=known.kept + 1)),
    Duty("hears the writer", "", "", Live, KEEPING, when=lambda known, event: event.number >= known.k + known.kept,
         step=ask_fresh),
    Duty("hears the writer", "", "", LiveMarker, "wait",
         when=lambda known, event: is_answer(known, event) and event.k > max(known.heard, known.taken),
         step=lambda known, event: read(replace(known, k=event.k), PAGE)),
    Duty("hears the writer", "", "", LiveMarker, "wait", when=is_answer, step=ask_fresh),
    Duty("hears the writer", "", "", Live | LiveMarker),
    Duty("reads", "PS-22, PS-25, PS-34, PS-193", "it takes what it reads below the marker, a page at a time",
         Polled, "wait", then=see),
    Duty("reads", "", "", Polled, "sync look", step=hear_read),
    Duty("reads", "", "", Polled),
    Duty("looks again", "PS-25, PS-35", "it reads again poll_ms after a read that brought nothing",
         flow.PollDue, "sync look", step=lambda known, event: read(known, PAGE)),
    Duty("fences", "PS-30, PS-35", "it fences a writer that does not show its marker in marker_ms",
         flow.MarkerTimeout, "wait sync look", step=fence_gone),
    Duty("reads what is fenced", "PS-32, PS-34, PS-194", "it takes the rows of a fenced epoch, then follows on",
         FencedRows, "fence", when=is_answer, step=hear_fenced),
    Duty("reads what is fenced", "", "", FencedRows),
    Duty("hears its session", "PS-26, PS-177, PS-193, PS-199, PS-482", "it goes on when its session says so",
         flow.Handed, "wait behind sync look", step=lambda known, event: take(known, event.found, known.k)),
    Duty("hears its session", "", "", flow.CatchUp, "wait done", step=catch_up),
    Duty("hears its session", "", "", flow.Room, "behind", step=lambda known, event: read(known, event.rows)),
    Duty("hears its session", "", "", flow.Room, "drain", lambda known, event: ask_fence(known, event.rows), "fence"),
    Duty("hears its session", "", "", flow.Settled, "final",
         step=lambda known, event: take_rows(replace(known, phase="done", kept=0), known.k, known.kept)),
    Duty("hears its session", "", "", flow.Starve, then=lambda known, event: FlowFacts(
        "behind", known.passed, known.epoch, known.taken, known.n, event.next, True, heard=known.heard)),
    Duty("hears its session", "", "", flow.Handed | flow.CatchUp | flow.Room | flow.Settled),
    Duty("hears the node", "PS-28, PS-30, PS-33, PS-330", "it asks for a fresh marker, or fences, when it is told",
         flow.WriterDown, step=fence_gone),
    Duty("hears the node", "", "", flow.LinkLost, "wait", step=ask_marker),
    Duty("hears the node", "", "", flow.LinkLost, FOLLOWING, step=ask_fresh),
    Duty("hears the node", "", "", flow.WriterUp, "done", step=ask_fresh),
    Duty("hears the node", "", "", flow.LinkLost | flow.WriterUp, FENCED,
         then=lambda known, event: replace(known, gone=False)),
    Duty("hears the node", "", "", flow.LinkLost | flow.WriterUp),
    Duty("asks again", "", "", object, when=lambda known, event: isinstance(event, flow.AskAgain)),
    Duty("looks again", "", "", object, when=lambda known, event: isinstance(event, flow.PollDue)),
    Duty("fences", "", "", object, when=lambda known, event: isinstance(event, flow.MarkerTimeout)),
)
WORDS: Final = (
    flow.Begin(), flow.Room(ROOM), flow.Settled(), flow.LinkLost(WRITER), flow.WriterDown(WRITER),
    flow.WriterUp(WRITER), flow.AskAgain(WRITER), flow.MarkerTimeout(WRITER), flow.PollDue(WRITER),
)
# fmt: on
CLOCKS: Final = (
    PhaseClock(flow.AskAgain, "wait", REPEAT, "asks again"),
    PhaseClock(flow.MarkerTimeout, "wait sync look", PATIENCE, "fences"),
    PhaseClock(flow.PollDue, "look", POLL, "looks again", lambda known, event: isinstance(event, Polled)),
)
UNTIMED: Final = tuple(one._replace(ticks=0) for one in CLOCKS)
"""Where no time passes a timer fires whenever it is set."""

SYSTEMS: Final[dict[str, tuple[str, FlowBounds]]] = {
    "flow-told": ("what the flow of a writer owes the writer, the database and its session", FlowBounds(2, 1, 2)),
    "flow-fenced": ("the same, while epochs end", FlowBounds(1, 2, 4)),
    "flow-timed": ("the same, while time passes", FlowBounds(2, 1, 3, timed=True)),
}
"""Name -> (about, what may be said)."""


def system(name: str) -> System:
    """The system called so."""
    about, bounds = SYSTEMS[name]
    record = flow.WriterFlowRecord(SESSION, WRITER, OWNER, TOKEN, TIMES)
    timing = Timing(TICK_MS * MS, ("repeat", "marker", "poll")) if bounds.timed else None
    machine = Machine(
        WRITER_FLOW,
        record,
        timing=timing,
        bound=lambda record: record.n <= bounds.questions and record.epoch <= bounds.epochs,
        says_so=False,
    )
    clock = (TickClock(TICK_MS * MS),) if bounds.timed else ()
    return contract(name, about, machine, WriterAndSession(bounds), *clock)

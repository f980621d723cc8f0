"""What the flow of one writer owes that writer, the database and its session, whatever it is told (PS-20 to PS-37)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Send, Tell
from statemachines.persistent_sessions import writer_flow_record as flow
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Queued
from statemachines.persistent_sessions.request import DATABASE, EpochRows, Fence, FencedRows, Polled, ReadPending
from statemachines.persistent_sessions.times import MS, Times
from statemachines.persistent_sessions.writer_flow import WRITER_FLOW
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.explorer.timing import Timing

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
KEEPING: Final = ("behind", "sync", "final")
FOLLOWING: Final = ("wait", *KEEPING, "done")
FENCED: Final = ("fence", "drain")
Said = tuple[Any, ...]


class FlowBounds(msgspec.Struct, frozen=True):
    """Numbers, epochs and questions are counted up to these; `timed`: time passes."""

    numbers: int
    epochs: int
    questions: int
    timed: bool = False


class FlowFacts(msgspec.Struct, frozen=True, gc=False):
    """The `phase`: what the flow waits for.  It has taken the rows of `epoch` up to `taken`, and asked question `n`.
    Its marker shows `k`, and was `seen` in the database; behind it so many messages are `kept`.  `heard`: the highest
    number, or epoch, that was dropped.  A fence asks for `below`, of a writer that is `gone`.  It `asked`, waits
    (`waited`), and looks again (`looked`; -1: it does not) for so many ticks."""

    phase: str = "new"
    epoch: int = 1
    taken: int = 0
    n: int = 0
    k: int = 0
    seen: bool = False
    kept: int = 0
    heard: int = 0
    below: int = 0
    gone: bool = False
    asked: int = 0
    waited: int = 0
    looked: int = -1


class WriterAndSession(Counterpart):
    """a writer, a database and a session that say anything at any time, also answers that nobody waits for"""

    owes, ends = "OWES", "OWES an end"

    def __init__(self, bounds: FlowBounds) -> None:
        super().__init__(list_rules(bounds.timed), ("reads what is fenced",) if bounds.timed else ())
        self.said_within = bounds

    def begins(self) -> FlowFacts:
        return FlowFacts()

    def says(self, known: FlowFacts) -> Iterator[Any]:
        if known.phase == "new":
            yield flow.Begin()
            return
        timed = self.said_within.timed
        if timed and known.phase in FENCED:
            return  # no time is counted there
        yield from self._say_live(known)
        found = tuple(self._list_found(known))
        yield from (Polled(WRITER, some) for some in found)
        for n in {known.n - 1, known.n}:
            yield Polled(WRITER, (EpochRows(WRITER, known.epoch, (), ((TOKEN, n),)),))
        yield from (flow.Room(ROOM), flow.Settled())
        yield from (flow.LinkLost(WRITER), flow.WriterDown(WRITER), flow.WriterUp(WRITER))
        if not timed:
            yield from self._say_found(known, found)
        if known.phase != "wait":
            yield flow.AskAgain(WRITER)
        if known.phase not in ("wait", "sync"):
            yield flow.MarkerTimeout(WRITER)
        if known.phase != "sync":
            yield flow.PollDue(WRITER)

    def _say_found(self, known: FlowFacts, found: tuple[tuple[EpochRows, ...], ...]) -> Iterator[Any]:
        yield from (flow.Handed(some) for some in found)
        yield from (flow.CatchUp(some, 0) for some in found)
        for n, more in product({known.n - 1, known.n}, (False, True)):
            fenced = (some for some in found if some[0].epoch == known.epoch)
            yield from (FencedRows(WRITER, known.epoch + 1, n, some, more) for some in fenced)
        if known.phase in (*KEEPING, "done") and known.taken < self.said_within.numbers:
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

    def learns(self, known: FlowFacts, event: Any, said: Said) -> FlowFacts:
        return expect(known, event)[0]

    def ages(self, known: FlowFacts, ticks: int) -> FlowFacts:
        return age_flow(known, ticks)

    def is_late(self, known: FlowFacts) -> int:
        late = (
            ("asks again", known.asked > REPEAT),
            ("fences", known.waited > PATIENCE),
            ("looks again", known.looked > POLL),
        )
        names = [rule.name for rule in self.rules]
        return next((names.index(name) + 1 for name, is_over in late if is_over), 0)


def age_flow(known: FlowFacts, ticks: int) -> FlowFacts:
    """What is known so many ticks later."""
    return replace(
        known,
        asked=min(known.asked + ticks, REPEAT + 1) if known.phase == "wait" else 0,
        waited=min(known.waited + ticks, PATIENCE + 1) if known.phase in ("wait", "sync") else 0,
        looked=min(known.looked + ticks, POLL + 1) if known.looked >= 0 else -1,
    )


def row(number: int) -> Queued:
    return Queued(number, f"message {number}")


# -- what it must say, and what is known then -----------------------------------------------------------------------

Next = tuple[FlowFacts, Said]


def ask_marker(known: FlowFacts) -> Next:
    """It asks for a fresh marker, and waits as long as before."""
    known = FlowFacts("wait", known.epoch, known.taken, known.n + 1, asked=known.asked, waited=known.waited)
    return known, (Send(WRITER, MarkerWanted(SESSION, OWNER, TOKEN, known.n)),)


def ask_fresh(known: FlowFacts) -> Next:
    """It asks for a fresh marker, and waits anew."""
    return ask_marker(replace(known, asked=0, waited=0))


def read(known: FlowFacts, rows: int) -> Next:
    """It reads the database behind what it has taken."""
    waited = known.waited if known.phase in ("wait", "sync") else 0
    place = (known.epoch, known.taken)
    asks = (Ask(DATABASE, ReadPending(SESSION, WRITER, rows, place)),)
    return replace(known, phase="sync", waited=waited, asked=0, looked=-1), asks


def fence(known: FlowFacts, below: int, gone: bool) -> Next:
    """It fences the epochs below, and reads what is in them."""
    known = FlowFacts("fence", known.epoch, known.taken, known.n + 1, below=below, gone=gone)
    return known, ask_fence(known, PAGE)


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


def hear_live(known: FlowFacts, number: int) -> Next:
    """A live message of the epoch that is followed."""
    if known.phase == "wait":
        return replace(known, heard=max(known.heard, number)), ()
    next_number = known.taken + 1 if known.phase == "done" else known.k + known.kept
    if number < next_number:
        return known, ()
    if number > next_number or (known.phase != "done" and known.kept == BUFFER):
        return ask_fresh(known)
    if known.phase == "done":
        return take(known, (EpochRows(WRITER, known.epoch, (row(number),)),))
    return replace(known, kept=known.kept + 1), ()


def hear_marker(known: FlowFacts, event: LiveMarker) -> Next:
    """A marker of the epoch that is followed."""
    if known.phase != "wait" or event.n != known.n:
        return known, ()
    if event.k > max(known.heard, known.taken):
        return read(replace(known, k=event.k), PAGE)
    return ask_fresh(known)


def hear_read(known: FlowFacts, event: Polled) -> Next:
    """An answer of the database."""
    shows = any((TOKEN, known.n) in one.markers for one in event.found)
    if known.phase == "wait":
        return replace(known, seen=known.seen or shows), ()
    if known.phase != "sync":
        return known, ()
    then, taken = take(replace(known, seen=known.seen or shows), event.found, known.k)
    if then.seen and then.taken == then.k - 1:
        return replace(then, phase="final", waited=0, looked=-1), taken
    if taken:
        return replace(then, phase="behind", waited=0, looked=-1), taken
    return replace(then, looked=0), ()


def hear_fenced(known: FlowFacts, event: FencedRows) -> Next:
    """What is in the epochs that are fenced."""
    if known.phase != "fence" or event.n != known.n:
        return known, ()
    then, taken = take(known, event.found)
    if event.more:
        return replace(then, phase="drain", below=event.below), taken
    stays_gone = known.gone and known.heard < event.below
    then = FlowFacts("done", event.below, 0, known.n)
    if stays_gone:
        return then, taken
    then, asks = ask_marker(then)
    return then, (*taken, *asks)


def hear_owner(known: FlowFacts, event: Any) -> Next:
    """What the session says."""
    match event:
        case flow.Handed(found) if known.phase in ("wait", "behind", "sync"):
            return take(known, found, known.k)
        case flow.CatchUp(found) if known.phase in ("wait", "done"):
            newer = [one.epoch for one in found if one.rows and one.epoch > known.epoch]
            return fence(known, max(newer), False) if newer else take(known, found)
        case flow.Room(rows) if known.phase == "behind":
            return read(known, rows)
        case flow.Room(rows) if known.phase == "drain":
            return replace(known, phase="fence"), ask_fence(known, rows)
        case flow.Settled() if known.phase == "final":
            kept = tuple(row(known.k + place) for place in range(known.kept))
            return take(replace(known, phase="done", kept=0), (EpochRows(WRITER, known.epoch, kept),))
        case flow.Starve(_, following):
            return FlowFacts("behind", known.epoch, known.taken, known.n, following, True, heard=known.heard), ()
    return known, ()


def hear_node(known: FlowFacts, event: Any) -> Next:
    """What becomes of the writer and of its path, and how time passes."""
    match event:
        case flow.AskAgain() if known.phase == "wait":
            return replace(known, asked=0), (Send(WRITER, MarkerWanted(SESSION, OWNER, TOKEN, known.n)),)
        case flow.PollDue() if known.phase == "sync":
            return read(known, PAGE)
        case flow.MarkerTimeout() if known.phase in ("wait", "sync"):
            return fence(known, 0, True)
        case flow.WriterDown():
            return fence(known, 0, True)
        case flow.LinkLost() if known.phase == "wait":
            return ask_marker(known)
        case flow.LinkLost() if known.phase in FOLLOWING:
            return ask_fresh(known)
        case flow.WriterUp() if known.phase == "done":
            return ask_fresh(known)
        case flow.LinkLost() | flow.WriterUp() if known.phase in FENCED:
            return replace(known, gone=False), ()
    return known, ()


def expect(known: FlowFacts, event: Any) -> Next:
    """What is known when the flow has taken the event, and what it must have said."""
    match event:
        case flow.Begin():
            return ask_fresh(known)
        case Live() | LiveMarker() if known.phase in FENCED:
            heard = max(known.heard, event.epoch) if event.epoch > known.epoch else known.heard
            return replace(known, heard=heard), ()
        case Live() | LiveMarker() if event.epoch != known.epoch:
            return fence(known, event.epoch, False) if event.epoch > known.epoch else (known, ())
        case Live():
            return hear_live(known, event.number)
        case LiveMarker():
            return hear_marker(known, event)
        case Polled():
            return hear_read(known, event)
        case FencedRows():
            return hear_fenced(known, event)
        case flow.Handed() | flow.CatchUp() | flow.Room() | flow.Settled() | flow.Starve():
            return hear_owner(known, event)
    return hear_node(known, event)


def list_rules(timed: bool) -> tuple[Rule, ...]:
    """The rules, with those of time where it passes."""
    passed = {"asks again": ("asked", REPEAT), "fences": ("waited", PATIENCE), "looks again": ("looked", POLL)}

    def rule(name: str, clause: str, text: str, *kinds: type[Any]) -> Rule:
        def keeps(known: FlowFacts, event: Any, said: Said) -> bool:
            is_due = not timed or name not in passed or not is_awaited(known, event)
            return (is_due or getattr(known, passed[name][0]) == passed[name][1]) and said == expect(known, event)[1]

        return Rule(name, clause, text, lambda known, event: isinstance(event, kinds), keeps)

    return (
        rule("begins", "PS-20", "it asks the writer for a marker", flow.Begin),
        rule("asks again", "PS-20, PS-35", "it asks again every repeat_ms until the marker comes", flow.AskAgain),
        rule("hears the writer", "PS-21 to PS-31", "it drops, keeps or takes what comes live, by its number and epoch",
             Live, LiveMarker),
        rule("reads", "PS-22, PS-25, PS-34, PS-193", "it takes what it reads below the marker, a page at a time",
             Polled),
        rule("looks again", "PS-25, PS-35", "it reads again poll_ms after a read that brought nothing", flow.PollDue),
        rule("fences", "PS-30, PS-35", "it fences a writer that does not show its marker in marker_ms",
             flow.MarkerTimeout),
        rule("reads what is fenced", "PS-32, PS-34, PS-194", "it takes the rows of a fenced epoch, then follows on",
             FencedRows),
        rule("hears its session", "PS-26, PS-177, PS-193, PS-199, PS-482", "it goes on when its session says so",
             flow.Handed, flow.CatchUp, flow.Room, flow.Settled, flow.Starve),
        rule("hears the node", "PS-28, PS-30, PS-33, PS-330", "it asks for a fresh marker, or fences, when it is told",
             flow.LinkLost, flow.WriterUp, flow.WriterDown),
    )  # fmt: skip


def is_awaited(known: FlowFacts, event: Any) -> bool:
    """Whether a timer has a meaning now."""
    phases = {flow.AskAgain: ("wait",), flow.PollDue: ("sync",), flow.MarkerTimeout: ("wait", "sync")}
    return known.phase in phases[type(event)]


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

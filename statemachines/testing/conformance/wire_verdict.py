"""WireVerdict: how a run over the wire is set up, and what is known at its end.

WireChoice: what chance decides in a run over the wire, each decision drawn by itself, so that some can be left out.

    choice = WireChoice(seed=1, without=LeftOut(inputs=frozenset({3})))

The n-th decision is the same in every run of a seed, whichever of the others are left out.

WireCourse: what a run over the wire has come to: its time, its counts, what happened, and the verdict.

WireReport: the verdict of a run over the wire, in words and as JSON.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import msgspec

from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.tcp import Address
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.conformance_run import Cell, ConformanceViolation
from statemachines.testing.conformance.interface import InterfaceError
from statemachines.testing.conformance.report import describe_cell, describe_cells, describe_violation
from statemachines.testing.conformance.role import ConformanceRole


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Decisions of a run that are not taken, by their numbers; `inputs_from`, `faults_from`: and all from there on."""

    inputs: frozenset[int] = frozenset()
    faults: frozenset[int] = frozenset()
    inputs_from: int | None = None
    faults_from: int | None = None


def _is_in(number: int, some: frozenset[int], and_from: int | None) -> bool:
    return number in some or (and_from is not None and number >= and_from)


class WireChoice:
    """Draws decisions; `inputs` and `faults` are the numbers of those that made a difference."""

    def __init__(self, seed: int, without: LeftOut) -> None:
        self.inputs: list[int] = []
        self.faults: list[int] = []
        self._seed = seed
        self._without = without
        self._next_input = 0
        self._next_fault = 0
        self._next_player = 0

    def draw_input(self, share: float) -> Random | None:
        """Chance for an input of the kit's own; None: there is none now."""
        number = self._next_input
        self._next_input += 1
        chance = Random(f"{self._seed}/input/{number}")
        if chance.random() >= share or _is_in(number, self._without.inputs, self._without.inputs_from):
            return None
        return chance

    def count_input(self) -> None:
        """The input that was drawn last was sent."""
        self.inputs.append(self._next_input - 1)

    def draw_fault(self, share: float) -> Random | None:
        """Chance for what becomes of a message, when so much of the messages is carried badly; None: it arrives."""
        number = self._next_fault
        self._next_fault += 1
        chance = Random(f"{self._seed}/fault/{number}")
        if chance.random() >= share or _is_in(number, self._without.faults, self._without.faults_from):
            return None
        self.faults.append(number)
        return chance

    def draw_player(self) -> Random:
        """Chance for the peers of one more node."""
        self._next_player += 1
        return Random(f"{self._seed}/player/{self._next_player}")


class WireOptions(msgspec.Struct, frozen=True):
    """How a run goes."""

    seconds: float = 20.0
    seed: int = 0
    tolerance_s: float = 2.0
    """Silence counts when an output is owed for so long."""
    rate: float = 20.0
    """Inputs that the kit proposes in a second, besides its answers."""
    faults: float = 0.1
    """So much of the messages is lost, as much is repeated, and twice as much is delayed."""
    configuration: Any = None
    """The times of the protocol; None: those of the role."""
    store: str = ""
    """The identity of the store that the hello of the kit names."""
    credentials: Credentials = NONE
    address: Address = ("127.0.0.1", 0)
    """Where the kit listens, or whom it dials; port 0: any that is free."""
    without: LeftOut = LeftOut()
    """Inputs and faults that are left out of what the seed draws."""


class Note(msgspec.Struct, frozen=True):
    """One line of what happened."""

    at_ns: int
    what: str


class WireVerdict(msgspec.Struct, frozen=True):
    """What is known at the end."""

    outcome: ConformanceOutcome
    why: str = ""
    violation: ConformanceViolation | None = None
    instance: str = ""
    notes: tuple[Note, ...] = ()
    """What happened last, the violation at the end."""
    table: frozenset[Cell] = frozenset()
    """The rows of the table, state by state."""
    cells: frozenset[Cell] = frozenset()
    """Those of them that were certainly taken."""
    possible: frozenset[Cell] = frozenset()
    """Those that were taken unless something else was that looks the same from outside."""
    pairs: int = 0
    counts: dict[str, int] = {}
    """Messages and faults."""
    rules: dict[str, int] = {}
    """Clause -> how often it was applied, where rules judge in the place of the table."""
    at_ns: int = 0
    """How long the run took."""
    inputs: tuple[int, ...] = ()
    """The numbers of the inputs that the kit proposed."""
    faults: tuple[int, ...] = ()
    """The numbers of the messages that it carried badly."""


NOTES_MAX: Final = 200


class WireCourse:
    """One run as it goes.

    Args:
        configuration: the times of the protocol.
    """

    def __init__(self, options: WireOptions, configuration: Any) -> None:
        self.options = options
        self.configuration = configuration
        self.tolerance_ns = int(options.tolerance_s * 1e9)
        self.choice = WireChoice(options.seed, options.without)
        self.counts: Counter[str] = Counter()
        self.started_ns = self.settled_ns = time.monotonic_ns()
        """`settled_ns`: all that had come by this moment was looked at."""
        self.verdict: WireVerdict | None = None
        self.error: InterfaceError | None = None
        self._notes: deque[Note] = deque(maxlen=NOTES_MAX)
        self._hold_until_ns = 0
        self._held_ns = 0

    @property
    def is_decided(self) -> bool:
        """Whether nothing more is looked at."""
        return self.verdict is not None or self.error is not None

    def now_ns(self) -> int:
        """The time."""
        return time.monotonic_ns()

    def begin(self) -> None:
        """The run begins now."""
        self.started_ns = self.settled_ns = self.now_ns()

    def look_at_time(self, before_ns: int) -> int:
        """The time, after a sleep that began at `before_ns`; a kit that slept too long judges nothing for a while."""
        now_ns = self.now_ns()
        if now_ns - before_ns > self.tolerance_ns // 2:
            self._hold_until_ns = now_ns + self.tolerance_ns  # the kit was late itself
            self._held_ns += now_ns - before_ns + self.tolerance_ns
        if now_ns >= self._hold_until_ns:
            self.settled_ns = before_ns
        return now_ns

    @property
    def was_late(self) -> bool:
        """Whether the kit could judge too little."""
        return self._held_ns > self.options.seconds * 1e9 / 2

    # -- what happened ------------------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """Keep a line of what happened."""
        self._notes.append(Note(self.now_ns() - self.started_ns, what))

    def count_sent(self, what: str) -> None:
        """A message of the kit is sent."""
        self.counts["messages sent"] += 1
        self.note(what)

    def fail(self, why: str, instance: str = "", violation: ConformanceViolation | None = None) -> None:
        """Something is wrong with the implementation."""
        self._decide(ConformanceOutcome.FAIL, why, violation, instance)

    def give_up(self, why: str) -> None:
        """It cannot be judged."""
        self._decide(ConformanceOutcome.INCONCLUSIVE, why)

    def conclude(self, why: str) -> None:
        """The run is over, and nothing was wrong; `why` it shows nothing ("": it does)."""
        if not self.is_decided:
            self._decide(ConformanceOutcome.INCONCLUSIVE if why else ConformanceOutcome.PASS, why)

    def refuse(self, why: str) -> None:
        """The implementation speaks something else."""
        if not self.is_decided:
            self.error = InterfaceError(why)

    def _decide(
        self, outcome: ConformanceOutcome, why: str, violation: ConformanceViolation | None = None, instance: str = ""
    ) -> None:
        if self.is_decided:
            return
        self.verdict = WireVerdict(
            outcome,
            why,
            violation,
            instance,
            tuple(self._notes),
            counts=dict(self.counts),
            at_ns=self.now_ns() - self.started_ns,
            inputs=tuple(self.choice.inputs),
            faults=tuple(self.choice.faults),
        )


MS: Final = 1_000_000
SHOWN_NOTES: Final = 16


def text_of(verdict: WireVerdict, role: ConformanceRole) -> str:
    """The verdict for people."""
    return "\n".join(_lines(verdict, role))


def _lines(verdict: WireVerdict, role: ConformanceRole) -> Iterator[str]:
    yield f"{verdict.outcome.value}: {role.fsm.full_name} over the wire"
    if verdict.outcome is ConformanceOutcome.FAIL:
        if verdict.violation is None:
            yield f"  {verdict.why}"
        else:
            yield f"  instance  {verdict.instance}"
            yield from describe_violation(verdict.violation, role)
        yield ""
        yield "what came before it:"
        yield from (_note(note) for note in verdict.notes[-SHOWN_NOTES:])
        yield ""
    elif verdict.why:
        yield f"  {verdict.why}"
    yield from _coverage(verdict, role)


def _note(note: Note) -> str:
    return f"  {note.at_ns / MS:9.1f} ms  {note.what}"


def _coverage(verdict: WireVerdict, role: ConformanceRole) -> Iterator[str]:
    counts = (
        f"  counts    {', '.join(f'{count} {name}' for name, count in sorted(verdict.counts.items())) or 'nothing'}"
    )
    if verdict.rules:
        applied = [f"{clause} {count}" for clause, count in verdict.rules.items() if count]
        missed = ", ".join(clause for clause, count in verdict.rules.items() if not count)
        yield f"  rules     {len(applied)} of {len(verdict.rules)} were applied: {', '.join(applied)}"
        if missed:
            yield f"            not applied: {missed}"
        yield counts
        return
    some = len(verdict.possible - verdict.cells)
    taken = f"{len(verdict.cells)} certainly, {some} more possibly"
    yield f"  rows      of {len(verdict.table)} rows of the table, state by state, were taken: {taken}"
    untaken = tuple(sorted(verdict.table - verdict.cells - verdict.possible))
    if untaken and verdict.outcome is ConformanceOutcome.PASS:
        yield f"            not taken: {describe_cells(untaken, role)}"
    yield f"  pairs     {verdict.pairs} pairs of rows"
    yield counts


def json_of(verdict: WireVerdict, role: ConformanceRole) -> dict[str, Any]:
    """The verdict for programs."""
    shown: dict[str, Any] = {
        "role": role.fsm.full_name,
        "outcome": verdict.outcome.value,
        "why": verdict.why,
        "rows": len(verdict.table),
        "rows_taken": len(verdict.cells),
        "rows_possible": len(verdict.possible - verdict.cells),
        "rows_missed": [describe_cell(cell, role) for cell in sorted(verdict.table - verdict.cells - verdict.possible)],
        "pairs_taken": verdict.pairs,
        "counts": verdict.counts,
        "rules": verdict.rules,
        "notes": [{"at_ns": note.at_ns, "what": note.what} for note in verdict.notes],
    }
    found = verdict.violation
    if found is not None:
        shown |= {
            "instance": verdict.instance,
            "fed": found.fed,
            "at_ns": found.at_ns,
            "expected": [{"effects": list(map(str, one)), "clauses": list(rows)} for one, rows in found.expected],
            "came": list(map(str, found.came)),
        }
    return shown

"""Campaign: the tour and the search of one implementation, and the verdict.

    verdict = judge(role_of("holder"), lambda: ChildProcess(("node", "holder.js")), runs=200)

A run that fails is shortened: inputs are left out as long as it still fails.  What remains is told in the words of the
clauses, and is a list of inputs that repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from enum import Enum
from functools import cached_property
from itertools import chain
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Event, TimerFired
from statemachines.testing.conformance.child_process import Implementation, ImplementationEnded, NoAnswer
from statemachines.testing.conformance.conformance_run import (
    Begin,
    Cell,
    ConformanceRun,
    ConformanceViolation,
    FedInput,
    Inconclusive,
    Late,
    Move,
    Violated,
    Wait,
)
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.role_graph import RoleGraph
from statemachines.testing.conformance.tour import Tour, tour_of
from statemachines.testing.protocol import environment_of
from statemachines.testing.struct_values import Pool, ValueRefused, draw_example
from statemachines_sim.shrink import leave_out

RUNS: Final = 200
INPUTS_MAX: Final = 40
"""A run of the search has so many inputs."""

REPLAYS_MAX: Final = 400
"""Shortening ends after so many repetitions."""

CHOICES: Final = 1 << 16
KINDS: Final = 8
"""What is chosen first: whether time passes, or which events are preferred."""

TURNED: Final = CHOICES // 2
"""Of the choices those with this bit fire timers that are due at one moment in the other order."""

DRAWN: Final = 2 * KINDS
"""One event of so many may be a drawn one."""

Open = Callable[[], AbstractContextManager[Implementation]]
"""Starts the implementation."""


class ConformanceOutcome(Enum):
    """What is known at the end."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class ConformanceCoverage(msgspec.Struct, frozen=True):
    """`taken` of the `rows` that can be taken within the bounds of the role, state by state; `missed`: the others;
    `pathless`: rows of the table that none of its bounded systems takes; `pairs_taken` of `pairs` of rows that can
    follow each other; `unseparated`: rows after which some wrong state cannot be told from the right one; `inputs` in
    `runs`."""

    rows: int
    taken: int
    missed: tuple[Cell, ...]
    pathless: tuple[Cell, ...]
    pairs: int
    pairs_taken: int
    unseparated: int
    inputs: int
    runs: int
    is_whole: bool


class ConformanceVerdict(msgspec.Struct, frozen=True):
    """`outcome`; `coverage` (None: of a script alone); `why`: what was violated, or could not be judged; `moves`:
    inputs that repeat it."""

    outcome: ConformanceOutcome
    coverage: ConformanceCoverage | None = None
    violation: ConformanceViolation | None = None
    why: str = ""
    moves: tuple[Move, ...] = ()


class Campaign:
    """One implementation of a role under test.  `open_one` starts it; `tour`: that of the role, where it was made."""

    def __init__(self, role: ConformanceRole, open_one: Open, tour: Tour | None = None) -> None:
        self.role = role
        self._open = open_one
        self._tour = tour
        self.cells: set[Cell] = set()
        self.pairs: set[tuple[int, int]] = set()
        self.inputs = 0
        self.runs = 0
        self._has_left = False

    @cached_property
    def tour(self) -> Tour:
        """The tour of the role."""
        return tour_of(self.role) if self._tour is None else self._tour

    @property
    def graph(self) -> RoleGraph:
        """The states of the role."""
        return self.tour.graph

    def judge(self, runs: int = RUNS, seed: int = 0, *, tour: bool = True) -> ConformanceVerdict:
        """The tour, then so many runs of the search.  Raises `InterfaceError` for an implementation that does not keep
        to the interface."""
        made: list[Move] = []
        with self._open() as implementation:
            run = ConformanceRun(self.role, implementation)
            try:
                if tour:
                    self._play_tour(run, made)
                self._search(run, made, runs, seed)
                self._finish(implementation)
            except (Violated, ImplementationEnded) as error:
                if isinstance(error, ImplementationEnded) and run.inputs <= 1:
                    raise  # it never lived: there is nothing to judge
                if isinstance(error, Violated):
                    self._finish(implementation)  # a line too many may have come instead of the answer
                self._count(run, made)
                failed: Violated | ImplementationEnded = error
            except (Inconclusive, NoAnswer) as error:
                self._count(run, made)
                return ConformanceVerdict(
                    ConformanceOutcome.INCONCLUSIVE, self.coverage(), None, str(error), tuple(made)
                )
            else:
                self._count(run, made)
                return ConformanceVerdict(ConformanceOutcome.PASS, self.coverage())
        return self._failed(failed, tuple(made))

    def replay(self, moves: Iterable[Move]) -> ConformanceVerdict:
        """The verdict of these inputs alone, without a coverage."""
        made = tuple(moves)
        with self._open() as implementation:
            run = ConformanceRun(self.role, implementation)
            try:
                for move in made:
                    run.make(move)
                self._finish(implementation)
            except (Violated, ImplementationEnded) as error:
                return _make_verdict(error, made, None)
            except (Inconclusive, NoAnswer) as error:
                return ConformanceVerdict(ConformanceOutcome.INCONCLUSIVE, None, None, str(error), made)
        return ConformanceVerdict(ConformanceOutcome.PASS)

    def coverage(self) -> ConformanceCoverage:
        """What was taken so far, exactly."""
        fsm = self.role.fsm
        seen = (fsm, *fsm.children)  # a step shows no steps of children's children
        lines = ((one, line) for one in seen for line in one.lines if line.kind != "refuse")
        table = {(one.full_name, line.number, str(state.value)) for one, line in lines for state in line.sources}
        possible = self.graph.cells
        return ConformanceCoverage(
            len(possible),
            len(possible & self.cells),
            tuple(sorted(possible - self.cells)),
            tuple(sorted(table - possible - self.cells)),
            len(self.graph.pairs),
            len(self.graph.pairs & self.pairs),
            len(self.tour.unseparated),
            self.inputs,
            self.runs,
            self.graph.is_whole,
        )

    # -- inputs -------------------------------------------------------------------------------------------------

    def _play_tour(self, run: ConformanceRun, made: list[Move]) -> None:
        """The tour, and on its way each timer that the implementation has taken back, once in each state, late.  Where
        an answer is none that may come now, since the implementation has asked in another order, another instance
        begins.  An instance with timers that were due at one moment is played again, and they fire in the other
        order."""
        late: set[tuple[str, str]] = set()
        instance: list[Move] = []
        ties = run.ties
        for move in chain(self.tour, (Begin(0),)):
            if isinstance(move, Begin) and run.ties > ties:
                for again in instance:
                    self._play_move(run, made, Wait(again.ns, True) if isinstance(again, Wait) else again, late)
            if isinstance(move, Begin):
                instance, ties = [], run.ties
            instance.append(move)
            self._play_move(run, made, move, late)

    def _play_move(self, run: ConformanceRun, made: list[Move], move: Move, late: set[tuple[str, str]]) -> None:
        """A move of the tour, and the late timers after it."""
        self._has_left = not isinstance(move, Begin) and (
            self._has_left or (isinstance(move, FedInput) and not run.can_feed(move.event))
        )
        if self._has_left:
            return
        _make(run, made, move)
        if run.is_over:
            return
        status = str(run.states[0].record.status.value)
        for timer in run.late_timers():
            if (timer, status) not in late:
                late.add((timer, status))
                _make(run, made, Late(timer))

    def _search(self, run: ConformanceRun, made: list[Move], runs: int, seed: int) -> None:
        """Runs of drawn inputs, each without some kinds of events, steered to pairs of rows that were not taken."""
        if not runs:
            return
        from hypothesis import HealthCheck, Phase, given, settings
        from hypothesis import seed as seeded
        from hypothesis import strategies as st

        fsm = self.role.fsm
        kinds = [kind for kind in fsm.alphabet if not issubclass(kind, TimerFired)]
        failed: list[Exception] = []

        @seeded(seed)
        @settings(
            max_examples=runs,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(
            st.integers(0, len(self.role.starts) - 1),
            st.sets(st.sampled_from(kinds), max_size=len(kinds) - 1),
            st.lists(st.integers(0, CHOICES - 1), min_size=INPUTS_MAX // 2, max_size=INPUTS_MAX),
        )
        def play(start: int, without: set[type[Any]], choices: list[int]) -> None:
            if failed:
                return
            try:
                self._play(run, made, start, without, choices)
            except Exception as error:
                failed.append(error)  # Hypothesis would play it again; it is shortened here, by its own meaning

        play()
        if failed:
            raise failed[0]

    def _play(
        self, run: ConformanceRun, made: list[Move], start: int, without: set[type[Any]], choices: list[int]
    ) -> None:
        self.runs += 1
        _make(run, made, Begin(start))
        for choice in choices:
            if run.is_over:
                _make(run, made, Begin(start))
            moves = self._candidates(run, without, choice)
            _make(run, made, moves[choice // KINDS % len(moves)])

    def _candidates(self, run: ConformanceRun, without: set[type[Any]], choice: int) -> list[Move]:
        """What may come next.  Of eight times two time passes, or a timer fires late; else an event is said: twice one
        that makes a pair of rows which was not taken, three times one that changes the record and ends nothing, once
        any.  Now and then it is a drawn one."""
        record = run.states[0].record
        kind = choice % KINDS
        if kind < 2:
            tick_ns, due_ns = self.role.timing.tick_ns, run.next_due_ns()
            waits = [due_ns or tick_ns, (due_ns or tick_ns) // 2, tick_ns // 2, tick_ns, 3 * tick_ns]
            is_turned = bool(choice & TURNED)
            return [*(Wait(one, is_turned) for one in waits), *(Late(timer) for timer in run.late_timers())]
        told: Iterable[Event] = run.next_inputs()
        if choice % DRAWN == kind:
            told = chain(told, self._draw_events(record, choice, bool(run.states[0].world)))
        found = [(event, run.foresee(event)) for event in told if type(event) not in without]
        events = [(event, seen) for event, seen in found if seen is not None]
        preferred: list[Event] = []
        if kind < 4:
            taken = self.pairs | run.pairs
            preferred = [event for event, seen in events if min(seen.rows) >= 0 and seen.rows not in taken]
        elif kind < 7:
            preferred = [event for event, seen in events if seen.is_change and not seen.is_end]
        return [FedInput(event) for event in preferred or [event for event, _ in events]] or [
            Wait(self.role.timing.tick_ns)
        ]

    def _draw_events(self, record: Any, choice: int, is_answered: bool) -> Iterable[Event]:
        """Events of any values that the types allow, aimed at what the record holds; answers come from the services
        alone, where the kit plays them."""
        legal = self.role.legal or environment_of(self.role.fsm).legal
        for kind in self.role.interface.alphabet.takes:
            if is_answered and issubclass(kind, Answer):
                continue
            try:
                event: Event = draw_example(kind, Random(choice), Pool(record))
            except ValueRefused:
                continue
            if legal(record, event):
                yield event

    # -- verdicts -----------------------------------------------------------------------------------------------

    def _count(self, run: ConformanceRun, made: Iterable[Move]) -> None:
        self.cells |= run.cells
        self.pairs |= run.pairs
        self.inputs += run.inputs

    def _finish(self, implementation: Implementation) -> None:
        finish = getattr(implementation, "finish", None)
        if finish is not None:
            finish()

    def _failed(self, error: Violated | ImplementationEnded, made: tuple[Move, ...]) -> ConformanceVerdict:
        """The verdict, with the inputs that matter: those of the last instance, if they fail alone."""
        begins = [place for place, move in enumerate(made) if isinstance(move, Begin)]
        last = made[begins[-1] :] if begins else made
        replays = _Replays(self.role, self._open)
        try:
            moves = last if replays.fails(last) else made
            begin, rest = moves[:1], moves[1:]
            shorter = begin + leave_out(rest, lambda some: replays.fails(begin + some))
        finally:
            replays.close()
        verdict = self.replay(shorter)
        if verdict.outcome is ConformanceOutcome.FAIL:
            return replace(verdict, coverage=self.coverage())
        return _make_verdict(error, made, self.coverage())


def _make_verdict(
    error: Violated | ImplementationEnded, moves: tuple[Move, ...], coverage: ConformanceCoverage | None
) -> ConformanceVerdict:
    violation = error.violation if isinstance(error, Violated) else None
    return ConformanceVerdict(ConformanceOutcome.FAIL, coverage, violation, str(error), moves)


class _Replays:
    """Repetitions in one process, as long as that lives."""

    def __init__(self, role: ConformanceRole, open_one: Open) -> None:
        self._role = role
        self._open = open_one
        self._opened: AbstractContextManager[Implementation] | None = None
        self._run: ConformanceRun | None = None
        self._left = REPLAYS_MAX

    def fails(self, moves: tuple[Move, ...]) -> bool:
        """Whether these inputs still fail."""
        self._left -= 1
        if self._left < 0 or not moves:
            return False
        if self._run is None:
            self._opened = self._open()
            self._run = ConformanceRun(self._role, self._opened.__enter__())
        try:
            for move in moves:
                if not isinstance(move, Begin) and self._run.is_over:
                    break
                self._run.make(move)
        except Violated:
            return True
        except ImplementationEnded:
            self.close()
            return True
        except Exception:  # it cannot be judged, or keeps to no interface: another failure
            self.close()
        return False

    def close(self) -> None:
        """End the process."""
        if self._opened is not None:
            self._opened.__exit__(None, None, None)
        self._opened = self._run = None


def _make(run: ConformanceRun, made: list[Move], move: Move) -> None:
    made.append(move)
    run.make(move)

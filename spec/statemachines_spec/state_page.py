"""State page: a closed system, or a counterexample of it, as a page that is stepped through in a browser."""

from __future__ import annotations

from collections import deque
from typing import Final

from statemachines.step_page import BEYOND, NOWHERE, EntryNumbers, PageMove, PageState, PageStep, StepPage
from statemachines_spec.explorer.counterexample import describe_event
from statemachines_spec.explorer.explore import ExploredPath as Run
from statemachines_spec.explorer.moves import Move, Moves, State
from statemachines_spec.explorer.property import NO_ERROR, Always, combinations
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.system import System
from statemachines_spec.itf.state_values import StateValues

STATES_SHOWN: Final = 2_000
"""A page holds at most so many states: the counterexample's, then those nearest to the first."""

KINDS: Final = ("{to}: {event}", "{to} takes {event}", "{to} takes a copy of {event}", "{event} to {to} is lost")


def make_page(system: System, run: Run | None, verdict: tuple[str, str], states_max: int = STATES_SHOWN) -> StepPage:
    """The page of the system; with `run`, a counterexample, its way is marked.  `verdict`: in a word, and of what."""
    graph = _Graph(system, states_max)
    path = graph.add_run(run) if run is not None else []
    graph.add_nearest()
    states = [graph.state_of(state) for state in graph.numbers]
    return StepPage(
        system.name,
        f"{system.about}. {graph.describe_size()}",
        [*graph.components, *(one.name for one in system.spendable)],
        list(graph.texts),
        list(KINDS),
        list(graph.events),
        states,
        [{"name": one.name, "text": one.text} for one in system.over_states],
        path,
        run.broken if run is not None else "",
        verdict=verdict[0],
        sentence=verdict[1],
    )


class _Graph:
    """The states that the page holds; `numbers`: state -> its number, in order."""

    def __init__(self, system: System, states_max: int) -> None:
        self.values = StateValues(system)
        self.entries: Entries = self.values.entries
        self.moves: Moves = self.values.moves
        self.components = self.values.components
        self.states_max = states_max
        self.texts = EntryNumbers[str]()
        self.events = EntryNumbers[tuple[str, str]]()
        self.numbers: dict[State, int] = {self.moves.first(): 0}
        self.expanded: dict[State, list[Move]] = {}
        self.hits = [combinations(one) for one in system.over_states]

    def add_run(self, run: Run) -> list[PageStep]:
        """The states of a run, and its steps."""
        states = list(self.values.along(run.script))
        for state in states:
            self.numbers.setdefault(state, len(self.numbers))
        steps = []
        for number, (kind, digest, kept) in enumerate(run.script):
            moves = self.expanded.setdefault(states[number], list(self.moves.of(states[number])))
            place = next(
                place
                for place, one in enumerate(moves)
                if (one.action.kind.name.lower(), f"{self.entries.digests[one.action.event]:016x}", one.action.kept)
                == (kind, digest, kept)
            )
            target = moves[place].target
            taken = [step for turn in run.legs[number].turns for step in turn.steps if step.row >= 0]
            rows = [
                f"{one.machine} {one.instance}".strip() + f": {one.source} -> {one.dest}, row {one.row} [{one.clause}]"
                for one in taken
            ]
            steps.append(PageStep(place, NOWHERE if target is None else self.numbers[target], rows))
        return steps

    def add_nearest(self) -> None:
        """States by their distance from those that are there, until the page is full."""
        todo = deque(self.numbers)
        while todo:
            state = todo.popleft()
            if state not in self.expanded:
                self.expanded[state] = list(self.moves.of(state))
            for move in self.expanded[state]:
                if move.target is not None and move.target not in self.numbers and len(self.numbers) < self.states_max:
                    self.numbers[move.target] = len(self.numbers)
                    todo.append(move.target)

    def describe_size(self) -> str:
        """How many states the page holds, and whether these are all."""
        targets = (move.target for moves in self.expanded.values() for move in moves)
        is_whole = all(target is None or target in self.numbers for target in targets)
        return f"The page holds {'all ' if is_whole else 'the nearest '}{len(self.numbers):,} states."

    def state_of(self, state: State) -> PageState:
        """A state, as the page has it."""
        parts = zip(self.entries.components, state, strict=False)
        words = [one.actor.describe(one.locals[local]) for one, local in parts]
        budgets = [f"{left} left" for left in state[self.moves.width : self.moves.net]]
        flying = [self._event(one) for one in state[self.moves.net :] if one]
        moves = [self._move(move) for move in self.expanded[state]]
        return PageState([self.texts[text] for text in (*words, *budgets)], moves, flying, self._judge(state))

    def _move(self, move: Move) -> PageMove:
        target = NOWHERE if move.target is None else self.numbers.get(move.target, BEYOND)
        breaks = ""
        if move.broken:
            breaks = NO_ERROR if move.broken == 1 else self.entries.step_properties[move.broken - 2].name
        return PageMove(move.action.kind, self._event(move.action.event), target, breaks)

    def _event(self, number: int) -> int:
        envelope = self.entries.envelopes[number]
        return self.events[envelope.to, describe_event(envelope)]

    def _judge(self, state: State) -> str:
        """A letter for each property over states, as it stands."""
        found = ""
        for number, one in enumerate(self.entries.system.over_states):
            place, stride = 0, 1
            for view in one.views:
                component = self.entries.place[view.actor]
                place += self.entries.components[component].seen[state[component]][number] * stride
                stride *= view.size
            happens = self.hits[number][place]
            if one.quiet and state[self.moves.net]:
                found += "-"
            elif isinstance(one, Always):
                found += "x" if happens else "v"
            else:
                found += "v" if happens else "-"
        return found

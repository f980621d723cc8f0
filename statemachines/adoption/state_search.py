"""State search: every value that a machine can reach within bounds, breadth first, so a run that breaks it is shortest.

Each step is taken twice: once here, and once in a second search that goes through the values in the opposite order, in
another process under another hash seed where the factory can be imported there.  The first steps are taken twice here
as well: where a clock or an id is a part of the value, every step would make another state, and no search would end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from time import perf_counter
from typing import Final

import msgspec

from statemachines.adoption.expression import ModelProperty
from statemachines.adoption.model_step import ModelAction, ModelStepper, StepOutcome
from statemachines.adoption.model_value import ModelValue
from statemachines.adoption.trigger_arguments import UnexploredTrigger

Progress = Callable[[int, float], None]

TWICE_AT_ONCE: Final = 64
"""So many steps at the beginning are taken twice at once."""

AFTER_S: Final = 2.0
"""So long a search goes on after something broke, to see which rows are taken at all."""


class Bounds(msgspec.Struct, frozen=True):
    """Where the search ends: `within` are properties that every value has that is looked at."""

    within: tuple[ModelProperty, ...] = ()
    states_max: int = 100_000
    seconds: float = 60.0


class SearchStep(msgspec.Struct, frozen=True):
    """One step of a run: what happened, from which value, and what came of it; `fault`: what was done to it ("":
    nothing)."""

    action: ModelAction
    before: ModelValue
    outcome: StepOutcome
    fault: str = ""


class FoundViolation(msgspec.Struct, frozen=True):
    """What does not hold: its name, why, and a shortest run to it."""

    name: str
    why: str
    legs: tuple[SearchStep, ...]


class SearchResult(msgspec.Struct):
    """What a search has found.  `ended`: complete, states (too many), time, broken or interrupted."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    cut: int = 0
    """Steps that lead beyond `within`; those values are not looked at."""
    ended: str = "complete"
    broken: FoundViolation | None = None
    taken: set[int] = msgspec.field(default_factory=set)
    """Rows that ran."""
    odd: dict[str, int] = msgspec.field(default_factory=dict)
    """Remarkable things that are legal in transitions -> how often."""
    states_seen: set[str] = msgspec.field(default_factory=set)
    unexplored: tuple[UnexploredTrigger, ...] = ()
    changed: set[str] = msgspec.field(default_factory=set)
    """Parts of a value, by their labels, that are not in every state as at the beginning."""
    is_whole: bool = False
    """Every value within the bounds was looked at, also after something broke."""
    expected: dict[str, int] = msgspec.field(default_factory=dict)
    """Exceptions that --raises names -> how often."""


class _Seen(msgspec.Struct):
    value: ModelValue
    parent: int
    action: ModelAction | None
    depth: int


class StateSearch:
    """A search of one machine; `record` is called with every step: the value, the action, what came of it."""

    def __init__(
        self,
        stepper: ModelStepper,
        calls: tuple[ModelAction, ...],
        properties: tuple[ModelProperty, ...],
        bounds: Bounds,
        *,
        raises: frozenset[str] = frozenset(),
        backwards: bool = False,
        record: Callable[[ModelValue, ModelAction, StepOutcome], None] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._stepper = stepper
        self._calls = calls
        self._properties = properties
        self._bounds = bounds
        self._raises = raises
        self._backwards = backwards
        self._record = record
        self._progress = progress
        self._seen: list[_Seen] = []
        self._numbers: dict[bytes, int] = {}
        self._legs: dict[tuple[int, int], SearchStep] = {}
        self.found = SearchResult(expected=dict.fromkeys(sorted(raises), 0))

    def run(self) -> SearchResult:
        """Search until everything is found, something breaks, or a bound is reached."""
        with self._stepper.install():
            try:
                self._search()
            except KeyboardInterrupt:
                self.found.ended = "interrupted"
        self.found.states = len(self._seen)
        return self.found

    def value_of(self, number: int) -> ModelValue:
        """A value by its number, in the order of finding."""
        return self._seen[number].value

    def _search(self) -> None:
        self._until = perf_counter() + self._bounds.seconds
        stepper = self._stepper
        first = stepper.initial
        self._first = set(first.parts)
        self._add(first, -1, None, 0)
        self._judge(first, ())
        level = [0]
        while level:
            following: list[int] = []
            for number in reversed(level) if self._backwards else level:
                one = self._seen[number]
                actions = list(stepper.actions_in(one.value, self._calls))
                for action in reversed(actions) if self._backwards else actions:
                    if not self._take(number, action, following):
                        return
            level = following
        self.found.is_whole = True

    def _take(self, number: int, action: ModelAction, following: list[int]) -> bool:
        """One step; whether the search goes on."""
        found, one = self.found, self._seen[number]
        if perf_counter() > self._until:
            return self._stop("time")
        outcome = self._stepper.step(one.value, action)
        if found.steps < TWICE_AT_ONCE and not self._backwards:
            self._stepper.compare(one.value, action, outcome, self._stepper.step(one.value, action))
        if self._record is not None:
            self._record(one.value, action, outcome)
        found.steps += 1
        if self._progress is not None and found.steps % 256 == 0:
            self._progress(len(self._seen), float(found.steps))
        found.kinds[outcome.kind] += 1
        found.taken.update(row for row, *_ in outcome.rows if row >= 0)
        self._note(outcome, one.value)
        if outcome.kind == "raised":
            if outcome.error_type not in self._raises:
                why = outcome.error.removeprefix(f"{outcome.error_type}: ") or "it says nothing"
                self._break(f"raises {outcome.error_type}", why, number, action, outcome)
            else:
                found.expected[outcome.error_type] += 1
        if outcome.value.code in self._numbers:
            return True
        if self._is_beyond(outcome.value):
            found.cut += 1
            return True
        if len(self._seen) >= self._bounds.states_max:
            return self._stop("states")
        following.append(self._add(outcome.value, number, action, one.depth + 1))
        self._judge(outcome.value, (number, action, outcome))
        return True

    def _stop(self, why: str) -> bool:
        if self.found.broken is None:
            self.found.ended = why
        return False

    def _note(self, outcome: StepOutcome, before: ModelValue) -> None:
        """Legal, and worth a line."""
        if outcome.kind in ("refused", "nothing") and outcome.value.code != before.code:
            how = "refused" if outcome.kind == "refused" else "that took no row"
            text = f"steps {how} changed attributes all the same"
            self.found.odd[text] = self.found.odd.get(text, 0) + 1
        for row, _, _, source, dest in outcome.rows:
            declared = self._stepper.rows[row] if row >= 0 else None
            if declared is not None and declared.dest and self._is_flat(declared.machine) and declared.source != source:
                text = f"row {row} ({declared.label}) ran from {source}, where a callback had gone"
                self.found.odd[text] = self.found.odd.get(text, 0) + 1
            del dest

    def _is_flat(self, machine: int) -> bool:
        return not hasattr(self._stepper.first.machines[machine], "prefix_path")

    def _add(self, value: ModelValue, parent: int, action: ModelAction | None, depth: int) -> int:
        number = self._numbers[value.code] = len(self._seen)
        self._seen.append(_Seen(self._stepper.detach(value), parent, action, depth))
        self.found.depth = max(self.found.depth, depth)
        self.found.states_seen.update(self._stepper.state_texts(value))
        self.found.changed.update(label for label, _ in set(value.parts) - self._first)
        return number

    def _is_beyond(self, value: ModelValue) -> bool:
        return any(self._find_broken(one, value) is not None for one in self._bounds.within)

    def _find_broken(self, one: ModelProperty, value: ModelValue) -> int | None:
        with self._stepper.sandbox.enclose():
            return one.find_broken(value.origin)

    def _judge(self, value: ModelValue, by: tuple[int, ModelAction, StepOutcome] | tuple[()]) -> None:
        """Look whether a property breaks here, unless one has broken before."""
        for one in self._properties if self.found.broken is None else ():
            place = self._find_broken(one, value)
            if place is None:
                continue
            model = self._stepper.first.name_model(place) if place >= 0 else ""
            why = f"does not hold{f' for {model}' if model else ''}{'' if by else ' at the beginning'}"
            if by:
                self._break(one.name, why, *by)
            else:
                self._end(FoundViolation(one.name, why, ()))
            return

    def _break(self, name: str, why: str, number: int, action: ModelAction, outcome: StepOutcome) -> None:
        if self.found.broken is not None:
            return
        legs = [SearchStep(action, self._seen[number].value, outcome)]
        while self._seen[number].action is not None:
            one = self._seen[number]
            assert one.action is not None
            before = self._seen[one.parent].value
            legs.append(SearchStep(one.action, before, self._stepper.step(before, one.action)))
            number = one.parent
        self._end(FoundViolation(name, why, tuple(reversed(legs))))

    def _end(self, broken: FoundViolation) -> None:
        self.found.broken = broken
        self.found.ended = "broken"
        self._until = min(self._until, perf_counter() + AFTER_S)


class StepDigests:
    """(value, action) -> what came of it, as digests: what a search and a second one must agree on."""

    def __init__(self) -> None:
        self.made: dict[bytes, bytes] = {}
        self.where: dict[bytes, tuple[ModelValue, ModelAction]] = {}

    def record(self, value: ModelValue, action: ModelAction, outcome: StepOutcome) -> None:
        """Keep one step."""
        key = step_key(value, action)
        self.made[key] = digest(outcome.code)
        self.where[key] = value, action

    def find_differing(self, other: dict[bytes, bytes]) -> Iterator[bytes]:
        """The steps that came out differently in the other search, among those that both have taken."""
        return (key for key, made in self.made.items() if other.get(key, made) != made)


def step_key(value: ModelValue, action: ModelAction) -> bytes:
    """What identifies a step."""
    said = f"{action.machine} {action.model} {action.call}".encode("utf-8", "surrogatepass")
    return digest(value.code + b"\0" + said)


def digest(data: bytes) -> bytes:
    """Sixteen bytes that stand for many."""
    return blake2b(data, digest_size=16).digest()

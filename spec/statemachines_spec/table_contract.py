"""TableContract: what a machine owes, as a table of the phases in which its counterpart sees it.

A row binds the machine in its phases `on` an event, and says what it owes then; the first row that fits counts.  Clocks
say in which phases the machine's timers are set, and for how long.  A last row `on=object` is for what it does not wait
for: calls are made only where another row binds it, and a timer fires by itself where its clock runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Call, Stop
from statemachines_spec.contract import Counterpart, Rule

OVER = "over"
"""The phase of a machine that has come to its end."""


class TableFacts(msgspec.Struct, frozen=True, gc=False):
    """The phase, and how many ticks each clock has run.  A contract that needs more adds its facts."""

    phase: str = "new"
    passed: tuple[int, ...] = ()


def say_nothing(known: Any, event: Any) -> tuple[Any, ...]:
    """What is owed where nothing is to be said."""
    return ()


class Duty(NamedTuple):
    """In these `phases` ("": in every one), `on` an event, if `when(known, event)`, the rule `name` binds the machine.
    Then it is in phase `to` ("": in the same), `then(known, event)` is known, and of that and the event `said` gives
    what it must say; or `step(known, event)` gives both.  Rows of one rule share the clause and text of its first."""

    name: str
    clause: str
    text: str
    on: Any
    phases: str = ""
    said: Callable[[Any, Any], tuple[Any, ...]] = say_nothing
    to: str = ""
    when: Callable[[Any, Any], bool] = lambda known, event: True
    then: Callable[[Any, Any], Any] = lambda known, event: known
    step: Callable[[Any, Any], tuple[Any, tuple[Any, ...]]] | None = None

    def fits(self, kind: type[Any], phase: str) -> bool:
        """Whether it is about an event of this kind in this phase."""
        return issubclass(kind, self.on) and (not self.phases or phase in self.phases.split())


class PhaseClock(NamedTuple):
    """A timer that fires as `on` ((): it only counts).  It runs in these `phases`, and is due after so many `ticks`; if
    it is late, `rule` is broken ("": none).  It begins anew when it fires, when its phases are entered, and `anew`."""

    on: Any
    phases: str
    ticks: int
    rule: str
    anew: Callable[[Any, Any], bool] = lambda known, event: False

    def runs(self, phase: str) -> bool:
        """Whether it runs in this phase."""
        return phase in self.phases.split()


class TableContract(Counterpart):
    """A counterpart that says `words`, calls among them only in the phases `mute`, and judges by rows and clocks."""

    owes, ends = "OWES", "OWES an end"

    def __init__(
        self,
        rows: Sequence[Duty],
        clocks: Sequence[PhaseClock] = (),
        words: Sequence[Any] = (),
        facts: TableFacts | None = None,
        mute: str = "",
        idle: tuple[str, ...] = (),
    ) -> None:
        self.clocks, self.words, self.mute = clocks, words, mute.split()
        self.facts = replace(facts or TableFacts(), passed=(0,) * len(clocks))
        self.rows: Callable[[Any, str], list[Duty]] = cache(
            lambda kind, phase: [row for row in rows if row.fits(kind, phase)]
        )
        first = {row.name: row for row in reversed(rows)}
        self.names = list(dict.fromkeys(row.name for row in rows))
        super().__init__(tuple(self.make_rule(first[name]) for name in self.names), idle)

    def make_rule(self, first: Duty) -> Rule:
        """The rule of all rows that have its name."""

        def when(known: Any, event: Any) -> bool:
            row = self.find_row(known, event)
            return row is not None and row.name == first.name

        def keeps(known: Any, event: Any, said: tuple[Any, ...]) -> bool:
            ran = zip(self.clocks, known.passed, strict=True)
            is_early = any(isinstance(event, one.on) and ticks != one.ticks for one, ticks in ran)
            is_in_time = not is_early or not self.is_wanted(known, event)
            return is_in_time and self.read_said(known, said) == self.expect(known, event)[1]

        return Rule(first.name, first.clause, first.text, when, keeps)

    def find_row(self, known: Any, event: Any) -> Duty | None:
        """The row that binds the machine."""
        return next((row for row in self.rows(type(event), known.phase) if row.when(known, event)), None)

    def is_wanted(self, known: Any, event: Any) -> bool:
        """Whether the machine waits for it."""
        row = self.find_row(known, event)
        return row is not None and row.on is not object

    def expect(self, known: Any, event: Any) -> tuple[Any, tuple[Any, ...]]:
        """What is known when the machine has taken the event, but for its clocks, and what it must have said."""
        row = self.find_row(known, event)
        if row is None:
            return known, ()
        if row.step is not None:
            then, said = row.step(known, event)
        else:
            then = row.then(known, event)
            then = replace(then, phase=row.to or then.phase)
            said = row.said(then, event)
        return replace(self.facts, phase=OVER) if Stop() in said else then, said

    def read_said(self, known: Any, said: tuple[Any, ...]) -> tuple[Any, ...]:
        """What was said as rows have it, where the machine is free to choose some of it."""
        return said

    def begins(self) -> Any:
        return self.facts

    def says(self, known: Any) -> Iterable[Any]:
        return (word for word in self.words if known.phase != OVER and self.can_say(known, word))

    def can_say(self, known: Any, word: Any) -> bool:
        """Whether the counterpart says this now."""
        if isinstance(word, Call):
            return self.is_wanted(known, word)
        is_set = any(isinstance(word, one.on) and one.runs(known.phase) for one in self.clocks)
        return not is_set and known.phase not in self.mute

    def learns(self, known: Any, event: Any, said: tuple[Any, ...]) -> Any:
        if not self.is_wanted(known, event):
            return known
        then = self.expect(known, event)[0]
        return replace(then, passed=tuple(self._count(known, then, event)))

    def _count(self, known: Any, then: TableFacts, event: Any) -> Iterator[int]:
        for one, ticks in zip(self.clocks, then.passed, strict=True):
            goes_on = one.runs(known.phase) and one.runs(then.phase)
            yield ticks if goes_on and not isinstance(event, one.on) and not one.anew(known, event) else 0

    def ages(self, known: Any, ticks: int) -> Any:
        ran = zip(self.clocks, known.passed, strict=True)
        passed = (min(now + ticks, one.ticks + bool(one.rule)) if one.runs(known.phase) else 0 for one, now in ran)
        return replace(known, passed=tuple(passed))

    def is_late(self, known: Any) -> int:
        late = (one.rule for one, now in zip(self.clocks, known.passed, strict=True) if now > one.ticks)
        return next((self.names.index(name) + 1 for name in late), 0)

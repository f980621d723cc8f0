"""SystemTest: Hypothesis drives a closed system of the explorer, and its properties are the invariants.

    TestCrash = SystemTest.of(systems.system("borrower-crash", "small")).TestCase     # unittest and pytest run it

The rules are the moves of the system: hand a message over, or a copy of it, lose it, hold it back; fire a timer; what a
host calls; a process crashes, restarts, stands still, goes on.  Every run draws its swarm first: which rules there are
(Hypothesis does), which events do not happen in it, how long messages are held back (most not at all, a few for very
long).  Between troubles the system makes some untroubled moves.

What breaks is shrunk by Hypothesis, then its script by its own meaning; it is told like a counterexample of the
explorer, with a test to paste.  Properties that must happen sometimes are collected in `shown`.

EntryCount: which entries of a bounded system were taken by runs of it, of how many there are.

An entry is a tabulated (local state, event) pair.  The denominator is exact: the system is explored, and what has an
outcome within its bounds counts; what cannot happen in its state (a message waits for a process that stands still), or
leads beyond the bounds, does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.control import current_build_context
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from statemachines.kernel import ConfigurationError
from statemachines.testing.closed_run import (
    CALL,
    CRASH,
    DELIVER,
    DROP,
    DUPLICATE,
    FIRE,
    KINDS,
    PAUSE,
    RESTART,
    WAKE,
    Choice,
    ClosedRun,
    MessageFate,
    Pair,
    SharedSystem,
    broken_type,
    pair_digest,
    shorten,
    tell_story,
)
from statemachines.testing.closed_run import PropertyBroken as PropertyBroken
from statemachines_spec.explorer.entry_tables import CUT, WAITS
from statemachines_spec.explorer.explore import COMPLETE, VIOLATED, explore
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.system import System

COUNTS: dict[str, EntryCount] = {}
"""By name, those that `counted` made: for whoever prints them at the end."""


class EntryCount:
    """`name`; `components` in order; `tabulated` and `taken`: entries by component; `besides`: entries without an
    outcome; `takes`: how many runs have told."""

    def __init__(self, name: str, system: System) -> None:
        """Explore `system`.  Raises `ConfigurationError` for one whose bounds are not reached."""
        entries = Entries(system)
        result = explore(system, hashing=False, entries=entries)
        if result.ended not in (COMPLETE, VIOLATED):
            raise ConfigurationError("system", system.name, "is too large to be explored: its entries are not known")
        self.name = name
        self.takes = 0
        self.components = tuple(actor.name for actor in system.actors)
        self.tabulated: tuple[set[int], ...] = tuple(set() for _ in self.components)
        self.taken: tuple[set[int], ...] = tuple(set() for _ in self.components)
        self.besides = 0
        for (event, local), entry in zip(entries.pairs, entries.entries, strict=True):
            if entry.local in (WAITS, CUT):
                self.besides += 1
            else:
                self.tabulated[entries.dest[event]].add(pair_digest(entries, event, local))

    def take(self, pairs: Iterable[Pair]) -> None:
        """A run took these entries."""
        self.takes += 1
        for component, pair in pairs:
            self.taken[component].add(pair)

    @property
    def unknown(self) -> int:
        """Taken by a run, and not seen by the exploration: 0, or one of the two is wrong."""
        return sum(len(taken - known) for taken, known in zip(self.taken, self.tabulated, strict=True))

    def sizes(self) -> dict[str, tuple[set[int], int]]:
        """By component: the entries taken, and how many there are."""
        three = zip(self.components, self.taken, self.tabulated, strict=True)
        return {name: (taken, len(known)) for name, taken, known in three}


def count_entries(name: str, system: System) -> EntryCount:
    """The count of that name, printed at the end of a test run; made once."""
    if name not in COUNTS:
        COUNTS[name] = EntryCount(name, system)
    return COUNTS[name]


def format_entries(name: str, by_component: dict[str, tuple[int, int]]) -> str:
    """Taken and tabulated entries, all together and by component."""
    taken, known = (sum(pair[place] for pair in by_component.values()) for place in (0, 1))
    parts = ", ".join(f"{component} {some} of {all_}" for component, (some, all_) in by_component.items())
    return (
        f"{name}: {group_digits(taken)} of {group_digits(known)} ({100 * taken // known if known else 100} %): {parts}"
    )


def group_digits(number: int) -> str:
    """An integer in groups of three digits."""
    return f"{number:,}".replace(",", " ")


NUMBER = st.integers(0, 63)
FATES = st.dictionaries(
    st.integers(0, 30),
    st.sampled_from(
        (
            MessageFate(DUPLICATE, 200),
            MessageFate(DUPLICATE, 5),
            MessageFate(DELIVER, 200),
            MessageFate(DELIVER, 20),
            MessageFate(DELIVER, 3),
            MessageFate(DROP),
        )
    ),
    max_size=5,
)
"""What becomes in calm of some messages of a run, by number: few are held back, and some of these for very long."""

ORDER = st.integers(0, 255)
CALM = st.sampled_from((0, 5, 20, 50, 150))
LONG = st.sampled_from((2, 5, 10, 20, 50, 200))
BITS = st.integers(0, 2**KINDS - 1)


Rule = Callable[..., Any]


def can(*sorts: str) -> Callable[[Rule], Rule]:
    """The rule is there when something of these sorts can happen in this run."""
    return precondition(lambda self: bool(self.some(*sorts)))


class SystemTest(RuleBasedStateMachine):
    """A closed system under test; make a class of it with `SystemTest.of`.

    `moves`: made by all runs so far; `shown`: what has happened of that which must happen sometimes; `explain`: what
    breaks is shortened and told.
    """

    closed: ClassVar[SharedSystem]
    count: ClassVar[EntryCount | None] = None
    moves: ClassVar[int] = 0
    shown: ClassVar[set[str]] = set()
    explain: ClassVar[bool] = True

    @classmethod
    def of(cls, system: System, *, count: EntryCount | None = None) -> type[SystemTest]:
        """A test of `system`; `count` is told which entries its runs take.

        A class keeps the entries it has met: with a planted bug, make one inside the block, and use it only there.
        Raises `ConfigurationError` for a bad system.
        """
        name = "".join(part.title() for part in system.name.replace("-", " ").split())
        space: dict[str, Any] = {
            "closed": SharedSystem(system),
            "count": count,
            "shown": set(),
            "__doc__": f"{system.name}: {system.about}",
        }
        kind = type(f"{name}SystemTest", (cls,), space)
        kind.TestCase.settings = CLOSED  # type: ignore[attr-defined]
        return kind

    @initialize(fates=FATES, rare=BITS, off=BITS, never=BITS, order=ORDER, calm=CALM)
    def begin(self, fates: dict[int, MessageFate], rare: int, off: int, never: int, order: int, calm: int) -> None:
        """The swarm of this run, and a calm beginning; as bits: `rare`: sorts of events that calm puts off, `off`:
        those that only calm knows, or nobody in this run if they are rare."""
        self.off = off
        self.play = ClosedRun(self.closed, fates, rare=rare, never=rare & off & never, order=order)
        self._calm(calm)

    # -- what may happen ----------------------------------------------------------------------------------------

    @rule(moves=st.sampled_from((1, 2, 5, 20, 40)))
    def calm(self, moves: int) -> None:
        """Some untroubled moves."""
        self._calm(moves)

    @can(DELIVER)
    @rule(number=NUMBER)
    def deliver(self, number: int) -> None:
        """A message is handed over, whichever."""
        self._take(number, DELIVER)

    @can(DUPLICATE)
    @rule(number=NUMBER, moves=LONG)
    def duplicate(self, number: int, moves: int) -> None:
        """A copy of a message is handed over; the message itself is held back."""
        self.play.hold_back(self._take(number, DUPLICATE).event, moves)

    @can(DROP)
    @rule(number=NUMBER)
    def drop(self, number: int) -> None:
        """A message is lost."""
        self._take(number, DROP)

    @can(DELIVER)
    @rule(number=NUMBER, moves=LONG)
    def hold_back(self, number: int, moves: int) -> None:
        """A message comes late."""
        arrived = self.some(DELIVER)
        self.play.hold_back(arrived[number % len(arrived)].event, moves)

    @precondition(lambda self: self.play.held)
    @rule()
    def let_go(self) -> None:
        """What is held back may come."""
        self.play.let_go()

    @can(FIRE)
    @rule(number=NUMBER)
    def fire(self, number: int) -> None:
        """A timer that is set, whichever."""
        self._take(number, FIRE)

    @can(CALL)
    @rule(number=NUMBER)
    def call(self, number: int) -> None:
        """A host or its environment does something."""
        self._take(number, CALL)

    @can(CRASH)
    @rule(number=NUMBER)
    def crash(self, number: int) -> None:
        """A process is gone."""
        self._take(number, CRASH)

    @can(RESTART)
    @rule(number=NUMBER)
    def restart(self, number: int) -> None:
        """A process comes back."""
        self._take(number, RESTART)

    @can(PAUSE)
    @rule(number=NUMBER)
    def pause(self, number: int) -> None:
        """A process stands still."""
        self._take(number, PAUSE)

    @can(WAKE)
    @rule(number=NUMBER)
    def wake(self, number: int) -> None:
        """Time passes for a process that stands still, or it goes on."""
        self._take(number, WAKE)

    # -- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def no_property_is_broken(self) -> None:
        """As the explorer judges: every step, and every state after it."""
        play = getattr(self, "play", None)
        if play is None or not play.broken:
            return
        name, script = play.broken[0], tuple(play.script)
        if self.explain and current_build_context().is_final:
            script = shorten(self.closed, script, name)
            raise broken_type(name)(f"{name}\n\n{tell_story(self.closed.system, script)}")
        raise broken_type(name)(f"{name} breaks after {len(script)} moves")

    def teardown(self) -> None:
        """What this run has seen is counted."""
        play = getattr(self, "play", None)
        if play is not None:
            type(self).moves += len(play.script)
            self.shown.update(play.shown)
            if self.count is not None:
                self.count.take(play.pairs)

    # -- inside -------------------------------------------------------------------------------------------------

    def some(self, *sorts: str) -> list[Choice]:
        """What of these sorts can happen in this run."""
        if self.play.broken:
            return []
        return [
            choice for choice in self.play.choices(*sorts) if choice.sort == DELIVER or not self.off >> choice.kind & 1
        ]

    def _take(self, number: int, *sorts: str) -> Choice:
        choices = self.some(*sorts)
        choice = choices[number % len(choices)]
        self.play.take(choice, number // len(choices))
        return choice

    def _calm(self, moves: int) -> None:
        for _ in range(moves):
            if self.play.broken or not self.play.calm():
                return


CLOSED = settings(
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    stateful_step_count=40,
    report_multiple_bugs=False,
    verbosity=Verbosity.quiet,  # the counterexample says it better than the draws
    suppress_health_check=list(HealthCheck),
)
"""What a test of a closed system needs; a profile with more examples makes a soak of it."""

"""EntryCount: which entries of a bounded system were taken by runs of it, of how many there are.

An entry is a tabulated (local state, event) pair.  The denominator is exact: the system is explored, and what has an
outcome within its bounds counts; what cannot happen in its state (a message waits for a process that stands still), or
leads beyond the bounds, does not.
"""

from __future__ import annotations

from collections.abc import Iterable

from statemachines.kernel import ConfigurationError
from statemachines.testing.closed_run import Pair, pair_digest
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.entry_tables import CUT, WAITS
from statemachines_spec.explorer.explore import COMPLETE, VIOLATED, explore
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

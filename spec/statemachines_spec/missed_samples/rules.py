"""Rules: how the subscriber of a system recovers: by the shipped machine, or by the words of the source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Effects, Event, Fsm
from statemachines.missed_samples.source_record import with_asking
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines_spec.explorer.actor import Watch
from statemachines_spec.explorer.party import Party, begin, list_firings, step_party

Places = tuple[tuple[int, ...], ...]
"""Of each source the numbers of the queries in its places (0: none was there)."""


class SampleRules:
    """As they are shipped."""

    counts = True
    """What is dropped is counted."""
    machines: tuple[Fsm[Any], ...] = (SUBSCRIBER,)
    """The machines that take the steps."""

    def begin(self, record: Any) -> Party:
        """A subscriber that has just been made."""
        return begin(SUBSCRIBER, record)

    def firings(self, party: Party, silent: frozenset[str]) -> Iterator[Event]:
        """The timers that may fire."""
        return list_firings(SUBSCRIBER, party, silent)

    def step(self, party: Party, event: Event, name: str, watch: Watch | None) -> tuple[Party, Effects]:
        """One step."""
        return step_party(SUBSCRIBER, party, event, name, watch)

    def keeps(self, record: Any, source: str) -> bool:
        """Whether something is known of the source."""
        return source in record.sources

    def count_dropped(self, record: Any, source: str) -> int:
        """How many samples of a source were dropped."""
        found = record.sources.get(source)
        return 0 if found is None else int(found.dropped)

    def count_turned_away(self, record: Any) -> int:
        """How many samples, heartbeats and tokens found no place."""
        return int(record.turned_away)

    def renumber_queries(self, record: Any, sources: tuple[str, ...], places: Places) -> tuple[Any, Places]:
        """The record and the places with queries numbered anew: of each source those that are open are 2, 3, ..., and
        all before them 1; with nothing dropped, and nobody turned away."""
        kept, found = record.sources, []
        for source, numbers in zip(sources, places, strict=True):
            one = kept.get(source)
            windows = () if one is None else one.windows
            names = {n: 2 + at for at, n in enumerate(sorted(window.n for window in windows))}
            newest = record.queries if one is None else one.query_n
            found.append(tuple(names.get(n, _number(n, newest)) for n in numbers))
            if one is not None:
                windows = tuple(replace(window, n=names[window.n]) for window in windows)
                query_n = 1 + len(windows) if one.query_n else 0
                kept = kept.set(source, with_asking(replace(one, query_n=query_n, dropped=0), windows=windows))
        queries = 1 if record.queries else 0
        return replace(record, sources=kept, queries=queries, turned_away=0), tuple(found)


def _number(n: int, newest: int) -> int:
    """What the number of a query becomes that is over: one that cannot be, 9."""
    if n == 0 or n > newest:
        return 9 if n else 0
    return 1


SHIPPED = SampleRules()

"""Rules: how the subscriber of a system recovers: by the shipped machine, or by the words of the source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Effects, Event, Fsm
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines_spec.explorer.actor import Watch
from statemachines_spec.explorer.party import Party, begin, firings, stepped

Places = tuple[tuple[int, int, int], ...]
"""Of each source the numbers of the queries in its two places, and which of them was taken last."""


class Rules:
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
        return firings(SUBSCRIBER, party, silent)

    def step(self, party: Party, event: Event, name: str, watch: Watch | None) -> tuple[Party, Effects]:
        """One step."""
        return stepped(SUBSCRIBER, party, event, name, watch)

    def keeps(self, record: Any, source: str) -> bool:
        """Whether something is known of the source."""
        return source in record.sources

    def dropped(self, record: Any, source: str) -> int:
        """How many samples of a source were dropped."""
        found = record.sources.get(source)
        return 0 if found is None else int(found.dropped)

    def turned_away(self, record: Any) -> int:
        """How many samples, heartbeats and tokens found no place."""
        return int(record.turned_away)

    def renumbered(self, record: Any, sources: tuple[str, ...], places: Places) -> tuple[Any, Places]:
        """The record and the places with queries numbered anew: of each source the last is 2, and all before it 1; with
        nothing dropped, and nobody turned away."""
        kept, found = record.sources, []
        for source, (first, second, last) in zip(sources, places, strict=True):
            one = kept.get(source)
            newest = record.queries if one is None else one.query_n
            found.append((_number(first, newest), _number(second, newest), last))
            if one is not None:
                kept = kept.set(source, replace(one, query_n=2, dropped=0))
        queries = 2 if record.queries else 0
        return replace(record, sources=kept, queries=queries, turned_away=0), tuple(found)


def _number(n: int, newest: int) -> int:
    """What the number of a query becomes, where the newest becomes 2: a later one, which cannot be, 3."""
    if n == 0 or n > newest:
        return 3 if n else 0
    return 2 if n == newest else 1


SHIPPED = Rules()

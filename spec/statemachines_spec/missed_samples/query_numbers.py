"""Query numbers: a record whose queries are numbered anew, so that states that differ only in such numbers are one."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.missed_samples.source_record import with_asking
from statemachines.missed_samples.subscriber_record import SubscriberRecord

Places = tuple[tuple[int, ...], ...]
"""Of each source the numbers of the queries in its places (0: none was there)."""


def renumber_queries(
    record: SubscriberRecord, sources: tuple[str, ...], places: Places
) -> tuple[SubscriberRecord, Places]:
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

"""As written: a subscriber that recovers by the words of the source, where they lose samples, repeat them or stall.

What differs from the shipped machine: a sample that is not the expected one is stored, and asked for from the last to
its own, whatever it is; the replies of a query are sorted and passed on when it ends, then what is pending; what is
still missing is logged, and that is all.  Nobody waits for a query that never ends, and none is asked again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Effect, Effects, Event, Tell
from statemachines.missed_samples.message import QUERY, Deliver, Missed, Query, QueryEnded, Sample
from statemachines_spec.explorer.actor import Watch
from statemachines_spec.explorer.party import Party
from statemachines_spec.missed_samples.rules import Places, SampleRules


class SourceAsWritten(msgspec.Struct, frozen=True, gc=False):
    """One source: the `last` that was passed on (-1: none), what is `pending` (sorted), and whether a query is open."""

    last: int = -1
    known: bool = False
    pending: tuple[int, ...] = ()
    open: bool = False


class SampleRecordAsWritten(msgspec.Struct, frozen=True, gc=False):
    """`lines` by source, sorted."""

    lines: tuple[tuple[str, SourceAsWritten], ...] = ()


class SampleRulesAsWritten(SampleRules):
    """The source, word for word."""

    counts = False
    machines = ()

    def begin(self, record: Any) -> Party:
        return Party(SampleRecordAsWritten())

    def firings(self, party: Party, silent: frozenset[str]) -> Iterator[Event]:
        return iter(())

    def step(self, party: Party, event: Event, name: str, watch: Watch | None) -> tuple[Party, Effects]:
        record: SampleRecordAsWritten = party.record
        if not isinstance(event, Sample | QueryEnded):
            return party, ()
        line = dict(record.lines).get(event.source, SourceAsWritten())
        line, effects = _sample(line, event) if isinstance(event, Sample) else _end(line, event)
        lines = tuple(sorted({**dict(record.lines), event.source: line}.items(), key=lambda pair: pair[0]))
        return Party(SampleRecordAsWritten(lines)), tuple(effects)

    def keeps(self, record: Any, source: str) -> bool:
        return source in dict(record.lines)

    def count_turned_away(self, record: Any) -> int:
        return 0

    def renumber_queries(self, record: Any, sources: tuple[str, ...], places: Places) -> tuple[Any, Places]:
        return record, places


def _sample(line: SourceAsWritten, event: Sample) -> tuple[SourceAsWritten, list[Effect]]:
    if not line.known:
        return SourceAsWritten(event.last, True), [Tell(Deliver(event.source, event.first, event.last))]
    if line.open:
        numbers = {*line.pending, *range(event.first, event.last + 1)}
        return replace(line, pending=tuple(sorted(numbers))), []
    if event.first == line.last + 1:
        return replace(line, last=event.last), [Tell(Deliver(event.source, event.first, event.last))]
    pending = tuple(range(event.first, event.last + 1))
    return replace(line, pending=pending, open=True), [Ask(QUERY, Query(event.source, 1, line.last + 1))]


def _end(line: SourceAsWritten, event: QueryEnded) -> tuple[SourceAsWritten, list[Effect]]:
    """What came is passed on; what is still missing is logged."""
    effects: list[Effect] = []
    for number in line.pending:
        if number > line.last + 1:
            effects.append(Tell(Missed(event.source, line.last + 1, number - 1)))
        effects.append(Tell(Deliver(event.source, number, number)))
        line = replace(line, last=max(line.last, number))
    return replace(line, pending=(), open=False), effects


AS_WRITTEN = SampleRulesAsWritten()

"""Streams: the streams of a segment, read once from its rows."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np

from statemachines.missed_samples import source
from statemachines_reports.columns import STEPS, Columns
from statemachines_reports.missed_samples.stream import DELIVER, GONE, MISSED, QUERY, SampleStream
from statemachines_reports.protocol import Parameters, Segment

SUBSCRIBER, SOURCE = "missed_samples/subscriber", "missed_samples/source"
DOUBTS = frozenset(number for number, line in enumerate(source.SOURCE.lines) if line.clause == "MS-70")
"""The rows of the table of a Source by which a number counts for nothing, being too far ahead."""


def pending_of(parameters: Parameters) -> int | None:
    """How many numbers a subscriber of the run holds, by its settings (`Recovery.pending`); None: nobody tells, as of a
    real run."""
    settings = parameters.get("settings")
    recovery = settings.get("recovery") if isinstance(settings, dict) else None
    pending = recovery.get("pending") if isinstance(recovery, dict) else None
    return pending if isinstance(pending, int) else None


class SampleStreams:
    """`found`: (run, stream), in the order in which they end."""

    def __init__(self, columns: Columns, parameters: Callable[[int], Parameters]) -> None:
        self.columns = columns
        self._parameters = parameters
        self.found: list[tuple[int, SampleStream]] = []
        self._run = -1
        self._pending: int | None = None
        self._open: dict[int, SampleStream] = {}
        self._codes = {text: code for code, text in enumerate(columns.texts["instance"])}
        self._pairs: dict[tuple[int, int], int] = {}
        self._read()

    def _read(self) -> None:
        columns = self.columns
        self._rows_taken = columns["row"]
        steps, tells, asks = columns.rows_of(*STEPS), columns.rows_of("tell"), columns.rows_of("ask", event=(QUERY,))
        steps = steps[columns.is_one_of("machine", (SOURCE,), steps)]
        tells = tells[columns.is_one_of("machine", (SUBSCRIBER,), tells)]
        tells = tells[columns.is_one_of("event", (DELIVER, MISSED), tells)]
        rows = np.sort(np.concatenate((steps, tells, asks)))
        wanted = ("run", "instance", "key", "first", "last")
        cells = (columns[name][rows].tolist() for name in wanted)
        for row, run, instance, key, first, last in zip(rows.tolist(), *cells, strict=True):
            if run != self._run:
                self._end()
                self._run, self._pending = run, pending_of(self._parameters(run))
            self._take(row, instance, key, first, last)
        self._end()

    def _take(self, row: int, instance: int, key: int, first: int, last: int) -> None:
        kind, event = self.columns.text("kind", row), self.columns.text("event", row)
        if kind in STEPS:
            stream = self._stream(instance)
            if self._rows_taken[row] not in DOUBTS:
                stream.step(row, event, first, last)
            if self.columns.text("dest", row) == GONE:
                self._close(instance)
            return
        code = self._code(instance, key)
        if code < 0:
            return  # a query about every source: what there is to know of it
        if kind == "ask":
            self._stream(code).ask(row, first, last)
        else:
            self._stream(code).tell_range(row, event, first, last)

    def _code(self, party: int, key: int) -> int:
        """Of the Source of this name at a subscriber; -1: it has none."""
        code = self._pairs.get((party, key))
        if code is None:
            parties, keys = self.columns.texts["instance"], self.columns.texts["key"]
            name = f"{parties[party]}:{keys[key]}" if party < len(parties) and key < len(keys) else ""
            code = self._pairs[party, key] = self._codes.get(name, -1)
        return code

    def _stream(self, instance: int) -> SampleStream:
        stream = self._open.get(instance)
        if stream is None:
            stream = self._open[instance] = SampleStream([*self.columns.texts["instance"], ""][instance], self._pending)
        return stream

    def _close(self, instance: int) -> None:
        stream = self._open.pop(instance)
        stream.end()
        self.found.append((self._run, stream))

    def _end(self) -> None:
        for instance in list(self._open):
            self._close(instance)


_KNOWN: WeakKeyDictionary[Columns, SampleStreams] = WeakKeyDictionary()


def streams_of(segment: Segment) -> SampleStreams:
    """Those of a segment, read once."""
    return streams_in(segment.columns, segment.parameters)


def streams_in(columns: Columns, parameters: Callable[[int], Parameters]) -> SampleStreams:
    """Those of columns, read once; `parameters` of each run."""
    found = _KNOWN.get(columns)
    if found is None:
        found = _KNOWN[columns] = SampleStreams(columns, parameters)
    return found

"""Run story: one run in the order in which it happened: deliveries, faults, and why something came twice."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.trace_roles import TraceRoles

MOST_NUMBERS: Final = 300_000
"""Deliveries of a run that are looked at for repetitions: beyond, the page does not count them."""

NO_FAULT: Final = "no fault between the two"

MENDS: Final = ("join", "restart", "resume", "heal", "subscribe")
"""What is done to a process, or to all, that harms nothing."""


class DeliveredRange(NamedTuple):
    """A row that gives something to an application; `numbers`: first to last, (-1, -1) for one without a number."""

    row: int
    t_ns: int
    stream: str
    node: str
    first: int
    last: int
    is_keyed: bool = True

    @property
    def messages(self) -> int:
        """How many messages it is."""
        return 1 if self.first < 0 else max(1, self.last - self.first + 1)


class FaultMark(NamedTuple):
    """A fault of the run, or something that was done to a process."""

    row: int
    t_ns: int
    kind: str
    node: str

    @property
    def is_harm(self) -> bool:
        """It is no end of a fault, and nothing that mends one."""
        return self.kind not in MENDS and not self.kind.startswith("end_")


class RunStory(NamedTuple):
    """`begin_ns` to `end_ns`: the run; `repeated`: cause -> messages that were delivered again (None: not counted)."""

    begin_ns: int
    end_ns: int
    deliveries: list[DeliveredRange]
    faults: list[FaultMark]
    repeated: dict[str, int] | None


def read_story(columns: Columns, roles: Iterable[TraceRoles]) -> RunStory:
    """The story of a run of these protocols."""
    deliveries = [one for each in roles for one in _deliveries(columns, each)]
    deliveries.sort()
    times = columns["t_ns"]
    faults = [
        FaultMark(row, int(times[row]), columns.text("event", row), columns.text("node", row))
        for row in columns.rows_of("fault").tolist()
    ]
    begin, end = (int(times.min()), int(times.max())) if columns.rows else (0, 0)
    # Without a key a protocol's deliveries say what became of messages, and no second one of the same number is again.
    return RunStory(begin, end, deliveries, faults, _repeated([one for one in deliveries if one.is_keyed], faults))


def _deliveries(columns: Columns, roles: TraceRoles) -> Iterable[DeliveredRange]:
    """Each row that the protocol declares to be a delivery."""
    numbered = "last" if "last" in roles.number else "first"
    for kind, event in roles.deliveries:
        rows = columns.rows_of(kind, event=(event,))
        firsts, lasts = columns["first"][rows].tolist(), columns[numbered][rows].tolist()
        for row, first, last in zip(rows.tolist(), firsts, lasts, strict=True):
            stream = columns.text(roles.key, row) if roles.key else columns.text("instance", row)
            stream = (
                stream.rpartition(roles.stream_end)[0] if roles.stream_end in stream and roles.stream_end else stream
            )
            yield DeliveredRange(
                row, int(columns["t_ns"][row]), stream, columns.text("node", row), first, last, bool(roles.key)
            )


def _repeated(deliveries: list[DeliveredRange], faults: list[FaultMark]) -> dict[str, int] | None:
    """The last fault between two deliveries of a message is what the second is counted under."""
    if sum(one.messages for one in deliveries) > MOST_NUMBERS:
        return None
    faults = [fault for fault in faults if fault.is_harm]
    rows = [fault.row for fault in faults]
    latest: dict[tuple[str, int], int] = {}
    found: dict[str, int] = {}
    for one in deliveries:
        if one.first < 0:
            continue
        for number in range(one.first, max(one.first, one.last) + 1):
            before = latest.get((one.stream, number))
            if before is not None:
                place = bisect_right(rows, one.row)
                fault = faults[place - 1] if place and rows[place - 1] > before else None
                cause = NO_FAULT if fault is None else f"{fault.kind}{f' of {fault.node}' if fault.node else ''}"
                found[cause] = found.get(cause, 0) + 1
            latest[one.stream, number] = one.row
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def time_of(columns: Columns, seq: int) -> int | None:
    """When the row of this number was written, in nanoseconds; None where the run has no such row."""
    places = np.flatnonzero(columns["seq"] == seq)
    return int(columns["t_ns"][places[0]]) if len(places) else None

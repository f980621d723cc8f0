"""OTLP: a run as OpenTelemetry spans, in the JSON of the OTLP file format: a line for each node.

A message is a span from its send until it arrives or is lost.  What a delivery, a timer or a call brings about on its
node at that time is a span whose events are the steps.  What is sent then is a child of it; so a trace is all that
comes of one beginning.  Times are those of the run: simulated ones begin in 1970.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from statemachines_reports.columns import STEPS
from statemachines_reports.export.exported_run import ExportedRun, ExportRow

INTERNAL, PRODUCER, CONSUMER = 1, 4, 5
ERROR: Final = 2
EFFECTS: Final = ("tell", "ask")

Span = dict[str, Any]


class SpanWriter:
    """`spans`: node -> its spans."""

    def __init__(self, run: ExportedRun) -> None:
        self.spans: dict[str, list[Span]] = {node: [] for node in run.nodes}
        self._run = f"{run.scenario}/{run.run}"
        self._count = 0
        self._turns: dict[str, Span] = {}
        self._sent: dict[int, Span] = {}
        for row in run.rows:
            self._take(row)

    def _take(self, row: ExportRow) -> None:
        if row.kind in ("drop", "duplicate"):
            span = self._sent.get(row.msg)
            if span is not None:
                self._end(span, row.t_ns)
                if row.kind == "drop":
                    span["status"] = {"code": ERROR, "message": "lost"}
        elif row.kind == "deliver":
            self._turns[row.node] = self._begin(row, CONSUMER, self._sent.get(row.msg))
            span = self._sent.get(row.msg)
            if span is not None:
                self._end(span, row.t_ns)
        elif row.node and row.kind == "send":
            span = self._begin(row, PRODUCER, self._turn_of(row))
            if row.msg >= 0:
                self._sent.setdefault(row.msg, span)
        elif row.node and row.kind in (*STEPS, *EFFECTS, "fault"):
            turn = self._turn_of(row)
            if turn is None:
                turn = self._turns[row.node] = self._begin(row, INTERNAL, None)
            turn["events"].append({"timeUnixNano": str(row.t_ns), "name": row.event, "attributes": _attributes(row)})

    def _turn_of(self, row: ExportRow) -> Span | None:
        """What goes on at its node at that time."""
        turn = self._turns.get(row.node)
        return turn if turn is not None and turn["startTimeUnixNano"] == str(row.t_ns) else None

    def _begin(self, row: ExportRow, kind: int, parent: Span | None) -> Span:
        self._count += 1
        span: Span = {
            "traceId": self._identify("trace", 32) if parent is None else parent["traceId"],
            "spanId": self._identify("span", 16),
            "name": row.event,
            "kind": kind,
            "startTimeUnixNano": str(row.t_ns),
            "endTimeUnixNano": str(row.t_ns),
            "attributes": _attributes(row),
            "events": [],
        }
        if parent is not None:
            span["parentSpanId"] = parent["spanId"]
        self.spans.setdefault(row.node, []).append(span)
        return span

    def _end(self, span: Span, t_ns: int) -> None:
        span["endTimeUnixNano"] = str(max(t_ns, int(span["endTimeUnixNano"])))

    def _identify(self, what: str, digits: int) -> str:
        """An identifier that the run and the count give."""
        return hashlib.sha256(f"{self._run}/{what}/{self._count}".encode()).hexdigest()[:digits]


def write_otlp(run: ExportedRun) -> Iterator[str]:
    """The file, node by node."""
    for node, spans in SpanWriter(run).spans.items():
        resource = {"attributes": [_attribute("service.name", node), _attribute("gapless.scenario", run.scenario)]}
        scope = {"scope": {"name": "gapless"}, "spans": spans}
        yield (
            json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}, separators=(",", ":")) + "\n"
        )


def _attributes(row: ExportRow) -> list[dict[str, Any]]:
    """What the row says besides."""
    named = {
        "gapless.kind": row.kind,
        "gapless.machine": row.machine,
        "gapless.instance": row.instance,
        "gapless.peer": row.peer,
        "gapless.key": row.key,
        "gapless.source": row.source,
        "gapless.dest": row.dest,
    }
    return [_attribute(name, value) for name, value in named.items() if value]


def _attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}

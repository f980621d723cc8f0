r"""Exported run: the rows of one run of a trace, for writers of other formats.

OTLP: a run as OpenTelemetry spans, in the JSON of the OTLP file format: a line for each node.

A message is a span from its send until it arrives or is lost.  What a delivery, a timer or a call brings about on its
node at that time is a span whose events are the steps.  What is sent then is a child of it; so a trace is all that
comes of one beginning.  Times are those of the run: simulated ones begin in 1970.

Perfetto: a run as JSON trace events, which Perfetto and the tracing page of Chromium show.

A node is a process, an instance a thread.  A thread shows the states of its machine as slices, and its steps, tells and
requests as instants.  Messages are slices of a thread of their own, joined by flows.  Time stamps are microseconds.

ShiViz: a run as a log with vector clocks.  The regular expression for it is the default one of ShiViz:

    (?<host>\S*) (?<clock>{.*})\n(?<event>.*)

A host is a node.  A delivery comes after its send; everything else follows the row before on its node.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from statemachines.kernel import ConfigurationError
from statemachines.trace.parquet import TEXTS
from statemachines_reports.columns import STEPS, read_run
from statemachines_reports.trace_set import TraceSet

ROWS_MAX: Final = 1_000_000
"""Other tools show no more rows than these."""
COLUMNS: Final = ("t_ns", "node", "machine", "instance", "kind", "event", "source", "dest", "row", "peer", "msg", "key")


class ExportRow(NamedTuple):
    """A row; a text is "" where the trace has none."""

    t_ns: int
    node: str
    machine: str
    instance: str
    kind: str
    event: str
    source: str
    dest: str
    row: int
    peer: str
    msg: int
    key: str


class ExportedRun(NamedTuple):
    """A run: its number, its scenario, and its rows in order."""

    run: int
    scenario: str
    rows: list[ExportRow]

    @property
    def nodes(self) -> dict[str, int]:
        """Node -> its number, from 1, in the order in which they come."""
        return {node: number for number, node in enumerate(dict.fromkeys(row.node for row in self.rows if row.node), 1)}


Write = Callable[[ExportedRun], Iterator[str]]
"""Gives a file of another format in pieces."""


def read_exported(directory: Path, run: int | None = None) -> ExportedRun:
    """A run of a trace; logs of real nodes are merged first.

    Args:
        directory: Parquet files of a trace, or the logs of a run.
        run: its number; None: the only one.

    Raises:
        ConfigurationError: there is no such run, or there are several and none is named, or it has too many rows.
    """
    with tempfile.TemporaryDirectory(prefix="gapless-export-") as merged:
        trace = TraceSet(directory, Path(merged))
        numbers = sorted(trace.runs)
        if run is None and len(numbers) != 1:
            raise ConfigurationError("--run", "", f"is missing: {directory} holds runs {numbers[0]} to {numbers[-1]}")
        number = numbers[0] if run is None else run
        if number not in trace.runs:
            rule = f"is in no file of {directory}, which holds runs {numbers[0]} to {numbers[-1]}"
            raise ConfigurationError("--run", number, rule)
        rows = [row for path in trace.files for row in _read(path, number)]
        return ExportedRun(number, trace.runs[number].scenario, rows)


def _read(path: Path, run: int) -> Iterator[ExportRow]:
    table = read_run(path, COLUMNS, run, [name for name in COLUMNS if name in TEXTS])
    if table.num_rows > ROWS_MAX:
        rule = f"has {table.num_rows:,} rows, and at most {ROWS_MAX:,} are exported: take a shorter run"
        raise ConfigurationError("--run", run, rule)
    columns = [table.column(name).fill_null("" if name in TEXTS else -1).to_pylist() for name in COLUMNS]
    return map(ExportRow, *columns)


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


MESSAGES: Final = 1
"""The thread of a node's messages."""
NETWORK: Final = 0
"""The process of what is done to no node."""
BRIEF_US: Final = 1.0
"""So long the slice of a message is shown."""

Event = dict[str, Any]


def write_perfetto(run: ExportedRun) -> Iterator[str]:
    """The file, in pieces."""
    yield '{"displayTimeUnit":"ns","traceEvents":[\n'
    before = ""
    for event in list_events(run):
        yield before + json.dumps(event, separators=(",", ":"), ensure_ascii=True)
        before = ",\n"
    yield "\n]}\n"


def list_events(run: ExportedRun) -> Iterator[Event]:
    """All trace events."""
    nodes = {"": NETWORK, **run.nodes}
    threads: dict[tuple[str, str], int] = {}
    states: dict[tuple[str, str], tuple[str, int]] = {}
    last_ns = run.rows[-1].t_ns if run.rows else 0
    for node, pid in nodes.items():
        yield _name("process_name", pid, 0, node or "network")
        yield _name("thread_name", pid, MESSAGES, "messages")
    for row in run.rows:
        pid, place = nodes[row.node], (row.node, row.instance)
        if row.kind in ("send", "deliver"):
            yield from _list_message(row, pid)
            continue
        tid = threads.get(place)
        if tid is None:
            tid = threads[place] = MESSAGES + 1 + len(threads)
            yield _name("thread_name", pid, tid, row.instance or row.kind)
        if row.kind in STEPS:
            state, since = states.get(place, (row.source, row.t_ns))
            if state != row.dest:
                yield _slice(state, pid, tid, since, row.t_ns)
                states[place] = row.dest, row.t_ns
            else:
                states.setdefault(place, (state, since))
        yield _instant(row, pid, tid)
    for place, (state, since) in states.items():
        yield _slice(state, nodes[place[0]], threads[place], since, last_ns)


def _list_message(row: ExportRow, pid: int) -> Iterator[Event]:
    at = {"pid": pid, "tid": MESSAGES, "ts": row.t_ns / 1_000}
    yield {"ph": "X", "name": row.event, "cat": row.kind, "dur": BRIEF_US, "args": _arguments(row), **at}
    if row.msg >= 0:
        end = {"ph": "s"} if row.kind == "send" else {"ph": "f", "bp": "e"}
        yield {"name": row.event, "cat": "message", "id": row.msg, **end, **at}


def _slice(state: str, pid: int, tid: int, since_ns: int, until_ns: int) -> Event:
    duration = max(until_ns - since_ns, 0) / 1_000
    return {"ph": "X", "name": state, "cat": "state", "pid": pid, "tid": tid, "ts": since_ns / 1_000, "dur": duration}


def _instant(row: ExportRow, pid: int, tid: int) -> Event:
    scope = "p" if row.kind == "fault" and row.node else "g" if row.kind == "fault" else "t"
    at = {"pid": pid, "tid": tid, "ts": row.t_ns / 1_000}
    return {"ph": "i", "name": row.event, "cat": row.kind, "s": scope, "args": _arguments(row), **at}


def _arguments(row: ExportRow) -> dict[str, Any]:
    """What else the row says."""
    named = {"instance": row.instance, "peer": row.peer, "key": row.key, "machine": row.machine}
    found: dict[str, Any] = {name: value for name, value in named.items() if value}
    if row.kind in STEPS:
        found |= {"source": row.source, "dest": row.dest, "row": row.row}
    return found


def _name(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


Clock = dict[str, int]


def write_shiviz(run: ExportedRun) -> Iterator[str]:
    """The log, event by event."""
    clocks: dict[str, Clock] = {}
    sent: dict[int, Clock] = {}
    for row in run.rows:
        if not row.node or row.kind in ("drop", "duplicate", "record"):
            continue
        clock = clocks.setdefault(row.node, {})
        if row.kind == "deliver":
            for node, count in sent.get(row.msg, {}).items():
                clock[node] = max(clock.get(node, 0), count)
        clock[row.node] = clock.get(row.node, 0) + 1
        if row.kind == "send" and row.msg >= 0:
            sent.setdefault(row.msg, dict(clock))
        host = "_".join(row.node.split())
        yield f"{host} {json.dumps(_of_hosts(clock), sort_keys=True)}\n{describe_row(row)}\n"


def _of_hosts(clock: Clock) -> Clock:
    return {"_".join(node.split()): count for node, count in clock.items()}


def describe_row(row: ExportRow) -> str:
    """A row in one line."""
    where = f" {row.instance}" if row.instance else ""
    if row.kind in STEPS:
        change = f"{row.source} -> {row.dest}" if row.source != row.dest else row.source
        text = f"{row.event}{where}: {change}"
    elif row.kind == "send":
        text = f"send {row.event}{where} to {row.peer}"
    elif row.kind == "deliver":
        text = f"deliver {row.event}{where} from {row.peer}"
    else:
        text = f"{row.kind} {row.event}{where}"
    return " ".join(f"{text} {row.key}".split())

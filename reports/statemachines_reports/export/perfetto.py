"""Perfetto: a run as JSON trace events, which Perfetto and the tracing page of Chromium show.

A node is a process, an instance a thread.  A thread shows the states of its machine as slices, and its steps, tells and
requests as instants.  Messages are slices of a thread of their own, joined by flows.  Time stamps are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from statemachines_reports.columns import STEPS
from statemachines_reports.export.exported_run import ExportedRun, ExportRow

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

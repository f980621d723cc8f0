"""Trace: one row per thing that happened, the contract between drivers, simulator, reports and foreign systems.

Columns, in order (`COLUMNS`):

    run      int64    the run
    seq      int64    total order in the run, from 0
    t_ns     int64    time of the run in nanoseconds (simulated, or the node's clock)
    node     string   the process: "consumer-1"
    machine  string   the declared machine: "borrower", "stream"; "" for rows that are of no machine
    instance string   the party, and for a child machine party:instance: "consumer-1~1/1:orders#3"
    kind     string   step send deliver drop duplicate timer fault tell ask answer
    event    string   name of the event, message, request or fault
    source   string   state before (steps)
    dest     string   state after (steps)
    row      int32    row of the table that was taken; -1 none
    peer     string   the other party (send, deliver, drop), the service (ask, answer)
    msg      int64    node number << 40 | counter, carried on the wire: joins send and deliver; -1 none
    key      string?  stream, subject, source or cursor
    term     int64?   epoch
    grant    int64?   number of the grant
    first    int64?   first of a range of offsets, numbers or positions; a progress
    last     int64?   last of the range
    data     string?  the event's fields as JSON, where asked for; of a fault, how much of it, always

A step whose event is a timer of the machine has kind `timer`; `step` and `timer` are the rows that judges look up
in the tables.  A step of a child machine follows the step of its parent.

The second table, `runs`, has a row per run: `RUN_COLUMNS`.  Its fingerprint names the tables that the trace was made
with; a trace of other tables is refused with both fingerprints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from statemachines.kernel import Event, Fsm, Node, Step, TimerFired, name_of, node_of
from statemachines.kernel.pmap import enc_hook

COLUMNS: Final = (
    "run", "seq", "t_ns", "node", "machine", "instance", "kind", "event", "source", "dest", "row", "peer", "msg",
    "key", "term", "grant", "first", "last", "data",
)  # fmt: skip

RUN_COLUMNS: Final = ("run", "scenario", "seed", "parameters", "outcome", "versions", "fingerprint")

KINDS: Final = ("step", "send", "deliver", "drop", "duplicate", "timer", "fault", "tell", "ask", "answer")

TraceRow = tuple[Any, ...]
"""The columns from `t_ns` on, in order; `run` and `seq` are the writer's."""

RowMaker = Callable[..., TraceRow]
"""Puts the row of one type of event together: see `event_makers` and `step_makers` for what it takes."""

_CELLS: Final = (("stream", "subject", "source", "cursor"), ("epoch",), ("grant",), ("first", "progress"), ("last",))
"""The fields that key, term, grant, first and last are read from: the first name that an event has."""

_NO_CELLS: Final = (None, None, None, None, None)


class RowMakers(dict[type[msgspec.Struct], RowMaker]):
    """`makers[type(event)](...)`: a row maker for each type, compiled when the type is met first.

    A look at the names of fields, or at what a type is, for every row would cost more than the step it is about.
    """

    def __init__(self, source: str, data: bool) -> None:
        super().__init__()
        self._source = source
        self._data = "data_of(event)" if data else "None"

    def __missing__(self, kind: type[msgspec.Struct]) -> RowMaker:
        fields: tuple[str, ...] = getattr(kind, "__struct_fields__", ())
        picks = (next((name for name in names if name in fields), None) for names in _CELLS)
        cells = ["None" if name is None else f"event.{name}" for name in picks]
        source = self._source.format(
            name=name_of(kind),
            step="timer" if issubclass(kind, TimerFired) else "step",
            tail=", ".join([*cells, self._data]),
        )
        maker: RowMaker = eval(source, {"data_of": data_of})  # names of our own types and fields, never input
        self[kind] = maker
        return maker


def event_makers(data: bool) -> RowMakers:
    """Makers of rows that are of no step: they take now_ns, node, machine, instance, kind, peer, msg, event."""
    return _EVENT_DATA if data else _EVENT


def step_makers(data: bool) -> RowMakers:
    """Makers of rows of a step: they take now_ns, node, machine, instance, source, dest, row, msg, event."""
    return _STEP_DATA if data else _STEP


def data_of(value: Any) -> str:
    """The fields of an event as JSON, for the `data` column."""
    return msgspec.json.encode(msgspec.structs.asdict(value), enc_hook=enc_hook).decode()


def fingerprint(machines: tuple[Fsm[Any], ...]) -> str:
    """What identifies the tables: 16 hex digits over every line of every machine, child machines included."""
    digest = hashlib.sha256()
    seen: set[str] = set()
    for machine in machines:
        for fsm in machine.family():
            if fsm.name in seen:
                continue
            seen.add(fsm.name)
            for line in fsm.lines:
                sources = ",".join(str(state.value) for state in line.sources)
                dest = "" if line.dest is None else str(line.dest.value)
                row = (fsm.name, str(line.number), name_of(line.event), sources, dest, line.kind, line.clause)
                digest.update(("|".join((*row, line.guard_name, line.action_name)) + "\n").encode())
    return digest.hexdigest()[:16]


def event_row(
    now_ns: int,
    node: str,
    instance: str,
    kind: str,
    event: msgspec.Struct,
    peer: str = "",
    msg: int = -1,
    machine: str = "",
    data: bool = False,
) -> TraceRow:
    """The row of something that is no step: send, deliver, drop, duplicate, tell, ask, answer."""
    return event_makers(data)[type(event)](now_ns, node, machine, instance, kind, peer, msg, event)


def fault_row(now_ns: int, node: str, fault: str, peer: str = "", data: str | None = None) -> TraceRow:
    """The row of a fault that somebody injected, or of something done to a process (kill, restart, join)."""
    return (now_ns, node, "", "", "fault", fault, "", "", -1, peer, -1, *_NO_CELLS, data)


def step_rows(
    node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int, msg: int = -1, data: bool = False
) -> list[TraceRow]:
    """The rows of one step and of the child steps in it."""
    name = node.name
    host = node_of(name)
    makers = step_makers(data)
    make, dest = makers[type(event)], step.record.status._value_
    rows = [make(now_ns, host, node.fsm.name, name, before._value_, dest, step.row, msg, event)]
    for child in step.children:
        instance, source, dest = f"{name}:{child.instance}", child.source._value_, child.dest._value_
        make = makers[type(child.event)]
        rows.append(make(now_ns, host, child.machine, instance, source, dest, child.row, -1, child.event))
    return rows


_EVENT_SOURCE = """lambda now_ns, node, machine, instance, kind, peer, msg, event: (
    now_ns, node, machine, instance, kind, {name!r}, "", "", -1, peer, msg, {tail}
)"""
_STEP_SOURCE = """lambda now_ns, node, machine, instance, source, dest, row, msg, event: (
    now_ns, node, machine, instance, {step!r}, {name!r}, source, dest, row, "", msg, {tail}
)"""
_EVENT, _EVENT_DATA = RowMakers(_EVENT_SOURCE, False), RowMakers(_EVENT_SOURCE, True)
_STEP, _STEP_DATA = RowMakers(_STEP_SOURCE, False), RowMakers(_STEP_SOURCE, True)

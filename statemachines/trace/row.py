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

from statemachines.kernel import ChildStep, Event, Fsm, Node, Step, TimerFired, name_of, node_of
from statemachines.kernel.pmap import enc_hook

COLUMNS: Final = (
    "run", "seq", "t_ns", "node", "machine", "instance", "kind", "event", "source", "dest", "row", "peer", "msg",
    "key", "term", "grant", "first", "last", "data",
)  # fmt: skip

RUN_COLUMNS: Final = ("run", "scenario", "seed", "parameters", "outcome", "versions", "fingerprint")

KINDS: Final = ("step", "send", "deliver", "drop", "duplicate", "timer", "fault", "tell", "ask", "answer")

Cells = tuple[str | None, int | None, int | None, int | None, int | None]
"""key, term, grant, first, last."""

TraceRow = tuple[Any, ...]
"""The columns from `t_ns` on, in order; `run` and `seq` are the writer's."""

NO_CELLS: Final[Cells] = (None, None, None, None, None)

Description = tuple[str, str, Callable[[Any], Cells]]
"""Of a type: its name in traces, the kind of its steps, and what takes the cells out of a value."""

_KEY = ("stream", "subject", "source", "cursor")
DESCRIBED: Final[dict[type[msgspec.Struct], Description]] = {}
"""What `describe` has found so far; the recorder of the simulator looks here first."""


def cells_of(value: Any) -> Cells:
    """key, term, grant, first and last of an event, by the names of its fields."""
    return describe(type(value))[2](value)


def describe(kind: type[msgspec.Struct]) -> Description:
    """Everything about a type that its rows need, found once."""
    found = DESCRIBED.get(kind)
    if found is None:
        step = "timer" if issubclass(kind, TimerFired) else "step"
        found = DESCRIBED[kind] = (name_of(kind), step, _extractor(kind))
    return found


def _extractor(kind: type[Any]) -> Callable[[Any], Cells]:
    """Compiled once per type: a look at the names of fields for every row would cost more than the step."""
    fields: tuple[str, ...] = getattr(kind, "__struct_fields__", ())
    picks = [
        next((name for name in names if name in fields), None)
        for names in (_KEY, ("epoch",), ("grant",), ("first", "progress"), ("last",))
    ]
    if not any(picks):
        return lambda value: NO_CELLS
    body = ", ".join("None" if name is None else f"value.{name}" for name in picks)
    extract: Callable[[Any], Cells] = eval(f"lambda value: ({body})")  # names of our own fields, never input
    return extract


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
    return (
        now_ns, node, machine, instance, kind, name_of(type(event)), "", "", -1, peer, msg, *cells_of(event),
        data_of(event) if data else None,
    )  # fmt: skip


def fault_row(now_ns: int, node: str, fault: str, peer: str = "", data: str | None = None) -> TraceRow:
    """The row of a fault that somebody injected, or of something done to a process (kill, restart, join)."""
    return (now_ns, node, "", "", "fault", fault, "", "", -1, peer, -1, *NO_CELLS, data)


def step_rows(
    node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int, msg: int = -1, data: bool = False
) -> list[TraceRow]:
    """The rows of one step and of the child steps in it."""
    name = node.name
    host = node_of(name)
    event_name, kind, cells = describe(type(event))
    rows: list[TraceRow] = [
        (
            now_ns, host, node.fsm.name, name, kind, event_name, before._value_, step.record.status._value_,
            step.row, "", msg, *cells(event), data_of(event) if data else None,
        )
    ]  # fmt: skip
    rows.extend(_child_row(child, name, host, now_ns, data) for child in step.children)
    return rows


def _child_row(child: ChildStep, party: str, host: str, now_ns: int, data: bool) -> TraceRow:
    event = child.event
    name, kind, cells = describe(type(event))
    return (
        now_ns, host, child.machine, f"{party}:{child.instance}", kind, name, child.source._value_,
        child.dest._value_, child.row, "", -1, *cells(event), data_of(event) if data else None,
    )  # fmt: skip

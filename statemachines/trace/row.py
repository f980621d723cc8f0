"""Trace: one row per thing that happened, the contract between drivers, simulator, reports and foreign systems.

`TRACE` declares the columns, once and in order; files, logs and rows are made from it.

With `data` a row of kind `record` has the whole record of a machine: `first`, after its first step, and `last`, at the
end of the run.  A step whose machine believes another time than `t_ns` has it as `@now_ns` in its data.

An event says which of its fields fill key, term, grant, first and last (`kernel.TraceColumns`).  A step whose event
is a timer of the machine has kind `timer`; `step` and `timer` are the rows that judges look up in the tables.  A step
of a child machine follows that of its parent.  A run may hold machines of several protocols.

The second table, `runs`, has a row per run (`Run`).  Its fingerprints name the tables that the run was made with; a
trace of other tables is refused with both fingerprints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from statemachines.kernel import ChildStep, Event, Fsm, Node, Step, TimerFired, name_of, node_of
from statemachines.kernel.event import column_fields
from statemachines.kernel.pmap import enc_hook


class Column(NamedTuple):
    """A column of the trace: int64, int32, text (few different ones) or json; what it is about, and its unit.
    `default`: what a row has that says nothing of it, and a line of a log may leave out; NODEFAULT: every row says it.
    """

    name: str
    kind: str
    about: str
    default: Any = msgspec.NODEFAULT
    unit: str = ""


TRACE: Final = (
    Column("run", "int64", "number of the run"),
    Column("seq", "int64", "total order in the run, from 0 on"),
    Column("t_ns", "int64", "time of the run: simulated time, or the clock of the node", unit="ns"),
    Column("node", "text", "the process"),
    Column("machine", "text", "the machine that steps, with its protocol; empty where no machine does", ""),
    Column("instance", "text", "the party; of a child machine party:instance", ""),
    Column("kind", "text", "what sort of row it is"),
    Column("event", "text", "the event, message, request or fault"),
    Column("source", "text", "state before a step", ""),
    Column("dest", "text", "state after a step", ""),
    Column("row", "int32", "the row of the machine's table that was taken; -1 for none", -1),
    Column("peer", "text", "the other party of a message, or the service that is asked", ""),
    Column(
        "msg",
        "int64",
        "node number << 40 + counter of a message: it joins `send` and `deliver`; -1 for none",
        -1,
    ),
    Column("key", "text", "what the row is about: a stream, a subject, a lock; null for nothing", None),
    Column("term", "int64", "an epoch or token; null for none", None),
    Column("grant", "int64", "number of a grant; null for none", None),
    Column("first", "int64", "first of a range of offsets, numbers or positions; null for none", None),
    Column("last", "int64", "last of that range, included; null for none", None),
    Column("data", "json", "the fields of the event (`--data`); of a fault, how much of it; null for nothing", None),
)

COLUMNS: Final = tuple(column.name for column in TRACE)

ROW: Final = TRACE[2:]
"""The columns of a row: `run` and `seq` are the writer's."""

KINDS: Final = (
    "step",
    "send",
    "deliver",
    "drop",
    "duplicate",
    "timer",
    "fault",
    "tell",
    "ask",
    "answer",
    "part",
    "record",
)

TraceRow = tuple[Any, ...]
"""The columns of `ROW`, in order."""

RowMaker = Callable[..., TraceRow]
"""Puts the row of one type of event together: see `event_makers` and `step_makers` for what it takes."""

_FILLED: Final = ("key", "term", "grant", "first", "last")
"""The columns that the fields of an event fill."""


class Run(msgspec.Struct, frozen=True):
    """One line of the table of runs.

    `parameters` and `versions` are JSON objects, `outcome` is "held" or what was violated; `fingerprints`: protocol ->
    fingerprint of its tables, as a JSON object.
    """

    run: int
    scenario: str
    seed: int
    parameters: str
    outcome: str
    versions: str
    fingerprints: str


RUN_COLUMNS: Final = Run.__struct_fields__

ABOUT_RUNS: Final = {
    "run": "number of the run",
    "scenario": "name of the scenario; `real` for logs of real nodes",
    "seed": "everything random follows from it",
    "parameters": "a JSON object: settings of the scenario, faults, counts",
    "outcome": "`held`, or the property that was violated",
    "versions": "a JSON object: package and version",
    "fingerprints": "a JSON object: protocol and fingerprint of its tables",
}
"""Column of the table of runs -> what it is about."""


def _maker(parameters: str, cells: dict[str, str], names: dict[str, Any] | None = None) -> RowMaker:
    """A function of `parameters` that puts a row together: column -> expression, of the rest the default."""
    row = ", ".join(cells.get(column.name, repr(column.default)) for column in ROW)
    maker: RowMaker = eval(f"lambda {parameters}: ({row})", names or {})  # names of our own types and fields, no input
    return maker


class RowMakers(dict[type[msgspec.Struct], RowMaker]):
    """`makers[type(event)](...)`: a row maker for each type, compiled when the type is met first.

    A look at the names of fields, or at what a type is, for every row would cost more than the step it is about.
    """

    def __init__(self, parameters: str, cells: dict[str, str], data: bool) -> None:
        super().__init__()
        self._parameters = parameters
        self._cells = cells | ({"data": "data_of(event)"} if data else {})

    def __missing__(self, kind: type[msgspec.Struct]) -> RowMaker:
        fields = dict(zip(_FILLED, column_fields(kind), strict=True))
        filled = {column: f"event.{field}" for column, field in fields.items() if field}
        own = {"event": repr(name_of(kind))}
        if "kind" not in self._cells:
            own["kind"] = "'timer'" if issubclass(kind, TimerFired) else "'step'"
        maker = self[kind] = _maker(self._parameters, {**self._cells, **own, **filled}, {"data_of": data_of})
        return maker


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_OF_EVENT = (
    "now_ns, node, machine, instance, kind, peer, msg, event",
    {"t_ns": "now_ns", **_same("node", "machine", "instance", "kind", "peer", "msg")},
)
_OF_STEP = (
    "now_ns, node, machine, instance, source, dest, row, msg, event",
    {"t_ns": "now_ns", **_same("node", "machine", "instance", "source", "dest", "row", "msg")},
)
_EVENT, _EVENT_DATA = RowMakers(*_OF_EVENT, False), RowMakers(*_OF_EVENT, True)
_STEP, _STEP_DATA = RowMakers(*_OF_STEP, False), RowMakers(*_OF_STEP, True)
_FAULT = _maker(
    "now_ns, node, fault, peer, data",
    {"t_ns": "now_ns", "kind": "'fault'", "event": "fault", **_same("node", "peer", "data")},
)


_RECORD = _maker(
    "now_ns, node, machine, instance, event, status, data",
    {
        "t_ns": "now_ns",
        "kind": "'record'",
        "source": "status",
        "dest": "status",
        **_same("node", "machine", "instance", "event", "data"),
    },
)


def event_makers(data: bool) -> RowMakers:
    """Makers of rows that are of no step: they take now_ns, node, machine, instance, kind, peer, msg, event."""
    return _EVENT_DATA if data else _EVENT


def step_makers(data: bool) -> RowMakers:
    """Makers of rows of a step: they take now_ns, node, machine, instance, source, dest, row, msg, event."""
    return _STEP_DATA if data else _STEP


def data_of(value: Any) -> str:
    """The fields of an event as JSON, for the `data` column."""
    return msgspec.json.encode(msgspec.structs.asdict(value), enc_hook=enc_hook).decode()


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
    """The row of something that is no step: send, deliver, drop, duplicate, tell, ask, answer; `machine`: its full
    name."""
    return event_makers(data)[type(event)](now_ns, node, machine, instance, kind, peer, msg, event)


def fault_row(now_ns: int, node: str, fault: str, peer: str = "", data: str | None = None) -> TraceRow:
    """The row of a fault that somebody injected, or of something done to a process (kill, restart, join)."""
    return _FAULT(now_ns, node, fault, peer, data)


LOCAL: Final = "@now_ns"
"""In the data of a step: the time by the clock of its node, where that is not `t_ns`."""


def record_row(now_ns: int, node: Node[Any], event: str) -> TraceRow:
    """The row that has the whole record of a machine (`event`: "first" or "last")."""
    name, status = node.name, node.record.status._value_
    data = msgspec.json.encode(node.record, enc_hook=enc_hook).decode()
    return _RECORD(now_ns, node_of(name), node.fsm.full_name, name, event, status, data)


def with_local_time(row: TraceRow, now_ns: int) -> TraceRow:
    """The row of a step with data, of a node whose clock shows this time."""
    data = row[-1]
    return (*row[:-1], f'{data[:-1]}{"," if len(data) > 2 else ""}"{LOCAL}":{now_ns}}}')


class TracedParty(NamedTuple):
    """A party that a driver steps without a `Node`: its id, and its machine."""

    name: str
    fsm: Fsm[Any]


def step_rows(
    node: Node[Any] | TracedParty,
    event: Event,
    before: Any,
    step: Step[Any],
    now_ns: int,
    msg: int = -1,
    data: bool = False,
) -> list[TraceRow]:
    """The rows of one step, of the child steps in it, and of the parts of its event."""
    name = node.name
    host, dest = node_of(name), step.record.status._value_
    make = step_makers(data)[type(event)]
    row = make(now_ns, host, node.fsm.full_name, name, before._value_, dest, step.row, msg, event)
    children = (child_row(now_ns, host, name, child, data) for child in step.children)
    return [row, *children, *part_rows(node, event, now_ns, data)]


def part_rows(node: Node[Any] | TracedParty, event: Event, now_ns: int, data: bool = False) -> list[TraceRow]:
    """Behind the row of a step: a row of each part of an event that carries several (`parts`)."""
    name, machine = node.name, node.fsm.full_name
    return [event_row(now_ns, node_of(name), name, "part", one, machine=machine, data=data) for one in event.parts]


def child_row(now_ns: int, host: str, party: str, child: ChildStep, data: bool = False) -> TraceRow:
    """The row of a step of a child machine of `party` on the node `host`."""
    instance, source, dest = f"{party}:{child.instance}", child.source._value_, child.dest._value_
    make = step_makers(data)[type(child.event)]
    return make(now_ns, host, child.full_machine, instance, source, dest, child.row, -1, child.event)

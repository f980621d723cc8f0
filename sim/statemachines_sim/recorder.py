"""Recorder: the trace of a run; monitors hear what they watch as it happens.

What a message does is kept as entries, which cost little more than being appended; their rows are put together when
somebody reads them, or the file is written.  Of everything else the row is made at once: an entry would keep alive what
a store has answered, and the records of children.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from statemachines.kernel import Event, Message, Node, Step, node_of
from statemachines.trace import TraceRow, child_row, event_makers, event_row, fault_row, part_rows, step_makers
from statemachines_sim.clock import Clock
from statemachines_sim.protocol import Watch

Entry = tuple[Any, ...]
"""What a row is made of, by its first word, or (a number, its time, comes first) the row itself:

    "send", "deliver", "drop", "duplicate"   now_ns, node, party, peer, msg, message
    "step"    now_ns, node, machine, party, state before, state after, row, msg, event
"""


class Recorder:
    """`rows` is the trace so far; `msg` the message that is being handled; `data`: fill the data column; `true_clock`:
    what steps are stamped by where some node's own clock is not the true one.

    `note(entry)` keeps an entry.  The network and the processes note a send and a deliver themselves: a call between
    for each costs a fiftieth of all that a message does.
    """

    def __init__(self, monitors: Watch | None, data: bool = False) -> None:
        self.msg = -1
        self.true_clock: Clock | None = None
        self._monitors = monitors
        self._data = data
        self._rows: list[TraceRow] = []
        self._entries: list[Entry] = []
        self._steps = step_makers(data)
        self._hosts: dict[str, str] = {}
        self.note: Callable[[Entry], None] = self._entries.append

    @property
    def rows(self) -> list[TraceRow]:
        """The trace so far."""
        if self._entries:
            self._rows.extend(self._put_together())
            self._entries.clear()
        return self._rows

    @property
    def count(self) -> int:
        """So many rows there are; none of them is made for it."""
        return len(self._rows) + len(self._entries)

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """The observer of every node."""
        if self.true_clock is not None:
            now_ns = self.true_clock.now
        name, source, dest = node.name, before._value_, step.record.status._value_
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = node_of(name)
        if self.msg >= 0:
            self.note(("step", now_ns, host, node.fsm.full_name, name, source, dest, step.row, self.msg, event))
        else:
            make = self._steps[type(event)]
            self.note(make(now_ns, host, node.fsm.full_name, name, source, dest, step.row, -1, event))
        if step.children:
            for child in step.children:
                self.note(child_row(now_ns, host, name, child, self._data))
        for row in part_rows(node, event, now_ns, self._data):
            self.note(row)
        if self._monitors is not None:
            self._monitors.step(node, event, before, step, now_ns)

    def message(self, kind: str, now_ns: int, node: str, instance: str, peer: str, msg: int, message: Message) -> None:
        """A drop or a duplicate."""
        self.note((kind, now_ns, node, instance, peer, msg, message))

    def hit(self, kind: str, node: str, party: str, to: str, message: Message, now_ns: int) -> None:
        """The same, for who watches."""
        if self._monitors is not None:
            self._monitors.hit(kind, node, party, to, message, now_ns)

    def tell(self, now_ns: int, node: str, instance: str, machine: str, event: Event) -> None:
        """Something for the application, or something that a publisher has done."""
        self.note(event_row(now_ns, node, instance, "tell", event, machine=machine, data=self._data))

    def ask(self, now_ns: int, node: str, instance: str, request: Any, service: str) -> None:
        """A request to a store."""
        self.note(event_row(now_ns, node, instance, "ask", request, peer=service, data=self._data))

    def fault(self, now_ns: int, node: str, fault: str, peer: str = "", **details: object) -> None:
        """Something the nemesis did, or took back; `details` (numbers with their unit, what was lost) go to `data`."""
        data = msgspec.json.encode(details).decode() if details else None
        self.note(fault_row(now_ns, node, fault, peer, data))
        if self._monitors is not None:
            self._monitors.fault(fault, node, now_ns)

    def end(self, now_ns: int) -> None:
        """The run is over: nothing more is noted."""

    def _put_together(self) -> list[TraceRow]:
        events, steps = event_makers(self._data), self._steps
        rows = []
        for entry in self._entries:
            kind = entry[0]
            if kind == "step":
                rows.append(steps[type(entry[-1])](*entry[1:]))
            elif type(kind) is int:
                rows.append(entry)
            else:
                _, now_ns, node, party, peer, msg, message = entry
                rows.append(events[type(message)](now_ns, node, "", party, kind, peer, msg, message))
        return rows

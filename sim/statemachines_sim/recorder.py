"""Recorder: the trace of a run, row by row; monitors hear what they watch as it happens."""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.kernel import Event, Message, Node, Step, node_of
from statemachines.trace import TraceRow, event_makers, event_row, fault_row, step_makers, step_rows
from statemachines_sim.clock import Clock
from statemachines_sim.protocol import Watch


class Recorder:
    """`rows` is the trace so far; `msg` the message that is being handled; `data`: fill the data column; `true_clock`:
    what steps are stamped by where some node's own clock is not the true one.

    `makers` make the rows of messages.  The network and the processes append a send and a deliver to `rows` themselves:
    a call for each costs a fiftieth of all that a message does.
    """

    def __init__(self, monitors: Watch | None, data: bool = False) -> None:
        self.rows: list[TraceRow] = []
        self.msg = -1
        self.true_clock: Clock | None = None
        self._monitors = monitors
        self._data = data
        self.makers = event_makers(data)
        self._steps = step_makers(data)
        self._nodes: dict[str, str] = {}

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """The observer of every node."""
        if self.true_clock is not None:
            now_ns = self.true_clock.now
        if step.children:
            self.rows.extend(step_rows(node, event, before, step, now_ns, self.msg, self._data))
        else:
            name = node.name
            host = self._nodes.get(name)
            if host is None:
                host = self._nodes[name] = node_of(name)
            dest = step.record.status._value_
            make = self._steps[type(event)]
            self.rows.append(make(now_ns, host, node.fsm.name, name, before._value_, dest, step.row, self.msg, event))
        if self._monitors is not None:
            self._monitors.step(node, event, before, step, now_ns)

    def message(self, kind: str, now_ns: int, node: str, instance: str, peer: str, msg: int, message: Message) -> None:
        """A drop or a duplicate."""
        self.rows.append(self.makers[type(message)](now_ns, node, "", instance, kind, peer, msg, message))

    def tell(self, now_ns: int, node: str, instance: str, machine: str, event: Event) -> None:
        """Something for the application, or something that a publisher has done."""
        self.rows.append(event_row(now_ns, node, instance, "tell", event, machine=machine, data=self._data))

    def ask(self, now_ns: int, node: str, instance: str, request: Any, service: str) -> None:
        """A request to a store."""
        self.rows.append(event_row(now_ns, node, instance, "ask", request, peer=service, data=self._data))

    def fault(self, now_ns: int, node: str, fault: str, peer: str = "", **details: object) -> None:
        """Something the nemesis did, or took back; `details` (numbers with their unit, what was lost) go to `data`."""
        data = msgspec.json.encode(details).decode() if details else None
        self.rows.append(fault_row(now_ns, node, fault, peer, data))
        if self._monitors is not None:
            self._monitors.fault(fault, node, now_ns)

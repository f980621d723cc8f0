"""Recorder: the trace of a run, row by row; monitors hear what they watch as it happens."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Event, Message, Node, Step, TimerFired, name_of, node_of
from statemachines.trace import TraceRow, cells_of, data_of, event_row, fault_row, step_rows
from statemachines_sim.monitor import Monitors


class Recorder:
    """`rows` is the trace so far; `msg` the message that is being handled; `data`: fill the data column."""

    def __init__(self, monitors: Monitors | None, data: bool = False) -> None:
        self.rows: list[TraceRow] = []
        self.msg = -1
        self._monitors = monitors
        self._data = data

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """The observer of every node."""
        if self._data or step.children:
            self.rows.extend(step_rows(node, event, before, step, now_ns, self.msg, self._data))
        else:
            name = node.name
            kind = "timer" if isinstance(event, TimerFired) else "step"
            self.rows.append(
                (
                    now_ns, node_of(name), node.fsm.name, name, kind, name_of(type(event)), before._value_,
                    step.record.status._value_, step.row, "", self.msg, *cells_of(event), None,
                )
            )  # fmt: skip
        if self._monitors is not None:
            self._monitors.step(node, event, before, step, now_ns)

    def message(self, kind: str, now_ns: int, node: str, instance: str, message: Message, peer: str, msg: int) -> None:
        """A send, deliver, drop or duplicate."""
        key, term, grant, first, last = cells_of(message)
        data = data_of(message) if self._data else None
        self.rows.append(
            (
                now_ns, node, "", instance, kind, name_of(type(message)), "", "", -1, peer, msg,
                key, term, grant, first, last, data,
            )
        )  # fmt: skip

    def tell(self, now_ns: int, node: str, instance: str, machine: str, event: Event) -> None:
        """Something for the application, or something that a publisher has done."""
        self.rows.append(event_row(now_ns, node, instance, "tell", event, machine=machine, data=self._data))

    def ask(self, now_ns: int, node: str, instance: str, request: Any, service: str) -> None:
        """A request to a store."""
        self.rows.append(event_row(now_ns, node, instance, "ask", request, peer=service, data=self._data))

    def fault(self, now_ns: int, node: str, fault: str, peer: str = "") -> None:
        """Something the nemesis did, or took back."""
        self.rows.append(fault_row(now_ns, node, fault, peer))
        if self._monitors is not None:
            self._monitors.fault(fault, node, now_ns)

"""Recorder: the trace of a run, row by row; monitors hear what they watch as it happens."""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.kernel import Event, Message, Node, Step, node_of
from statemachines.trace import DESCRIBED, TraceRow, data_of, describe, event_row, fault_row, step_rows
from statemachines_sim.clock import Clock
from statemachines_sim.monitor import Monitors

Tail = tuple[str | None, int | None, int | None, int | None, int | None, str | None]
"""key, term, grant, first, last and data of a message: the same in every row about it."""


NO_DATA: tuple[str | None] = (None,)


class Recorder:
    """`rows` is the trace so far; `msg` the message that is being handled; `data`: fill the data column; `true_clock`:
    what steps are stamped by where some node's own clock is not the true one."""

    def __init__(self, monitors: Monitors | None, data: bool = False) -> None:
        self.rows: list[TraceRow] = []
        self.msg = -1
        self.true_clock: Clock | None = None
        self._monitors = monitors
        self._data = data
        self._nodes: dict[str, str] = {}

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """The observer of every node."""
        if self.true_clock is not None:
            now_ns = self.true_clock.now
        if step.children or self._data:
            self.rows.extend(step_rows(node, event, before, step, now_ns, self.msg, self._data))
        else:
            found = DESCRIBED.get(type(event)) or describe(type(event))
            name = node.name
            host = self._nodes.get(name)
            if host is None:
                host = self._nodes[name] = node_of(name)
            # A tuple and its tail are put together faster than they are unpacked into one.
            self.rows.append(
                (
                    now_ns, host, node.fsm.name, name, found[1], found[0], before._value_,
                    step.record.status._value_, step.row, "", self.msg,
                )
                + found[2](event)
                + NO_DATA
            )  # fmt: skip
        if self._monitors is not None:
            self._monitors.step(node, event, before, step, now_ns)

    def sent(self, now_ns: int, node: str, party: str, message: Message, to: str, msg: int) -> tuple[str, Tail]:
        """A send; the name and the tail that later rows about the message have too."""
        name, _, cells = DESCRIBED.get(type(message)) or describe(type(message))
        tail: Tail = cells(message) + ((data_of(message),) if self._data else NO_DATA)
        self.rows.append((now_ns, node, "", party, "send", name, "", "", -1, to, msg) + tail)
        return name, tail

    def message(
        self, kind: str, now_ns: int, node: str, instance: str, name: str, peer: str, msg: int, tail: Tail
    ) -> None:
        """A deliver, drop or duplicate."""
        self.rows.append((now_ns, node, "", instance, kind, name, "", "", -1, peer, msg) + tail)

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

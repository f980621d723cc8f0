"""Data recorder: a recorder whose rows have all that a replay needs: events, local times, records."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Event, Node, Step
from statemachines.trace.row import record_row, step_rows, with_local_time
from statemachines_sim.observer import Observer
from statemachines_sim.recorder import Recorder


class DataRecorder(Recorder):
    """In place of `Recorder`: each machine's record is in the trace after its first step, and at the end."""

    def __init__(self, monitors: Observer | None) -> None:
        super().__init__(monitors, data=True)
        self._nodes: dict[str, Node[Any]] = {}

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """The observer of every node."""
        true_ns = now_ns if self.true_clock is None else self.true_clock.now
        own, *children = step_rows(node, event, before, step, true_ns, self.msg, True)
        self.note(own if true_ns == now_ns else with_local_time(own, now_ns))
        for row in children:
            self.note(row)
        if self._nodes.get(node.name) is not node:
            self._nodes[node.name] = node
            self.note(record_row(true_ns, node, "first"))
        if self._monitors is not None:
            self._monitors.step(node, event, before, step, true_ns)

    def end(self, now_ns: int) -> None:
        """The run is over."""
        for _, node in sorted(self._nodes.items()):
            self.note(record_row(now_ns, node, "last"))
        self._nodes.clear()

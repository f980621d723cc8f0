"""Silent recorder: a recorder that makes no rows, for runs of which only the outcome counts; monitors hear
everything."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Event, Message, Node, Step
from statemachines_sim.recorder import Entry, Recorder
from statemachines_sim.run_observer import RunObserver


class SilentRecorder(Recorder):
    """In place of `Recorder`: `rows` stays empty."""

    def __init__(self, monitors: RunObserver | None, data: bool = False) -> None:
        super().__init__(monitors, data)
        self.note = self.note_parts = _let_go

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """Monitors only."""
        if self.true_clock is not None:
            now_ns = self.true_clock.now
        if self._watch_step is not None:
            self._watch_step(node, event, before, step, now_ns)

    def message(self, kind: str, now_ns: int, node: str, instance: str, peer: str, msg: int, message: Message) -> None:
        """No row."""

    def tell(self, now_ns: int, node: str, instance: str, machine: str, event: Event) -> None:
        """No row."""

    def ask(self, now_ns: int, node: str, instance: str, request: Any, service: str) -> None:
        """No row."""

    def fault(self, now_ns: int, node: str, fault: str, peer: str = "", **details: object) -> None:
        """Monitors only."""
        if self._monitors is not None:
            self._monitors.fault(fault, node, now_ns)


def _let_go(entry: Entry) -> None:
    """Nothing is kept."""

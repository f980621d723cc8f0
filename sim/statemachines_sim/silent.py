"""Silent: a recorder that makes no rows, for runs of which only the outcome counts; monitors hear everything."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Event, Message, Node, Step
from statemachines_sim.recorder import Recorder, Tail

NO_TAIL: Tail = (None, None, None, None, None, None)


class Silent(Recorder):
    """In place of `Recorder`: `rows` stays empty."""

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """Monitors only."""
        if self._monitors is not None:
            self._monitors.step(node, event, before, step, now_ns)

    def sent(self, now_ns: int, node: str, party: str, message: Message, to: str, msg: int) -> tuple[str, Tail]:
        """Nothing that rows about the message would have."""
        return "", NO_TAIL

    def message(
        self, kind: str, now_ns: int, node: str, instance: str, name: str, peer: str, msg: int, tail: Tail
    ) -> None:
        """No row."""

    def tell(self, now_ns: int, node: str, instance: str, machine: str, event: Event) -> None:
        """No row."""

    def ask(self, now_ns: int, node: str, instance: str, request: Any, service: str) -> None:
        """No row."""

    def fault(self, now_ns: int, node: str, fault: str, peer: str = "") -> None:
        """Monitors only."""
        if self._monitors is not None:
            self._monitors.fault(fault, node, now_ns)

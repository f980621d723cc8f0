"""MachineLog: the rows of a machine whose work is done without its steps."""

from __future__ import annotations

from threading import RLock
from typing import Any, Final

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.lives import Life
from statemachines.drivers.node import NodeHost
from statemachines.drivers.runtime import Runtime
from statemachines.kernel import Event, Fsm, Node
from statemachines.wire import Packet

_lock: Final = RLock()
"""Of all logs: those of one life say when things happened in their order, whichever thread wrote."""


class MachineLog(Runtime):
    """Steps the machine beside what a driver does, and writes what a trace has of a node.  Nothing comes of a step, and
    there is none where `life` has no log (`is_on`).  For any thread; timers fire at the next step."""

    def __init__(self, fsm: Fsm[Any], record: Any, life: Life | None) -> None:
        self.is_on = life is not None and life.log is not None
        if life is not None and self.is_on:
            host = NodeHost(life.name)
            super().__init__(
                life.name, life.number, {}, handle=host.receive, answered=host.feed,
                route_tell=lambda party, event: None, log=life.log,
            )  # fmt: skip
            host.add(Node(fsm, record, name=life.name, now_ns=steady_ns(), observe=self.observe))
            self.attach(host, self)

    def note_step(self, event: Event | None, sender: str = "") -> None:
        """A step with the event, which `sender` has sent ("": the application); None: timers alone."""
        if self.is_on:
            with _lock:
                self.run(self._host.fire)
                if sender:
                    self.receive(Packet(sender, self.life, -1, event))
                elif event is not None:
                    self.run(lambda now_ns: self._host.feed(self.life, event, now_ns))

    def send(self, packet: Packet[Any]) -> None:
        """The driver has sent it already."""

    def _rearm(self) -> None:
        """The driver has timers of its own."""

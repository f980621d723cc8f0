"""Operation log: what one process does at a queue, as the log of a node (`statemachines.trace.log`): every step of its
operations, what each asks of the memory, and what it tells.

    with OperationLog(directory, "shipper-1") as log:
        with CircularQueue.attach("jobs", instruments=Instruments(observe=log.observe, attached=log.attached)) as queue:
            ...

The rows of a step, and of the access that it asks for, are the operating system's before the access is made: a process
that was killed was in the last state that its log has.  Rows are stamped by the clock of the queue, which all processes
share: an access lies between the row that asks for it and the step that its answer makes.  Whoever is observed runs
the declared machines, never the short way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from statemachines.cursor_recovery.operation import Operation
from statemachines.drivers.lives import begin_log
from statemachines.kernel import Ask, Call, Event, Node, Step, Tell, TraceColumns, fresh, incarnation
from statemachines.trace import TraceRow, fault_row
from statemachines.trace.row import event_makers, step_makers

PROTOCOL = "cursor_recovery"
_EVENT, _STEP = event_makers(False), step_makers(False)


class Attached(Event, frozen=True):
    """Row `tell` of a process, before its first operation in a slot: as which owner it takes part, and in what."""

    columns: ClassVar = TraceColumns(grant="slot", term="incarnation", first="capacity", last="threshold_ns")

    slot: int
    incarnation: int
    capacity: int
    threshold_ns: int


class OperationLog:
    """The log of life `number` of the process `node`, which must be its first and only one; `clock`: that of the queue.

    Each operation is an instance of its own, `NODE~NUMBER/1`, `/2` and so on, whatever thread it is of.  A forked child
    writes nothing here: what it does is no life of this process.  `with` closes it.  Raises `ConfigurationError` where
    the life has a log.
    """

    def __init__(
        self, directory: Path, node: str, number: int = 1, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.node = node
        self.life = incarnation(node, number)
        self._clock = clock
        self._pid = os.getpid()
        self._operations = 0
        self._owner = (-1, 0)
        self._queues: set[str] = set()
        self._log = begin_log(directory, self.life, [PROTOCOL])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def note_attached(self, queue: str) -> None:
        """For `Instruments.attached`: name the queue, by its identity; one queue a log."""
        if os.getpid() == self._pid and queue not in self._queues:
            self._queues.add(queue)
            self._log.name_store(PROTOCOL, queue)

    def observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """For `Instruments.observe`: the rows of one step."""
        if os.getpid() != self._pid:
            return
        if isinstance(event, Call):
            self._operations += 1
        at_ns, life, machine = self._clock(), self.node, node.fsm.full_name
        instance = fresh(self.life, self._operations)
        source, dest = before._value_, step.record.status._value_
        rows = self._attached(step.record, at_ns)
        rows.append(_STEP[type(event)](at_ns, life, machine, instance, source, dest, step.row, -1, event))
        for effect in step.effects:
            if isinstance(effect, Ask):
                request = effect.request
                rows.append(_EVENT[type(request)](at_ns, life, "", instance, "ask", effect.service, -1, request))
            elif isinstance(effect, Tell):
                told = effect.event
                rows.append(_EVENT[type(told)](at_ns, life, machine, instance, "tell", "", -1, told))
        self._log.write(rows)

    def _attached(self, record: Operation, at_ns: int) -> list[TraceRow]:
        owner = (record.slot, record.incarnation)
        if owner == self._owner:
            return []
        self._owner = owner
        attached = Attached(*owner, record.queue.capacity, record.queue.threshold_ns)
        return [_EVENT[Attached](at_ns, self.node, "", self.life, "tell", "", -1, attached)]

    def fault(self, name: str) -> None:
        """Note what is about to be done to this process, or was: kill, pause, resume."""
        self._log.write([fault_row(self._clock(), self.node, name)])

    def close(self) -> None:
        """No more rows: the log is ended.  Close the queue first: what is done from now on is not logged."""
        self._pid = 0
        self._log.close()

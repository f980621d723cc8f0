"""Stepped process: a real process at a real segment that makes one memory access each time it is told to.

    with SteppedQueue(path, queue, clock) as stage:
        writer = stage.start("writer-0", WRITER, new_writer, [(b"AAAA", 1)])
        writer.begin()
        writer.access()
        writer.kill()

So any order of accesses that a model has can be had between processes that really die.  What a process was told stands
in `reports`, as it said so itself; the segment is looked at from outside.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from statemachines.cursor_recovery.memory import Queue
from statemachines.cursor_recovery.operation import Operation
from statemachines.cursor_recovery.reader import Read, ReadDone, Skipped, Taken
from statemachines.cursor_recovery.writer import Outcome, Reserved, Write, WriteDone
from statemachines.drivers.cursor_recovery.memory_access import MappedMemory, MemoryAccess
from statemachines.drivers.cursor_recovery.owner import is_locked, take_slot
from statemachines.drivers.cursor_recovery.segment import MappedSegment, attach_segment, create_segment
from statemachines.kernel import Ask, Effect, Fsm, Node, Request, Tell

OUT_OF_HANDS = (Outcome.WRITTEN.value, Outcome.FENCED.value, Outcome.OVERSIZE.value)
"""After any other outcome a writer tries the same message again."""
_LENGTH = 4


class OperationTell(msgspec.Struct, frozen=True, array_like=True):
    """What an operation told: `event` write_done, read_done or skipped; of a skipped range `position` and `last`."""

    event: str
    outcome: str
    position: int
    payload: bytes = b""
    messages: int = 0
    last: int = -1


class StepReport(msgspec.Struct, frozen=True, array_like=True):
    """After one step: the state of the operation, whether it is over, and what it told."""

    status: str
    is_over: bool
    told: tuple[OperationTell, ...] = ()


class OperationJob(NamedTuple):
    """What a process runs: a machine, its record for each operation, what it writes (none: it reads)."""

    fsm: Fsm[Any]
    fresh: Callable[[Queue, int, int], Operation]
    blocks: Sequence[tuple[bytes, int]]


class SteppedQueue:
    """The stage: a segment at `path`, made anew, a clock that all processes share and that stands still, and the
    processes.  In the end they are killed, and the segment is removed."""

    def __init__(self, path: Path, queue: Queue) -> None:
        self.path = path
        self.queue = queue
        self.processes: dict[str, SteppedProcess] = {}
        self._clock = mmap.mmap(-1, 8)
        create_segment(path, queue)
        self.segment: MappedSegment = attach_segment(path)
        self.words = MappedMemory(self.segment)

    @property
    def now_ns(self) -> int:
        """The time of everybody's clock."""
        return int.from_bytes(self._clock[:], "little")

    @now_ns.setter
    def now_ns(self, now_ns: int) -> None:
        self._clock[:] = now_ns.to_bytes(8, "little")

    def start(
        self,
        name: str,
        fsm: Fsm[Any],
        fresh: Callable[[Queue, int, int], Operation],
        blocks: Sequence[tuple[bytes, int]] = (),
    ) -> SteppedProcess:
        """A process that writes these blocks, or reads if there are none; it has its slot when this returns."""
        process = self.processes[name] = SteppedProcess(self, name, OperationJob(fsm, fresh, blocks))
        return process

    def __enter__(self) -> SteppedQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.kill()
        self.segment.close()
        self.path.unlink()


class SteppedProcess:
    """One process, seen from outside: `status` of its operation ("": it is in none), `done` blocks that are out of its
    hands."""

    def __init__(self, stage: SteppedQueue, name: str, job: OperationJob) -> None:
        self.name = name
        self.blocks = job.blocks
        self.status = ""
        self.done = 0
        self.alive = True
        self.reports: list[StepReport] = []
        commands, self._commands = os.pipe()
        self._reports, reports = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._commands)
            os.close(self._reports)
            _run(stage, job, commands, reports)
        os.close(commands)
        os.close(reports)
        self._report()

    @property
    def has_more(self) -> bool:
        """It lives, and has something to do: a reader always has."""
        return self.alive and (bool(self.status) or not self.blocks or self.done < len(self.blocks))

    @property
    def tells(self) -> list[OperationTell]:
        """All that its operations told."""
        return [told for report in self.reports for told in report.told]

    def begin(self) -> StepReport:
        """Begin the next operation: it asks for its first access, and does not make it yet."""
        return self._do(f"begin {self.done}")

    def access(self) -> StepReport:
        """Make the access that it has asked for."""
        return self._do("access")

    def go_on(self) -> StepReport:
        """The next access, of the next operation if it is in none."""
        return self.access() if self.status else self.begin()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.alive:
            self.alive = False
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._commands)
            os.close(self._reports)

    def _do(self, command: str) -> StepReport:
        os.write(self._commands, f"{command}\n".encode())
        report = self._report()
        self.reports.append(report)
        self.status = "" if report.is_over else report.status
        self.done += sum(told.outcome in OUT_OF_HANDS for told in report.told if told.event == "write_done")
        return report

    def _report(self) -> StepReport:
        return msgspec.msgpack.decode(_read(self._reports), type=StepReport)


# -- in the process -------------------------------------------------------------------------------------------------


def _run(stage: SteppedQueue, job: OperationJob, commands: int, reports: int) -> None:
    """The forked process, to its end."""
    try:
        segment = attach_segment(stage.path)
        words = MappedMemory(segment)
        owner = take_slot(words)
        record = job.fresh(segment.queue, owner.slot, owner.incarnation)
        performer = MemoryAccess(words, lambda slot: is_locked(segment.fd, slot), lambda: stage.now_ns)
        _write(reports, StepReport("", True))
        node: Node[Any] | None = None
        request: Request | None = None
        for line in os.fdopen(commands):
            command, _, number = line.strip().partition(" ")
            if command == "begin":
                node = Node(job.fsm, record, name="stepped", now_ns=0)
                call = Write(*job.blocks[int(number)]) if job.blocks else Read()
                report, request = _stepped(node, node.feed(call, 0))
            else:
                assert node is not None
                assert request is not None
                report, request = _stepped(node, node.feed(performer.perform(request), 0))
            _write(reports, report)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _stepped(node: Node[Any], effects: list[Effect]) -> tuple[StepReport, Request | None]:
    """What came of a step, and the next request."""
    asked = next((effect.request for effect in effects if isinstance(effect, Ask)), None)
    events = [effect.event for effect in effects if isinstance(effect, Tell)]
    told = tuple(_to_tell(event) for event in events if not isinstance(event, Reserved | Taken))  # heads say that too
    return StepReport(node.record.status.value, asked is None, told), asked


def _to_tell(event: Any) -> OperationTell:
    match event:
        case WriteDone(outcome, position):
            return OperationTell("write_done", outcome.value, position)
        case ReadDone(read_outcome, position, messages, payload):
            return OperationTell("read_done", read_outcome.value, position, payload, messages)
        case Skipped(first, last):
            return OperationTell("skipped", "", first, last=last)
    raise TypeError(type(event).__name__)


def _write(fd: int, report: StepReport) -> None:
    raw = msgspec.msgpack.encode(report)
    os.write(fd, len(raw).to_bytes(_LENGTH, "little") + raw)


def _read(fd: int) -> bytes:
    """One report; `EOFError` where the process is gone."""
    head = os.read(fd, _LENGTH)
    if len(head) < _LENGTH:
        raise EOFError("a stepped process ended by itself")
    return os.read(fd, int.from_bytes(head, "little"))

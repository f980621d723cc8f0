"""Crash run: real processes at a real queue, killed or stopped before chosen memory accesses; judged from outside.

    python -m statemachines.testing.cursor_recovery.crash_run --runs 1000 --first 0 [--trace out/crashes]

Each process is forked from this one, attaches by name, and writes what it did into a file of its own, a line at a time:
a writer what it begins and what was acknowledged, a reader what it got.  A process that was killed is followed by its
next life.  In the end one more reader takes all that is left, and every cursor of the dead must become free.

Access judge: the logs of all processes of a run, fed to the machines that watch cursors and blocks (`observers`).

A log tells of an access before it is made and after, so the order between processes is known only so far.  It is put so
that it cannot contradict what happened: whoever takes a cursor, or moves a head, did so before the step that follows;
whoever frees a cursor did so after asking for it.  What a process was about to do when it was killed happened if what
others did afterwards says so.
"""

from __future__ import annotations

import argparse
import mmap
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from statemachines.cursor_recovery.layout import GUARD, Layout
from statemachines.cursor_recovery.memory import (
    FREE,
    HEADER,
    NONE,
    READ_HEAD,
    WRITE_HEAD,
    CompareAndSwap,
    CopyIn,
    Queue,
    Store,
    Stored,
    Swapped,
    token,
)
from statemachines.cursor_recovery.observers import Observers
from statemachines.drivers.cursor_recovery import CircularQueue, Instruments, Outcome, QueueError, ReadOutcome
from statemachines.drivers.cursor_recovery.operation_log import OperationLog
from statemachines.kernel import Answer, InvariantViolated, ProtocolError, Request
from statemachines.testing.cursor_recovery import crash_judge
from statemachines.testing.cursor_recovery.crash_judge import CrashViolation, Plan, PlannedFate, draw_plan
from statemachines.trace import COLUMNS, list_fingerprints
from statemachines.trace.log import Log, merge, read_logs
from statemachines.trace.row import Run as TracedRun

if TYPE_CHECKING:
    from statemachines.trace.parquet import TraceWriter

_Row = dict[str, Any]
"""A row by the names of its columns."""
_CHANGES = ("store", "compare_and_swap", "copy_in")
_MARKED = HEADER - 4
"""The cell with which a block is marked, from its beginning."""


class Made(NamedTuple):
    """An access that changes something, or (without a request) the death of an owner, at `time_ns` at the latest, of a
    cursor that is freed at the earliest; `answer` None: its process was killed before it said."""

    time_ns: int
    life: str
    number: int
    slot: int
    incarnation: int
    request: Request | None
    answer: Answer | None
    source: str


def judge_accesses(queue: Queue, logs: Iterable[Log]) -> list[CrashViolation]:
    """What was done that must never be: the first of it, since what follows rests on it."""
    observers = Observers(queue)
    for one in sorted(_settle(queue, [made for log in logs for made in _list_made(log)]), key=lambda one: one[:3]):
        try:
            if one.request is None:
                observers.observe_death(one.slot, one.incarnation)
            elif one.answer is not None:
                observers.observe_access(one.slot, one.incarnation, one.request, one.answer, one.time_ns)
        except (ProtocolError, InvariantViolated) as error:
            return [CrashViolation("EXCL", f"{one.life}: {one.request or 'died'}: {error}")]
    return []


def _list_made(log: Log) -> Iterator[Made]:
    """What a life did, in its order."""
    named = (dict(zip(COLUMNS[2:], row, strict=False)) for row in log.rows)
    rows = [row for row in named if row["event"] not in ("pause", "resume")]
    owner = (-1, 0)
    for number, (row, after) in enumerate(pairwise([*rows, None])):
        assert row is not None
        if row["event"] == "attached":
            owner = (row["grant"], row["term"])
        elif row["kind"] == "fault" and row["event"] == "kill":
            yield Made(row["t_ns"], log.head.life, number, *owner, None, None, "")
        elif row["kind"] == "ask" and row["event"] in _CHANGES:
            request, ended = _request_of(row), _end_of(after)
            answer = None if ended is None else _answer_of(ended)
            frees = isinstance(request, CompareAndSwap) and request.address.endswith("/state") and request.value == FREE
            time_ns = row["t_ns"] if frees or ended is None else ended["t_ns"]
            source = row["event"] if ended is None else ended["source"]
            yield Made(time_ns, log.head.life, number, *owner, request, answer, source)


def _end_of(after: _Row | None) -> _Row | None:
    return after if after is not None and after["kind"] == "step" else None


def _request_of(row: _Row) -> Request:
    if row["event"] == "copy_in":
        return CopyIn(row["first"], bytes(row["last"] + 1 - row["first"]))
    word = row["first"] % (1 << 64)
    if row["event"] == "store":
        return Store(row["key"], word)
    return CompareAndSwap(row["key"], word, row["last"] % (1 << 64))


def _answer_of(row: _Row) -> Answer:
    return Swapped(bool(row["first"])) if row["event"] == "swapped" else Stored()


def _settle(queue: Queue, made: list[Made]) -> Iterator[Made]:
    """All that happened; of what the killed were about to do, that which others came upon."""
    swaps = [
        (one, one.request)
        for one in made
        if isinstance(one.request, CompareAndSwap) and isinstance(one.answer, Swapped) and one.answer.done
    ]
    for one in made:
        if one.request is None or one.answer is not None:
            yield one
        elif isinstance(one.request, CompareAndSwap) and _was_swapped(one, one.request, swaps):
            yield one._replace(answer=Swapped(True))
        elif isinstance(one.request, Store) and _was_marked(queue, one.request, swaps):
            yield one._replace(answer=Stored())


Swaps = list[tuple[Made, CompareAndSwap]]


def _was_swapped(one: Made, request: CompareAndSwap, swaps: Swaps) -> bool:
    same = [(other, swap) for other, swap in swaps if swap.address == request.address]
    if request.address in (READ_HEAD, WRITE_HEAD):  # in the end all is taken, so what was reserved was passed
        passed = any(swap.address == READ_HEAD and swap.value > request.expected for _, swap in swaps)
        return all(swap.expected != request.expected for _, swap in same) and (request.address == READ_HEAD or passed)
    if request.value != FREE:
        return any(swap.expected == request.value for _, swap in same)
    is_reclaimed = any(swap.expected == request.expected for _, swap in same)
    return not is_reclaimed and any(other.time_ns > one.time_ns and swap.expected == FREE for other, swap in same)


def _was_marked(queue: Queue, request: Store, swaps: Swaps) -> bool:
    """A reader took the block whose mark this store completes: it saw it."""
    return any(
        swap.address == READ_HEAD
        and other.source == "6_move_head"
        and request.address == queue.address(swap.expected + _MARKED)
        for other, swap in swaps
    )


STOPPED_THRESHOLDS = 3
STOP, GO = 1, 2
"""What all readers are told: begin nothing more; and, when none is in an operation, leave."""


# -- one process ----------------------------------------------------------------------------------------------------


class HeldCursors:
    """Which cursors one life has, as far as its accesses tell: it writes a line for each that it has had.

    Whether a swap took a cursor shows in the next access: only its owner sets the position to none.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._tried = ("", FREE)
        self._has = ("", FREE)
        self._since_ns = 0

    def see(self, request: Request) -> None:
        """The access that comes next."""
        if isinstance(request, CompareAndSwap):
            if request.address.endswith("/state") and request.expected == FREE:
                self._tried = (request.address, request.value)
            elif (request.address, request.expected) == self._has:
                self.end()
        elif isinstance(request, Store) and request == Store(self._tried[0].replace("state", "position"), NONE):
            self._has, self._since_ns = self._tried, time.monotonic_ns()

    def end(self) -> None:
        """It is about to give the cursor back, or to die."""
        if self._has[1] != FREE:
            os.write(self._file, f"{self._has[0]} {self._since_ns} {time.monotonic_ns()}\n".encode())
            self._has = ("", FREE)


class PlannedKill:
    """The hook of one life: before its access number `fate.access` what is to happen happens."""

    def __init__(self, fate: PlannedFate, holding: HeldCursors, log: OperationLog | None) -> None:
        self.fate = fate
        self.holding = holding
        self.log = log
        self.access = 0
        self.is_on = False

    def __call__(self, request: Request) -> int | None:
        self.holding.see(request)
        if not self.is_on or self.fate.kind == "none":
            return None
        self.access += 1
        if self.access < self.fate.access:
            return None
        if isinstance(request, CopyIn) and self.fate.cells is not None and self.access == self.fate.access:
            return self.fate.cells  # so much is copied; the next call, of the same copy, comes too late
        self.is_on = False
        kills = self.fate.kind == "kill"
        if kills:
            self.holding.end()
        self._note("kill" if kills else "pause")
        os.kill(os.getpid(), signal.SIGKILL if kills else signal.SIGSTOP)
        self._note("resume")
        return None

    def _note(self, fault: str) -> None:
        if self.log is not None:
            self.log.fault(fault)


class CrashLife:
    """A process to be: which party, which life of it, and what it works on; `logs`: where it logs its operations."""

    def __init__(self, plan: Plan, name: str, folder: Path, stop: mmap.mmap, logs: Path | None) -> None:
        self.plan, self.name, self.folder, self.stop, self.logs = plan, name, folder, stop, logs

    def attach(self, node: str, life: int, fate: PlannedFate) -> CircularQueue[bytes]:
        """An end of the queue whose accesses are counted from now on."""
        log = None if self.logs is None else OperationLog(self.logs, node, life + 1)
        doom = PlannedKill(fate, HeldCursors(self.folder / f"held-{node}~{life + 1}"), log)
        observe = None if log is None else log.observe
        instruments = Instruments(hook=doom, observe=observe, declared=self.plan.declared)
        queue: CircularQueue[bytes] = CircularQueue.attach(self.name, instruments=instruments)
        doom.is_on = True
        return queue

    def write(self, writer: int, life: int, fate: PlannedFate) -> None:
        """Go on with the blocks of a writer, after the last that an earlier life has begun."""
        path = self.folder / f"writer-{writer}"
        begun = sum(line[0] == "b" for line in lines_of(path))
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        messages = [message for (who, _), message in crash_judge.messages_in(self.plan).items() if who == writer]
        queue = self.attach(f"writer-{writer}", life, fate)
        first = 0
        for number, block in enumerate(self.plan.writers[writer]):
            last = first + len(block)
            if number >= begun:
                os.write(log, f"b {first} {last}\n".encode())
                queue.put_many(messages[first:last], timeout=self.plan.patience_s)
                os.write(log, f"a {first} {last}\n".encode())
            first = last

    def read(self, reader: int, life: int, fate: PlannedFate) -> None:
        """Get whatever comes, until everybody is told to stop; and stay until nobody is in an operation any more: who
        comes upon the old cursor of one that leaves just then counts what it may have lost."""
        log = os.open(self.folder / f"reader-{reader}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        queue = self.attach(f"reader-{reader}", life, fate)
        while not self.stop[0]:
            if _log_deliveries(queue, log, life):
                continue
            time.sleep(0.0005)
        self.stop[1 + reader] = 1
        while self.stop[0] != GO:
            time.sleep(0.0005)


def _log_deliveries(queue: CircularQueue[bytes], log: int, life: int) -> bool:
    got = queue.try_get_many()
    for message in got.message or ():
        os.write(log, f"{life} {got.position} {message.hex()}\n".encode())
    return got.outcome is ReadOutcome.DELIVERED


def lines_of(path: Path) -> list[str]:
    """What a process noted, if it came to that."""
    return path.read_text().splitlines() if path.exists() else []


def fork(work: Callable[[], None]) -> int:
    """Do it in a process of its own, which ends with it; its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


# -- one run --------------------------------------------------------------------------------------------------------


class CrashRun:
    """One run of a plan: starts, restarts, lets stopped ones go on, and in the end gathers the evidence.

    `logs`: where each life logs its operations, which it then makes by the declared machines alone (None: nowhere).
    """

    def __init__(self, plan: Plan, folder: Path, logs: Path | None = None) -> None:
        self.plan = plan
        self.folder = folder
        self.logs = logs
        self.seen = crash_judge.Evidence()
        self.name = f"crash-{os.getpid()}-{plan.seed}"
        self.threshold_s = plan.threshold_ms / 1000
        self.stop = mmap.mmap(-1, 1 + len(plan.fates_of_readers))
        self.stopped: dict[int, float] = {}
        self.living: dict[int, tuple[str, int, int]] = {}

    def play(self) -> crash_judge.Evidence:
        """The whole run."""
        log = None if self.logs is None else OperationLog(self.logs, "rest")
        queue: CircularQueue[bytes] = CircularQueue.create(
            self.name,
            instruments=Instruments(observe=None if log is None else log.observe),
            capacity=self.plan.capacity,
            read_cursors=self.plan.read_cursors,
            write_cursors=self.plan.write_cursors,
            threshold=self.threshold_s,
        )
        with queue:
            self._watch_processes(queue)
            self._take_the_rest(queue)
            if log is not None:
                log.close()
            self._gather(queue)
        return self.seen

    def _start(self, role: str, number: int, life: int) -> None:
        fates = (self.plan.fates_of_writers if role == "writer" else self.plan.fates_of_readers)[number]
        fate = fates[life] if life < len(fates) else PlannedFate()
        one = CrashLife(self.plan, self.name, self.folder, self.stop, self.logs)
        if role == "writer":
            pid = fork(lambda: one.write(number, life, fate))
        else:
            self.stop[1 + number] = 0
            pid = fork(lambda: one.read(number, life, fate))
        self.living[pid] = (role, number, life)

    def _watch_processes(self, queue: CircularQueue[bytes]) -> None:
        """Until every writer is through and the readers have been told to stop."""
        for role, count in (("writer", len(self.plan.writers)), ("reader", len(self.plan.fates_of_readers))):
            for number in range(count):
                self._start(role, number, 0)
        until_s = time.monotonic() + self.plan.patience_s
        while self.living:
            if time.monotonic() > until_s:
                self._end_all()
                return
            self._sample_heads(queue)
            self._let_go_on()
            self._let_go()
            if not self._look_at_processes():
                time.sleep(0.001)

    def _look_at_processes(self) -> bool:
        """Whether something has become of one of ours; the process may have other children."""
        moved = False
        for pid in list(self.living):
            found, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
            moved = moved or found != 0
            if found and os.WIFSTOPPED(status):
                self.stopped[pid] = time.monotonic() + STOPPED_THRESHOLDS * self.threshold_s
            elif found:
                self._take_end(pid, status)
        return moved

    def _let_go_on(self) -> None:
        now_s = time.monotonic()
        for pid in [pid for pid, until_s in self.stopped.items() if now_s >= until_s]:
            del self.stopped[pid]
            os.kill(pid, signal.SIGCONT)

    def _let_go(self) -> None:
        readers = [number for role, number, _ in self.living.values() if role == "reader"]
        if self.stop[0] == STOP and len(readers) == len(self.living) and all(self.stop[1 + one] for one in readers):
            self.stop[0] = GO

    def _take_end(self, pid: int, status: int) -> None:
        role, number, life = self.living.pop(pid)
        if os.WIFSIGNALED(status):
            self.seen.readers_killed += role == "reader"
            self._start(role, number, life + 1)
        elif os.WEXITSTATUS(status):
            self.seen.stuck.append(("WRITE" if role == "writer" else "READ", f"{role} {number} failed"))
            self.stop[0] = self.stop[0] or STOP
        if not any(role == "writer" for role, _, _ in self.living.values()):
            self.stop[0] = self.stop[0] or STOP

    def _end_all(self) -> None:
        who = sorted(f"{role} {number}" for role, number, _ in self.living.values())
        self.seen.stuck.append(("WRITE", f"{', '.join(who)}: still at it after {self.plan.patience_s} s"))
        for pid in self.living:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.living.clear()

    def _sample_heads(self, queue: CircularQueue[bytes]) -> None:
        words = _words(queue)
        self.seen.heads.append((words.read_head.load(), words.write_head.load(), words.read_head.load()))

    def _take_the_rest(self, queue: CircularQueue[bytes]) -> None:
        """READ: all that is there comes to one more reader, at the latest when the dead are aged."""
        log = os.open(self.folder / "reader-9", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        until_s = time.monotonic() + self.plan.patience_s
        while queue.stats().used:
            if not _log_deliveries(queue, log, 0):
                time.sleep(0.001)
            if time.monotonic() > until_s:
                self.seen.stuck.append(("READ", f"what is left does not come: {queue.stats()}"))
                break
        os.close(log)

    def _gather(self, queue: CircularQueue[bytes]) -> None:
        seen, messages = self.seen, crash_judge.messages_in(self.plan)
        for writer in range(len(self.plan.writers)):
            for line in lines_of(self.folder / f"writer-{writer}"):
                kind, first, last = line.split()
                names = [(writer, number) for number in range(int(first), int(last))]
                seen.begun |= {name: messages[name] for name in names}
                if kind == "a":
                    seen.acknowledged |= set(names)
        for path in self.folder.glob("reader-*"):
            reader = int(path.name.rpartition("-")[2])
            for line in lines_of(path):
                life, position, raw = line.split(" ")
                seen.deliveries.append(crash_judge.ReadMessage(reader, int(life), int(position), bytes.fromhex(raw)))
        for path in self.folder.glob("held-*"):
            for line in lines_of(path):
                cursor, since_ns, until_ns = line.split(" ")
                seen.held.append(
                    crash_judge.HeldBlock(cursor, path.name.partition("-")[2], int(since_ns), int(until_ns))
                )
        if not seen.stuck:
            seen.stuck += check_that_cursors_become_free(queue, self.threshold_s)
        seen.lost = queue.stats().lost
        seen.guards = guards_hold(queue)


def _words(queue: CircularQueue[bytes]) -> Any:
    here = queue._here
    assert here is not None
    return here.words


def guards_hold(queue: CircularQueue[bytes]) -> bool:
    """Read from the file, not through the product."""
    raw = queue.path.read_bytes()
    layout = Layout(queue._segment.queue)
    sides = (raw[layout.guard_before : layout.data], raw[layout.guard_after : layout.guard_after + GUARD])
    return all(side == b"gU" * (GUARD // 2) for side in sides)


def check_that_cursors_become_free(queue: CircularQueue[bytes], threshold_s: float) -> list[tuple[str, str]]:
    """STALE and WRITE: with every free cursor taken by us, who needs one gets it from the dead; and the empty queue
    takes a message as large as it is."""
    here = queue._here
    assert here is not None
    words, found = here.words, []
    time.sleep(1.1 * threshold_s)
    for pool, attempt in (("write", lambda: queue.try_put(b"")), ("read", queue.try_get)):
        states = words.states[pool]
        dead = [state for state in states if state.load() != FREE]
        ours = token(here.owner.slot, here.owner.incarnation, time.monotonic_ns())
        held = [state for state in states if state.cas(FREE, ours) == FREE]
        for _ in dead:
            attempt()
            held += [state for state in dead if state.cas(FREE, ours) == FREE]  # the next one needs another
        if any(state.load() not in (FREE, ours) for state in dead):
            found.append(("STALE", f"{pool} cursors of the dead stay taken: {queue.stats()}"))
        for state in held:
            state.cas(ours, FREE)
    while queue.try_get().outcome is ReadOutcome.DELIVERED:
        pass
    if (outcome := queue.try_put(bytes(words.capacity - 16))) is not Outcome.WRITTEN:
        found.append(("WRITE", f"an empty queue does not take what fits: {outcome}, {queue.stats()}"))
    return found


def run_seed(seed: int, trace: TraceWriter | None = None) -> list[crash_judge.CrashViolation]:
    """The run of a seed, and what it broke."""
    return run_plan(draw_plan(seed), trace)


def run_plan(plan: Plan, trace: TraceWriter | None = None) -> list[crash_judge.CrashViolation]:
    """One run, and what it broke; its rows go to `trace`."""
    with tempfile.TemporaryDirectory(prefix="gapless-crash-") as made:
        folder = Path(made)
        logs = None if trace is None else folder / "logs"
        try:
            found = crash_judge.judge(plan, CrashRun(plan, folder, logs).play())
        except QueueError as error:
            found = [crash_judge.CrashViolation("INTEG", f"{type(error).__name__}: {error}")]
        if trace is not None and logs is not None:
            written = read_logs(logs)
            found += judge_accesses(plan.queue, written)
            trace.add(run_of(plan, found), list(merge(written)))
        return found


def run_of(plan: Plan, found: list[crash_judge.CrashViolation]) -> TracedRun:
    """The line of a run in the table of runs: its plan, and what it broke."""
    return TracedRun(
        run=plan.seed,
        scenario="crash",
        seed=plan.seed,
        parameters=msgspec.json.encode(plan).decode(),
        outcome=found[0].name if found else "held",
        versions=msgspec.json.encode({"gapless": version("gapless")}).decode(),
        fingerprints=msgspec.json.encode(list_fingerprints(["cursor_recovery"])).decode(),
    )


def _writer(directory: Path, first: int) -> TraceWriter:
    """Loaded only where it is asked for."""
    from statemachines.trace.parquet import TraceWriter

    return TraceWriter(directory, f"crash-{first}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run many seeds; 1 if one of them broke a property."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--trace", type=Path, metavar="DIR", help="write a trace for `gapless analyze`")
    given = parser.parse_args(arguments)
    broken = 0
    begun_s = time.monotonic()
    with nullcontext() if given.trace is None else _writer(given.trace, given.first) as trace:
        for seed in range(given.first, given.first + given.runs):
            for name, text in run_seed(seed, trace):
                broken += 1
                print(f"seed {seed}: {name}: {text}", flush=True)
    print(f"{given.runs} runs, {broken} violations, {time.monotonic() - begun_s:.1f} s")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())

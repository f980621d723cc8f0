"""Log: what a real node appends to a trace while it lives, and how the logs of a run become one trace.

One file per life of a node, `NODE~NUMBER.ndjson`: a head line that names the node and its tables, then a line per row.
The rows of a step reach the operating system before any of its effects is performed, so a SIGKILL loses none of them;
a torn last line is dropped and counted.

Merged, the rows of each node keep their order, a send comes before its deliver, and otherwise time decides.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Final

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.trace.row import COLUMNS, TraceRow

FORMAT: Final = 1
LINE_MAX: Final = 16 * 2**20
"""A line longer than this is not a row."""


class Head(msgspec.Struct, frozen=True):
    """The first line: `number` is what the node's messages are numbered from (`number` << 40)."""

    gapless_log: int
    node: str
    life: str
    number: int
    fingerprint: str
    versions: dict[str, str]


class LogRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line: the columns of the trace without run and seq; what has its default is left out."""

    t_ns: int
    node: str
    kind: str
    event: str
    machine: str = ""
    instance: str = ""
    source: str = ""
    dest: str = ""
    row: int = -1
    peer: str = ""
    msg: int = -1
    key: str | None = None
    term: int | None = None
    grant: int | None = None
    first: int | None = None
    last: int | None = None
    data: str | None = None


_POSITIONS: Final = tuple(COLUMNS[2:].index(field) for field in LogRow.__struct_fields__)
_FIELDS: Final = tuple(LogRow.__struct_fields__.index(column) for column in COLUMNS[2:])


class TraceLog:
    """The log of one life of a node.  `clock()` is the time of its rows: nanoseconds since the epoch, but as steady as
    the monotonic clock."""

    def __init__(self, directory: Path, head: Head) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{head.life}.ndjson"
        self._encoder = msgspec.json.Encoder()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        try:
            self._file = os.open(self.path, flags, 0o644)
        except OSError as error:
            rule = f"cannot be created ({error.strerror}); every life of a node needs a number of its own"
            raise ConfigurationError("trace log", str(self.path), rule) from error
        self._write(self._encoder.encode(head) + b"\n")

    def write(self, rows: list[TraceRow]) -> None:
        """Append rows; they are the operating system's when this returns."""
        lines = [LogRow(*(row[position] for position in _POSITIONS)) for row in rows]
        self._write(self._encoder.encode_lines(lines))

    def close(self) -> None:
        """No more rows."""
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]


def wall_offset_ns() -> int:
    """What to add to the monotonic clock for nanoseconds since the epoch."""
    return time.time_ns() - time.monotonic_ns()


class Log(msgspec.Struct, frozen=True):
    """A log read back: `torn` counts a last line that was cut."""

    path: str
    head: Head
    rows: list[TraceRow]
    torn: int


def read_log(path: Path) -> Log:
    """The whole of a log; raises `ConfigurationError` where a line that is not the last is not a row."""
    with path.open("rb") as file:
        head = _head(path, file.readline(LINE_MAX))
        decoder = msgspec.json.Decoder(LogRow)
        rows: list[TraceRow] = []
        torn = 0
        for number, line in enumerate(iter(lambda: file.readline(LINE_MAX), b""), 2):
            if not line.endswith(b"\n"):
                torn += 1
                break
            try:
                row = msgspec.structs.astuple(decoder.decode(line))
            except msgspec.MsgspecError as error:
                rule = f"line {number} is not a row of a trace: {error}; cut the file before it"
                raise ConfigurationError("trace log", str(path), rule) from error
            rows.append(tuple(row[field] for field in _FIELDS))
    return Log(str(path), head, rows, torn)


def _head(path: Path, line: bytes) -> Head:
    try:
        head = msgspec.json.decode(line, type=Head)
    except msgspec.MsgspecError as error:
        rule = "does not begin with the head line of a log: is it one?"
        raise ConfigurationError("trace log", str(path), rule) from error
    if head.gapless_log != FORMAT:
        raise ConfigurationError(
            "trace log", str(path), f"is of format {head.gapless_log}; this version reads {FORMAT}"
        )
    return head


def read_logs(directory: Path) -> list[Log]:
    """Every log in a directory, by name; all must be of the same tables."""
    paths = sorted(directory.glob("*.ndjson"))
    if not paths:
        raise ConfigurationError("trace", str(directory), "holds no logs (*.ndjson)")
    logs = [read_log(path) for path in paths]
    numbers: dict[int, str] = {}
    for log in logs:
        if log.head.fingerprint != logs[0].head.fingerprint:
            raise ConfigurationError(
                "trace log",
                log.path,
                f"was made with tables {log.head.fingerprint}, {logs[0].path} with {logs[0].head.fingerprint};"
                " the logs of a run must be of one version",
            )
        other = numbers.setdefault(log.head.number, log.head.life)
        if other != log.head.life:
            rule = f"is used by {other} and {log.head.life}; give one of them another --number"
            raise ConfigurationError("node number", log.head.number, rule)
    return logs


def merge(logs: list[Log]) -> Iterator[TraceRow]:
    """The rows of all logs in one order."""
    position = [0] * len(logs)
    sent = {row[_MSG] for log in logs for row in log.rows if row[_KIND] == "send"}
    gone: set[int] = set()
    waiting: dict[int, list[int]] = {}
    heap = [(log.rows[0][0], number) for number, log in enumerate(logs) if log.rows]
    heapify(heap)
    while heap or waiting:
        if not heap:  # clocks of two machines contradict the order of two of their messages: time decides
            released = waiting.pop(min(waiting))
            gone.update(logs[number].rows[position[number]][_MSG] for number in released)
            for number in released:
                heappush(heap, (logs[number].rows[position[number]][0], number))
        _, number = heappop(heap)
        row = logs[number].rows[position[number]]
        msg = row[_MSG]
        if row[_KIND] == "deliver" and msg in sent and msg not in gone:
            waiting.setdefault(msg, []).append(number)
            continue
        yield row
        if row[_KIND] == "send":
            gone.add(msg)
            for other in waiting.pop(msg, ()):
                heappush(heap, (logs[other].rows[position[other]][0], other))
        position[number] += 1
        if position[number] < len(logs[number].rows):
            heappush(heap, (logs[number].rows[position[number]][0], number))


_KIND: Final = COLUMNS.index("kind") - 2
_MSG: Final = COLUMNS.index("msg") - 2

"""Log: what a real node appends to a trace while it lives, and how the logs of a run become one trace.

One file per life of a node, `NODE~NUMBER.ndjson`: a head line that names the node and its tables, then a line per row.
The rows of a step reach the operating system before any of its effects is performed, so a SIGKILL loses none of them;
a torn last line is dropped and counted.

Merged, the rows of each node keep their order, a send comes before its deliver, and otherwise time decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, Final

import msgspec

from statemachines.kernel import ConfigurationError, life_of
from statemachines.trace.append_whole import append_whole
from statemachines.trace.row import COLUMNS, ROW, Column, TraceRow
from statemachines.trace.tables import joined
from statemachines.whole_file import make_folder, naming

FORMAT: Final = 2
LINE_MAX: Final = 16 * 2**20
"""A line longer than this is not a row."""


class Head(msgspec.Struct, frozen=True):
    """The first line: `number` is what the node's messages are numbered from (`number` << 40); `fingerprints`: protocol
    -> fingerprint of the tables of its machines, of every protocol that the node runs."""

    gapless_log: int
    node: str
    life: str
    number: int
    fingerprints: dict[str, str]
    versions: dict[str, str]


class _Format(msgspec.Struct, frozen=True):
    """What the head of every format has."""

    gapless_log: int


_ORDER: Final = sorted(range(len(ROW)), key=lambda place: ROW[place].default is not msgspec.NODEFAULT)
"""A struct has the fields that need not be given after those that must be."""


def _field(column: Column) -> tuple[str, Any, Any]:
    kind = int if "int" in column.kind else str
    return column.name, kind | None if column.default is None else kind, column.default


LogRow: Final = msgspec.defstruct("LogRow", [_field(ROW[place]) for place in _ORDER], frozen=True, omit_defaults=True)
"""A line: the columns of the trace without run and seq; what has its default is left out."""

_FIELDS: Final = tuple(_ORDER.index(place) for place in range(len(ROW)))


class TraceLog:
    """The log of one life of a node.  `clock()` is the time of its rows: nanoseconds since the epoch, but as steady as
    that of the node."""

    def __init__(self, directory: Path, head: Head) -> None:
        make_folder(directory, "trace")
        self.path = directory / f"{head.life}.ndjson"
        self._encoder = msgspec.json.Encoder()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        try:
            self._file = os.open(self.path, flags, 0o600)
        except OSError as error:
            rule = f"cannot be created ({error.strerror}); every life of a node needs a number of its own"
            raise ConfigurationError("trace log", str(self.path), rule) from error
        append_whole(self._file, self.path, self._encoder.encode(head) + b"\n")

    def write(self, rows: list[TraceRow]) -> None:
        """Append rows; they are the operating system's when this returns.  Raises `GaplessError` on a full disk."""
        lines = [LogRow(*(row[place] for place in _ORDER)) for row in rows]
        append_whole(self._file, self.path, self._encoder.encode_lines(lines))

    def close(self) -> None:
        """No more rows."""
        os.close(self._file)


class Log(msgspec.Struct, frozen=True):
    """A log read back: `torn` counts a last line that was cut."""

    path: str
    head: Head
    rows: list[TraceRow]
    torn: int


def read_log(path: Path) -> Log:
    """The whole of a log; raises `ConfigurationError` where a line that is not the last is not a row."""
    with naming(path), path.open("rb") as file:
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
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                rule = f"line {number} is not a row of a trace: {error}; cut the file before it"
                raise ConfigurationError("trace log", str(path), rule) from error
            rows.append(tuple(row[field] for field in _FIELDS))
    return Log(str(path), head, rows, torn)


def _head(path: Path, line: bytes) -> Head:
    try:
        number = msgspec.json.decode(line, type=_Format).gapless_log
        if number == FORMAT:
            return msgspec.json.decode(line, type=Head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        rule = "does not begin with the head line of a log: is it one?"
        raise ConfigurationError("trace log", str(path), rule) from error
    raise ConfigurationError("trace log", str(path), f"is of format {number}; this version reads {FORMAT}")


def read_logs(directory: Path) -> list[Log]:
    """Every log in a directory, by name; all must be of the same tables of a protocol."""
    paths = sorted(directory.glob("*.ndjson"))
    if not paths:
        raise ConfigurationError("trace", str(directory), "holds no logs (*.ndjson)")
    logs = [read_log(path) for path in paths]
    joined(str(directory), (log.head.fingerprints for log in logs))
    numbers: dict[int, str] = {}
    lives: dict[str, str] = {}
    for log in logs:
        if (twice := lives.setdefault(log.head.life, log.path)) != log.path:
            rule = f"and {Path(twice).name} are both the log of {log.head.life}: keep the one that is whole"
            raise ConfigurationError("trace log", log.path, rule)
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


def find_unsent(logs: list[Log]) -> list[tuple[str, str]]:
    """(log, event) of messages that came to somebody and that no log says were sent: the log of that life is missing,
    or a part of it is.  The rows of a step are in the log before a message leaves, so no crash loses one."""
    sent = {row[_MSG] for log in logs for row in log.rows if row[_KIND] == "send"}
    lives = {log.head.number: log.head.life for log in logs}
    found: dict[tuple[str, str], None] = {}
    for log in logs:
        for row in log.rows:
            msg = row[_MSG]
            if row[_KIND] == "deliver" and msg is not None and msg >= 0 and msg not in sent:
                life = lives.get(msg >> 40)
                found[life_of(row[_PEER]) if life is None else f"part of {life}", row[_EVENT]] = None
    return sorted(found)


_KIND: Final = COLUMNS.index("kind") - 2
_PEER: Final = COLUMNS.index("peer") - 2
_EVENT: Final = COLUMNS.index("event") - 2
_MSG: Final = COLUMNS.index("msg") - 2

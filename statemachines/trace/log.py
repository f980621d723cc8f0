"""Log: what a real node appends to a trace while it lives, and how the logs of a run become one trace.

One file per life of a node, `NODE~NUMBER.ndjson`, or several (`log_segments`): a head line that names the run, the
node, its tables and its stores, then a line per row, then an end line.  The rows of a step reach the operating system
before any of its effects is performed, so a SIGKILL loses none of them; a torn last line is dropped and counted.

A log without an end line is whole only where another log says how long it was: the head of the node's next life, or
the row of whoever killed the node (`kill_row`).  Otherwise it may have been cut.

Merged, the rows of each node keep their order, a send comes before its deliver, and otherwise time decides.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from heapq import heapify, heappop, heappush
from pathlib import Path
from threading import RLock, Timer
from types import TracebackType
from typing import Any, Final, Self
from zlib import crc32

import msgspec

from statemachines.kernel import ConfigurationError, GaplessError, life_number, life_of, node_of
from statemachines.trace.log_segments import LogSegments, SegmentName, check_complete, list_logs, read_lines
from statemachines.trace.row import COLUMNS, ROW, Column, TraceRow, fault_row
from statemachines.trace.tables import append_whole, join_fingerprints
from statemachines.whole_file import make_folder, name_file

FORMAT: Final = 3

LINE_MAX: Final = 16 * 2**20
"""A line longer than this is not a row."""

SHOWN_LOGS: Final = 3
"""Of the logs of a run, so many are named."""


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a log."""

    gapless_log: int
    node: str
    life: str
    number: int
    """What the node's messages are numbered from: `number` << 40."""
    fingerprints: dict[str, str]
    """Protocol -> fingerprint of the tables of its machines, of every protocol that the node runs."""
    versions: dict[str, str]
    run: str = ""
    """What the user calls the run ("": nothing)."""
    stores: dict[str, str] = {}
    """Protocol -> identity of the store that the node works on."""
    earlier_bytes: dict[str, int] = {}
    """The life of the node before this one -> the size of its log when this one began."""


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The last line of a log that was closed."""

    end: int
    """So many rows are before it."""
    crc32: int | None = None
    """The checksum of all bytes before it."""


class Stores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a node that came to work on a store after its log had begun: protocol -> identity."""

    stores: dict[str, str]


class LogSizes(msgspec.Struct, frozen=True):
    """The column `data` of a kill: life -> the size of its log when it was dead."""

    log_bytes: dict[str, int] = {}


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
    """The log of one life of a node; `with` closes it, and so does the end of a process that forgot to.
    `earlier_bytes` of its head are found in the directory.  With `segments` it is several files; `path` is the one that
    is written, or was last.

    Raises `ConfigurationError` where the life has a log already, or the directory cannot be written.
    """

    def __init__(self, directory: Path, head: Head, segments: LogSegments | None = None) -> None:
        make_folder(directory, "trace")
        self._directory = directory
        self._segments = segments
        self._name = SegmentName(head.life, 1 if segments else 0, segments is not None)
        self.path = directory / self._name.file_name
        self._encoder = msgspec.json.Encoder()
        self._pid = os.getpid()
        self._lock = RLock()
        self._timer: Timer | None = None
        self._rows = 0
        self._crc32 = 0
        self._is_whole = True
        self._is_closed = False
        self._size_bytes = 0
        if there := list_logs(directory).get(head.life):
            raise self._refuse_file(there[0], "is there")
        head = msgspec.structs.replace(head, earlier_bytes=_measure_earlier(directory, head))
        line = self._encoder.encode(head) + b"\n"
        self._file = self._create(line)
        atexit.register(self.close)
        self._note(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def write(self, rows: list[TraceRow]) -> None:
        """Append rows; they are the operating system's when this returns.  Raises `GaplessError` on a full disk."""
        lines = [LogRow(*(row[place] for place in _ORDER)) for row in rows]
        self._append(self._encoder.encode_lines(lines))
        self._rows += len(rows)

    def name_store(self, protocol: str, store: str) -> None:
        """Append the identity of a store that the node works on from now on.  Raises as `write` does."""
        self._append(self._encoder.encode(Stores({protocol: store})) + b"\n")

    def close(self) -> None:
        """Append the end line: no more rows come.  A log that a full disk has cut, or of another process, gets none."""
        if self._is_closed:
            return
        self._is_closed = True
        if os.getpid() != self._pid:  # a lock may be held there, by a thread that is not here
            if self._file >= 0:
                os.close(self._file)
            return
        with self._lock:
            if self._is_whole:
                with suppress(GaplessError):
                    self._append(self._encoder.encode(End(self._rows, self._crc32)) + b"\n")
            self._close_file()
        atexit.unregister(self.close)

    def close_segment(self) -> None:
        """Give the segment its name, if it has a line; the next line begins the next one."""
        with self._lock:
            if self._segments is not None and self._file >= 0 and os.getpid() == self._pid:
                self._close_file()

    def _close_file(self) -> None:
        """Close the file that is open; a segment that is whole gets its name."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            if self._name.is_open and self._is_whole:
                whole = msgspec.structs.replace(self._name, is_open=False)
                self.path = self.path.rename(self._directory / whole.file_name)

    def _create(self, head: bytes = b"") -> int:
        """Of a process that is killed meanwhile there is no log, or one with its head."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        begun = self.path.with_name(f".{self.path.name}.{os.getpid()}") if head else self.path
        try:
            file = os.open(begun, flags, 0o600)
        except OSError as error:
            raise self._refuse_file(self.path, error.strerror) from error
        if head:
            try:
                append_whole(file, self.path, head)
                os.link(begun, self.path)
            except BaseException as error:
                os.close(file)
                if isinstance(error, OSError):
                    raise self._refuse_file(self.path, error.strerror) from error
                raise
            finally:
                begun.unlink()
        return file

    def _refuse_file(self, path: Path, why: str | None) -> ConfigurationError:
        rule = f"cannot be created ({why}); every life of a node needs a number of its own"
        return ConfigurationError("trace log", str(path), rule)

    def _append(self, data: bytes) -> None:
        with self._lock:
            try:
                if self._file < 0 and self._segments is not None:
                    self._begin_segment()
                append_whole(self._file, self.path, data)
            except BaseException:
                self._is_whole = False
                raise
            self._note(data)

    def _note(self, data: bytes) -> None:
        """It is in the file."""
        self._crc32 = crc32(data, self._crc32)
        self._size_bytes += len(data)
        if self._segments is None or self._is_closed:
            return
        if self._size_bytes >= self._segments.size_bytes:
            self._close_file()
        elif self._timer is None:
            self._timer = Timer(self._segments.seconds, self.close_segment)
            self._timer.daemon = True
            self._timer.start()

    def _begin_segment(self) -> None:
        self._name = msgspec.structs.replace(self._name, number=self._name.number + 1)
        self.path = self._directory / self._name.file_name
        self._size_bytes = 0
        self._file = self._create()


def _measure_earlier(directory: Path, head: Head) -> dict[str, int]:
    """The life of the node before this one, of the same run and stores -> the size of its log, where there is one."""
    logs = _logs_of(directory, head.node)
    with suppress(ValueError):  # a life without a number
        number = life_number(head.life)
        earlier = _latest((life for life in logs if life != head.life), number)
        return _measure({life: logs[life] for life in earlier if _is_of_run(logs[life][0], head)})
    return {}


def _logs_of(directory: Path, node: str) -> dict[str, list[Path]]:
    """Life -> its log, of all lives of a node."""
    return {life: paths for life, paths in list_logs(directory).items() if node_of(life) == node}


def _latest(lives: Iterable[str], most: int | None = None) -> list[str]:
    """Of lives of a node the one with the greatest number, `most` at most; lives of one number that differ in their
    bits of chance are several."""
    numbers: dict[str, int] = {}
    for life in lives:
        with suppress(ValueError):
            numbers[life] = life_number(life)
    last = max((number for number in numbers.values() if most is None or number <= most), default=0)
    return [life for life, number in numbers.items() if number == last]


def _is_of_run(path: Path, head: Head) -> bool:
    """Whether the log in `path` has a head of the same run and stores; one that cannot be read has not."""
    try:
        found = read_head(path)
    except (OSError, ConfigurationError):
        return False
    return (found.run, found.stores) == (head.run, head.stores)


def _measure(logs: dict[str, list[Path]]) -> dict[str, int]:
    """Life -> size of its log in bytes."""
    return {life: sum(path.stat().st_size for path in logs[life]) for life in sorted(logs)}


def kill_row(now_ns: int, node: str, directory: Path) -> TraceRow:
    """The row of a SIGKILL that `node` has died of: it says how long the log of its last life in `directory` is, so
    that a log which is cut afterwards is told from one that is whole.  Call it when the process is gone."""
    logs = _logs_of(directory, node)
    sizes = _measure({life: logs[life] for life in _latest(logs)})
    return fault_row(now_ns, node, "kill", data=msgspec.json.encode(LogSizes(sizes)).decode())


class Log(msgspec.Struct, frozen=True):
    """A log read back."""

    path: str
    head: Head
    rows: list[TraceRow]
    torn: int
    """1 where the last line was cut, else 0."""
    is_ended: bool
    """It has its end line, or is of a format without."""
    size_bytes: int
    stores: dict[str, list[str]]
    """Protocol -> identities of the stores that it names."""


def read_log(path: Path, *segments: Path) -> Log:
    """The whole of a log, in one file or in `segments`; raises `ConfigurationError` where a line that is not the last
    is not a row, or rows are missing, repeated or changed by what its end says."""
    lines = read_lines((path, *segments), LINE_MAX)
    with closing(lines), name_file(path):
        first = next(lines, b"")
        head, checksum = _head(path, first), crc32(first)
        size_bytes = len(first)
        stores = {protocol: [store] for protocol, store in head.stores.items()}
        decoder = msgspec.json.Decoder(LogRow)
        rows: list[TraceRow] = []
        torn = 0
        end: End | None = None
        for number, line in enumerate(lines, 2):
            size_bytes += len(line)
            if torn:
                raise ConfigurationError("trace log", str(path), f"line {number - 1} is cut, and more follow it")
            if not line.endswith(b"\n"):
                torn += 1
                continue
            if end is not None:
                raise ConfigurationError("trace log", str(path), f"line {number} comes after the end; cut it off there")
            found = decode_line(path, number, line, decoder)
            if isinstance(found, tuple):
                rows.append(found)
            elif isinstance(found, End):
                end = found
                continue
            else:
                for protocol, store in found.stores.items():
                    stores.setdefault(protocol, []).append(store)
            checksum = crc32(line, checksum)
    if end is not None and end.end != len(rows):
        rule = f"has {len(rows)} rows, and {end.end} by its end: restore it from a copy, or take it out"
        raise ConfigurationError("trace log", str(path), rule)
    if end is not None and end.crc32 not in (None, checksum):
        rule = "has other bytes than when it was closed (CRC-32): restore it from a copy, or take it out"
        raise ConfigurationError("trace log", str(path), rule)
    return Log(str(path), head, rows, torn, end is not None, size_bytes, stores)


def decode_line(path: Path, number: int, line: bytes, decoder: Any) -> TraceRow | End | Stores:
    """A line of a log behind its head; raises `ConfigurationError` for any other."""
    try:
        row = msgspec.structs.astuple(decoder.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        other = _other_line(line)
        if other is None:
            rule = f"line {number} is not a row of a trace: {error}; cut the file before it"
            raise ConfigurationError("trace log", str(path), rule) from error
        return other
    return tuple(row[field] for field in _FIELDS)


def _other_line(line: bytes) -> End | Stores | None:
    """A line that is no row."""
    for kind in (End, Stores):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(line, type=kind)  # type: ignore[return-value]
    return None


def read_head(path: Path) -> Head:
    """The head of a log, from its first file; raises `ConfigurationError` where there is none."""
    with name_file(path), path.open("rb") as file:
        return _head(path, file.readline(LINE_MAX))


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
    """Every log in a directory, by name; all must be of one run, and of the same tables of a protocol."""
    paths = list_logs(directory).values()
    if not paths:
        raise ConfigurationError("trace", str(directory), "holds no logs (*.ndjson)")
    for one in paths:
        check_complete(one)
    logs = [read_log(*one) for one in paths]
    join_fingerprints(str(directory), (log.head.fingerprints for log in logs))
    check_run(directory, logs)
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
    check_lives(directory, logs)
    return logs


def check_run(directory: Path, logs: list[Log]) -> None:
    """Logs of one run have heads of one run, and work on one store of each protocol; raises `ConfigurationError` for
    others, naming both.  Logs of one named run may work on several stores."""
    runs: dict[str, list[Log]] = {}
    for log in logs:
        if log.head.run:
            runs.setdefault(log.head.run, []).append(log)
    if len(runs) > 1:
        _refuse_runs(directory, {f"run {run}": some for run, some in runs.items()})
    for protocol in sorted({protocol for log in logs for protocol in log.stores}):
        works: dict[str, list[Log]] = {}
        named = {store for log in logs if log.head.run for store in log.stores.get(protocol, ())}
        for log in logs:
            for store in log.stores.get(protocol, ()):
                works.setdefault(min(named) if store in named else store, []).append(log)
        if len(works) > 1:
            _refuse_runs(directory, {f"store {store} of {protocol}": some for store, some in works.items()})


def check_lives(directory: Path, logs: list[Log]) -> None:
    """A later life of a node began beside the log of an earlier one.  Raises `ConfigurationError` for a log that did
    not, where neither a run nor a store says that both are of one run: somebody has put two folders together."""
    nodes: dict[str, list[tuple[int, Log]]] = {}
    for log in logs:
        if not log.head.run and not log.stores:
            with suppress(ValueError):  # a life without a number
                nodes.setdefault(log.head.node, []).append((life_number(log.head.life), log))
    for lives in nodes.values():
        known = {life for _, log in lives for life in log.head.earlier_bytes}
        for number, log in lives:
            earlier = [other for before, other in lives if before <= number and other is not log]
            if earlier and not log.head.earlier_bytes and log.head.life not in known:
                rule = (
                    f"holds {_names_of([log])}, which began where {_names_of(earlier)} was not: are these two runs? "
                    "give each a folder of its own, or name the run (GAPLESS_RUN) before its nodes start"
                )
                raise ConfigurationError("trace", str(directory), rule)


def _refuse_runs(directory: Path, runs: dict[str, list[Log]]) -> None:
    found = "; ".join(f"{what} in {_names_of(logs)}" for what, logs in sorted(runs.items()))
    rule = f"{len(runs)} runs in one folder are not judged as one: {found}: give each a folder of its own"
    raise ConfigurationError("trace", str(directory), rule)


def _names_of(logs: list[Log]) -> str:
    names = list(dict.fromkeys(Path(log.path).name for log in logs))
    more = f" and {len(names) - SHOWN_LOGS} more" if len(names) > SHOWN_LOGS else ""
    return ", ".join(names[:SHOWN_LOGS]) + more


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


def find_unlogged(logs: list[Log]) -> list[tuple[str, str]]:
    """(log, event) of lives without a log that somebody sent a message to, or told of; with event "" of nodes without
    one that something was done to, of lives that were killed, and of the life before one that has a log."""
    lives = {log.head.life for log in logs}
    nodes = {log.head.node for log in logs}
    found: dict[tuple[str, str], None] = {}
    for log in logs:
        found.update(dict.fromkeys((life, "") for life in log.head.earlier_bytes if life not in lives))
        met = {(life_of(row[_PEER]), row[_EVENT]) for row in log.rows if row[_KIND] in ("send", "tell")}
        found.update(dict.fromkeys(one for one in met if "~" in one[0] and one[0] not in lives))
        for row in log.rows:
            if row[_KIND] == "fault":
                killed = [(life, "") for life in _sizes_in(row) if life not in lives]
                if not killed and row[_NODE] and row[_NODE] not in nodes:
                    killed = [(row[_NODE], "")]
                found.update(dict.fromkeys(killed))
    return sorted(found)


def find_unended(logs: list[Log]) -> list[str]:
    """Lives whose logs may have been cut at the end of a line: without an end, and no other log says that this was all
    when they were dead."""
    sizes = {(life, size) for log in logs for life, size in log.head.earlier_bytes.items()}
    for log in logs:
        for row in log.rows:
            if row[_KIND] == "fault":
                sizes.update(_sizes_in(row).items())
    return sorted(log.head.life for log in logs if not log.is_ended and (log.head.life, log.size_bytes) not in sizes)


def _sizes_in(row: TraceRow) -> dict[str, int]:
    """Life -> size of its log, as the row of a fault says."""
    if row[_DATA] is not None:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(row[_DATA], type=LogSizes).log_bytes
    return {}


_NODE: Final = COLUMNS.index("node") - 2
_KIND: Final = COLUMNS.index("kind") - 2
_PEER: Final = COLUMNS.index("peer") - 2
_EVENT: Final = COLUMNS.index("event") - 2
_MSG: Final = COLUMNS.index("msg") - 2
_DATA: Final = COLUMNS.index("data") - 2

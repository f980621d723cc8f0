"""LossReport: what a receiver has counted, as rows and as the source's table.

Where losses can be read from: a node that runs, the log of one, a trace.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.sequence_windows.losses import Losses, LossPeer, table
from statemachines.sequence_windows.message import Judged
from statemachines.trace.log import read_log

NOTE = (
    "A subject counts as 128 bytes and its name, as the source has it, and each publisher beyond its first as 512;"
    " real memory is several times that where subjects have one publisher."
)


class LossReport(msgspec.Struct, frozen=True):
    """`rows`: one a peer, in the order of their ids.  `subjects` that are kept, and their `bytes` as the window counts
    them; `malformed`: datagrams that were no messages; `evicted`: publishers that were forgotten because a subject, or
    our inbox, had too many; `failed`: calls of the application that raised; `other_layout`: datagrams of another
    version (-1 each: nobody counted)."""

    rows: tuple[LossPeer, ...]
    subjects: int = -1
    bytes: int = -1
    malformed: int = -1
    evicted: int = -1
    failed: int = -1
    other_layout: int = -1

    @property
    def lost_messages(self) -> int:
        """How many messages are known to be missing."""
        return sum(row.lost for row in self.rows)

    def text(self, offset_s: int = 0) -> str:
        """The table, times `offset_s` east of UTC; then what else was counted, if anybody did."""
        lines = [table(self.rows, offset_s)]
        unknown = sum(row.unknown > 0 for row in self.rows)
        if unknown:
            lines.append(f"{unknown} publishers have losses of unknown size, which count as no messages")
        odd = {
            "refused": sum(row.refused for row in self.rows),
            "strange times or chains": sum(row.strange for row in self.rows),
            "malformed": max(0, self.malformed),
            "of another version's layout": max(0, self.other_layout),
            "publishers forgotten for others": max(0, self.evicted),
            "callbacks that raised": max(0, self.failed),
        }
        if any(odd.values()):
            lines.append(", ".join(f"{name}: {count}" for name, count in odd.items() if count))
        if self.subjects >= 0:
            lines.append(f"{self.subjects} subjects, {self.bytes} bytes. {NOTE}")
        return "\n".join(lines)


MACHINE = "sequence_windows/subscriber_window"
COLUMNS = ("t_ns", "machine", "kind", "event", "peer", "data")
ANSWER_MAX = 64 << 20
TIMEOUT_S = 10.0


def read_losses(path: Path) -> LossReport:
    """What was lost, from the socket of a running node, a log (`*.ndjson`), Parquet, or a directory of either.

    Raises `ConfigurationError` for a path that is none of these, or cannot be read.
    """
    if path.is_socket():
        return ask_node(path)
    files = sorted(path.glob("*.ndjson")) or sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        rule = "is no socket of a node, no log (*.ndjson), no trace (*.parquet), and no directory of either"
        raise ConfigurationError("source", str(path), rule)
    losses = Losses()
    for file in files:
        for t_ns, peer, data in _read_verdicts(file):
            losses.of(peer).count(msgspec.json.decode(data, type=Judged), t_ns)
    return LossReport(losses.rows())


def ask_node(path: Path) -> LossReport:
    """What a running node says, at the socket that it made (`--losses`)."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            asked.settimeout(TIMEOUT_S)
            asked.connect(str(path))
            parts, size = [], 0
            while part := asked.recv(1 << 16):
                parts.append(part)
                size += len(part)
                if size > ANSWER_MAX:
                    raise ConfigurationError("source", str(path), f"says more than {ANSWER_MAX} bytes")
            return msgspec.json.decode(b"".join(parts), type=LossReport)
    except OSError as error:
        rule = f"does not answer ({error}): does the node run?"
        raise ConfigurationError("source", str(path), rule) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError("source", str(path), f"is no socket of such a node: {error}") from error


def _read_verdicts(file: Path) -> Iterator[tuple[int, str, str]]:
    """(t_ns, publisher, verdict as JSON) of each message that a receiver judged."""
    rows = _of_parquet(file) if file.suffix == ".parquet" else _of_log(file)
    for t_ns, machine, kind, event, peer, data in rows:
        if machine == MACHINE and kind == "tell" and event == "judged" and data is not None:
            yield int(t_ns), str(peer), str(data)  # type: ignore[call-overload]


def _of_log(file: Path) -> Iterable[tuple[object, ...]]:
    from statemachines.trace.row import ROW

    names = [column.name for column in ROW]
    places = [names.index(name) for name in COLUMNS]
    return (tuple(row[place] for place in places) for row in read_log(file).rows)


def _of_parquet(file: Path) -> Iterator[tuple[object, ...]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        rule = "needs pyarrow, which is missing: pip install 'gapless[sim]'"
        raise ConfigurationError("source", str(file), rule) from error
    try:
        with parquet.ParquetFile(file) as opened:
            if not set(COLUMNS) <= set(opened.schema_arrow.names):
                return  # the table of runs
            for batch in opened.iter_batches(columns=list(COLUMNS)):
                yield from zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
    except (ArrowException, OSError) as error:
        raise ConfigurationError("source", str(file), f"is no trace: {error}") from error

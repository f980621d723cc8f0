"""Log piece: the next segments of the log of a life, judged by what was kept of those before.

A violation that is found here is one in any longer log: each step is held against its table, against the step before of
its instance, and each time against the one before of its node.  All that needs other logs waits for the end of the run.

Batch ledger: what each batch of a query took in and found, a file a batch; one that comes again is written again.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines.kernel import ConfigurationError
from statemachines.trace.log import LINE_MAX, End, LogRow, Stores, decode_line
from statemachines.trace.log_segments import parse_name, read_lines
from statemachines.trace.parquet import make_batch
from statemachines.trace.row import TraceRow
from statemachines.whole_file import make_folder, whole_file, write_whole
from statemachines_reports.columns import Columns, Segment
from statemachines_reports.judge import SHOWN, Judges
from statemachines_reports.lookup import Lookup
from statemachines_reports.neutral.run_checks import CLOCKS
from statemachines_reports.neutral.step_checks import CONTINUITY, ROWS


class PieceFinding(msgspec.Struct, frozen=True):
    """A violation that files show by themselves, so it is final: `where` is the run, or the life that wrote the log."""

    check: str
    where: str
    seq: int
    detail: str


class LifeState(msgspec.Struct, frozen=True):
    """How far the log of a life is judged.  `tail` has the rows that later ones are judged against, each with its
    number: the last step of each instance that goes on, and the last row of each node."""

    segments: int = 0
    rows: int = 0
    is_ended: bool = False
    tail: list[tuple[int, tuple[Any, ...]]] = []


class FileBatch(msgspec.Struct, frozen=True):
    """A batch: `files` taken in, with their sizes; `wrong` counts violations by check, `findings` has the first of
    them; `lives`: what is known now of those whose segments it judged."""

    query: str
    number: int
    files: dict[str, int] = {}
    wrong: dict[str, int] = {}
    findings: list[PieceFinding] = []
    lives: dict[str, LifeState] = {}


class BatchLedger:
    """The batches of a query, in a folder of the driver's."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder, "--out")
        self._folder = folder
        self._known: dict[int, FileBatch] = {}

    def read_batches(self, before: int | None = None) -> list[FileBatch]:
        """The batches in their order, those before a number alone; raises `ConfigurationError` where one is missing."""
        found = {}
        for path in self._folder.glob("batch-*.json"):
            name = re.fullmatch(r"batch-(\d{9})\.json", path.name)
            if name is not None and (before is None or int(name[1]) < before):
                found[int(name[1])] = path
        for number in range(len(found) if before is None else before):
            if number not in found:
                rule = f"lacks batch {number} of the query that follows: give --out a folder of its own"
                raise ConfigurationError("--out", str(self._folder), rule)
        return [self._read_batch(number, found[number]) for number in sorted(found)]

    def _read_batch(self, number: int, path: Path) -> FileBatch:
        if number not in self._known:
            try:
                self._known[number] = msgspec.json.decode(path.read_bytes(), type=FileBatch)
            except msgspec.MsgspecError as error:
                raise ConfigurationError("--out", str(path), f"is no batch: {error}; give another folder") from error
        return self._known[number]

    def write_batch(self, batch: FileBatch, results: pa.Table | None) -> None:
        """Put a batch in its place; its results come first, so a batch that is there has them."""
        path = self._folder / f"batch-{batch.number:09}.json"
        if results is not None:
            with whole_file(path.with_suffix(".parquet")) as partial:
                pq.write_table(results, partial, compression="zstd")
        write_whole(path, msgspec.json.encode(batch))
        self._known[batch.number] = batch

    def read_columns(self, number: int) -> list[str]:
        """The columns of what the tasks of a batch found."""
        return list(pq.read_schema(self._folder / f"batch-{number:09}.parquet").names)

    def read_results(self, numbers: Iterable[int], schema: pa.Schema) -> list[pa.RecordBatch]:
        """What the tasks of these batches found, as lines of the wide table."""
        found: list[pa.RecordBatch] = []
        for number in numbers:
            table = pq.read_table(self._folder / f"batch-{number:09}.parquet")
            found += table.select(schema.names).cast(schema).to_batches()
        return found


def join_files(batches: Iterable[FileBatch]) -> dict[str, int]:
    """The files of all batches, with their sizes."""
    return {name: size for batch in batches for name, size in batch.files.items()}


def join_lives(batches: Iterable[FileBatch]) -> dict[str, LifeState]:
    """What the last of the batches knows of each life."""
    return {life: state for batch in batches for life, state in batch.lives.items()}


SHAPE: Final = "piece binary"


class LogPiece(msgspec.Struct, frozen=True):
    """Segments of a life that come next, by their paths, and what is known of those before."""

    life: str
    paths: list[str]
    state: LifeState


class JudgedPiece(msgspec.Struct, frozen=True):
    """What a piece shows, and what is known of the life now."""

    life: str
    state: LifeState
    wrong: dict[str, int]
    findings: list[PieceFinding]


def judge_pieces(batches: Iterator[pa.RecordBatch], given: bytes) -> Iterator[pa.RecordBatch]:
    """Judge the pieces that come as JSON; a task runs it."""
    lookup = make_lookup(given)
    for batch in batches:
        for piece in batch.column("piece").to_pylist():
            judged = judge_piece(msgspec.json.decode(piece, type=LogPiece), lookup)
            yield pa.record_batch([pa.array([msgspec.json.encode(judged)], pa.binary())], ["piece"])


@lru_cache(1)
def make_lookup(given: bytes) -> Lookup:
    """The tables of a process of Python, which runs one task after the other."""
    protocols, missing = pickle.loads(given)
    return Judges(protocols, missing).lookup


def judge_piece(piece: LogPiece, lookup: Lookup) -> JudgedPiece:
    """Judge the rows of a piece; raises `ConfigurationError` for a segment that is not whole."""
    rows, is_ended = read_piece(piece)
    state = piece.state
    seq = [number for number, _ in state.tail] + list(range(state.rows, state.rows + len(rows)))
    known = [*(tuple(row) for _, row in state.tail), *rows]
    if not rows:
        now = LifeState(state.segments + len(piece.paths), state.rows, is_ended, state.tail)
        return JudgedPiece(piece.life, now, {}, [])
    columns = Columns(pa.Table.from_batches([make_batch(0, pa.array(seq, pa.int64()), known)]))
    segment = Segment(columns, lookup, lambda run: {})
    tail = [] if is_ended else [(seq[row], known[row]) for row in find_tail(segment)]
    now = LifeState(state.segments + len(piece.paths), state.rows + len(rows), is_ended, tail)
    wrong, findings = {}, []
    for check in (ROWS, CONTINUITY, CLOCKS):
        verdict = check.judge(segment)
        is_new = verdict.seq >= state.rows
        if check is CONTINUITY:  # the instance may have begun in a log that is not here
            steps = segment.steps
            is_new &= ~np.isin(verdict.seq, steps.seq[steps.order[steps.first]])
        places = np.flatnonzero(is_new)
        if len(places):
            wrong[check.name] = len(places)
        findings += [
            PieceFinding(check.name, piece.life, int(verdict.seq[place]), verdict.describe(int(place)))
            for place in places[:SHOWN]
        ]
    return JudgedPiece(piece.life, now, wrong, findings)


def find_tail(segment: Segment) -> list[int]:
    """The rows that later ones are judged against, in order."""
    steps, lookup = segment.steps, segment.lookup
    is_last = np.append(steps.first[1:], True)[: len(steps.order)]
    last = steps.order[is_last]
    last = last[~lookup.ends[steps.machine[last], steps.dest[last]]]
    node = segment.columns["node"]
    of_nodes = len(node) - 1 - np.unique(node[::-1], return_index=True)[1]
    found: list[int] = np.union1d(steps.index[last], of_nodes).tolist()
    return found


def read_piece(piece: LogPiece) -> tuple[list[TraceRow], bool]:
    """The rows of a piece, and whether the log ends with it."""
    decoder: Any = msgspec.json.Decoder(LogRow)
    rows: list[TraceRow] = []
    is_ended = piece.state.is_ended
    for text in piece.paths:
        path = Path(text)
        for number, line in enumerate(read_lines([path], LINE_MAX), 1):
            if not line.endswith(b"\n"):
                raise ConfigurationError("trace log", text, f"line {number} is cut: {GROWS}")
            if number == 1 and parse_name(path).number <= 1:
                continue  # the head, which the driver has read
            if is_ended:
                raise ConfigurationError("trace log", text, f"line {number} comes after the end of {piece.life}")
            found = decode_line(path, number, line, decoder)
            if isinstance(found, End):
                is_ended = True
            elif not isinstance(found, Stores):
                rows.append(found)
    return rows, is_ended


GROWS: Final = (
    "a file that is followed must appear whole, and this one grows; "
    "let nodes write segments (GAPLESS_SEGMENT_SECONDS), or follow when they have ended"
)

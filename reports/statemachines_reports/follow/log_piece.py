"""Log piece: the next segments of the log of a life, judged by what was kept of those before.

A violation that is found here is one in any longer log: each step is held against its table, against the step before of
its instance, and each time against the one before of its node.  All that needs other logs waits for the end of the run.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from statemachines.kernel import ConfigurationError
from statemachines.trace.log import LINE_MAX, End, LogRow, Stores, decode_line
from statemachines.trace.log_segments import parse_name, read_lines
from statemachines.trace.parquet import make_batch
from statemachines.trace.row import TraceRow
from statemachines_reports.columns import Columns, Segment
from statemachines_reports.follow.batch_ledger import LifeState, PieceFinding
from statemachines_reports.judge import SHOWN, Judges
from statemachines_reports.lookup import Lookup
from statemachines_reports.neutral.clock_check import CLOCKS
from statemachines_reports.neutral.step_checks import CONTINUITY, ROWS

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

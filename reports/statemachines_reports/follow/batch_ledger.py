"""Batch ledger: what each batch of a query took in and found, a file a batch; one that comes again is written again."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines.kernel import ConfigurationError
from statemachines.whole_file import make_folder, whole_file, write_whole


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
            self._known[number] = self._decode(path)
        return self._known[number]

    def _decode(self, path: Path) -> FileBatch:
        try:
            return msgspec.json.decode(path.read_bytes(), type=FileBatch)
        except msgspec.MsgspecError as error:
            raise ConfigurationError("--out", str(path), f"is no batch: {error}; give another folder") from error

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

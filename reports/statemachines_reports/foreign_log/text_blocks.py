"""Text blocks: a text file cut at ends of lines, so that neither it nor a long line has to fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa

from statemachines.kernel import ConfigurationError

BLOCK: Final = 32 * 2**20
"""Bytes of a text file that are decoded at a time."""
LINE_MAX: Final = 2**20


class RawRows(NamedTuple):
    """Some rows as the file has them: `first`: the number of the first, from 1; `torn`: last lines left out."""

    first: int
    table: pa.Table
    torn: int = 0


class TextBlocks:
    """A text file cut at ends of lines; `line`: the number of the first line of the block; `torn`: what is left."""

    def __init__(self, path: Path, file: BinaryIO, first: int = 1) -> None:
        self._path, self._file = path, file
        self.line = first
        self.torn = b""

    def __iter__(self) -> Iterator[bytes]:
        kept = b""
        while part := self._file.read(BLOCK):
            block, end, rest = (kept + part).rpartition(b"\n")
            if len(rest) > LINE_MAX:
                lines = self.line + block.count(b"\n") + len(end)
                raise refuse_log(self._path, f"line {lines} is longer than {LINE_MAX} bytes; is it a log of lines?")
            kept = rest
            if end:
                yield block + end
                self.line += block.count(b"\n") + 1
        self.torn = kept if kept.strip() else b""


def refuse_log(path: Path, rule: str) -> ConfigurationError:
    """The error about a file of a log."""
    return ConfigurationError("log", str(path), rule)

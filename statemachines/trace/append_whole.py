"""Append whole lines: to files that may be on a disk that becomes full."""

from __future__ import annotations

import os
from pathlib import Path

from statemachines.kernel import GaplessError


def append_whole(file: int, path: Path, data: bytes) -> None:
    """All of `data` is the operating system's when this returns; `file` is the open descriptor of `path`.

    Raises `GaplessError` where the disk is full or broken: then some of it may be there, and its last line be cut,
    which whoever reads such a file leaves out.
    """
    while data:
        try:
            data = data[os.write(file, data) :]
        except OSError as error:
            raise GaplessError(f"{path}: {error.strerror}; what was written before is there") from error

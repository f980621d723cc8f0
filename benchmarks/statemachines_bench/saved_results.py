"""SavedResults: a file that has every row as soon as it is measured, so that a bench that was broken off goes on."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.whole_file import write_whole
from statemachines_bench.result import ResultJson, RowResult, make_written
from statemachines_bench.row import BenchRow

BYTES_MAX: Final = 16 * 2**20
"""No file of results is larger."""

GIT_S: Final = 30


class SavedResults:
    """The file `path`, with rows of the commit `commit`."""

    def __init__(self, path: Path, commit: str) -> None:
        self._path = path
        self._commit = commit

    def write(self, results: Iterable[RowResult]) -> None:
        """The file has these rows, and no others."""
        rows = [make_written(one, self._commit) for one in results]
        write_whole(self._path, msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")

    def read(self, rows: Iterable[BenchRow]) -> dict[str, RowResult]:
        """Those of `rows`, by name, that were measured on this commit, and did not fail.

        Raises:
            ConfigurationError: The file is there, and is no list of results; or nobody knows which commit this is.
        """
        if not self._commit:
            raise ConfigurationError("--resume", True, "needs a git checkout, which says what was measured")
        if not self._path.exists():
            return {}
        rule = "is no file of results of `gapless bench --save`; name another, or remove it"
        try:
            if self._path.stat().st_size > BYTES_MAX:
                raise ConfigurationError("--save", str(self._path), f"is larger than {BYTES_MAX} bytes: {rule}")
            there = msgspec.json.decode(self._path.read_bytes(), type=list[ResultJson])
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigurationError("--save", str(self._path), f"{rule} ({error})") from error
        known = {row.name: row for row in rows}
        return {
            one.name: RowResult(known[one.name], one.ours_rounds, one.baseline_rounds, seconds=one.seconds)
            for one in there
            if one.name in known and one.commit == self._commit and one.ours_rounds and not one.error
        }


def find_commit(folder: Path) -> str:
    """The commit that `folder` is at, and behind a "+" a digest of what was changed since; "" outside of a checkout."""
    try:
        head, changes = (_run_git(folder, *words) for words in (("rev-parse", "HEAD"), ("diff", "HEAD")))
    except (OSError, subprocess.SubprocessError):
        return ""
    suffix = f"+{hashlib.sha256(changes).hexdigest()[:12]}" if changes else ""
    return head.decode().strip() + suffix


def _run_git(folder: Path, *words: str) -> bytes:
    return subprocess.run(("git", "-C", str(folder), *words), capture_output=True, check=True, timeout=GIT_S).stdout

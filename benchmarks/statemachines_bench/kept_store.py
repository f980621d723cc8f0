"""KeptStore: a database that takes long to fill: it is filled once, and each turn has a copy."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class KeptStore:
    """`fill(path)` fills it; it goes with this object."""

    def __init__(self, fill: Callable[[Path], Awaitable[None]]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gapless-bench-")
        self._path = Path(self._folder.name) / "kept.db"

        async def main() -> None:
            await fill(self._path)

        asyncio.run(main())

    @contextmanager
    def copy_store(self) -> Iterator[Path]:
        """A copy for one turn."""
        path = Path(shutil.copy(self._path, Path(self._folder.name) / "turn.db"))
        try:
            yield path
        finally:
            for one in path.parent.glob(f"{path.name}*"):
                one.unlink()

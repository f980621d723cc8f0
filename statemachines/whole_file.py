"""Whole files: what is written is there whole, or not at all, and what goes wrong names the file.

write_whole(path, data)
with whole_file(path) as partial: ...       # write `partial`; it takes the place of `path` at the end
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Raises `OSError`, with the name of the file."""
    with whole_file(path) as partial:
        partial.write_bytes(data)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write meanwhile: beside its place.  What was at `path` stays there if anything goes wrong."""
    partial = partial_of(path)
    with naming(path):
        try:
            yield partial
            os.replace(partial, path)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise


def partial_of(path: Path) -> Path:
    """Where it is while it is written."""
    return path.with_name(path.name + ".partial")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of the system says that it is about this file: to write to one that is open tells only what went wrong,
    and libraries have words of their own for it."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error

"""Whole files: what is written is there whole, or not at all, and what goes wrong names the file.

make_folder(path, "--out")
write_whole(path, data)
with whole_file(path) as partial: ...       # write `partial`; it takes the place of `path` at the end

A path may be one of a store (`S3Path`): then the file is written on this machine, and uploaded at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from statemachines.kernel import ConfigurationError
from statemachines.s3_path import SCHEME, S3Path

_SPOOLED: Final[dict[S3Path, Path]] = {}
"""Where files of a store are while this process writes them."""


def write_whole(path: Path, data: bytes) -> None:
    """Raises `OSError`, with the name of the file."""
    with whole_file(path) as partial:
        partial.write_bytes(data)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write meanwhile: beside its place.  What was at `path` stays there if anything goes wrong."""
    partial = partial_of(path)
    with name_file(path):
        try:
            yield partial
            if isinstance(path, S3Path):
                path.upload(partial)
                drop_partial(path)
            else:
                os.replace(partial, path)
        except BaseException:
            drop_partial(path)
            raise


def partial_of(path: Path) -> Path:
    """Where it is while this process writes it.  Another process, here or elsewhere, may be at the same file: a task
    that Spark took for dead and began again."""
    if isinstance(path, S3Path):
        if path not in _SPOOLED:
            _SPOOLED[path] = Path(tempfile.mkdtemp(prefix="gapless-")) / path.name
        return _SPOOLED[path]
    here = crc32(os.uname().nodename.encode())
    return path.with_name(f"{path.name}.{here:08x}-{os.getpid()}.partial")


def drop_partial(path: Path) -> None:
    """What is written of it by now is no more."""
    partial = partial_of(path)
    with suppress(OSError):
        partial.unlink(missing_ok=True)
    if isinstance(path, S3Path):
        shutil.rmtree(partial.parent, ignore_errors=True)
        _SPOOLED.pop(path, None)


def make_folder(path: Path, key: str) -> None:
    """The folder is there; raises `ConfigurationError` as `check_folder` does."""
    check_folder(path, key)
    if isinstance(path, S3Path):
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(path, key, error.strerror) from error


def check_folder(path: Path, key: str) -> None:
    """The folder is there or can be made, and this user may write to it; nothing is made yet.

    Raises `ConfigurationError` that names `key` and the path.
    """
    check_name(path, key)
    if isinstance(path, S3Path):
        if not path.has_bucket():
            raise ConfigurationError(key, path.address, "has no such bucket: make it, or give another")
        return
    path = local_path(path, key)
    try:
        there = next(one for one in (path, *path.absolute().parents) if one.exists())
    except (OSError, ValueError) as error:  # longer than a name may be, or with a null character
        raise _unusable(path, key, getattr(error, "strerror", None) or str(error)) from error
    if not there.is_dir():
        raise _unusable(path, key, f"{there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _unusable(path, key, f"this user may not write to {there}")


def local_path(path: Path, key: str) -> Path:
    """The path, without `file:` before it; raises `ConfigurationError` for an address of another store, such as s3:."""
    scheme, colon, rest = str(path).partition(":/")
    if not colon or not scheme.isalnum() or len(scheme) == 1:
        return path
    if scheme != "file":
        rule = f"is an address of {scheme}, which is not reached; mount it, or copy it, and give a path or file:"
        raise ConfigurationError(key, str(path), rule)
    return Path("/" + rest.lstrip("/"))


def store_path(path: Path | str, key: str = "trace") -> Path:
    """A path of this machine, or `s3://BUCKET/KEY`; raises `ConfigurationError` for an address of another store."""
    text = str(path)
    if isinstance(path, S3Path) or not text.startswith(SCHEME):
        return path if isinstance(path, S3Path) else local_path(Path(path), key)
    return S3Path(text.removeprefix(SCHEME).lstrip("/"))


def check_name(path: Path, key: str) -> None:
    """Libraries that write files for us know names as UTF-8; raises `ConfigurationError` for one that is none here."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        rule = "is no name in the letters of this locale; set PYTHONUTF8=1, or take another name"
        raise ConfigurationError(key, str(path), rule) from error


def _unusable(path: Path, key: str, why: str | None) -> ConfigurationError:
    return ConfigurationError(key, str(path), f"cannot be a folder to write to: {why}; give another")


@contextmanager
def name_file(path: Path) -> Iterator[None]:
    """An error of the system says that it is about this file: to write to one that is open tells only what went wrong,
    and libraries have words of their own for it."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(partial_of(path))):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error

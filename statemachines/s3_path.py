"""S3Path: a folder or file in an S3 store, reached through `pyarrow.fs`.

Credentials, region and endpoint are those of the environment (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`).
An object appears when it is whole: the store shows nothing of an upload before its end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PosixPath
from typing import Any, Final

from statemachines.kernel import ConfigurationError

SCHEME: Final = "s3:/"
CONNECT_S: Final = 10
REQUEST_S: Final = 60
ATTEMPTS: Final = 3
PART_BYTES: Final = 8 << 20
"""Of an upload, so much is in memory."""


class S3Path(PosixPath):
    """BUCKET/KEY.  Only what is overridden here looks at the store."""

    @property
    def address(self) -> str:
        """As a user gives it."""
        return f"s3://{self}"

    def is_dir(self, **options: Any) -> bool:
        """There are objects under it."""
        return self._kind() == "Directory"

    def is_file(self, **options: Any) -> bool:
        """There is an object of this name."""
        return self._kind() == "File"

    def has_bucket(self) -> bool:
        """Its bucket is there."""
        return S3Path(self.parts[0])._kind() == "Directory" if self.parts else False

    def glob(self, pattern: str, **options: Any) -> Iterator[S3Path]:  # type: ignore[override]
        """The files right in the folder whose names fit."""
        from pyarrow.fs import FileSelector, FileType

        for one in _ask(self, lambda: file_system().get_file_info(FileSelector(str(self)))):
            if one.type == FileType.File and fnmatchcase(one.base_name, pattern):
                yield self / one.base_name

    def resolve(self, strict: bool = False) -> S3Path:
        """It is absolute."""
        return self

    def unlink(self, missing_ok: bool = False) -> None:
        """The object is no more; one that is not there is no error."""
        if self.is_file():
            _ask(self, lambda: file_system().delete_file(str(self)), "written")

    def upload(self, path: Path) -> None:
        """The object has the bytes of this file, in place of those that it had."""
        from pyarrow.fs import LocalFileSystem, copy_files

        def copy() -> None:
            stores = {"source_filesystem": LocalFileSystem(), "destination_filesystem": file_system()}
            copy_files(str(path), str(self), **stores, chunk_size=PART_BYTES, use_threads=False)

        _ask(self, copy, "written")

    def _kind(self) -> str:
        return str(_ask(self, lambda: file_system().get_file_info(str(self))).type.name)


def _ask(path: S3Path, request: Any, what: str = "read") -> Any:
    """What the store answers; raises `ConfigurationError`, which names the address, where it does not."""
    try:
        return request()
    except OSError as error:
        why = " ".join(str(error).split())[:200]
        rule = f"cannot be {what}: {why}; look at AWS_ENDPOINT_URL, AWS_REGION and the credentials"
        raise ConfigurationError("trace" if what == "read" else "output", path.address, rule) from error


def file_system() -> Any:
    """The store, by the environment of this process."""
    return _open_store(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"))


@cache
def _open_store(endpoint: str | None) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    return S3FileSystem(
        endpoint_override=endpoint,
        connect_timeout=CONNECT_S,
        request_timeout=REQUEST_S,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )


def file_system_of(path: Path) -> Any:
    """What Parquet reads the path through; None: the file system of this machine."""
    return file_system() if isinstance(path, S3Path) else None


def show_path(path: Path) -> str:
    """As a user gives it."""
    return path.address if isinstance(path, S3Path) else str(path)


def address_of(path: Path) -> str:
    """What `store_path` finds it by, in whatever process."""
    return path.address if isinstance(path, S3Path) else str(path.resolve())

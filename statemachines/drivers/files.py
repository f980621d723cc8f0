"""Files: a pure service of the kernel as a real one, kept in memory or in a file.

    services = {JOURNAL: FileService(Journal(), state / "journal.json")}

In a file it is shared by all processes that name the file: a request is carried out under a lock, and what it changed
is on the disk before anybody is answered (written beside, synchronised, renamed).  SIGKILL at any time leaves the state
before or after a request, never one between.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from statemachines.drivers.clock import Clock
from statemachines.drivers.port import Feed
from statemachines.kernel import Answer, GaplessError, Request, Service
from statemachines.kernel.pmap import dec_hook, enc_hook

S = TypeVar("S")


class FileDamaged(GaplessError):
    """The file is not what this service wrote; repeating does not help."""


class MemoryService(Generic[S]):
    """`service`, kept by this process alone, and gone with it."""

    def __init__(self, service: Service[S], *, clock: Clock = time.time_ns) -> None:
        self.state = service.initial()
        self._service = service
        self._clock = clock

    def __call__(self, party: str, request: Request, feed: Feed) -> None:
        """Answers at once."""
        self.state, answers = self._service.apply(self.state, request, self._clock())
        for answer in answers:
            feed(party, answer)


class FileService(Generic[S]):
    """`service`, kept in the file at `path`; its state is a msgspec Struct, or anything that `type(initial())` decodes.

    Raises `OSError` where the file cannot be read or written, `FileDamaged` where it holds something else.
    """

    def __init__(self, service: Service[S], path: Path, *, clock: Clock = time.time_ns) -> None:
        self._service = service
        self._path = path
        self._clock = clock
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="file")

    async def __call__(self, party: str, request: Request, feed: Feed) -> None:
        """Answers when it is on the disk."""
        loop = asyncio.get_running_loop()
        for answer in await loop.run_in_executor(self._worker, self.carry_out, request):
            feed(party, answer)

    def carry_out(self, request: Request) -> tuple[Answer, ...]:
        """The request, whole or not at all, and no other process's in between."""
        with self._locked():
            before = self.read()
            state, answers = self._service.apply(before, request, self._clock())
            if state != before:
                self._write(state)
        return answers

    def read(self) -> S:
        """The state in the file; the empty one where there is none."""
        empty = self._service.initial()
        if not self._path.exists():
            return empty
        try:
            kept = msgspec.json.decode(self._path.read_bytes())
            if kept["service"] != self._service.name:
                raise FileDamaged(
                    f"{self._path}: is of the service {kept['service']!r}; give {self._service.name} another file"
                )
            state: S = msgspec.convert(kept["state"], type(empty), dec_hook=dec_hook)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, TypeError) as error:
            why = "restore it from a copy, or begin without it"
            raise FileDamaged(f"{self._path}: is no state of {self._service.name} ({error}); {why}") from error
        return state

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock dies with its process."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_name(f"{self._path.name}.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, state: Any) -> None:
        written = self._path.with_name(f"{self._path.name}.new")
        with written.open("wb") as file:
            file.write(msgspec.json.encode({"service": self._service.name, "state": state}, enc_hook=enc_hook))
            file.flush()
            os.fsync(file.fileno())
        os.replace(written, self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

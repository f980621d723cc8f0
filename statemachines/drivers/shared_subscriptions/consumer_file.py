"""ConsumerFile: what `gapless node consumer --out` appends: a line for each message it got before it deals with it, and
one for each that it acknowledged."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from statemachines.trace.tables import append_whole

GOT, ACK = "got", "ack"


class ConsumerLine(msgspec.Struct, frozen=True, array_like=True):
    """What happened to a message, and when by the system's clock; `digest` of its payload; `owner`: the borrower that
    it was got by (grants are numbered anew by each leader)."""

    what: str
    stream: str
    grant: int
    offset: int
    digest: str = ""
    owner: str = ""
    at_ns: int = 0


class ConsumerFile:
    """What a consumer appends; a line is the operating system's when its method returns, which raises `GaplessError`
    on a full disk."""

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def got(self, stream: str, grant: int, messages: list[tuple[int, bytes]], owner: str = "") -> None:
        """Messages (offset, payload) that were handed over."""
        now_ns = self._clock()
        self._write(
            [ConsumerLine(GOT, stream, grant, offset, digest(payload), owner, now_ns) for offset, payload in messages]
        )

    def write_acknowledged(self, stream: str, grant: int, messages: list[tuple[int, bytes]]) -> None:
        """Messages that were acknowledged."""
        self._write([ConsumerLine(ACK, stream, grant, offset) for offset, _ in messages])

    def _write(self, lines: list[ConsumerLine]) -> None:
        append_whole(self._file, self._path, msgspec.json.Encoder().encode_lines(lines))


def digest(payload: bytes) -> str:
    """What identifies a payload."""
    return hashlib.sha256(payload).hexdigest()[:16]


def read_file(path: Path) -> list[ConsumerLine]:
    """The lines of a consumer; one that was cut by its death is left out."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    return msgspec.json.Decoder(ConsumerLine).decode_lines(whole)

"""Lives: the number of each start of a node, kept on disk so that none is used twice; and the log of a life.

Ids are made from it (`identity.incarnation`), and from bits of chance, so that no two lives speak with each other's
voice, even where a disk was lost.  A node whose name was made by chance has one life, and keeps nothing.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from statemachines.kernel import ConfigurationError, incarnation, node_of
from statemachines.trace import list_fingerprints
from statemachines.trace.log import FORMAT, Head, TraceLog
from statemachines.trace.log_segments import find_segments

RUN_VARIABLE: Final = "GAPLESS_RUN"
"""In the environment: what the run is called, in the heads of logs."""


def chance_bits() -> int:
    """64 bits that no other life has; never 0."""
    return secrets.randbits(64) or 1


def last_number(directory: Path, node: str) -> int:
    """The number of the last life that this directory knows of; 0: none.

    Raises `ConfigurationError` for a bad name, an unreadable number, or a directory that cannot be read.
    """
    incarnation(node, 1)
    path = directory / f"{node}.life"
    try:
        return int(path.read_text()) if path.exists() else 0
    except ValueError as error:
        rule = "does not hold a number; delete it only together with the stores that know this node"
        raise ConfigurationError("life", str(path), rule) from error
    except OSError as error:
        raise ConfigurationError("state", str(directory), f"cannot be read: {error.strerror}") from error


def private(path: str, flags: int) -> int:
    """A file that is made is its owner's alone."""
    return os.open(path, flags, 0o600)


def keep_number(directory: Path, node: str, number: int) -> None:
    """Durable when this returns; raises `ConfigurationError` for a directory that cannot be written."""
    path = directory / f"{node}.life"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        with open(written, "w", opener=private) as file:
            file.write(f"{number}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(written, path)
    except OSError as error:
        raise ConfigurationError("state", str(directory), f"cannot be written: {error.strerror}") from error


def next_life(directory: Path, node: str, life: int = 0, bits: int = 0) -> str:
    """The incarnation of a node that starts now, with the number `life`, or the next that the directory knows; raises
    as `last_number` and `keep_number` do."""
    number = life or last_number(directory, node) + 1
    keep_number(directory, node, number)
    return incarnation(node, number, bits)


def node_number(life: str) -> int:
    """What the messages of this life are numbered from: 23 bits of a hash of its name."""
    value = 0xCBF29CE484222325
    for byte in life.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return 1 + value % (2**23 - 1)


class Life(NamedTuple):
    """One life of a node: its name (`NODE~NUMBER` or `NODE~NUMBER.BITS`), what its messages are numbered from, its log
    (None: no trace)."""

    name: str
    number: int
    log: TraceLog | None

    def close(self) -> None:
        """The life is over: its log is ended."""
        if self.log is not None:
            self.log.close()


def chance_name(kind: str) -> str:
    """A name for a node that was given none, such as `consumer-apple-4711-9f2c01d3`: host, process, and chance."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname().partition(".")[0])[:24].strip("-") or "host"
    return f"{kind}-{host}-{os.getpid()}-{secrets.token_hex(4)}"


def begin_life(
    node: str | None,
    state: Path,
    trace: Path | None,
    number: int | None,
    protocol: str,
    *,
    kind: str = "node",
    life: int = 0,
    bits: int = 0,
    store: str = "",
) -> Life:
    """The next life of `node`, counted in `state` unless somebody else has counted it (`life`), or the only one of a
    name that is made now (None: of this `kind`); `bits`: of chance, in its ids; logged in `trace` with the tables of
    `protocol`; `number` instead of the one its name gives; `store`: the identity of the store that it works on.

    A name is made when a life begins, not before: who is entered twice, or is entered after a fork, has two.
    """
    name = incarnation(chance_name(kind), 1, bits) if node is None else next_life(state, node, life, bits)
    number = node_number(name) if number is None else number
    if trace is None:
        return Life(name, number, None)
    stores = {protocol: store} if store else {}
    return Life(name, number, begin_log(trace, name, [protocol], stores=stores, number=number))


def begin_log(
    directory: Path,
    life: str,
    protocols: Iterable[str] = (),
    *,
    stores: Mapping[str, str] | None = None,
    number: int | None = None,
) -> TraceLog:
    """The log of a life, in `directory`; its head names the tables of `protocols`, the `stores` (protocol -> identity),
    and the run, where the environment does (`GAPLESS_RUN`).  The environment also says whether the log is written in
    segments (`log_segments`).  Raises as `TraceLog` does."""
    run = os.environ.get(RUN_VARIABLE, "").encode(errors="replace").decode()
    number = node_number(life) if number is None else number
    head = Head(FORMAT, node_of(life), life, number, list_fingerprints(protocols), {}, run, dict(stores or {}))
    return TraceLog(directory, head, find_segments())

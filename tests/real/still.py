"""A PostgreSQL that stands still: its machine sleeps, or its disk does not answer.  Connections stay; none answers."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import psycopg


def servers_of(url):
    """All processes of the server, which is on this machine: the one that began it first."""
    with psycopg.connect(url, autocommit=True) as connection:
        ((pid,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
        first = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return [first, *map(int, children)]


@contextlib.contextmanager
def standing_still(url):
    """In the block none of them runs."""
    stopped = servers_of(url)
    _send(stopped, signal.SIGSTOP)
    try:
        yield
    finally:
        _send(stopped, signal.SIGCONT)


def _send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a connection that has ended meanwhile
            os.kill(pid, number)

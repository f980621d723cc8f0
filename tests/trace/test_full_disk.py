"""A disk that is full: whoever appends says which file, and nothing is half a line that somebody takes for whole."""

from __future__ import annotations

import os
import re
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from statemachines.drivers.shared_subscriptions.consumer_file import ConsumerFile, read_file
from statemachines.kernel import GaplessError
from statemachines.trace import COLUMNS
from statemachines.trace.append_whole import append_whole
from statemachines.trace.log import FORMAT, Head, TraceLog, read_log

FULL = Path("/dev/full")
"""Takes no byte, as a disk that is full."""


def test_a_full_disk_is_named_with_the_file(tmp_path):
    path = tmp_path / "notes"
    with FULL.open("wb", buffering=0) as file, pytest.raises(GaplessError) as caught:
        append_whole(file.fileno(), path, b"one\n")
    assert str(caught.value) == f"{path}: No space left on device; what was written before is there"


def test_what_the_disk_takes_in_parts_is_there_whole(tmp_path, monkeypatch):
    """A write may take less than it was given, and fail only at the next."""
    write = os.write
    path = tmp_path / "consumer"
    file = ConsumerFile(path)
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    file.got("s", 1, [(0, b"first"), (1, b"second")])
    assert [(line.what, line.offset) for line in read_file(path)] == [("got", 0), ("got", 1)]


def test_a_consumer_whose_file_cannot_be_written_takes_nothing_for_noted():
    with pytest.raises(GaplessError, match="/dev/full: No space left on device"):
        ConsumerFile(FULL).got("s", 1, [(0, b"first")])


def test_a_log_on_a_full_disk_is_named_and_what_it_holds_is_read(tmp_path):
    log = TraceLog(tmp_path, Head(FORMAT, "n", "n~1", 7, {}, {}))
    row = tuple({"t_ns": 1, "node": "n", "kind": "tell"}.get(name, -1 if name == "row" else 0) for name in COLUMNS)
    assert len(row) == len(COLUMNS)
    with FULL.open("wb", buffering=0) as full:
        kept = os.dup(log._file)
        os.dup2(full.fileno(), log._file)
        with pytest.raises(GaplessError, match=re.escape(f"{log.path}: No space left on device")):
            log.write([row])
        os.dup2(kept, log._file)
        os.close(kept)
    log.close()
    assert read_log(log.path).rows == []


PUBLISH = """
import resource, sys
from statemachines import cli
from statemachines.drivers.shared_subscriptions import node_commands
node_commands.PATIENCE_S = 0.2
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
sys.exit(cli.run(sys.argv[1:]))
"""
"""A publisher whose files may not grow beyond so many bytes."""


def test_a_publisher_on_a_full_disk_waits_and_then_says_how_many_are_stored(tmp_path):
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    (tmp_path / "lines").write_text("".join(f"line {number}\n" for number in range(20_000)))
    store = tmp_path / "x.db"
    node = ["node", "publisher", "--store", str(store), "--input", str(tmp_path / "lines"), "--rate", "1000000"]
    done = subprocess.run([sys.executable, "-c", PUBLISH, *node], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    waits, error = done.stderr.splitlines()
    assert f"waits for the store, 0.2 s at most: {store}: " in waits
    said = re.fullmatch(rf"error: {store}: .*; (\d+) messages were published before that, and are stored", error)
    assert said
    assert 0 < int(said[1]) < 20_000
    with closing(sqlite3.connect(store)) as there:
        assert there.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert there.execute("SELECT count(*) FROM messages").fetchone() == (int(said[1]),)

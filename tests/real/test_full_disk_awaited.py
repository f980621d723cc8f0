"""A disk that is full when nodes start, against real processes: they wait, say so, and go on when there is room."""

import os
import resource
import subprocess
import sys

import pytest

from tests.real.outside import Process

ROOM = 16_384
"""Bytes that a file may have as long as the disk counts as full: too few for the tables of a store, and enough for a
log."""
WAITS = "waits for its store"


class Cramped(Process):
    """A command where no file may be larger.  It writes no bytecode: cut off there, it would be read by everybody."""

    def __init__(self, log, *arguments):
        self.log = log
        full = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        with log.open("w") as file:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "statemachines", *map(str, arguments)],
                stdout=subprocess.PIPE, stderr=file, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, full)),
            )  # fmt: skip

    def give_room(self):
        """The disk has room again."""
        most = resource.prlimit(self.child.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(self.child.pid, resource.RLIMIT_FSIZE, (most, most))


@pytest.mark.long
def test_SS_261_PS_201_a_disk_that_is_full_at_the_start_is_waited_for(tmp_path):
    lines, sessions, messages = tmp_path / "lines.txt", tmp_path / "s.db", tmp_path / "m.db"
    lines.write_text("one\ntwo\n")
    node = ("node", "sessions", "--store", sessions, "--name", "a", "--listen", "127.0.0.1:0")
    publisher = ("node", "publisher", "--store", messages, "--input", lines, "--state", tmp_path)
    with (
        Cramped(tmp_path / "sessions.log", *node) as serves,
        Cramped(tmp_path / "publisher.log", *publisher) as publishes,
    ):
        for one in (serves, publishes):
            one.until_said(WAITS)
            assert one.child.poll() is None
            assert "make room on its disk" in one.said
            one.give_room()
        assert serves.child.stdout.readline().startswith("listening on ")
        assert publishes.child.wait(60) == 0, publishes.said
        assert serves.stop() == 0

"""Outside: what somebody can do who has no part of gapless: raw frames on a socket, commands, files.

Nothing of `statemachines.testing` is used, nor a codec of ours: what is shared with what is judged would be wrong in
both.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import time

import msgspec

PROGRAM = (sys.executable, "-m", "statemachines")
LEADER, CONSUMER = "shared_subscriptions/leader", "shared_subscriptions/consumer"


def gapless(*arguments, **options):
    """A command of gapless as a process that has ended."""
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


class Process:
    """A command of gapless that goes on; its log is in a file beside the store."""

    def __init__(self, log, *arguments, program=PROGRAM):
        self.log = log
        with log.open("w") as file:
            command = [*program, *map(str, arguments)]
            self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)

    @property
    def said(self):
        """What it has logged so far."""
        return self.log.read_text()

    def _said_behind(self, words):
        return self.said.rpartition(words)[2] if words else self.said

    def until_said(self, *words, behind="", seconds=60):
        """Wait until it has logged one of these, behind the last of `behind`; raises `TimeoutError`."""
        end = time.monotonic() + seconds
        while not any(one in self._said_behind(behind) for one in words):
            if time.monotonic() > end:
                raise TimeoutError(f"never said {words!r}: {self.said}")
            time.sleep(0.02)

    def stop(self):
        """In good order; how it ended."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()


class LeaderHost(Process):
    """A leader host that listens."""

    def __init__(self, folder, store, *options, program=PROGRAM):
        listen = ("--listen", "127.0.0.1:0", "--state", folder)
        arguments = ("node", "leader", "--store", store, *listen, *options)
        super().__init__(folder / "leader.log", *arguments, program=program)
        line = self.child.stdout.readline()
        assert line.startswith("listening on "), self.said
        self.port = int(line.rpartition(":")[2])


def identity_of(store):
    """What a file of SQLite is called: a stranger can have read it, or have heard it in a hello."""
    if isinstance(store, str):
        return store
    with contextlib.closing(sqlite3.connect(store)) as connection:
        (identity,) = connection.execute("SELECT identity FROM store").fetchone()
    return identity


class Stranger:
    """A connection to a port, with whatever hello it likes; `store`: the file that it says it works on, or any word."""

    def __init__(self, port, life, role=CONSUMER, *, store):
        self.wire = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._read = b""
        self._msg = 0
        self.send(["gapless", 4, role, life, b"", False, identity_of(store)])

    def send(self, body):
        """One frame."""
        data = msgspec.msgpack.encode(body)
        self.wire.sendall(struct.pack(">I", len(data)) + data)

    def say(self, sender, to, *message):
        """A packet."""
        self._msg += 1
        self.send([sender, to, self._msg, list(message)])

    def hear(self, *names, seconds=30):
        """The next message with one of these names; None: the connection was ended, or nothing came in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            frame = self._frame(end)
            if frame is None:
                return None
            body = msgspec.msgpack.decode(frame)
            if len(body) == 4 and isinstance(body[3], list) and body[3][0] in names:
                return body
        return None

    def register(self, borrower, group, topic_filter, seconds=60):
        """Ask who leads, again and again, as a borrower does; the connect response."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.say(borrower, "leader", "leader_wanted", borrower, group, topic_filter)
            heard = self.hear("leader_connect_response", seconds=0.3)
            if heard is not None and heard[1] == borrower:
                return heard[3]
        raise TimeoutError(f"nobody leads {group}/{topic_filter}")

    def is_cut_off(self, seconds=30):
        """Whether the other side ends the connection."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._frame(end) is None:
                return time.monotonic() < end
        return False

    def _frame(self, end):
        while True:
            if len(self._read) >= 4:
                (size,) = struct.unpack(">I", self._read[:4])
                if len(self._read) >= 4 + size:
                    frame, self._read = self._read[4 : 4 + size], self._read[4 + size :]
                    return frame
            self.wire.settimeout(max(0.01, end - time.monotonic()))
            try:
                data = self.wire.recv(65_536)
            except (TimeoutError, ConnectionError):
                return None
            if not data:
                return None
            self._read += data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.wire.close()


def read_all(folder, store, port, count, *options, program=PROGRAM):
    """The offsets that an honest consumer acknowledges, until there are so many."""
    out = folder / "got.txt"
    leader = ("--leader", f"127.0.0.1:{port}", "--state", folder)
    arguments = ("node", "consumer", "$shared/g/#", "--store", store, "--out", out, *leader, *options)
    with Process(folder / "consumer.log", *arguments, program=program) as consumer:
        end = time.monotonic() + 60
        acknowledged = set()
        while len(acknowledged) < count:
            assert time.monotonic() < end, consumer.said
            time.sleep(0.05)
            lines = out.read_bytes().splitlines() if out.exists() else []
            acknowledged = {said[3] for said in map(msgspec.json.decode, lines) if said[0] == "ack"}
        assert consumer.stop() == 0, consumer.said
    return acknowledged

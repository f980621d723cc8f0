"""Outside: what somebody can do who has no part of gapless: raw frames on a socket, commands, files.

Nothing of `statemachines.testing` is used, nor a codec of ours: what is shared with what is judged would be wrong in
both.

Fake leaders: whoever listens where a consumer looks for a leader, and says what it likes.

A PostgreSQL that stands still: its machine sleeps, or its disk does not answer.  Connections stay; none answers.

Faults of real processes, of their store and of the network between them: how each hurts, and how it heals.

    async with FAULTS["kill"](node):      # it is dead in the block, and lives again behind it
        await asyncio.sleep(1)

A process that may be hurt is a `NodeProcess`, or has its methods; a store is a file or an URL of PostgreSQL; a way
is a `FaultProxy`.
"""

import contextlib
import os
import random
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psycopg

from statemachines.testing import fault_proxy
from tests.waiting import pause_async, read_clock_s, until

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

    def until_said(self, *words, behind=""):
        """Wait until it has logged one of these, behind the last of `behind`."""
        until(lambda: any(one in self._said_behind(behind) for one in words), lambda: f"{words!r}: {self.said}")

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
        end = read_clock_s() + seconds
        while read_clock_s() < end:
            frame = self._frame(end)
            if frame is None:
                return None
            body = msgspec.msgpack.decode(frame)
            if len(body) == 4 and isinstance(body[3], list) and body[3][0] in names:
                return body
        return None

    def register(self, borrower, group, topic_filter):
        """Ask who leads, again and again, as a borrower does; the connect response."""

        def ask():
            self.say(borrower, "leader", "leader_wanted", borrower, group, topic_filter)
            heard = self.hear("leader_connect_response", seconds=0.3)
            return heard is not None and heard[1] == borrower and heard[3]

        return until(ask, f"a leader of {group}/{topic_filter}")

    def _frame(self, end):
        while True:
            if len(self._read) >= 4:
                (size,) = struct.unpack(">I", self._read[:4])
                if len(self._read) >= 4 + size:
                    frame, self._read = self._read[4 : 4 + size], self._read[4 + size :]
                    return frame
            self.wire.settimeout(max(0.01, end - read_clock_s()))
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
        until(lambda: len(read_acknowledged(out)) >= count, lambda: consumer.said)
        assert consumer.stop() == 0, consumer.said
    return read_acknowledged(out)


def read_acknowledged(out):
    """The offsets that a consumer has acknowledged in its file so far."""
    lines = out.read_bytes().splitlines(keepends=True) if out.exists() else []
    said = [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]
    return {one[3] for one in said if one[0] == "ack"}


HIGH = 2**62
END = 2**63 - 1


class FakeLeader(threading.Thread):
    """Answers every leader_wanted as a leader of an epoch that nobody will ever reach, and says nothing else."""

    life = "fake~1"

    def __init__(self, store, port=0):
        super().__init__()
        self.identity = identity_of(store)
        self.listening = socket.create_server(("127.0.0.1", port))
        self.port = self.listening.getsockname()[1]
        self.answered = 0
        self.wires, self.serving = [], []

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                self.wires.append(self.listening.accept()[0])
                self.serving.append(threading.Thread(target=self.answer, args=self.wires[-1:]))
                self.serving[-1].start()

    def answer(self, wire):
        read = b""
        with contextlib.suppress(OSError):
            self.send(wire, ["gapless", 4, LEADER, self.life, b"", False, self.identity])
            while data := wire.recv(65_536):
                read += data
                while len(read) >= 4 and len(read) >= 4 + (size := struct.unpack(">I", read[:4])[0]):
                    body, read = msgspec.msgpack.decode(read[4 : 4 + size]), read[4 + size :]
                    if len(body) == 4 and body[3][0] == "leader_wanted":
                        for lie in self.lies(body[0]):
                            self.answered += 1
                            self.send(wire, [f"{self.life}/1", body[0], self.answered, lie])

    def lies(self, borrower):
        """What it answers one that looks for a leader."""
        return [["leader_connect_response", borrower, f"{self.life}/1", HIGH, 1]]

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        """Who is still connected is cut off; nothing of this is left for the test after it."""
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.join()
        for wire, thread in zip(self.wires, self.serving, strict=True):
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
            thread.join()
            wire.close()

    @staticmethod
    def send(wire, body):
        data = msgspec.msgpack.encode(body)
        wire.sendall(struct.pack(">I", len(data)) + data)


class Pretender(FakeLeader):
    """Says whatever a leader may, of epochs, grants and streams that are or are not."""

    def __init__(self, store, port, chance, streams):
        super().__init__(store, port)
        self.chance = random.Random(chance.random())
        self.life = f"fake-{self.chance.getrandbits(32)}~{self.chance.choice([1, 5, HIGH])}"
        self.streams = streams

    def number(self):
        return self.chance.choice([0, 1, 2, 5, HIGH, END])

    def lies(self, borrower):
        about = [borrower, self.number(), self.number()]
        grant = [self.chance.choice(self.streams), self.number()]
        leader = self.chance.choice([f"{self.life}/1", "leader-1~1/1", "leader-2~2/1"])
        words = [
            ["leader_connect_response", borrower, leader, self.number(), self.number()],
            ["undeclared", borrower],
            ["ping_response", *about, self.number()],
            ["grant", *about, *grant, self.number()],
            ["revoke", *about, *grant],
            ["revoked", *about, *grant],
            ["invalidate", *about],
        ]
        return self.chance.choices(words, k=4)


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


@contextlib.asynccontextmanager
async def kill(process):
    """SIGKILL, and another life."""
    await process.end(signal.SIGKILL)
    yield
    await process.start()


@contextlib.asynccontextmanager
async def stop(*processes):
    """SIGSTOP, and SIGCONT."""
    for process in processes:
        process.stop()
    yield
    for process in processes:
        process.resume()


@contextlib.asynccontextmanager
async def lock(store, timeout_s=0.5):
    """Somebody keeps a file locked; PostgreSQL stands still."""
    if store.startswith("postgresql"):
        with standing_still(store):
            yield
        return
    with contextlib.closing(sqlite3.connect(store, timeout=timeout_s, isolation_level=None)) as connection:
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
        yield


@contextlib.asynccontextmanager
async def lock_tables(store):
    """Somebody stops inside a transaction that has those of groups locked."""
    with psycopg.connect(store) as connection:
        connection.execute("SET lock_timeout = '3s'")
        with contextlib.suppress(psycopg.errors.LockNotAvailable):
            connection.execute("LOCK TABLE gapless.group_records, gapless.messages IN ACCESS EXCLUSIVE MODE")
        yield


@contextlib.asynccontextmanager
async def cut(way):
    """Every connection is gone; others may be made."""
    way.cut()
    yield


@contextlib.asynccontextmanager
async def silence(way, direction="both"):
    """Nothing arrives, in a direction or in both."""
    way.block(direction)
    yield
    way.heal()


@contextlib.asynccontextmanager
async def busy(processes):
    """So many processes compute all the time."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


FAULTS = {
    "kill": kill,
    "stop": stop,
    "lock": lock,
    "lock tables": lock_tables,
    "cut": cut,
    "silence": silence,
    "busy": busy,
}
HOLDS_S = {"kill": (0, 0.1, 0.6), "stop": (0.1, 0.5, 1.5, 4.0), "cut": (0,)}
STORE_S = (0.2, 1.0, 2.5)
"""How long each lasts: below and beyond a node's lease."""


async def hurt(kind, chance, *victims, holds_s=None):
    """Hurt them, and heal them after a while."""
    async with FAULTS[kind](*victims):
        await pause_async(chance.choice(holds_s or HOLDS_S.get(kind, STORE_S)), "the fault lasts")


@contextlib.contextmanager
def reach_by_proxy(store):
    """(The URL of the same store behind a proxy, the proxy); a file has none."""
    if not store.startswith("postgresql"):
        yield store, None
        return
    port = urlsplit(store).port
    with fault_proxy.run_in_thread(("127.0.0.1", port)) as way:
        yield store.replace(f":{port}/", f":{way.address[1]}/"), way

"""A Redis consumer group whose consumers are killed, and what each process logs of it.

python examples/redis_consumers.py out/redis

It starts a redis-server of its own (Debian's), publishes some 600 messages into two streams, and lets three consumers
of one group work on them.  Four of their processes are killed by SIGKILL in the middle of a batch and started again;
the others claim what the dead had.  Every process writes NDJSON as `gapless judge --template redis` asks for it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

STREAMS = ("orders", "returns")
GROUP = "billing"
MESSAGES = 600
CONSUMERS = ("c1", "c2", "c3")
KILLS = {"c1": 2, "c2": 1, "c3": 1}
"""How many processes of each consumer are killed."""
BATCH = 10
WORK_S = 0.001
IDLE_MS = 100
"""After so long another consumer may claim a message."""
PATIENCE_S = 60.0


class LineLog:
    """Appends lines; each is the operating system's before anything else happens."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, kind: str, stream: str, entry: str, **more: str) -> None:
        row = {"at": time.time(), "kind": kind, "stream": stream, "id": entry, **more}
        os.write(self._file, json.dumps(row).encode() + b"\n")


@contextmanager
def redis_server() -> Iterator[int]:
    """A server with its data in a temporary directory; its port."""
    binary = shutil.which("redis-server")
    if binary is None:
        sys.exit("redis-server is not there; install the package 'redis-server' (Debian's name)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "yes"]
        server = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        try:
            yield port
        finally:
            server.kill()
            server.wait()


def connect(port: int) -> Any:
    """A client, as soon as the server answers."""
    client = redis.Redis(port=port, decode_responses=True)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with suppress(redis.exceptions.ConnectionError):
            client.ping()
            return client
        time.sleep(0.02)
    sys.exit("redis-server does not answer")


def consume(port: int, name: str, path: Path, stops: bool) -> None:
    """Read new messages, claim old ones, acknowledge each; `stops`: stand still in the middle of the second batch."""
    client, log, batches = connect(port), LineLog(path), 0
    while True:
        answer = client.xreadgroup(GROUP, name, dict.fromkeys(STREAMS, ">"), count=BATCH, block=20)
        found = [(stream, entry) for stream, entries in answer for entry, _ in entries]
        if not found:
            found = [(stream, entry) for stream in STREAMS for entry in claim_messages(client, name, stream)]
        for stream, entry in found:
            log.write("deliver", stream, entry, consumer=name)
        batches += bool(found)
        if stops and batches == 2:
            print("in the middle", flush=True)
            sys.stdin.readline()
        for stream, entry in found:
            time.sleep(WORK_S)
            log.write("ack", stream, entry, consumer=name)
            client.xack(stream, GROUP, entry)
        if batches % 3 == 2:
            for stream in STREAMS:
                for entry in claim_messages(client, name, stream):
                    log.write("deliver", stream, entry, consumer=name)
                    log.write("ack", stream, entry, consumer=name)
                    client.xack(stream, GROUP, entry)


def claim_messages(client: Any, name: str, stream: str) -> list[str]:
    """Messages that somebody had for too long."""
    return [entry for entry, _ in client.xautoclaim(stream, GROUP, name, IDLE_MS, count=BATCH)[1]]


class ConsumerProcess:
    """The processes of one consumer, one after the other; each has a log of its own."""

    def __init__(self, port: int, name: str, folder: Path) -> None:
        self._port, self._name, self._folder = port, name, folder
        self._lives = 0
        self.start()

    def start(self) -> None:
        self._lives += 1
        self._stops = self._lives <= KILLS[self._name]
        path = self._folder / f"{self._name}-{self._lives}.ndjson"
        command = [sys.executable, __file__, "consume", str(self._port), self._name, str(path), str(int(self._stops))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def kill_in_the_middle(self, publish_more: Callable[[], None]) -> None:
        """Each life that is to die, until one works on; messages are published until it has enough of them."""
        end = time.monotonic() + PATIENCE_S
        while self._stops:
            if select.select([self._process.stdout], [], [], 0.1)[0]:
                self.kill()
                self.start()
            elif time.monotonic() > end:
                sys.exit(f"{self._name} has not come to its second batch after a minute")
            else:
                publish_more()


def publish(client: Any, log: LineLog, messages: int) -> None:
    for number in range(messages):
        stream = STREAMS[number % len(STREAMS)]
        log.write("publish", stream, client.xadd(stream, {"number": number}))


def run(folder: Path) -> None:
    """The whole of it; the logs stand in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.ndjson"):
        old.unlink()
    consumers: list[ConsumerProcess] = []
    with redis_server() as port:
        client = connect(port)
        for stream in STREAMS:
            client.xgroup_create(stream, GROUP, id="0", mkstream=True)
        log = LineLog(folder / "publisher.ndjson")
        publish(client, log, MESSAGES)
        try:
            for name in CONSUMERS:
                consumers.append(ConsumerProcess(port, name, folder))
            for one in consumers:
                one.kill_in_the_middle(lambda: publish(client, log, 2 * BATCH))
            end = time.monotonic() + PATIENCE_S
            while any(group["pending"] or group["lag"] for stream in STREAMS for group in client.xinfo_groups(stream)):
                if time.monotonic() > end:
                    sys.exit("messages are left after a minute")
                time.sleep(0.02)
        finally:
            for one in consumers:
                one.kill()
    print(f"{len(list(folder.glob('*.ndjson')))} logs in {folder}, {sum(KILLS.values())} consumers were killed at work")


if __name__ == "__main__":
    if sys.argv[1:2] == ["consume"]:
        consume(int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), sys.argv[5] == "1")
    elif len(sys.argv) == 2:
        run(Path(sys.argv[1]))
    else:
        sys.exit("give the folder that the logs go to")

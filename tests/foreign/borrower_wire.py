"""A Borrower over the wire in plain Python: nothing of gapless is imported; docs/wire.md is all that it knows.

    python borrower_wire.py 127.0.0.1:7411 '{"ping_interval_ms": 1000, ...}' --group g --filter '#'

Its session pretends to read, or reads a SQLite file of streams.  What a Borrower does stands in `borrower.py`.
"""

import argparse
import hashlib
import hmac
import json
import os
import random
import select
import socket
import sqlite3
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from borrower import Borrower
from plain_msgpack import pack, unpack

VERSION = 4
FRAME_MAX = 2**20
REPORT = ("stream", "grant", "progress", "finished", "failed", "in_hand", "acked", "reason")
FIELDS = {
    "leader_wanted": ("borrower", "group", "filter"),
    "ping": ("borrower", "epoch", "registration", "n", "reports"),
    "update_progress": ("borrower", "epoch", "registration", *REPORT),
    "revoke_finished": ("borrower", "epoch", "registration", "stream", "grant"),
    "disconnect": ("borrower", "epoch", "registration", "reports"),
    "leader_connect_response": ("borrower", "leader", "epoch", "registration"),
    "undeclared": ("borrower",),
    "ping_response": ("borrower", "epoch", "registration", "n"),
    "grant": (
        "borrower",
        "epoch",
        "registration",
        "stream",
        "grant",
        "progress",
        "failed",
        "most",
        "relaxed",
        "acked",
        "repeats",
    ),
    "revoke": ("borrower", "epoch", "registration", "stream", "grant"),
    "revoked": ("borrower", "epoch", "registration", "stream", "grant"),
    "invalidate": ("borrower", "epoch", "registration"),
}
LEFT_OUT = {"failed": 0, "most": 0, "relaxed": False, "acked": [], "repeats": 0}
"""Values of fields that are left out at the end of a grant."""
READ_ALL = {"failed": 0, "in_hand": False, "acked": [], "reason": ""}
"""A session that gives nothing back, and reads in order, says so."""


class Connection:
    """Frames to and from a leader host."""

    def __init__(self, address, life, store, secret):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.life = life
        self.buffer = b""
        self.number = 0
        nonce = os.urandom(32) if secret else b""
        mine = ["gapless", VERSION, "shared_subscriptions/consumer", life, nonce, False, store]
        self.write(mine)
        theirs = self.wait_for_frame()
        if theirs[0] != "gapless":
            raise SystemExit(f"refused: {theirs}")
        if secret:
            self.write(prove(secret, True, mine, theirs))
            if not hmac.compare_digest(self.wait_for_frame(), prove(secret, False, theirs, mine)):
                raise SystemExit("the leader does not know our secret")

    def write(self, value):
        body = pack(value)
        self.socket.sendall(len(body).to_bytes(4, "big") + body)

    def send(self, sender, to, message):
        name = message["type"]
        fields = [message[field] for field in FIELDS[name]]
        if "reports" in message:
            fields[-1] = [[report[field] for field in REPORT] for report in message["reports"]]
        self.number += 1
        self.write([sender, to, self.number, [name, *fields]])

    def wait_for_frame(self):
        while True:
            for frame in self.frames():
                return frame
            self.read()

    def read(self):
        data = self.socket.recv(65_536)
        if not data:
            raise SystemExit(0)
        self.buffer += data

    def frames(self):
        while len(self.buffer) >= 4:
            size = int.from_bytes(self.buffer[:4], "big")
            if size > FRAME_MAX:
                raise SystemExit("a frame that is too large")
            if len(self.buffer) < 4 + size:
                return
            body, self.buffer = self.buffer[4 : 4 + size], self.buffer[4 + size :]
            yield unpack(body)


def prove(secret, dialled, speaker, listener):
    said = ["gapless proof", dialled, *speaker[1:8], *listener[1:8]]
    return hmac.new(secret, pack(said), hashlib.sha256).digest()


class PretendedReader:
    """A session that reads messages which are not there, and whose client comes and goes."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.streams = {}
        self.leaves_at = None
        self.is_slow = False

    def tell(self, event):
        if event["type"] == "install":
            self.streams[event["stream"]] = [event["grant"], event["progress"], False]
        elif event["type"] == "finish":
            self.streams[event["stream"]][2] = True
        elif event["type"] == "uninstall":
            self.streams.pop(event["stream"], None)
        elif event["type"] == "destroyed":
            self.leaves_at = None

    def read(self):
        """What it has read now: at most one stream."""
        if not self.streams or self.chance.random() < 0.5:
            return None
        stream = self.chance.choice(sorted(self.streams))
        grant, progress, finishing = held = self.streams[stream]
        held[1] = progress + self.chance.randrange(3)
        finished = finishing and not self.is_slow and self.chance.random() < 0.3
        said = {"stream": stream, "grant": grant, "progress": held[1], "finished": finished}
        return {"type": "stream_progress", **said, **READ_ALL}

    def call(self, now):
        """What its client does now."""
        if self.leaves_at is None:
            self.leaves_at = now + self.chance.uniform(0.2, 3)
            self.is_slow = self.chance.random() < 0.4
        if now < self.leaves_at:
            return None
        self.leaves_at = float("inf")
        return {"type": self.chance.choice(["on_unsubscribe", "on_unsubscribe", "on_disconnect", "give_back"])}


class FileReader:
    """A session that reads a SQLite file of streams, prints what it reads, and never goes."""

    def __init__(self, path):
        self.database = sqlite3.connect(path)
        self.streams = {}

    def tell(self, event):
        if event["type"] == "install":
            self.streams[event["stream"]] = [event["grant"], event["progress"], False]
        elif event["type"] == "finish":
            self.streams[event["stream"]][2] = True
        elif event["type"] == "uninstall":
            self.streams.pop(event["stream"], None)

    def read(self):
        for stream, held in list(self.streams.items()):
            (count,) = self.database.execute("SELECT count FROM streams WHERE id = ?", [stream]).fetchone()
            if held[1] < count or held[2]:
                for offset in range(held[1], count):
                    print(stream, offset, flush=True)
                grant, held[1], finished = held[0], max(count, held[1]), held[2]
                said = {"stream": stream, "grant": grant, "progress": held[1], "finished": finished}
                return {"type": "stream_progress", **said, **READ_ALL}
        return None

    def call(self, now):
        return None


class Node:
    """One Borrower after the other, with real timers."""

    def __init__(self, connection, options, reader):
        self.connection = connection
        self.options = options
        self.reader = reader
        self.count = 0
        self.timers = {}
        self.begin(0)

    def begin(self, epoch):
        self.count += 1
        self.timers.clear()
        init = {
            "id": f"{self.connection.life}/{self.count}", "group": self.options.group, "filter": self.options.filter,
            "registries": ["leader"], "configuration": json.loads(self.options.configuration), "epoch": epoch,
        }  # fmt: skip
        self.borrower = Borrower(init, time.monotonic_ns())
        self.take({"event": {"type": "start"}})

    def take(self, line):
        line["now_ns"] = time.monotonic_ns()
        borrower = self.borrower
        borrower.take(line)
        effects, borrower.effects = borrower.effects, []
        for effect in effects:
            self.do(effect)

    def do(self, effect):
        kind = effect["effect"]
        if kind == "set_timer":
            self.timers[effect["timer"]] = effect["deadline_ns"]
        elif kind == "cancel_timer":
            self.timers.pop(effect["timer"], None)
        elif kind == "send":
            self.connection.send(self.borrower.id, effect["to"], effect["message"])
        elif kind == "tell":
            self.reader.tell(effect["event"])
            if effect["event"]["type"] == "destroyed":
                self.begin(effect["event"]["epoch"] if effect["event"]["recreate"] else 0)

    def fire(self):
        """What is due: the end of the lease before anything else."""
        now = time.monotonic_ns()
        due = sorted((name != "lease", at, name) for name, at in self.timers.items() if at <= now)
        for _, at, name in due:
            if self.timers.get(name) == at:
                del self.timers[name]
                self.take({"timer": name})

    def hear(self, frame):
        if frame[0] == "gapless refusal":
            raise SystemExit(f"refused: {frame[1]}")
        _, to, _, (name, *fields) = frame
        if to == self.borrower.id:
            left_out = LEFT_OUT if name == "grant" else {}
            self.take({"event": {"type": name, **left_out, **dict(zip(FIELDS[name], fields, strict=False))}})

    def run(self):
        while True:
            wait = min([at - time.monotonic_ns() for at in self.timers.values()] + [20_000_000])
            if select.select([self.connection.socket], [], [], max(0, wait) / 1e9)[0]:
                self.connection.read()
            for frame in self.connection.frames():
                self.hear(frame)
            self.fire()
            for event in (self.reader.read(), self.reader.call(time.monotonic())):
                if event is not None:
                    self.take({"event": event})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("configuration")
    parser.add_argument("--group", default="g")
    parser.add_argument("--filter", default="#")
    parser.add_argument("--node", default="plain")
    parser.add_argument("--life", default="1")
    parser.add_argument("--store", default="")
    parser.add_argument("--secret", default="")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--database", default="")
    options = parser.parse_args()
    life = f"{options.node}~{options.life}"
    connection = Connection(options.address, life, options.store, options.secret.encode())
    reader = FileReader(options.database) if options.database else PretendedReader(options.seed)
    Node(connection, options, reader).run()


if __name__ == "__main__":
    main()

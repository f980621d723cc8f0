"""Fake leaders: whoever listens where a consumer looks for a leader, and says what it likes."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading

import msgspec
from outside import LEADER, identity_of

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

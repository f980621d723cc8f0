"""Relay: a bad network between a real process and another: it is cut, or falls silent, and comes back."""

from __future__ import annotations

import contextlib
import select
import socket
import threading


class Relay(threading.Thread):
    """Listens at `port`, and carries bytes to and from `target` (a port of this machine) while it is `open`."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.target = target
        self.open = threading.Event()
        self.open.set()
        self._ended = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._pairs = {}
        self._lock = threading.Lock()
        self.start()

    def cut(self):
        """Every connection is gone; others may be made."""
        with self._lock:
            for one in list(self._pairs):
                self._drop(one)

    def run(self):
        while not self._ended:
            if not self.open.wait(0.05):
                continue
            with self._lock:
                waiting = [self._server, *self._pairs]
                ready, _, _ = select.select(waiting, [], [], 0.02)
                for one in ready:
                    if one is self._server:
                        self._accept()
                    elif one in self._pairs:
                        self._carry(one)

    def _accept(self):
        near, _ = self._server.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self.target), timeout=5)
        except OSError:
            near.close()
            return
        self._pairs |= {near: far, far: near}

    def _carry(self, one):
        other = self._pairs[one]
        try:
            data = one.recv(65_536)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(one)

    def _drop(self, one):
        other = self._pairs.pop(one, None)
        if other is not None:
            self._pairs.pop(other, None)
            for each in (one, other):
                each.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ended = True
        self.open.set()
        self.join()
        with contextlib.suppress(OSError):
            self._server.close()
        self.cut()

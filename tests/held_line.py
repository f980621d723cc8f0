"""HeldLine: a way to a server of this machine on which what a client sends stands still at a chosen place."""

import contextlib
import select
import socket
import threading


class HeldLine(threading.Thread):
    """A way to `port`; of what a client sends, `expected` says in turn what must have gone by, and the last is held:
    it `holds` until it is `released`, and nothing goes either way.

    With `unanswered` the last one reaches the server before it is held, its answer reaches nobody, and the line is cut
    when it is released.  With `late` the client's end of the line reaches the server no sooner than this is left.
    """

    def __init__(self, port, *expected, unanswered=False, late=False):
        super().__init__(daemon=True)
        self.target, self.expected, self.unanswered, self.late = port, list(expected), unanswered, late
        self.holds, self.released, self._left = threading.Event(), threading.Event(), threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near, far):
        with near, far, contextlib.suppress(OSError):
            while True:
                for one in select.select((near, far), (), ())[0]:
                    data = one.recv(65_536)
                    if not data:
                        return
                    if one is near and self._is_last(data):
                        self._hold(data, far)
                    else:
                        (far if one is near else near).sendall(data)

    def _hold(self, data, far):
        if self.unanswered:
            far.sendall(data)
            far.recv(65_536)
        self.holds.set()
        self.released.wait()
        if self.unanswered:
            raise ConnectionAbortedError
        far.sendall(data)
        if self.late:
            self._left.wait()

    def _is_last(self, data):
        if self.expected and self.expected[0] in data:
            del self.expected[0]
            return not self.expected
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.released.set()
        self._left.set()
        self._server.close()

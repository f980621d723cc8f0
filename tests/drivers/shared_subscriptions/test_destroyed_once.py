"""SS-263 on a real database: a destroyer whose line stands still destroys what it found, not what is declared since."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading

import pytest

from statemachines.drivers.shared_subscriptions import declare, destroy

GROUP = "$shared/g/a/#"

WRITES, SWEEPS, COMMITS = b"UPDATE gapless.store", b"ORDER BY key LIMIT", b"COMMIT"
"""What a destroyer sends: the first statement of a transaction that writes, the look at a page, an end."""


class HeldLine(threading.Thread):
    """A way to a database; of what a client sends, `held` says in turn what must have gone by, the last is held.

    With `carried_out` the last one reaches the database, and its answer nobody: the line is cut when it is `released`.
    """

    def __init__(self, port, *held, carried_out=False):
        super().__init__(daemon=True)
        self.target, self.expected, self.carried_out = port, list(held), carried_out
        self.holds, self.released = threading.Event(), threading.Event()
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
                        if self.carried_out:
                            far.sendall(data)
                            far.recv(65_536)
                        self.holds.set()
                        self.released.wait()
                        if self.carried_out:
                            return
                    (far if one is near else near).sendall(data)

    def _is_last(self, data):
        if self.expected and self.expected[0] in data:
            del self.expected[0]
            return not self.expected
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.released.set()
        self._server.close()


def through(url, line):
    """The same database by the held line."""
    head, _, rest = url.rpartition(":")
    return f"{head}:{line.port}/{rest.partition('/')[2]}"


@pytest.mark.parametrize(
    ("held", "carried_out"),
    [
        pytest.param((WRITES,), False, id="before the mark"),
        pytest.param((WRITES, COMMITS), True, id="the mark is not answered"),
        pytest.param((SWEEPS,), False, id="before the look"),
        pytest.param((SWEEPS, WRITES), False, id="before the end"),
        pytest.param((SWEEPS, WRITES, COMMITS), True, id="the end is not answered"),
    ],
)
def test_SS_263_a_destroyer_that_stood_still_spares_what_was_declared_since(postgres, held, carried_out):
    """Another completes the destruction while it stands still, and somebody declares the group anew."""

    async def test():
        url = postgres.url
        await declare(GROUP, store=url)
        port = int(url.rpartition(":")[2].partition("/")[0])
        with HeldLine(port, *held, carried_out=carried_out) as line:
            destroying = asyncio.create_task(destroy(GROUP, store=through(url, line)))
            await asyncio.to_thread(line.holds.wait)
            await destroy(GROUP, store=url)
            anew = await declare(GROUP, store=url)
            line.released.set()
            assert (await destroying).found
        assert (await declare(GROUP, store=url)).start_ns == anew.start_ns

    asyncio.run(test())

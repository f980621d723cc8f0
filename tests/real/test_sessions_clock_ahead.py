"""A wall clock that leaps a day ahead beside a real node: its sessions and messages stay, and an operator is asked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from tests.real.outside import Process

STEPPED = Path(__file__).with_name("stepped_clock.py")
HOUR_MS = 3_600_000


class SteppedNode(Process):
    """A node whose wall clock is ahead by what is written in `clock`."""

    def __init__(self, folder, store):
        self.log, self.clock = folder / "node.log", folder / "clock"
        self.set_ahead(0)
        command = ["node", "sessions", "--store", store, "--name", "a", "--listen", "127.0.0.1:0", "--lease-ms", "300"]
        with self.log.open("w") as file:
            self.child = subprocess.Popen(self._command(*command), stdout=subprocess.PIPE, stderr=file, text=True)
        self.address = self.child.stdout.readline().split()[-1]

    def _command(self, *arguments):
        return [sys.executable, str(STEPPED), str(self.clock), *map(str, arguments)]

    def beside(self, *arguments):
        """Another command on its machine, when it has ended."""
        return subprocess.run(self._command(*arguments), capture_output=True, text=True, timeout=300, check=False)

    def set_ahead(self, seconds):
        """Its wall clock is set."""
        self.clock.write_text(str(seconds))


def test_PS_292_PS_293_a_clock_a_day_ahead_takes_nothing_from_a_client_that_is_away(tmp_path):
    store = tmp_path / "s.db"

    async def main(node):
        client = {"client_id": "tablet", "nodes": [node.address], "expiry_ms": HOUR_MS}
        async with PersistentSession(**client) as session:
            await session.subscribe("t")
        async with SessionPublisher(nodes=[node.address]) as publisher:
            await publisher.publish("t", b"kept", expiry=3_600)
        node.set_ahead(86_400)
        await asyncio.to_thread(node.until_said, "set ahead by 86400 s")
        accepted = await asyncio.to_thread(node.beside, "sessions", "clock", "--accept", "--store", store)
        assert "ages count again" in accepted.stdout, accepted.stderr
        await asyncio.to_thread(node.until_said, "s.db: ages count again")
        async with PersistentSession(**client) as session:
            assert session.present
            assert (await anext(session)).payload == b"kept"
        assert node.stop() == 0

    with SteppedNode(tmp_path, store) as node:
        asyncio.run(main(node))

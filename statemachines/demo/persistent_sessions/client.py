"""Client: reads the messages of a session into a file of its own, and acknowledges them, unless it is held."""

from __future__ import annotations

import asyncio
import time
from io import FileIO

from statemachines.drivers.persistent_sessions import PersistentSession, SessionTaken


class DemoClient:
    """Reads one session after the other into `file`; `numbers`: what has come; `repeated_at`: when a repetition came
    last (monotonic seconds); `taken`: how often another connection took the session."""

    def __init__(self, file: FileIO) -> None:
        self.numbers: set[int] = set()
        self.repeated_at = 0.0
        self.taken = 0
        self._file = file
        self._may_acknowledge = asyncio.Event()
        self._may_acknowledge.set()

    def hold(self) -> None:
        """Acknowledge nothing more, and read nothing behind it, until `go_on`."""
        self._may_acknowledge.clear()

    def go_on(self) -> None:
        """Acknowledge again."""
        self._may_acknowledge.set()

    async def read(self, session: PersistentSession) -> None:
        """Until the session ends, or is taken."""
        try:
            async for message in session:
                number, _, line = message.payload.partition(b" ")
                how = b"again" if message.dup else b"new"
                self._file.write(b"%s %s %s\n" % (number, how, line))
                self.numbers.add(int(number))
                if message.dup:
                    self.repeated_at = time.monotonic()
                await self._may_acknowledge.wait()
                message.acknowledge()
        except SessionTaken:
            self.taken += 1

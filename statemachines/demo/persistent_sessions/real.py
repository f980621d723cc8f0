"""Real: two nodes over one SQLite file, processes of their own; a publisher, and a client whose node is killed while
lines wait for it; later another connection of the client takes its session over."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from io import FileIO
from pathlib import Path

from statemachines.demo.protocol import DemoStage, Figures
from statemachines.demo.real_run import RealRun
from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher, SessionTaken
from statemachines.kernel import GaplessError
from statemachines.testing.process_harness import ProcessHarness, free_port

LINES, LONGEST = 1_500, 100
"""So many lines, of so many bytes at most."""
HELD = 300
"""So many of them are stored while the client acknowledges nothing, before its node is killed."""
RECEIVES = 50
"""So many unacknowledged messages the client receives at most: the others wait."""
AT_ONCE = 10
"""Lines that the publisher has under way."""
TIMES = ("--lease-ms", "1000", "--look-ms", "200", "--marker-ms", "500")
TOPIC, CLIENT = "demo/lines", "tablet"
PUBLISHED, GOT = "published", "got"
"""A line `NUMBER` each when a message is stored; `NUMBER new|again PAYLOAD` when one has come."""


class DemoClient:
    """Reads one session after the other into `file`, and acknowledges while it `may_acknowledge`.

    `numbers`: what has come; `repeated_at`: when a repetition came last (monotonic seconds); `taken`: how often another
    connection took the session.
    """

    def __init__(self, file: FileIO) -> None:
        self.numbers: set[int] = set()
        self.repeated_at = 0.0
        self.taken = 0
        self._file = file
        self.may_acknowledge = asyncio.Event()
        self.may_acknowledge.set()

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
                await self.may_acknowledge.wait()
                message.acknowledge()
        except SessionTaken:
            self.taken += 1


class SessionRun(RealRun):
    """`waiting`: lines that were stored and had not come when the node was killed; `back_s`: from then until a line
    came from the other node; `slowest_s`: the longest that the publisher waited for a line; `taken`: how often the
    session was taken over."""

    def __init__(self, stage: DemoStage) -> None:
        super().__init__(stage, ProcessHarness(stage.out, trace=stage.out / "trace", stateful=False))
        self.waiting = self.taken = 0
        self.back_s = self.slowest_s = 0.0
        self._lines = stage.options.read_lines(LINES, LONGEST)
        self.whole = len(self._lines)
        self._places = {name: f"127.0.0.1:{free_port()}" for name in ("a", "b")}
        self._stored = self.closing.enter_context((self.out / PUBLISHED).open("wb", buffering=0))
        self._client = DemoClient(self.closing.enter_context((self.out / GOT).open("wb", buffering=0)))
        self._reading: list[asyncio.Task[None]] = []

    def count_done(self) -> int:
        """Lines that have come."""
        return len(self._client.numbers)

    def make_account(self) -> Figures:
        """What came, and what the client and the publisher went through."""
        return {
            **account_for(self.out, self._lines),
            "waiting": self.waiting,
            "back_s": self.back_s,
            "slowest_s": self.slowest_s,
            "taken": self.taken,
        }

    async def play(self) -> None:
        """A third as it should be, a third around the death of a node, a third around a takeover."""
        self._start("a")
        self._start("b")
        self.stage.tell(f"nodes a and b over one SQLite file; {self.whole} lines for one client, which is at a")
        third = self.whole // 3
        async with AsyncExitStack() as stack:
            publisher = await stack.enter_async_context(SessionPublisher(nodes=[self._places[node] for node in "ba"]))
            session = await self._connect(stack)
            await session.subscribe("demo/#")
            await self._publish(publisher, 0, third)
            await self.reach(third)
            await self._lose_node(publisher, third)
            await self._publish(publisher, third + HELD, 2 * third)
            await self.reach(2 * third)
            self.stage.tell(f"lines came from b {self.back_s:.2f} s after the SIGKILL; all {2 * third} lines have come")
            # The node comes back; the client connects to it amid publishing, while its session is live at the other.
            self._start("a")
            publishing = asyncio.ensure_future(self._publish(publisher, 2 * third, self.whole))
            before = self._reading.pop()
            await self._connect(stack)
            await publishing
            await self.until(lambda: self._client.taken == 1, "the connection of before to end")
            await before
            await self.reach(self.whole)
            self.taken = self._client.taken
            self.stage.tell(
                f"another connection of the client, at a, took the session over from b ({self.taken} ended)"
            )

    async def _lose_node(self, publisher: SessionPublisher, first: int) -> None:
        """Lines are stored that the client does not get; then its node is killed, and it goes to the other."""
        self._client.may_acknowledge.clear()
        await self._publish(publisher, first, first + HELD)
        self.waiting = first + HELD - self.count_done()
        killed = time.monotonic()
        self.kill("a")
        self.stage.tell(f"SIGKILL to a, the node of the client, with {self.waiting} stored lines that had not come")
        self._client.may_acknowledge.set()
        # What it has from the node of before comes first; what comes again is from the other node.
        await self.until(lambda: self._client.repeated_at > killed, "a line to come from the other node")
        self.back_s = self._client.repeated_at - killed

    def look_after(self) -> None:
        """A session of the client that still reads must not end."""
        super().look_after()
        for task in self._reading:
            if task.done():
                task.result()
                raise GaplessError("the session of the client has ended")

    def _start(self, name: str) -> None:
        other = next(place for node, place in self._places.items() if node != name)
        words = ("--store", str(self.out / "sessions.db"), "--listen", self._places[name], "--peers", other, *TIMES)
        self.nodes.start("sessions", name, *words, says="listening on ")

    async def _connect(self, stack: AsyncExitStack) -> PersistentSession:
        """Another connection of the client, which reads."""
        nodes = [self._places[node] for node in "ab"]
        session = PersistentSession(CLIENT, nodes=nodes, receive_maximum=RECEIVES)
        await stack.enter_async_context(session)
        self._reading.append(asyncio.ensure_future(self._client.read(session)))
        return session

    async def _publish(self, publisher: SessionPublisher, first: int, end: int) -> None:
        """So many at once; each is noted when it is stored."""
        for begin in range(first, end, AT_ONCE):
            numbers = range(begin, min(begin + AT_ONCE, end))
            await asyncio.gather(*(self._publish_one(publisher, number) for number in numbers))

    async def _publish_one(self, publisher: SessionPublisher, number: int) -> None:
        since = time.monotonic()
        await publisher.publish(TOPIC, b"%d %s" % (number, self._lines[number]))
        self._stored.write(b"%d\n" % number)
        self.slowest_s = max(self.slowest_s, time.monotonic() - since)


def account_for(folder: Path, lines: list[bytes]) -> Figures:
    """Of a run that is over, in which `lines` were published in their order.

    Messages that were `stored` as their publisher was told, those that came (`delivered`), came `again` and were
    marked so; came `twice` and were not; that were stored and are `missing`; that came behind a later one (`late`);
    that are not what was published (`foreign`).
    """
    stored = {int(number) for number in (folder / PUBLISHED).read_bytes().split()}
    delivered: set[int] = set()
    again = twice = late = foreign = 0
    for said in (folder / GOT).read_bytes().split(b"\n")[:-1]:
        number_said, how, payload = said.split(b" ", 2)
        number = int(number_said)
        foreign += not 0 <= number < len(lines) or lines[number] != payload
        again += how == b"again"
        if number in delivered:
            twice += how == b"new"
        else:
            late += number < max(delivered, default=-1)
            delivered.add(number)
    return {
        "stored": len(stored),
        "delivered": len(delivered),
        "again": again,
        "twice": twice,
        "missing": len(stored - delivered),
        "late": late,
        "foreign": foreign,
    }

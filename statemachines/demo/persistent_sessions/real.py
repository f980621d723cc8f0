"""Real: two nodes over one SQLite file, processes of their own; a publisher, and a client whose node is killed while
lines wait for it; later another connection of the client takes its session over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec

from statemachines.demo.input_lines import input_lines
from statemachines.demo.persistent_sessions.account import GOT, PUBLISHED, SessionAccount, account_for, wrong_in
from statemachines.demo.persistent_sessions.client import DemoClient
from statemachines.demo.protocol import Advance, Say
from statemachines.drivers.lives import begin_log
from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.kernel import GaplessError
from statemachines.testing.process_harness import ProcessHarness, free_port
from statemachines.trace.log import kill_row

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
PATIENCE_S = 60.0


class SessionRun(msgspec.Struct, frozen=True):
    """What it came to; `waiting`: lines that were stored and had not come when the node was killed; `back_s`: from then
    until a line came from the other node; `slowest_s`: the longest that the publisher waited for a line; `taken`: how
    often the session was taken over; `wrong` lists what does not hold."""

    account: SessionAccount
    waiting: int
    back_s: float
    slowest_s: float
    taken: int
    seconds: float
    wrong: list[str]


def run(out: Path, given: Path | None, say: Say, advance: Advance) -> SessionRun:
    """Publish lines of the file or folder `given` (None: of our own source).  Raises `ConfigurationError` where there
    are none."""
    lines = input_lines(given, LINES, LONGEST)
    out.mkdir(parents=True)
    begin = time.monotonic()
    with SessionProcesses(out, lines) as stage:
        asyncio.run(stage.play(say, advance))
    account = account_for(out, lines)
    wrong = [*wrong_in(account), *stage.nodes.wrong]
    return SessionRun(
        account, stage.waiting, stage.back_s, stage.slowest_s, stage.taken, time.monotonic() - begin, wrong
    )  # fmt: skip


class SessionProcesses:
    """The nodes, the publisher and the client."""

    def __init__(self, out: Path, lines: list[bytes]) -> None:
        self.nodes = ProcessHarness(out, trace=out / "trace", stateful=False)
        self.waiting = self.taken = 0
        self.back_s = self.slowest_s = 0.0
        self._out = out
        self._lines = lines
        self._places = {name: f"127.0.0.1:{free_port()}" for name in ("a", "b")}
        self._stored = (out / PUBLISHED).open("wb", buffering=0)
        self._got = (out / GOT).open("wb", buffering=0)
        self._log = begin_log(out / "trace", "nemesis~1")

    def __enter__(self) -> SessionProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.nodes.close()
        for file in (self._stored, self._got, self._log):
            file.close()

    async def play(self, say: Say, advance: Advance) -> None:
        """A third as it should be, a third around the death of a node, a third around a takeover."""
        self._start("a")
        self._start("b")
        say(f"real: nodes a and b over one SQLite file; {len(self._lines)} lines for one client, which is at a")
        third, client = len(self._lines) // 3, DemoClient(self._got)
        async with AsyncExitStack() as stack:
            publisher = await stack.enter_async_context(SessionPublisher(nodes=self._at("b", "a")))
            session = await stack.enter_async_context(self._session("a", "b"))
            await session.subscribe("demo/#")
            reading = [asyncio.ensure_future(client.read(session))]
            await self._publish(publisher, 0, third)
            await self._until(reading, client, third, advance)
            await self._lose_node(publisher, client, third, say)
            await self._publish(publisher, third + HELD, 2 * third)
            await self._until(reading, client, 2 * third, advance)
            say(f"real: lines came from b {self.back_s:.2f} s after the SIGKILL; all {2 * third} lines have come")
            await self._take_over(stack, publisher, client, reading)
            await self._until(reading[1:], client, len(self._lines), advance)
            self.taken = client.taken
            say(f"real: another connection of the client, at a, took the session over from b ({client.taken} ended)")

    async def _lose_node(self, publisher: SessionPublisher, client: DemoClient, first: int, say: Say) -> None:
        """Lines are stored that the client does not get; then its node is killed, and it goes to the other."""
        client.hold()
        await self._publish(publisher, first, first + HELD)
        self.waiting = first + HELD - len(client.numbers)
        killed = time.monotonic()
        self.nodes.kill("a")
        self._log.write([kill_row(time.time_ns(), "a", self._out / "trace")])
        say(f"real: SIGKILL to a, the node of the client, with {self.waiting} stored lines that had not come")
        client.go_on()
        # What it has from the node of before comes first; what comes again is from the other node.
        await self._wait(lambda: client.repeated_at > killed, "a line to come from the other node")
        self.back_s = client.repeated_at - killed

    async def _take_over(
        self, stack: AsyncExitStack, publisher: SessionPublisher, client: DemoClient, reading: list[asyncio.Task[None]]
    ) -> None:
        """The node comes back, and the client connects to it amid publishing, while its session is live at the
        other."""
        self._start("a")
        first = 2 * (len(self._lines) // 3)
        publishing = asyncio.ensure_future(self._publish(publisher, first, len(self._lines)))
        session = await stack.enter_async_context(self._session("a", "b"))
        reading.append(asyncio.ensure_future(client.read(session)))
        await publishing
        await self._wait(lambda: client.taken == 1, "the connection of before to end")

    # -- who takes part -----------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        other = next(place for node, place in self._places.items() if node != name)
        words = ("--store", str(self._out / "sessions.db"), "--listen", self._places[name], "--peers", other, *TIMES)
        self.nodes.start("sessions", name, *words, says="listening on ")

    def _at(self, *names: str) -> list[str]:
        return [self._places[name] for name in names]

    def _session(self, *names: str) -> PersistentSession:
        return PersistentSession(CLIENT, nodes=self._at(*names), receive_maximum=RECEIVES)

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

    # -- what is waited for -------------------------------------------------------------------------------------------

    async def _until(self, reading: list[asyncio.Task[None]], client: DemoClient, count: int, advance: Advance) -> None:
        """So many lines have come; whoever reads goes on meanwhile."""
        done = partial(self._have_come, reading, client, count, advance)
        await self._wait(done, f"{count} lines to come; {len(client.numbers)} have")

    def _have_come(self, reading: list[asyncio.Task[None]], client: DemoClient, count: int, advance: Advance) -> bool:
        advance(len(client.numbers), len(self._lines))
        for task in reading:
            if task.done():
                task.result()
                raise GaplessError("the session of the client has ended")
        return len(client.numbers) >= count

    async def _wait(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            self.nodes.check_alive()
            if time.monotonic() > end:
                raise GaplessError(f"waited {PATIENCE_S:.0f} s for {what}; see {self._out}")
            await asyncio.sleep(0.01)

"""FaultProxy: a bad network between a port and a target, under a test's control.

    async with FaultProxy(("127.0.0.1", 7411)) as proxy:      # nodes dial proxy.address
        proxy.block("up")           # a partition one way: what is said towards the target waits
        proxy.heal()
        proxy.cut()                 # every connection ends, now

It forwards bytes as TCP does: none is lost, doubled or moved while a connection lasts.  A partition holds bytes (and
the news that a side has closed) back, as TCP would by repeating them; when it heals they go on.  Everything that can go
wrong has a name and a unit, for each direction: "up" is towards the target, "down" is from it.

What a proxy holds is bounded: `CHUNKS_MAX` reads of `CHUNK_MAX` bytes for each direction of a connection.  Chance comes
from `seed`.  Its methods may be called from any thread; `in_thread` runs one beside a test that is not asyncio's.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from statemachines.kernel import ConfigurationError

CHUNK_MAX: Final = 65_536
CHUNKS_MAX: Final = 16
CONNECTIONS_MAX: Final = 1_000
THROTTLE_S: Final = 0.02
"""A throttled direction sends as much at a time as it may in so long."""

UP, DOWN, BOTH = "up", "down", "both"
WAYS: Final = {UP: (UP,), DOWN: (DOWN,), BOTH: (UP, DOWN)}

Address = tuple[str, int]


class ProxyDirection:
    """What one direction does to all bytes of all connections.

    `delay_ms` and up to `jitter_ms` more before each chunk goes on, in order; `bytes_per_s` at most (0: no limit);
    `cut_after`: so many bytes go on, then the connection is cut (-1: never); `corrupt`: so many of the next bytes are
    changed; `open`: cleared while the direction is blocked.
    """

    def __init__(self) -> None:
        self.delay_ms = 0.0
        self.jitter_ms = 0.0
        self.bytes_per_s = 0
        self.cut_after = -1
        self.corrupt = 0
        self.open = asyncio.Event()
        self.open.set()


class FaultProxy:
    """`target`: where connections go on to (may be changed: it holds for new ones); `listen`: port 0 for any; `faults`
    counts what was done, by name; `forwarded` counts bytes by direction."""

    held_max: int = CHUNKS_MAX

    def __init__(self, target: Address, *, listen: Address = ("127.0.0.1", 0), seed: int = 0) -> None:
        self.target = target
        self.faults: Counter[str] = Counter()
        self.forwarded: Counter[str] = Counter()
        self._listen = listen
        self._chance = random.Random(seed)
        self._links: dict[int, ProxyLink] = {}
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.ways = {UP: ProxyDirection(), DOWN: ProxyDirection()}
        self._server = await asyncio.start_server(self._accept, *self._listen, limit=CHUNK_MAX)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.close()
        for link in list(self._links.values()):
            link.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def address(self) -> Address:
        """Where to dial."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._links)

    # -- faults -------------------------------------------------------------------------------------------------

    def delay(self, way: str, ms: float, jitter_ms: float = 0.0) -> None:
        """Every chunk waits `ms`, and up to `jitter_ms` more; 0: no longer."""
        self._set("delay", way, delay_ms=ms, jitter_ms=jitter_ms)

    def throttle(self, way: str, bytes_per_s: int) -> None:
        """No more than that goes on; 0: no limit."""
        self._set("throttle", way, bytes_per_s=bytes_per_s)

    def block(self, way: str = BOTH) -> None:
        """A partition, one way or both: nothing goes on, not even the end of a connection; new ones wait."""
        self._do("block", way, lambda one: one.open.clear())

    def unblock(self, way: str = BOTH) -> None:
        """The partition is over; what else was done to the direction goes on."""
        self._do("unblock", way, lambda one: one.open.set())

    def cut_after(self, way: str, byte_count: int) -> None:
        """Cut the connection on which the next `byte_count` bytes have gone on: in the middle of a frame, say."""
        self._set("cut_after", way, cut_after=byte_count)

    def corrupt(self, way: str, byte_count: int = 1) -> None:
        """Change that many of the next bytes, as no TCP does and a bad peer may."""

        def act(one: ProxyDirection) -> None:
            one.corrupt += byte_count

        self._do("corrupt", way, act)

    def cut(self) -> None:
        """Every connection ends now, at both ends."""

        def act() -> None:
            self.faults["cut"] += 1
            for link in list(self._links.values()):
                link.cut()

        self._run(act)

    def heal(self) -> None:
        """No fault any more; what was held back goes on."""

        def act(one: ProxyDirection) -> None:
            one.delay_ms = one.jitter_ms = 0.0
            one.bytes_per_s, one.cut_after, one.corrupt = 0, -1, 0
            one.open.set()

        self._do("heal", BOTH, act)

    def _set(self, name: str, way: str, **values: float) -> None:
        self._do(name, way, lambda one: vars(one).update(values))

    def _do(self, name: str, way: str, act: Callable[[ProxyDirection], None]) -> None:
        if way not in WAYS:
            raise ConfigurationError("way", way, f"must be one of {', '.join(WAYS)}")

        def acted() -> None:
            self.faults[name] += 1
            for each in WAYS[way]:
                act(self.ways[each])

        self._run(acted)

    def _run(self, act: Callable[[], None]) -> None:
        """At once here; from another thread when the loop has done it."""
        if threading.get_ident() == self._thread:
            act()
            return
        done = threading.Event()

        def acted() -> None:
            try:
                act()
            finally:
                done.set()

        self._loop.call_soon_threadsafe(acted)
        done.wait()

    # -- connections --------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._links) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._number += 1
        link = self._links[self._number] = ProxyLink(self, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await link.run()
        finally:
            self._tasks.discard(task)
            del self._links[link.number]

    @property
    def number(self) -> int:
        """Of the newest connection, from 1."""
        return self._number

    async def read(self, reader: asyncio.StreamReader) -> bytes:
        """The next chunk of a connection; none at its end."""
        return await reader.read(CHUNK_MAX)

    def spoilt(self, way: ProxyDirection, data: bytes) -> bytes:
        """With some bytes changed, if that was asked for."""
        count = min(way.corrupt, len(data))
        if not count:
            return data
        way.corrupt -= count
        changed = bytearray(data)
        for at in self._chance.sample(range(len(data)), count):
            changed[at] ^= 1 + self._chance.randrange(255)
        return bytes(changed)

    def pause_s(self, way: ProxyDirection) -> float:
        """How long the next chunk waits."""
        return (way.delay_ms + (self._chance.random() * way.jitter_ms if way.jitter_ms else 0.0)) / 1_000


class ProxyLink:
    """One connection through the proxy: two pumps, which end together."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = proxy.number
        self._proxy = proxy
        self._reader = reader
        self._writers = [writer]
        self._cut = asyncio.Event()

    def cut(self) -> None:
        """End it at both ends."""
        self._cut.set()

    async def run(self) -> None:
        """Until both sides have closed, one is lost, or it is cut."""
        tasks = [asyncio.create_task(self._forward()), asyncio.create_task(self._cut.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in self._writers:
                writer.transport.abort()

    async def _forward(self) -> None:
        await self._proxy.ways[UP].open.wait()
        try:
            reader, writer = await asyncio.open_connection(*self._proxy.target, limit=CHUNK_MAX)
        except OSError:
            return  # nobody is there: whoever dialled is cut off, as it would be refused
        self._writers.append(writer)
        up = self._pump(UP, self._reader, writer)
        down = self._pump(DOWN, reader, self._writers[0])
        await run_both(up, down)

    async def _pump(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read as long as there is room, and send each chunk when its time has come."""
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(self._proxy.held_max)
        reading = asyncio.create_task(self._take_in(name, reader, held))
        try:
            await self._send_on(name, writer, held)
        except ConnectionError:
            pass  # nobody takes it any more; the other direction brings the news of that, when its time has come
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _take_in(self, name: str, reader: asyncio.StreamReader, held: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Nothing (b"") stands for the end, in good order or not: it too has to wait."""
        proxy, loop = self._proxy, asyncio.get_running_loop()
        data = b"-"
        while data:
            try:
                data = await proxy.read(reader)
            except (ConnectionError, EOFError):
                data = b""
            await held.put((loop.time() + proxy.pause_s(proxy.ways[name]), data))

    async def _send_on(self, name: str, writer: asyncio.StreamWriter, held: asyncio.Queue[tuple[float, bytes]]) -> None:
        proxy, way, loop = self._proxy, self._proxy.ways[name], asyncio.get_running_loop()
        while True:
            due, data = await held.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            await way.open.wait()
            if not data:
                writer.write_eof()
                return
            data = proxy.spoilt(way, data)
            cut = 0 <= way.cut_after <= len(data)
            if cut:
                data, way.cut_after = data[: way.cut_after], -1
            elif way.cut_after > 0:
                way.cut_after -= len(data)
            await self._send(name, writer, data)
            if cut:
                self.cut()
                return

    async def _send(self, name: str, writer: asyncio.StreamWriter, data: bytes) -> None:
        """All of it, in parts so small that a throttled direction is slow and not jerky."""
        way = self._proxy.ways[name]
        while data:
            size = max(1, int(way.bytes_per_s * THROTTLE_S)) if way.bytes_per_s else len(data)
            part, data = data[:size], data[size:]
            writer.write(part)
            self._proxy.forwarded[name] += len(part)
            await writer.drain()
            if way.bytes_per_s:
                await asyncio.sleep(len(part) / way.bytes_per_s)


async def run_both(one: Coroutine[Any, Any, None], other: Coroutine[Any, Any, None]) -> None:
    """Both to their end; when one fails (the connection is lost) the other is given up."""
    tasks = [asyncio.create_task(one), asyncio.create_task(other)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def run_in_thread(target: Address, *, seed: int = 0) -> Iterator[FaultProxy]:
    """A proxy on a loop of its own, for a test that waits for processes."""
    proxy = FaultProxy(target, seed=seed)
    started, over = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    async def serve() -> None:
        async with proxy:
            started.set()
            while not over.is_set():
                await asyncio.sleep(0.02)

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            failed.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=work, name="fault-proxy", daemon=True)
    thread.start()
    started.wait()
    try:
        if failed:
            raise failed[0]
        yield proxy
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]

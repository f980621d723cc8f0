"""LossyLink, LossyDatagrams: proxies between two sessions of zenoh that lose single samples or replies.

    async with LossyLink(("127.0.0.1", 7447)) as link:        # the other session connects to link.endpoint
        link.lose = lambda batch: b"#7;" in batch

Over TCP zenoh sends batches, each behind its length in two bytes.  It takes TCP for reliable, so a loss there stands
for what is lost with a router.  Over UDP a batch is a datagram, which any network may lose.  A batch that begins with
a sample that is pushed (not asked for) is given to `lose`, one that begins with a reply to `lose_reply`, and dropped
where that says so; zenoh takes a hole in the numbers of its transport for nothing worse.  Whoever must not lose
replies publishes with a priority of its own: then they never share a batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

Address = tuple[str, int]

FRAME: Final = 0x05
PUSH: Final = 0x1D
REPLY: Final = 0x1B
KIND: Final = 0x1F
MORE: Final = 0x80

UNDER_WAY_MAX: Final = 10_000
"""So many batches are on a slow link in one direction; the sender waits for room."""


class BatchLoss:
    """`lost` and `passed` count batches of samples, `lost_replies` those of replies; `lose(batch)` and
    `lose_reply(batch)` decide."""

    def __init__(self, target: Address) -> None:
        self.lost = 0
        self.passed = 0
        self.lost_replies = 0
        self.lose: Callable[[bytes], bool] = lambda batch: False
        self.lose_reply: Callable[[bytes], bool] = lambda batch: False
        self._target = target

    def _loses(self, batch: bytes) -> bool:
        first = first_message(batch)
        if first == PUSH:
            lost = self.lose(batch)
            self.lost += lost
            self.passed += not lost
            return lost
        if first == REPLY and self.lose_reply(batch):
            self.lost_replies += 1
            return True
        return False


class LossyLink(BatchLoss):
    """`target`: where connections go on to; each batch comes `delay_s` seconds later."""

    def __init__(self, target: Address, *, delay_s: float = 0.0) -> None:
        super().__init__(target)
        self._delay_s = delay_s
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._up = asyncio.Event()
        self._up.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.close()
        self._up.set()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def endpoint(self) -> str:
        """Where the other session connects to."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"tcp/{host}:{port}"

    def cut(self) -> None:
        """Every connection ends, now."""
        for writer in list(self._writers):
            writer.transport.abort()

    def down(self) -> None:
        """Cut, and no new connection goes on before `up`."""
        self._up.clear()
        self.cut()

    def up(self) -> None:
        """Connections go on again."""
        self._up.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        far: asyncio.StreamWriter | None = None
        try:
            await self._up.wait()
            far_reader, far = await asyncio.open_connection(*self._target)
            self._writers.add(far)
            await asyncio.wait(
                [
                    asyncio.ensure_future(self._pass_on(reader, far)),
                    asyncio.ensure_future(self._pass_on(far_reader, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        except (OSError, asyncio.CancelledError):
            pass  # nobody is there: the connection ends, as one that is refused
        finally:
            for one in (writer, far):
                if one is not None:
                    one.transport.abort()
                    self._writers.discard(one)
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Batch by batch, until either side has ended."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(UNDER_WAY_MAX)
        late = asyncio.ensure_future(_arrive(under_way, writer)) if self._delay_s else None
        try:
            while True:
                length = await reader.readexactly(2)
                batch = await reader.readexactly(int.from_bytes(length, "little"))
                if self._loses(batch):
                    continue
                if late is None:
                    writer.write(length + batch)
                    await writer.drain()
                else:
                    await under_way.put((time.monotonic() + self._delay_s, length + batch))
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            if late is not None:
                late.cancel()
                await asyncio.gather(late, return_exceptions=True)


class LossyDatagrams(BatchLoss, asyncio.DatagramProtocol):
    """`target`: where datagrams go on to, for each peer from a port of its own."""

    async def __aenter__(self) -> Self:
        self._ways: dict[Address, asyncio.Task[asyncio.DatagramTransport]] = {}
        loop = asyncio.get_running_loop()
        self._near, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._near.close()
        for way in self._ways.values():
            (await way).close()

    @property
    def endpoint(self) -> str:
        """Where the other session connects to."""
        host, port = self._near.get_extra_info("sockname")[:2]
        return f"udp/{host}:{port}"

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """From a peer, to the target."""
        if addr not in self._ways:
            self._ways[addr] = asyncio.ensure_future(self._open(addr))
        if not self._loses(data):
            self._ways[addr].add_done_callback(lambda way: way.result().sendto(data))

    async def _open(self, peer: Address) -> asyncio.DatagramTransport:
        back = _Way(lambda data: None if self._loses(data) else self._near.sendto(data, peer))
        return (await asyncio.get_running_loop().create_datagram_endpoint(lambda: back, remote_addr=self._target))[0]


class _Way(asyncio.DatagramProtocol):
    """The way back from the target to one peer."""

    def __init__(self, take: Callable[[bytes], object]) -> None:
        self._take = take

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._take(data)


async def _arrive(under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
    """Each when it is due; a connection that has ended takes nothing more, and says so to who reads from it."""
    while True:
        due, data = await under_way.get()
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        if not writer.is_closing():
            writer.write(data)


def first_message(batch: bytes) -> int | None:
    """The kind of message that the frame begins with (None: it begins with no frame, or that is empty)."""
    if not batch or batch[0] & KIND != FRAME:
        return None
    place = _behind_number(batch, 1)
    more = batch[0] & MORE
    while more and place < len(batch):  # extensions: nothing, a number, or so many bytes
        header = batch[place]
        more, form, place = header & MORE, header >> 5 & 3, place + 1
        if form == 1:
            place = _behind_number(batch, place)
        elif form == 2:
            size, place = _number(batch, place)
            place += size
    return batch[place] & KIND if place < len(batch) else None


def _behind_number(batch: bytes, place: int) -> int:
    return _number(batch, place)[1]


def _number(batch: bytes, place: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; and where it ends."""
    value = shift = 0
    while place < len(batch):
        byte = batch[place]
        value |= (byte & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if byte < 0x80:
            break
    return value, place

"""The fault proxy: bytes go through as they came, and each fault does what its name says and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import asynccontextmanager

import pytest

from statemachines.kernel import ConfigurationError
from statemachines.testing import fault_proxy
from statemachines.testing.fault_proxy import CHUNK_MAX, FaultProxy, run_in_thread

WAIT_S = 120
LARGE = bytes(range(256)) * 4_000


class Target:
    """Keeps what comes; says what `say` is given."""

    def __init__(self):
        self.got = bytearray()
        self.ended = 0
        self.writers = []

    async def serve(self, reader, writer):
        self.writers.append(writer)
        try:
            while data := await reader.read(CHUNK_MAX):
                self.got += data
        except ConnectionError:
            pass
        self.ended += 1
        writer.close()

    def say(self, data):
        self.writers[-1].write(data)


@asynccontextmanager
async def bed(seed=0):
    """A target, a proxy before it, a client connected through it."""
    target = Target()
    server = await asyncio.start_server(target.serve, "127.0.0.1", 0)
    async with FaultProxy(server.sockets[0].getsockname()[:2], seed=seed) as proxy:
        reader, writer = await asyncio.open_connection(*proxy.address)
        await until(lambda: target.writers)
        yield proxy, target, reader, writer
        writer.close()
    server.close()
    await server.wait_closed()


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def ends(reader):
    """Whether nothing more comes but the end, in good order or not."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def run(test):
    async def bounded():
        async with asyncio.timeout(WAIT_S):
            await test()

    asyncio.run(bounded())


def test_a_connection_is_cut_after_so_many_bytes():
    async def test():
        async with bed() as (proxy, target, reader, writer):
            proxy.cut_after("up", 100_001)
            writer.write(LARGE)
            await until(lambda: target.ended)
            assert target.got == LARGE[:100_001]
            assert await ends(reader)
            _, second = await asyncio.open_connection(*proxy.address)
            second.write(LARGE)
            await until(lambda: len(target.got) == 100_001 + len(LARGE))
            second.close()

    run(test)


def test_corruption_changes_that_many_bytes_and_is_repeatable():
    async def spoilt(seed):
        async with bed(seed) as (proxy, target, _, writer):
            proxy.corrupt("up", 3)
            writer.write(LARGE[:1_000])
            await until(lambda: len(target.got) == 1_000)
            assert sum(one != other for one, other in zip(target.got, LARGE, strict=False)) == 3
            return bytes(target.got)

    async def test():
        first = await spoilt(1)
        assert first == await spoilt(1)
        assert first != await spoilt(2)

    run(test)


def test_delay_and_throttle_take_their_time_and_keep_the_order():
    async def test():
        async with bed() as (proxy, target, _, writer):
            loop = asyncio.get_running_loop()
            proxy.delay("up", 100, jitter_ms=50)
            began = loop.time()
            for number in range(20):
                writer.write(bytes([number]))
                await asyncio.sleep(0.001)
            await until(lambda: len(target.got) == 20)
            assert loop.time() - began >= 0.1
            assert target.got == bytes(range(20))
            proxy.heal()
            proxy.throttle("up", 20_000)
            began = loop.time()
            writer.write(bytes(4_000))
            await until(lambda: len(target.got) == 4_020)
            assert loop.time() - began >= 0.15

    run(test)


def test_a_target_that_is_not_there_and_a_new_one():
    async def test():
        async with bed() as (proxy, target, _, _):
            there = proxy.target
            with socket.socket() as nobody:
                nobody.bind(("127.0.0.1", 0))
                proxy.target = nobody.getsockname()
                reader, writer = await asyncio.open_connection(*proxy.address)
                assert await ends(reader)
                writer.close()
            proxy.target = there
            _, writer = await asyncio.open_connection(*proxy.address)
            writer.write(b"hello")
            await until(lambda: target.got == b"hello")
            writer.close()

    run(test)


def test_more_connections_than_allowed_are_refused(monkeypatch):
    monkeypatch.setattr(fault_proxy, "CONNECTIONS_MAX", 1)

    async def test():
        async with bed() as (proxy, _, _, _):
            reader, writer = await asyncio.open_connection(*proxy.address)
            assert await ends(reader)
            assert proxy.connections == 1
            writer.close()

    run(test)


def test_a_way_that_is_none_is_named():
    async def test():
        async with bed() as (proxy, *_):
            with pytest.raises(ConfigurationError, match="way = 'left': must be one of up, down, both"):
                proxy.block("left")

    run(test)


def test_it_runs_beside_a_test_that_waits():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_S)
        with run_in_thread(server.getsockname()) as proxy, socket.create_connection(proxy.address, WAIT_S) as client:
            there, _ = server.accept()
            there.settimeout(0.1)
            proxy.block("up")
            client.sendall(b"x")
            with pytest.raises(TimeoutError):
                there.recv(1)
            proxy.heal()
            there.settimeout(WAIT_S)
            assert there.recv(1) == b"x"
            proxy.cut()
            with contextlib.suppress(ConnectionError):
                assert there.recv(1) == b""
            there.close()

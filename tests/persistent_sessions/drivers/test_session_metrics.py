"""What a node of sessions counts, and whether it is well, over HTTP."""

from __future__ import annotations

import asyncio
import contextlib

from session_nodes import node_of, until, where

from statemachines.drivers.metrics_endpoint import (
    CONNECTIONS_MAX,
    HEAD_MAX,
    MetricsEndpoint,
)
from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.drivers.persistent_sessions.session_node import find_trouble, read_metrics
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.persistent_sessions.upkeep import CollectorCounts, run_collector, watch_collector
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.drivers.tcp import parse_address
from statemachines.persistent_sessions.graces import Graces


async def ask(address, request):
    """(status, body)."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0].decode(), body.decode()


async def get(address, path):
    return await ask(address, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def endpoint_of(node):
    return MetricsEndpoint(("127.0.0.1", 0), lambda: read_metrics(node), lambda: find_trouble(node))


async def test_PS_523_a_node_tells_what_it_counts_and_whether_it_is_well(store):
    async with node_of(store, "a") as node, endpoint_of(node) as endpoint:
        async with PersistentSession("c", nodes=where(node), receive_maximum=2) as session:
            await session.subscribe("t")
            async with SessionPublisher(nodes=where(node)) as publisher:
                for number in range(2):
                    await publisher.publish("t", b"%d" % number)
            await anext(session)
            status, text = await get(endpoint.address, "/metrics")
            assert status == "HTTP/1.1 200 OK"
            lines = text.splitlines()
            assert lines[-1] == "# EOF"
            assert "gapless_sessions_connected 1" in lines
            assert "gapless_messages_in_flight 2" in lines
            assert "gapless_messages_dropped_total 0" in lines
            assert len([one for one in lines if one.startswith("# TYPE")]) == len(read_metrics(node))
        assert await get(endpoint.address, "/health") == ("HTTP/1.1 200 OK", "ok\n")
        node.reception.is_cut_off = True
        assert find_trouble(node) == "the store has not answered for 0.0 s"
        node.reception.is_cut_off = False

    async with MetricsEndpoint(("127.0.0.1", 0), list, lambda: "it is ill") as endpoint:
        assert await get(endpoint.address, "/health") == ("HTTP/1.1 503 Service Unavailable", "it is ill\n")


async def test_PS_733_a_node_tells_what_waits_in_the_store(store):
    graces = Graces(round_ms=50)
    async with node_of(store, "a", graces=graces) as node, node_of(store, "b", graces=None) as other:
        assert all(one.name != "messages_waiting" for one in read_metrics(other)), "it collects nothing"
        async with PersistentSession("c", nodes=where(node)) as session:
            await session.subscribe("t")
        async with SessionPublisher(nodes=where(node)) as publisher:
            for _ in range(3):
                await publisher.publish("t", b"1234")
        await until(lambda: node.backlog == (3, 12, 3))
        async with endpoint_of(node) as endpoint:
            _, text = await get(endpoint.address, "/metrics")
        assert "gapless_messages_waiting 3" in text.splitlines()
        assert "gapless_bytes_waiting 12" in text.splitlines()
        assert "gapless_messages_waiting_largest 3" in text.splitlines()


async def test_PS_734_a_collector_alone_tells_what_it_drops_by_the_same_names(store, capsys):
    """And whether its store answers it."""
    opened, counts = open_session_store(store), CollectorCounts()
    read = opened.ask

    async def fail(request):
        raise StoreUnavailable("it is away")

    try:
        async with watch_collector(opened, counts, "127.0.0.1:0"):
            where = parse_address(capsys.readouterr().out.split("http://")[1].removesuffix("/metrics\n"))
            task = asyncio.create_task(run_collector(opened, Graces(round_ms=50), counts=counts))
            await until(lambda: opened.backlog is not None)
            _, text = await get(where, "/metrics")
            lines = text.splitlines()
            assert "gapless_messages_dropped_total 0" in lines
            assert "gapless_messages_waiting 0" in lines
            assert await get(where, "/health") == ("HTTP/1.1 200 OK", "ok\n")
            opened.ask = fail
            await until(lambda: counts.trouble)
            assert await get(where, "/health") == ("HTTP/1.1 503 Service Unavailable", f"{counts.trouble}\n")
            opened.ask = read
            await until(lambda: not counts.trouble)
            task.cancel()
    finally:
        await opened.close()


async def test_PS_523_hostile_requests_get_one_answer_or_none():
    async with MetricsEndpoint(("127.0.0.1", 0), list, str) as endpoint:
        where = endpoint.address
        assert await get(where, "/metrics") == ("HTTP/1.1 200 OK", "# EOF\n")
        assert (await get(where, "/secrets"))[0] == "HTTP/1.1 404 Not Found"
        assert (await ask(where, b"POST /metrics HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 405 Method Not Allowed"
        assert await ask(where, b"HEAD /health HTTP/1.1\r\n\r\n") == ("HTTP/1.1 200 OK", "")
        assert (await ask(where, b"\x00" * 10 + b"\r\n\r\n"))[0] == "HTTP/1.1 405 Method Not Allowed"
        with contextlib.suppress(ConnectionError):
            assert await ask(where, b"x" * (2 * HEAD_MAX)) == ("", "")
        idle = [await asyncio.open_connection(*where) for _ in range(CONNECTIONS_MAX)]
        with contextlib.suppress(ConnectionError):
            assert await get(where, "/health") == ("", ""), "so many are open"
        for _, writer in idle:
            writer.close()

"""Nodes of sessions among each other, and their store (PS-147, PS-153, PS-154, PS-160, PS-163)."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack

import pytest
from session_nodes import QUICK, node_of, take, until, where

from statemachines.drivers.persistent_sessions import (
    PersistentSession,
    SessionNode,
    SessionPublisher,
    SessionTaken,
)
from statemachines.drivers.persistent_sessions.host_request import ReadNodes
from statemachines.kernel import Superseded
from statemachines.persistent_sessions.takeover_message import TakeoverRefused
from statemachines.persistent_sessions.takeover_record import BeginTimeout
from statemachines.persistent_sessions.times import Times
from statemachines.testing.process_harness import free_port


async def test_the_log_of_a_node_has_what_its_machines_did(store, tmp_path):
    async with (
        node_of(store, trace=tmp_path / "trace") as node,
        PersistentSession("tablet", nodes=where(node)) as session,
        SessionPublisher(nodes=where(node)) as publisher,
    ):
        await session.subscribe("t")
        await publisher.publish("t", b"1")
        await take(session, 1)
    (log,) = (tmp_path / "trace").iterdir()
    rows = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    machines = {row["machine"] for row in rows if row.get("kind") == "step"}
    assert machines >= {f"persistent_sessions/{one}" for one in ("session_life", "session_resume", "writer")}


async def test_PS_153_a_node_that_hears_nothing_of_another_delivers_what_that_stored(store):
    """Nobody is a peer of anybody: all that is common is the store."""
    async with (
        node_of(store) as one,
        node_of(store, "b") as other,
        PersistentSession("tablet", node=one) as session,
        SessionPublisher(node=other) as publisher,
    ):
        await session.subscribe("t")
        for number in range(3):
            await publisher.publish("t", str(number).encode())
        assert await take(session, 3) == ["0", "1", "2"]
        await publisher.publish("t", b"3")
        assert await take(session, 1) == ["3"]


async def test_PS_153_PS_147_a_node_that_dies_is_found_dead_and_everything_of_it_is_read(store):
    here, there = ("127.0.0.1", free_port()), ("127.0.0.1", free_port())
    patient = {**QUICK, "times": Times(marker_ms=9_000)}  # it is not its silence that tells
    async with SessionNode(store, name="a", listen=here, peers=[there], **patient) as one:
        other = SessionNode(store, name="b", listen=there, peers=[here], **QUICK)
        await other.__aenter__()
        await until(lambda: "b" in one._transport._peers)
        async with PersistentSession("tablet", node=one) as session, SessionPublisher(node=other) as publisher:
            await session.subscribe("t")
            await publisher.publish("t", b"1")
            assert await take(session, 1) == ["1"]
            flow = one.machines.resume_of(next(iter(one.machines.owners))).flows["b"]
            assert not flow.gone
            await other.abort()
            async with asyncio.timeout(6):
                await until(lambda: one.machines.resume_of(next(iter(one.machines.owners))).flows["b"].gone)


async def test_PS_147_a_node_hears_that_another_can_send_it_nothing_any_more(store):
    async with node_of(store) as one:
        lost = []
        one.machines.lose_link = lambda writer, now_ns: lost.append(writer) or []
        async with node_of(store, "b", peers=[one.address]) as other:
            await until(lambda: "peer:1" in other._transport._peers)
            assert lost == []
        await until(lambda: lost)
        assert lost == ["b"]


async def test_PS_153_a_node_lives_as_long_as_it_says_so_and_not_behind_its_end(store):
    async with node_of(store, "b") as other:
        async with node_of(store, lease_ms=2_000):
            await asyncio.sleep(4.2)  # twice its lease, which has room for a slow machine
            assert await other._desk.ask(ReadNodes()) == ("a", "b")
        assert await other._desk.ask(ReadNodes()) == ("b",)
        async with node_of(store, "c", lease_ms=60_000):
            assert await other._desk.ask(ReadNodes()) == ("b", "c")
        assert await other._desk.ask(ReadNodes()) == ("b",)


async def test_PS_153_the_last_word_of_a_node_that_ends_is_that_it_is_gone(store, monkeypatch):
    async with node_of(store, "b") as other:
        async with node_of(store, lease_ms=60_000) as node:
            node._lease_ms = 60  # says so again each 20 ms, and may be heard of for a minute
            ask = node._desk.ask

            async def slowly(request):
                answer = await ask(request)
                node._lease_ms = 60_000
                await asyncio.sleep(0.2)
                return answer

            await asyncio.sleep(0.1)
            monkeypatch.setattr(node._desk, "ask", slowly)
        assert await other._desk.ask(ReadNodes()) == ("b",)


async def test_PS_154_a_node_whose_name_a_newer_process_has_ends(store):
    async with node_of(store) as older, node_of(store) as newer:
        with pytest.raises(Superseded, match="another process has this name now"):
            await older.wait_for_failure()
        assert newer.life.startswith("a~2.")


async def test_PS_163_a_session_of_a_node_that_is_gone_is_not_waited_for(store):
    seen = []
    observe = lambda node, event, before, step, now_ns: seen.append(type(event))  # noqa: E731
    async with node_of(store, "a", lease_ms=600_000) as node:
        session = PersistentSession("tablet", nodes=where(node))
        await session.__aenter__()
        await session.subscribe("t")
        await node.abort()
        async with (
            node_of(store, "b", observe=observe) as other,
            PersistentSession("tablet", nodes=where(other)) as again,
        ):
            assert again.present
        assert TakeoverRefused in seen
        assert BeginTimeout not in seen


async def test_PS_160_a_live_session_goes_to_another_node_and_nothing_is_lost(store):
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(node_of(store, "a"))
        two = await stack.enter_async_context(node_of(store, "b", peers=[one.address]))
        publisher = await stack.enter_async_context(SessionPublisher(nodes=where(one)))
        first = await stack.enter_async_context(PersistentSession("tablet", nodes=where(one), receive_maximum=5))
        await first.subscribe("t")
        await asyncio.gather(*(publisher.publish("t", str(number).encode()) for number in range(40)))
        taken = await take(first, 20)
        second = await stack.enter_async_context(PersistentSession("tablet", nodes=where(two)))
        found = {}
        while len({*taken, *found}) < 40:
            message = await anext(second)
            found.setdefault(message.payload.decode(), message.dup)
            message.acknowledge()
        assert list(found) == sorted(found, key=int)
        assert all(found[one] for one in found if one in taken)
        with pytest.raises(SessionTaken, match="superseded"):
            await take(first, 40)


async def test_PS_166_a_node_whose_loop_stood_still_says_so_and_goes_on(store, caplog):
    async with (
        node_of(store, lease_ms=200) as node,
        PersistentSession("tablet", nodes=where(node)) as session,
        SessionPublisher(nodes=where(node)) as publisher,
    ):
        await session.subscribe("t")
        time.sleep(0.5)  # the application computes
        await publisher.publish("t", b"1")
        assert await take(session, 1) == ["1"]
    assert "node a: its loop stood still for 0." in caplog.text
    assert "and its leases last 0.2 s: its clients go to other nodes meanwhile" in caplog.text

"""Nodes of sessions among each other, and their store (PS-147, PS-153, PS-154, PS-160, PS-163)."""

from __future__ import annotations

import asyncio
import time

import pytest
from session_nodes import node_of, take, until, where

from statemachines.drivers.persistent_sessions import (
    PersistentSession,
    SessionPublisher,
)
from statemachines.drivers.persistent_sessions.host_requests import ReadNodes
from statemachines.kernel import Superseded
from statemachines.persistent_sessions.takeover_message import TakeoverRefused
from statemachines.persistent_sessions.takeover_record import BeginTimeout


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
            assert await other.request_queue.ask(ReadNodes()) == ("a", "b")
        assert await other.request_queue.ask(ReadNodes()) == ("b",)
        async with node_of(store, "c", lease_ms=60_000):
            assert await other.request_queue.ask(ReadNodes()) == ("b", "c")
        assert await other.request_queue.ask(ReadNodes()) == ("b",)


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

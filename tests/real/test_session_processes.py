"""Nodes of sessions as processes: names, ends, what is wrong with what they are given, sessions on disk."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest
from node_processes import PATIENCE_S, NodeProcess, nodes_of
from sessions_judge import judge, must_come
from sessions_workload import Publisher, Subscriber, copies_in

from statemachines import cli
from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.persistent_sessions.message import Farewell


def run(body):
    async def bounded():
        async with asyncio.timeout(PATIENCE_S):
            await body

    asyncio.run(bounded())


class Told(PersistentSession):
    """A session that remembers how it came to leave its nodes."""

    def __init__(self, *given, **more):
        self.why = []
        super().__init__(*given, **more)

    def _hear(self, message):
        if isinstance(message, Farewell):
            self.why.append(message.why)
        super()._hear(message)

    def _disconnected(self):
        self.why.append("lost")
        super()._disconnected()


async def everything_until(session, last):
    """What comes before this payload.  A node that a busy machine keeps from speaking is left for the next, which sends
    again what it does not know to be acknowledged."""
    before = []
    while (message := await anext(session)).payload != last:
        before.append((message.payload, message.dup))
    return before


def test_PS_154_the_newer_process_of_a_name_lives_and_the_older_ends_with_its_own_code(tmp_path):
    store = str(tmp_path / "s.db")

    async def main():
        async with nodes_of(tmp_path, store, ("a",)) as (older,):
            newer = NodeProcess(tmp_path, "a", store)
            await newer.start([])
            try:
                assert await asyncio.wait_for(older.child.wait(), PATIENCE_S) == 4
                assert "another process has this name now" in older.said()
                async with PersistentSession("tablet", nodes=[older.address, newer.address]) as session:
                    assert session.session.startswith("tablet@a~2.")
            finally:
                assert await newer.end() == 0

    run(main())


def test_PS_155_a_node_that_is_asked_to_end_sends_its_clients_to_the_next(tmp_path):
    store = str(tmp_path / "s.db")

    async def main():
        async with nodes_of(tmp_path, store) as (one, two):
            addresses = [one.address, two.address]
            async with (
                Told("tablet", nodes=addresses) as session,
                SessionPublisher(nodes=addresses[::-1]) as publisher,
            ):
                await session.subscribe("t")
                await publisher.publish("t", b"1")
                message = await anext(session)
                message.acknowledge()
                await publisher.publish("t", b"2")
                await everything_until(session, b"2")
                assert await one.end(signal.SIGTERM) == 0
                await publisher.publish("t", b"3")
                again = await everything_until(session, b"3")
                assert (b"2", True) in again
                assert all(dup for _, dup in again), "what came before comes marked"
                assert (b"1", True) not in again or session.why[0] == "lost", "a node that ends commits first (PS-146)"
                assert "Traceback" not in one.said()

    run(main())


def test_all_nodes_are_killed_and_their_sessions_are_on_disk(tmp_path):
    store = str(tmp_path / "s.db")

    async def main():
        async with nodes_of(tmp_path, store) as nodes:
            addresses = [node.address for node in nodes]
            chance = random.Random(5)
            subscriber = Subscriber("one", addresses, chance, 1)
            publisher = Publisher("w", addresses, chance)
            tasks = [asyncio.ensure_future(subscriber.run())]
            await subscriber.subscribed.wait()
            tasks.append(asyncio.ensure_future(publisher.run()))
            while len(subscriber.got) < 50:
                await asyncio.sleep(0.01)
            for node in nodes:
                await node.end(signal.SIGKILL)
            await asyncio.gather(*(node.start(nodes) for node in nodes))
            count = len(publisher.answered)
            while len(publisher.answered) < count + 50:
                await asyncio.sleep(0.01)
            publisher.over.set()
            await tasks[1]
            while not must_come(publisher.answered) <= subscriber.seen:
                await asyncio.sleep(0.01)
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert judge(copies_in(store), publisher.answered, subscriber.got) == []

    run(main())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--store", "s.db"), "Missing option '--name'"),
        (("--store", "s.db", "--name", "a b"), "node = 'a b'"),
        (("--store", "s.db", "--name", "a", "--listen", "nowhere"), "HOST:PORT"),
        (("--store", "s.db", "--name", "a", "--peers", "x"), "HOST:PORT"),
        (("--store", "mysql://x", "--name", "a"), "must be a path, sqlite:///PATH or postgresql://"),
        (("--store", "s.db", "--name", "a", "--marker-ms", "20000"), "marker_ms = 20000: less than resume_ms"),
        (("--store", "s.db", "--name", "a", "--secret-file", "missing"), "missing"),
    ],
)
def test_what_cannot_be_is_said_and_is_wrong_usage(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["node", "sessions", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in " ".join(error.replace("│", " ").split())
    assert "Traceback" not in error

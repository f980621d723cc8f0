"""Transactions of PostgreSQL that share their turn: they do not wait for each other, and numbers keep their order."""

import asyncio
import re
import threading
from unittest.mock import AsyncMock

import pytest
from session_databases import SECOND, Clock, connect, new_url, without_times

from statemachines.drivers.persistent_sessions import postgres
from statemachines.drivers.persistent_sessions import store as store_module
from statemachines.drivers.persistent_sessions.host_requests import ReadStoreTime
from statemachines.drivers.persistent_sessions.machine_requests import StoreRows
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.postgres import FRESH_NS
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.sql.failure import OutcomeOpen, StoreUnavailable
from statemachines.persistent_sessions.life_request import KeepAlive
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    Fence,
    MarkDelivered,
    PutRows,
    ReadPending,
    RowFenced,
    RowStored,
    StateChange,
)
from statemachines.testing.postgres import run_sql

SESSION_ROWS = (
    "SELECT session, writer, epoch, number, tag, message FROM gapless_sessions.session_rows ORDER BY 1, 2, 3, 4"
)
MESSAGES = "SELECT id, topic, payload, qos FROM gapless_sessions.messages ORDER BY id"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    """Numbers are near the clock however slow the test is."""
    monkeypatch.setattr(postgres, "steady_ns", lambda: 0)


def put(number, topic="a/b"):
    return PutMessage(f"m{number}", topic, b"x", 1)


def rows(first, last, writer="n1", epoch=1, session="s1", first_number=None):
    """Of messages `first` to `last`, numbered alike (None), or from a number on."""
    ahead = 0 if first_number is None else first_number - first
    found = tuple(Queued(number + ahead, f"m{number}", "a/+", 1) for number in range(first, last + 1))
    return StoreRows(PutRows(session, writer, epoch, found), {row.message: Payload("a/b", b"x") for row in found})


class Nodes:
    """Stores of two nodes over one database, and what their writers have begun."""

    def __init__(self, url):
        self.url = url
        self.clock = Clock()
        self.stores, self.lives, self.batches = {}, {}, {}

    async def __aenter__(self):
        for name in ("n1", "n2"):
            self.stores[name] = open_session_store(self.url, clock=self.clock, busy_s=0.2 if name == "n2" else 10.0)
            self.lives[name] = await self.stores[name].begin_life(name, 10**6)
            self.batches[name] = 0
        one = self.stores["n1"]
        self.token = (await connect(one, "s1")).token
        await one.do(Subscribe("s1", self.token, "a/+", 1))
        for name in self.stores:
            await self.carry_out(name, BeginEpoch("s1", name), *map(put, range(10)))  # it knows the routes
        return self

    async def __aexit__(self, *failure):
        for store in self.stores.values():
            await store.close()

    async def carry_out(self, name, *requests):
        self.batches[name] += 1
        return await self.stores[name].carry_out(self.lives[name], self.batches[name], list(requests))


@pytest.fixture
def ways(monkeypatch):
    """Whether each transaction was one statement, shared its turn, or was alone."""
    found = []
    plain, at_once = postgres.PostgresSql.__init__, postgres.PostgresSessions.store_batch

    def begin(sql, pipeline, turn, *given):
        found.append({postgres.ALONE: "alone", postgres.SHARED: "shared"}.get(turn, "read"))
        plain(sql, pipeline, turn, *given)

    async def store_batch(database, batch):
        number = await at_once(database, batch)
        found.append("statement" if number is not None else "refused")
        return number

    monkeypatch.setattr(postgres.PostgresSql, "__init__", begin)
    monkeypatch.setattr(postgres.PostgresSessions, "store_batch", store_batch)
    return found


async def test_PS_510_what_is_acknowledged_before_another_is_asked_for_has_the_lower_number(postgres_url, ways):
    """Whichever way they are stored; and the numbers follow the clock."""

    async with Nodes(postgres_url) as nodes:
        ways.clear()
        numbers = []
        for number in range(1, 5):
            for name in ("n1", "n2"):
                more = [MarkDelivered("s1", name, 1, 99)] if number % 2 else []
                numbers.append((await nodes.carry_out(name, rows(number, number, name), *more))[0][0].stored_ns)
            numbers += await nodes.carry_out("n2", ReadStoreTime())
            await nodes.stores["n1"].ask(KeepAlive("c", "s1", nodes.token))
        nodes.clock.now += 10 * SECOND
        numbers += await nodes.carry_out("n1", ReadStoreTime())
        nodes.clock.now -= 5 * SECOND
        numbers += await nodes.carry_out("n2", ReadStoreTime())
        now = nodes.clock.now
    assert numbers == sorted(set(numbers))
    assert {"statement", "shared", "alone"} <= set(ways)
    assert numbers[-2] >= now + 5 * SECOND - FRESH_NS


class HeldTurn:
    """A transaction of a store that shares its turn, and is open within; it is never idle."""

    def __init__(self, store):
        self._store = store
        self._started, self._ends = threading.Event(), threading.Event()
        self.number = 0

    async def __aenter__(self):
        self._work = asyncio.ensure_future(self._store._database.run(self._hold))
        assert await asyncio.to_thread(self._started.wait, 20)
        return self

    async def __aexit__(self, *failure):
        self._ends.set()
        await self._work

    def _hold(self):
        with self._store._database.writing(may_share=True) as sql:
            self.number = sql.now_ns
            self._started.set()
            while not self._ends.wait(0.01):
                sql.all("SELECT 1")


async def test_PS_514_a_read_says_nothing_of_numbers_whose_transactions_are_open(postgres_url):
    """What is complete waits for them; what need not be complete says how far it is."""

    async with Nodes(postgres_url) as nodes:
        one, two = nodes.stores.values()

        def look(is_complete):
            with two._database.reading(is_complete=is_complete) as sql:
                return sql.seen_ns

        async with HeldTurn(one) as held:
            (answer,) = await nodes.carry_out("n2", rows(1, 2, "n2"))
            assert await two._database.run(lambda: look(False)) < held.number
            with pytest.raises(StoreUnavailable, match="lock timeout"):
                await two.read(nodes.lives["n2"], [ReadPending("s1")])
        ((pending,),) = await two.read(nodes.lives["n2"], [ReadPending("s1")])
        held, stored = held.number, answer[0].stored_ns
    assert held < stored < pending.complete_ns == pending.seen_ns
    assert [row.stored_ns for one in pending.found for row in one.rows] == [stored] * 2


async def batches(nodes):
    """Plain ones, and what the statement does not store: a fenced epoch, a session that is gone, a message that is
    gone, rows that are there, a topic that nobody wants."""
    found = [await nodes.carry_out("n1", put(1), rows(1, 1), put(2), rows(2, 3), ReadStoreTime())]
    found.append(await nodes.carry_out("n1", rows(4, 4), PutRows("s1", "n1", 1, (Queued(5, "m5", "a/+", 1),))))
    found.append(await nodes.carry_out("n1", put(3, "other")))
    found.append(await nodes.carry_out("n1", rows(1, 1, session="gone")))
    found.append(await nodes.carry_out("n1", rows(6, 6, epoch=7)))
    found.append(await nodes.carry_out("n1", rows(2, 3)))
    found.append(await nodes.carry_out("n1", rows(6, 7), CommitState("s1", nodes.token, StateChange())))
    found.append(await nodes.carry_out("n1", rows(8, 12)))
    await nodes.stores["n2"].do(Subscribe("s1", nodes.token, "new", 1))
    found.append(await nodes.carry_out("n1", put(8, "new"), put(9)))
    return [without_times(one) for one in found if one]


def untimed(answers):
    """Without store times."""
    found = [[one for one in batch if not isinstance(one, int)] for batch in answers]
    return re.sub(r"time_ns=\d+", "", repr(found))


async def test_PS_512_one_statement_does_what_many_do(postgres_url, request, tmp_path_factory, monkeypatch, ways):
    """The same answers, and the same tables."""

    def stored(url):
        return run_sql(url, SESSION_ROWS), run_sql(url, MESSAGES), run_sql(url, "SELECT * FROM gapless_sessions.epochs")

    async with Nodes(postgres_url) as nodes:
        answers = await batches(nodes)
    assert {"statement", "refused", "alone", "shared"} <= set(ways)
    monkeypatch.setattr(postgres.PostgresSessions, "store_batch", AsyncMock(return_value=None))
    other = new_url("postgres", request, tmp_path_factory)
    ways.clear()
    async with Nodes(other) as nodes:
        by_steps = await batches(nodes)
    assert "statement" not in ways
    assert untimed(answers) == untimed(by_steps)
    assert (RowFenced(1),) in answers[4]
    assert answers[5] == [(RowStored(),)]
    assert stored(postgres_url) == stored(other)


@pytest.mark.parametrize("is_fenced", [False, True])
async def test_PS_512_a_batch_whose_answer_is_lost_is_stored_once(postgres_url, monkeypatch, is_fenced):
    """It is given again under its number, and is answered with the time at which it was stored; also where its writer
    was fenced since, which would store it again under the next epoch."""
    at_once = postgres.PostgresSessions.store_batch
    numbers = []

    async def lose(database, batch):
        numbers.append(await at_once(database, batch))
        raise OutcomeOpen("the connection broke")

    async with Nodes(postgres_url) as nodes:
        asked = [put(1), rows(1, 2)]
        with monkeypatch.context() as patch:
            patch.setattr(postgres.PostgresSessions, "store_batch", lose)
            with pytest.raises(OutcomeOpen):
                await nodes.carry_out("n1", *asked)
        nodes.batches["n1"] -= 1
        if is_fenced:
            await nodes.stores["n2"].ask(Fence("s1", "n1", (0, 0), 0, nodes.token, 1))
        found = await nodes.carry_out("n1", *asked)
        (routes, (answer,)), after = (
            found,
            await nodes.carry_out("n1", rows(3, 3, epoch=1 + is_fenced, first_number=1 if is_fenced else 3)),
        )
    assert [route.session for route in routes] == ["s1"]
    assert [answer.stored_ns] == numbers
    assert after[0][0].stored_ns > answer.stored_ns
    stored = [(epoch, message) for _, _, epoch, _, _, message in run_sql(postgres_url, SESSION_ROWS)]
    assert stored == [(1, b"m1"), (1, b"m2"), (1 + is_fenced, b"m3")]


@pytest.mark.parametrize("is_kept", [True, False])
async def test_PS_513_a_message_that_was_matched_is_stored_where_its_rows_take_other_ways(
    postgres_url, monkeypatch, is_kept
):
    """It comes with its rows, also if it was given up for others."""
    if not is_kept:
        monkeypatch.setattr(store_module, "UNSTORED_MAX", 0)

    async with Nodes(postgres_url) as nodes:
        store, life = nodes.stores["n1"], nodes.lives["n1"]
        message = PutMessage("m20", "a/b", b"x", 2)
        await store.store_ahead(life, nodes.batches["n1"], [message])
        await nodes.carry_out("n1", rows(20, 20, first_number=1), MarkDelivered("s1", "n1", 1, 99))
        assert len(store._unstored) == 0
    assert (b"m20", b"a/b", b"x", 1) in run_sql(postgres_url, MESSAGES)

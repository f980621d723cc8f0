"""What a node asks of its database, and what it brings to a client: batches, order, bounds.

A database whose clock is set ahead by a day while nodes run: nothing is gone early, and an operator is asked.

Rows of many sessions in few statements: the same rows as one by one.

Routes that nobody has changed are not looked up in a transaction (PS-591).

What one statement of PostgreSQL stores, and what is carried out step by step instead.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial

import pytest
from session_databases import SECOND, Clock, connect, queued
from waiting import run_async, turns, until_async

from statemachines import cli
from statemachines.drivers.persistent_sessions import host_requests, machine_requests, request_queue, route_rows, sqlite
from statemachines.drivers.persistent_sessions.host_requests import Beat
from statemachines.drivers.persistent_sessions.machine_requests import StoreRows
from statemachines.drivers.persistent_sessions.outbox import QOS_0_MAX, READ_MAX, UNACKNOWLEDGED_MAX, Outbox
from statemachines.drivers.persistent_sessions.payloads import Payload, Payloads
from statemachines.drivers.persistent_sessions.request_batch import BatchReader, is_ahead, may_share
from statemachines.drivers.persistent_sessions.request_queue import BATCH_MAX, ROWS_MAX, RequestQueue
from statemachines.drivers.persistent_sessions.route_rows import PublisherPacket, PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.sql import TimeWatch
from statemachines.drivers.persistent_sessions.store import StoredLife, open_session_store
from statemachines.persistent_sessions.collector import (
    CollectorRecord,
    DeletePage,
    Graces,
    Only,
    ReadClients,
    ReadMessages,
    RowDeletion,
    RowKey,
    garbage_messages,
)
from statemachines.persistent_sessions.life_request import LeaveSession, LockClient, LookUp
from statemachines.persistent_sessions.message import Publish, Queued
from statemachines.persistent_sessions.request import BeginEpoch, MarkDelivered, PutRows, RowStored
from statemachines.persistent_sessions.session_host_record import ClockState

LIFE = StoredLife("a", 1, b"store")


class Store:
    """It answers each request with itself; `failures` come first."""

    def __init__(self, *failures, stores_ahead=False):
        self.failures = list(failures)
        self.stores_ahead = is_ahead if stores_ahead else lambda request: False
        self.batches = []
        self.reads = []

    async def carry_out(self, life, batch, requests):
        assert life is LIFE
        self.batches.append((batch, list(requests)))
        if self.failures:
            raise self.failures.pop(0)
        return list(requests)

    async def store_ahead(self, life, batch, requests):
        return await self.carry_out(life, ("behind", batch), requests)

    async def read(self, life, requests):
        assert life is LIFE
        self.reads.append(list(requests))
        if self.failures:
            raise self.failures.pop(0)
        return list(requests)


async def served(desk, count, taken):
    """Let the desk work until so many are answered."""
    task = asyncio.ensure_future(desk.run())
    await until_async(lambda: len(taken) >= count or task.done())
    task.cancel()
    (ended,) = await asyncio.gather(task, return_exceptions=True)
    return ended


def begin(number):
    return BeginEpoch(f"s{number}", "w")


def put(number):
    return route_rows.PutMessage(f"m{number}", "t", b"", 1)


@pytest.mark.parametrize("count", [1, BATCH_MAX, BATCH_MAX + 1, 2 * BATCH_MAX + 7])
async def test_PS_150_requests_are_answered_in_order_in_batches(count):
    store, taken = Store(), []
    desk = RequestQueue(store, LIFE)
    for number in range(count):
        desk.give(begin(number), taken.append)
    await served(desk, count, taken)
    assert taken == [begin(number) for number in range(count)]
    assert [batch for batch, _ in store.batches] == list(range(1, len(store.batches) + 1))
    assert max(len(requests) for _, requests in store.batches) == min(count, BATCH_MAX)
    assert len(store.batches) == -(-count // BATCH_MAX)


async def test_PS_192_PS_197_a_mark_of_several_rows_counts_as_so_many():
    store, taken = Store(), []
    desk = RequestQueue(store, LIFE)
    half = ROWS_MAX // 2
    marks = [MarkDelivered("s", "w", 1, place * half + 1, (place + 1) * half) for place in range(5)]
    for one in marks:
        desk.give(one, taken.append)
    await served(desk, len(marks), taken)
    assert [requests for _, requests in store.batches] == [marks[:2], marks[2:4], marks[4:]]


# -- owners and nodes, as the tables say ------------------------------------------------------------------------------


# -- to one client ----------------------------------------------------------------------------------------------------


class Desk:
    """It keeps who waits for what."""

    def __init__(self):
        self.asked = []

    def give(self, request, take):
        self.asked.append((request, take))

    def answer(self, first=None, **found):
        request, take = self.asked.pop(0)
        take({one: found.get(one) for one in request.ids[:first]})
        return request


def publish(number, packet=None, dup=False):
    return Publish(number if packet is None else packet, f"m{number}", "t/#", 1, dup)


def read(*messages):
    return host_requests.ReadPayloads(messages, UNACKNOWLEDGED_MAX)


def courier(payloads=None, welcome=True):
    said, gone, desk = [], [], Desk()
    one = Outbox(desk, payloads or Payloads(), said.extend, gone.append)
    if welcome:
        one.welcome()
    return one, said, gone, desk


def kept(*numbers, size=1):
    payloads = Payloads()
    for number in numbers:
        payloads.put(f"m{number}", Payload(f"t/{number}", b"x" * size))
    return payloads


def test_PS_169_what_comes_at_once_is_read_together():
    """Who brings several in one turn need not wait for the first alone; one that ends meanwhile reads nothing."""
    later, said, desk = [], [], Desk()
    one = Outbox(desk, kept(2), said.extend, [].append, later.append)
    one.welcome()
    for number in (1, 2, 3):
        one.bring([publish(number)])
    assert (len(later), desk.asked, said) == (1, [], [])
    later.pop()()
    assert desk.answer(m1=Payload("t", b"1"), m3=Payload("t", b"3")) == read("m1", "m3")
    assert [each.packet for each in said] == [1, 2, 3]
    one.bring([publish(4)])
    one.close()
    later.pop()()
    assert desk.asked == []


def test_PS_169_no_more_is_read_at_a_time_than_so_many_messages():
    one, _, _, desk = courier(welcome=False)
    for number in range(READ_MAX + 5):
        one.bring([publish(number)])
    one.welcome()
    assert [len(request.ids) for request, _ in desk.asked] == [READ_MAX]


def test_PS_152_of_qos_0_alone_something_is_dropped():
    one, said, _, _ = courier(kept(1), welcome=False)
    for _ in range(QOS_0_MAX + 3):
        one.bring([publish(1, packet=0)])
    one.bring([publish(1, packet=5)])
    assert one.dropped == 3
    one.welcome()
    assert len(said) == QOS_0_MAX + 1
    assert said[-1].packet == 5


def rows(number):
    return PutRows("s", "w", 1, (Queued(number, f"m{number}", "t", 1),))


def delete(number):
    return DeletePage((RowDeletion(RowKey("s", "w", 1, number), Only.ALWAYS),))


async def serve_late(*asked, then=()):
    """What the store is given of requests of machines, and of those that follow when the loop has turned."""
    store, taken = Store(), []
    desk = RequestQueue(store, LIFE)
    for request in asked:
        desk.serve("w", request, lambda party, answer: None, lambda found: taken.append(found) or ())
    task = asyncio.ensure_future(desk.run())
    await turns(5)
    first = list(store.batches)
    for request in then:
        desk.give(request, taken.append)
    await until_async(lambda: not len(desk))
    task.cancel()
    return first, store.batches


MARK = MarkDelivered("s", "w", 1, 1)


@pytest.fixture
def no_alarm(monkeypatch):
    """What may wait does so for longer than a test: a busy machine takes more than its 50 ms."""
    monkeypatch.setattr(request_queue, "LATE_S", 3_600.0)


def test_PS_530_marks_and_deletions_beside_them_go_with_what_is_asked_next(no_alarm):
    asked = [MARK, delete(1)]
    assert run_async(serve_late(*asked, then=[begin(1)])) == ([], [(1, [*asked, begin(1)])])


def test_PS_531_a_file_has_a_message_when_it_has_its_rows(tmp_path):
    async def main():
        store = open_session_store(tmp_path / "s.db")
        try:
            life = await store.begin_life("w", 1_000)
            token, session, _ = await connect(store, "s1", "tablet")
            await store.do(route_rows.Subscribe(session, token, "t", 1))
            await store.carry_out(life, 1, [BeginEpoch(session, "w")])
            message = route_rows.PutMessage("m1", "t", b"x", 1)
            _, ahead = await store.store_ahead(life, 1, [host_requests.ReadStoreTime(), message])
            found = [[(one.session, one.filter) for one in ahead]]
            found.append((await store.do(host_requests.ReadPayloads(("m1",), 1)))["m1"])
            stored = machine_requests.StoreRows(
                PutRows(session, "w", 1, (Queued(1, "m1", "t", 1),)), {"m1": Payload("t", b"x")}
            )
            await store.carry_out(life, 2, [stored])
            found.append((await store.do(host_requests.ReadPayloads(("m1",), 1)))["m1"])
            return found
        finally:
            await store.close()

    assert run_async(main()) == [[("s1", "t")], None, Payload("t", b"x")]


DAY = 86_400 * SECOND
HOUR_MS = 3_600_000


@asynccontextmanager
async def open_store_with_message(url):
    """(Store, clock, steady clock), with a session of `c` that outlives its connection by an hour, and a message for
    it, which expires in an hour, too."""
    clock, steady = Clock(), Clock()
    store = open_session_store(url, clock=clock, steady=steady)
    try:
        connected = await connect(store, "s1", "c", expiry_ms=HOUR_MS)
        await store.do(Subscribe("s1", connected.token, "a/+", 1))
        (route,) = await store.do(PutMessage("m1", "a/x", b"x", 1, HOUR_MS))
        await store.ask(BeginEpoch("s1", "n1"))
        row = queued(1, "m1")
        await store.do(StoreRows(PutRows("s1", "n1", 1, (row,)), {row.message: Payload("a/x", b"x")}))
        assert route.until_ns > 0
        await store.ask(LeaveSession("c", "s1", connected.token, HOUR_MS))
        yield store, clock, steady
    finally:
        await store.close()


async def gone(store):
    """What a collector would forget, and delete for its age; whether the session has expired for who connects."""
    (clients,) = await store.ask(ReadClients("", 10, 1_000))
    (messages,) = await store.ask(ReadMessages("", 10))
    unneeded = garbage_messages(CollectorRecord(Graces(retention_ms=3_600_000)), messages)
    (locked,) = await store.ask(LockClient("c", "h", 1))
    (found,) = await store.ask(LookUp("c", locked.token, 1_000))
    return [one.client for one in clients.clients if one.over], [one.message for one in unneeded], found.expired


def test_PS_464_time_in_which_nothing_ran_is_said_before_anything_is_deleted(url, caplog):
    clock = Clock()
    clock.now = DAY

    async def use(request):
        store = open_session_store(url, clock=clock, steady=Clock())
        try:
            await (store.do if isinstance(request, Subscribe) else store.ask)(request)
        finally:
            await store.close()

    for request in (Subscribe("s1", 1, "a", 1), ReadClients("", 10, 1_000)):
        run_async(use(Subscribe("s1", 1, "a", 1)))
        clock.now += 3_600 * SECOND
        run_async(use(request))
        assert "nobody has written to it" not in caplog.text
        clock.now += DAY
        run_async(use(request))
        assert caplog.text.count("nobody has written to it for") == 1
        assert "for 2" in caplog.text
        caplog.clear()


@pytest.mark.parametrize(("unused_ns", "apart_ns", "follows"), [
    (SECOND, DAY, False), (2 * DAY, DAY, False), (SECOND, 3_500 * SECOND, True), (2 * DAY, 0, True),
])  # fmt: skip
async def test_PS_702_a_process_that_sees_a_leap_first_compares_the_clock_with_its_own(
    url, caplog, unused_ns, apart_ns, follows
):
    """Others run, and stand still at that moment."""

    async with open_store_with_message(url) as (_store, clock, steady):
        passes(clock, steady, unused_ns)
        own, clock.now = clock.now, clock.now + apart_ns
        first = open_session_store(url, clock=clock, steady=Clock(), wall=lambda: own)
        try:
            clients, _, expired = await gone(first)
            last_ns = await first.last_commit_ns()
        finally:
            await first.close()
        assert (clients, expired) == ((["c"], True) if unused_ns > DAY else ([], False))
        assert abs(last_ns - (clock.now if follows else own)) < SECOND
        assert ("set ahead by 86400 s" in caplog.text) == (not follows)


def test_PS_524_time_in_which_nothing_ran_counts_in_the_same_boot(sqlite_url, caplog):
    clock, steady = Clock(), Clock()

    async def use(work):
        store = open_session_store(sqlite_url, clock=clock, steady=steady, boot="one")
        try:
            return await work(store)
        finally:
            await store.close()

    run_async(use(lambda store: connect(store, "s1", "c", expiry_ms=HOUR_MS)))
    passes(clock, steady, 7_200 * SECOND)
    assert run_async(use(gone))[0] == ["c"]
    assert "nobody has written to it for 2" in caplog.text
    assert "set ahead" not in caplog.text


def passes(clock, steady, nanoseconds):
    clock.now += nanoseconds
    steady.now += nanoseconds


def test_PS_293_the_command_accepts_a_clock_once(sqlite_url, capsys, tmp_path):
    async def set_ahead():
        async with open_store_with_message(sqlite_url) as (store, clock, _):
            clock.now += DAY
            await store.begin_life("n1", 1_000)

    run_async(set_ahead())
    for words in ("ages count again", "ages count already"):
        assert words in ask_clock(capsys, sqlite_url, "--accept")
        found = json.loads(ask_clock(capsys, sqlite_url, "--accept", "--json"))
        assert (found["accepted"], found["stopped"]) == (False, False)
    nowhere = tmp_path / "none.db"
    assert cli.run(["sessions", "clock", "--accept", "--store", str(nowhere)]) == cli.Exit.USAGE
    assert "is not there" in capsys.readouterr().err
    assert not nowhere.exists()


def ask_clock(capsys, url, *options):
    """What the command says."""
    assert cli.run(["sessions", "clock", "--store", url, *options]) == cli.Exit.HELD
    return capsys.readouterr().out


def test_PS_732_the_command_shows_the_clock(sqlite_url, capsys, monkeypatch):
    async def fill():
        async with open_store_with_message(sqlite_url):
            pass

    run_async(fill())
    state = ClockState(2 * DAY, 2 * DAY, 0)
    monkeypatch.setattr(TimeWatch, "describe_clock", lambda self: state)
    where = sqlite_url.removeprefix("sqlite:///")
    assert ask_clock(capsys, sqlite_url).splitlines() == [
        f"/{where.lstrip('/')}: its clock shows 1970-01-03T00:00:00Z", "ages count"
    ]  # fmt: skip
    state = ClockState(2 * DAY, DAY, DAY - 5 * SECOND)
    assert ask_clock(capsys, sqlite_url).splitlines()[0].endswith("00Z, 86400 s ahead of store time")
    assert "ages stand still for 5 s" in ask_clock(capsys, sqlite_url)
    assert json.loads(ask_clock(capsys, sqlite_url, "--json")) == {
        "clock": "1970-01-03T00:00:00Z", "store_time": "1970-01-02T00:00:00Z", "ahead_s": 86_400.0, "stopped": True,
        "stopped_s": 5.0,
    }  # fmt: skip
    state = ClockState(DAY, 2 * DAY, 0)
    assert "86400 s behind store time" in ask_clock(capsys, sqlite_url)


SESSIONS = machine_requests.SESSIONS_MIN + 5
MESSAGES = machine_requests.HANDS_MAX + 3
ROWS = (
    "SELECT session, number, tag, message, filter, qos, token, n, k, until_ns FROM @session_rows WHERE writer = :writer"
)


def to_rows(first):
    """Messages that differ in whatever a row has of them."""
    return tuple(Queued(first + one, f"m{one}", f"a/{one % 2}", one % 3, one) for one in range(MESSAGES))


async def put_twice(opened, **writers):
    """By each of these writers the same rows, together from so many sessions on; some sessions have a row before them,
    and a higher epoch."""
    life = await opened.begin_life("n1", 10_000)
    sessions = [f"s{number}" for number in range(SESSIONS)]
    for place, session in enumerate(sessions):
        await connect(opened, session, session)
        for writer in writers:
            for _ in range(1 + place % 2):
                await opened.ask(BeginEpoch(session, writer))
            if place % 3 == 0:
                await opened.ask(PutRows(session, writer, 1 + place % 2, (Queued(1, "before", "a", 1),)))
    for batch, (writer, least) in enumerate(writers.items(), 1):
        machine_requests.SESSIONS_MIN = least
        asked = [
            PutRows(session, writer, 1 + place % 2, to_rows(1 + (place % 3 == 0)))
            for place, session in enumerate(sessions)
        ]
        *answers, _ = await opened.carry_out(life, batch, [*asked, Beat("n1", 10_000)])
        assert all(isinstance(one, RowStored) for (one,) in answers)


def test_PS_500_rows_of_many_sessions_are_the_rows_that_each_would_have_alone(url, monkeypatch):
    async def body():
        opened = open_session_store(url, clock=Clock())
        try:
            await put_twice(opened, together=2, alone=SESSIONS + 1)
            return [await opened._database.run(partial(read, opened, one)) for one in ("together", "alone")]
        finally:
            await opened.close()

    def read(opened, writer):
        with opened._database.reading() as sql:
            return sorted(sql.all(ROWS, writer=writer.encode()))

    monkeypatch.setattr(machine_requests, "SESSIONS_MIN", machine_requests.SESSIONS_MIN)  # as it was, behind the test
    together, alone = run_async(body())
    assert together == alone
    assert len(together) == SESSIONS * MESSAGES + len(range(0, SESSIONS, 3))


@pytest.fixture
def reads(monkeypatch):
    """Transactions that read."""
    found = []
    reading = sqlite.SqliteSessions.reading

    def note(database, *given, **named):
        found.append("read")
        return reading(database, *given, **named)

    monkeypatch.setattr(sqlite.SqliteSessions, "reading", note)
    return found


class TwoNodes:
    """Stores of two nodes on one file, and a session."""

    def __init__(self, path):
        self.stores = {name: open_session_store(path) for name in ("n1", "n2")}

    async def __aenter__(self):
        self.lives = {name: await store.begin_life(name, 60_000) for name, store in self.stores.items()}
        self.batches = dict.fromkeys(self.stores, 0)
        self.token, *_ = await connect(self.stores["n1"], "s1")
        return self

    async def __aexit__(self, *error):
        for store in self.stores.values():
            await store.close()

    async def carry_out(self, name, *requests):
        self.batches[name] += 1
        await self.stores[name].carry_out(self.lives[name], self.batches[name], requests)

    async def find_filters(self, name, topic="a/b", qos=1):
        found = await self.stores[name].store_ahead(
            self.lives[name], self.batches[name], [PutMessage("m", topic, b"x", qos)]
        )
        return sorted(route.filter for route in found[0])


async def test_PS_591_a_request_that_belongs_to_no_batch_may_change_routes_too(tmp_path):
    async with TwoNodes(tmp_path / "s.db") as nodes:
        await nodes.carry_out("n1", Subscribe("s1", nodes.token, "a/+", 1))
        found = [await nodes.find_filters("n1") for _ in range(2)]
        await nodes.stores["n1"].do(Subscribe("s1", nodes.token, "a/#", 1))
        assert [*found, await nodes.find_filters("n1")] == [["a/+"], ["a/+"], ["a/#", "a/+"]]


STORED_BATCHES_LIFE = ("n1", 1, b"store")


def rows_of_stored_batches(first, writer="n1", epoch=1, session="s1", message=None):
    return PutRows(session, writer, epoch, (Queued(first, message or f"m{first}", "#", 1),))


def read_of_stored_batches(*requests):
    return BatchReader(lambda asked: (), 1).read(STORED_BATCHES_LIFE, 1, requests)


def test_PS_540_sessions_with_the_same_rows_share_them():
    batch = read_of_stored_batches(
        rows_of_stored_batches(1),
        rows_of_stored_batches(1, session="s2"),
        rows_of_stored_batches(5, session="s3", message="m1"),
        rows_of_stored_batches(1, session="s4", message="m2"),
    )
    assert [(one.session, one.first, one.kind) for one in batch.ranges] == [
        (b"s1", 1, 0), (b"s2", 1, 0), (b"s3", 5, 0), (b"s4", 1, 1),
    ]  # fmt: skip
    assert [(one.kind, one.message) for one in batch.hands] == [(0, b"m1"), (1, b"m2")]


@pytest.mark.parametrize(
    "more", [{"retain": True}, {"will": "c/1"}, {"is_appended": True}, {"packet": PublisherPacket("s1", 1, 5)}]
)
def test_PS_511_a_message_that_changes_more_than_messages_and_rows_is_stored_alone(more):
    assert may_share(PutMessage("m1", "t", b"x", 1))
    assert not may_share(PutMessage("m1", "t", b"x", 1, **more))

"""What a node asks of its database, and what it brings to a client: batches, order, bounds."""

from __future__ import annotations

import asyncio

import pytest
from session_databases import connect

from statemachines.drivers.persistent_sessions import host_requests, machine_requests, request_queue, route_rows
from statemachines.drivers.persistent_sessions.outbox import QOS_0_MAX, READ_MAX, UNACKNOWLEDGED_MAX, Outbox
from statemachines.drivers.persistent_sessions.payloads import Payload, Payloads
from statemachines.drivers.persistent_sessions.request_batch import is_ahead
from statemachines.drivers.persistent_sessions.request_queue import BATCH_MAX, ROWS_MAX, RequestQueue
from statemachines.drivers.persistent_sessions.store import StoredLife, open_session_store
from statemachines.persistent_sessions.collector_request import DeletePage, Only, RowDeletion, RowKey
from statemachines.persistent_sessions.message import Publish, Queued
from statemachines.persistent_sessions.request import BeginEpoch, MarkDelivered, PutRows

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
    async with asyncio.timeout(20):
        while len(taken) < count and not task.done():
            await asyncio.sleep(0)
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


def test_PS_571_messages_that_a_group_has_are_stored_in_their_place():
    async def main():
        store, taken = Store(stores_ahead=True), []
        desk = RequestQueue(store, LIFE)

        async def refuse(life, batch, requests):
            store.batches.append(("refused", list(requests)))

        store.store_ahead = refuse
        for request in (rows(1), put(1), rows(2), put(2)):
            desk.give(request, taken.append)
        await served(desk, 4, taken)
        return store.batches, taken

    batches, taken = asyncio.run(main())
    assert batches == [("refused", [put(1), put(2)]), (1, [put(1), put(2), rows(1), rows(2)])]
    assert taken == batches[1][1]


def delete(number):
    return DeletePage((RowDeletion(RowKey("s", "w", 1, number), Only.ALWAYS),))


async def serve_late(*asked, then=()):
    """What the store is given of requests of machines, and of those that follow when the loop has turned."""
    store, taken = Store(), []
    desk = RequestQueue(store, LIFE)
    for request in asked:
        desk.serve("w", request, lambda party, answer: None, lambda found: taken.append(found) or ())
    task = asyncio.ensure_future(desk.run())
    for _ in range(5):
        await asyncio.sleep(0)
    first = list(store.batches)
    for request in then:
        desk.give(request, taken.append)
    async with asyncio.timeout(20):
        while len(desk):
            await asyncio.sleep(0.001)
    task.cancel()
    return first, store.batches


MARK = MarkDelivered("s", "w", 1, 1)


@pytest.fixture
def no_alarm(monkeypatch):
    """What may wait does so for longer than a test: a busy machine takes more than its 50 ms."""
    monkeypatch.setattr(request_queue, "LATE_S", 3_600.0)


def test_PS_530_marks_and_deletions_beside_them_go_with_what_is_asked_next(no_alarm):
    asked = [MARK, delete(1)]
    assert asyncio.run(serve_late(*asked, then=[begin(1)])) == ([], [(1, [*asked, begin(1)])])


async def spin():
    for _ in range(5):
        await asyncio.sleep(0)


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

    assert asyncio.run(main()) == [[("s1", "t")], None, Payload("t", b"x")]

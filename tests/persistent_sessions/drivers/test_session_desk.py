"""What a node asks of its database, and what it brings to a client: batches, order, bounds."""

from __future__ import annotations

import asyncio

import pytest
from session_databases import connect

from statemachines.drivers.persistent_sessions import host_request, request_queue
from statemachines.drivers.persistent_sessions.outbox import QOS_0_MAX, READ_MAX, UNACKNOWLEDGED_MAX, Outbox
from statemachines.drivers.persistent_sessions.payloads import OVERHEAD, Payload, Payloads
from statemachines.drivers.persistent_sessions.request_queue import AHEAD_MAX, BATCH_MAX, ROWS_MAX, RequestQueue
from statemachines.drivers.persistent_sessions.shared_turn import is_ahead
from statemachines.drivers.persistent_sessions.store import StoredLife, open_session_store
from statemachines.drivers.sql.failure import OutcomeOpen, StoreUnavailable
from statemachines.kernel import Superseded
from statemachines.persistent_sessions.collector_request import DeletePage, Only, RowDeletion, RowKey
from statemachines.persistent_sessions.life_request import KeepAlive
from statemachines.persistent_sessions.message import Delivered, Publish, Pubrel, Queued
from statemachines.persistent_sessions.owner_request import FindOwner, OwnerFound
from statemachines.persistent_sessions.request import BeginEpoch, LoadSession, MarkDelivered, PutRows, SubscribeLive

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
    return host_request.PutMessage(f"m{number}", "t", b"", 1)


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


async def test_PS_150_a_batch_that_failed_is_given_again_under_its_number(caplog):
    store, taken = Store(StoreUnavailable("busy"), StoreUnavailable("busy"), OutcomeOpen("cut off")), []
    desk = RequestQueue(store, LIFE)
    desk.give(put(1), taken.append)
    await served(desk, 1, taken)
    desk.give(put(2), taken.append)
    await served(desk, 2, taken)
    assert [batch for batch, _ in store.batches] == [1, 1, 1, 1, 2]
    assert [requests for _, requests in store.batches] == [[put(1)]] * 4 + [[put(2)]]
    said = ["busy; asking again until it answers", "cut off; asking again until it answers", "the store answers again"]
    assert caplog.messages == [f"a: {one}" for one in said], "once each"


def test_PS_331_a_batch_is_unanswered_from_when_it_was_given_first():
    class Failing(Store):
        """It notes what the desk knows each time."""

        async def carry_out(self, life, batch, requests):
            seen.append(desk.asked_ns)
            return await super().carry_out(life, batch, requests)

    async def main():
        nonlocal desk
        store, taken = Failing(StoreUnavailable("busy"), StoreUnavailable("busy")), []
        desk = RequestQueue(store, LIFE, iter(range(1, 9)).__next__)
        assert desk.asked_ns is None
        desk.give(put(1), taken.append)
        await served(desk, 1, taken)
        assert desk.asked_ns is None
        desk.give(put(2), taken.append)
        await served(desk, 2, taken)

    seen, desk = [], None
    asyncio.run(main())
    assert seen == [1, 1, 1, 2]


async def test_PS_192_marks_of_rows_one_behind_the_other_are_one_of_a_batch():
    """All of them together are bounded, and what stands between two of them keeps its place."""
    store, taken = Store(), []
    desk = RequestQueue(store, LIFE)
    marks = [MarkDelivered("s", "w", 1, number) for number in range(1, ROWS_MAX + 2)]
    asked = [put(0), *marks, *map(begin, range(BATCH_MAX))]
    for one in asked:
        desk.give(one, taken.append)
    await served(desk, len(asked), taken)
    assert taken == asked
    first, second, third = [requests for _, requests in store.batches]
    assert first == asked[:ROWS_MAX]
    assert second == asked[ROWS_MAX : ROWS_MAX + 1 + BATCH_MAX]
    assert third == asked[-1:]


async def test_D_544_messages_that_are_stored_together_count_as_one_statement():
    store, taken = Store(), []
    desk = RequestQueue(store, LIFE)
    asked = list(map(put, range(ROWS_MAX + BATCH_MAX)))
    for one in asked:
        desk.give(one, taken.append)
    await served(desk, len(asked), taken)
    assert [requests for _, requests in store.batches] == [asked[:ROWS_MAX], asked[ROWS_MAX:]]


async def test_PS_192_PS_197_a_mark_of_several_rows_counts_as_so_many():
    store, taken = Store(), []
    desk = RequestQueue(store, LIFE)
    half = ROWS_MAX // 2
    marks = [MarkDelivered("s", "w", 1, place * half + 1, (place + 1) * half) for place in range(5)]
    for one in marks:
        desk.give(one, taken.append)
    await served(desk, len(marks), taken)
    assert [requests for _, requests in store.batches] == [marks[:2], marks[2:4], marks[4:]]


async def test_PS_150_what_changes_nothing_is_no_batch():
    store, taken = Store(StoreUnavailable("busy")), []
    desk = RequestQueue(store, LIFE)
    desk.give(host_request.ReadNodes(), taken.append)
    await served(desk, 1, taken)
    assert (store.batches, store.reads) == ([], [[host_request.ReadNodes()]] * 2)
    desk.give(host_request.ReadNodes(), taken.append)
    desk.give(put(1), taken.append)
    await served(desk, 3, taken)
    assert store.batches == [(1, [host_request.ReadNodes(), put(1)])]


async def test_PS_150_that_the_node_lives_is_said_first():
    store, taken = Store(), []
    desk = RequestQueue(store, LIFE)
    desk.give(put(1), taken.append)
    desk.give_first(host_request.Beat("a", 1), taken.append)
    await served(desk, 2, taken)
    assert taken == [host_request.Beat("a", 1), put(1)]


async def test_PS_154_what_no_repetition_helps_against_ends_the_desk():
    desk = RequestQueue(Store(Superseded("another")), LIFE)
    desk.give(put(1), lambda answer: None)
    ended = await served(desk, 1, [])
    assert isinstance(ended, Superseded)


async def test_PS_150_answers_of_a_machine_are_fed_to_it_one_by_one():
    class Answering(Store):
        async def carry_out(self, life, batch, requests):
            return [("one", "two") for _ in requests]

    fed = []
    desk = RequestQueue(Answering(), LIFE)
    desk.serve("p", LoadSession("c", "o", 1), lambda party, answer: fed.append((party, answer)))
    await served(desk, 2, fed)
    assert fed == [("p", "one"), ("p", "two")]


# -- owners and nodes, as the tables say ------------------------------------------------------------------------------


async def test_PS_142_the_tables_say_where_a_session_is_live(url):
    store = open_session_store(url)
    token, session, _ = await connect(store, "s1", "tablet")
    assert await store.ask(FindOwner("nobody")) == (OwnerFound("", 0, "nobody"),)
    assert await store.ask(FindOwner(session, 2)) == (OwnerFound("", token, session, 2),)
    await store.ask(LoadSession("tablet", "a~1/1", token))
    await store.ask(SubscribeLive(session, "a~1/1", token))
    assert await store.ask(FindOwner(session)) == (OwnerFound("a~1/1", token, session),)
    await store.begin_life("a", 60_000)
    await store.begin_life("b", 60_000)
    assert await store.do(host_request.ReadNodes()) == ("a", "b")
    await store.do(host_request.Beat("a", 0))
    assert await store.do(host_request.ReadNodes()) == ("b",)
    await store.close()


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
    return host_request.ReadPayloads(messages, UNACKNOWLEDGED_MAX)


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


def test_PS_152_nothing_goes_out_before_the_client_is_welcome():
    one, said, _, _ = courier(kept(1), welcome=False)
    one.bring([publish(1, dup=True)])
    one.bring([Pubrel(7)])
    assert said == []
    one.welcome()
    assert said == [Delivered(1, "t/1", b"x", "t/#", 1, True), Pubrel(7)]


def test_PS_152_what_is_read_keeps_its_place():
    one, said, _, desk = courier(kept(1))
    for message in (publish(2), publish(1), Pubrel(9), publish(3)):
        one.bring([message])
    assert said == []
    assert desk.answer(m2=Payload("t/2", b"two")) == read("m2")
    assert [getattr(each, "packet", None) for each in said] == [2, 1, 9]
    assert desk.answer(m3=Payload("t/3", b"three")) == read("m3")
    assert said[0] == Delivered(2, "t/2", b"two", "t/#", 1, False)
    assert said[-1].payload == b"three"


def test_PS_152_what_waits_is_read_together():
    one, said, _, desk = courier(welcome=False)
    for number in (1, 2, 3, 2):
        one.bring([publish(number)])
    one.welcome()
    assert desk.answer(m1=Payload("t", b"1"), m2=Payload("t", b"2"), m3=Payload("t", b"3")) == read("m1", "m2", "m3")
    assert desk.answer(m2=Payload("t", b"2")) == read("m2")
    assert [each.payload for each in said] == [b"1", b"2", b"3", b"2"]


def test_PS_169_what_was_not_read_with_the_others_is_read_next():
    one, said, gone, desk = courier(welcome=False)
    for number in (1, 2, 3):
        one.bring([publish(number)])
    one.welcome()
    assert desk.answer(first=2, m1=Payload("t", b"1")) == read("m1", "m2", "m3")
    assert ([each.payload for each in said], gone) == ([b"1"], [publish(2)])
    assert desk.answer(m3=Payload("t", b"3")) == read("m3")
    assert ([each.payload for each in said], gone) == ([b"1", b"3"], [publish(2)])


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


def test_PS_152_a_message_that_is_gone_is_said_so_and_those_behind_it_come():
    one, said, gone, desk = courier(kept(2))
    one.bring([publish(1)])
    one.bring([publish(2)])
    desk.answer()
    assert (gone, [each.packet for each in said]) == ([publish(1)], [2])


def test_PS_152_no_more_bytes_go_out_than_are_acknowledged():
    half = UNACKNOWLEDGED_MAX // 2
    one, said, _, _ = courier(kept(1, 2, 3, 4, size=half))
    for number in (1, 2, 3, 4):
        one.bring([publish(number)])
    assert [each.packet for each in said] == [1, 2]
    one.acknowledge([5])
    assert len(said) == 2
    one.acknowledge([1])
    assert [each.packet for each in said] == [1, 2, 3]
    one.acknowledge([1])
    assert len(said) == 3
    one.acknowledge([2])
    assert len(said) == 4


def test_PS_152_one_that_is_larger_than_all_goes_alone():
    one, said, _, _ = courier(kept(1, 2, size=2 * UNACKNOWLEDGED_MAX))
    one.bring([publish(1)])
    one.bring([publish(2)])
    assert [each.packet for each in said] == [1]
    one.acknowledge([1])
    assert [each.packet for each in said] == [1, 2]


def test_PS_152_of_qos_0_alone_something_is_dropped():
    one, said, _, _ = courier(kept(1), welcome=False)
    for _ in range(QOS_0_MAX + 3):
        one.bring([publish(1, packet=0)])
    one.bring([publish(1, packet=5)])
    assert one.dropped == 3
    one.welcome()
    assert len(said) == QOS_0_MAX + 1
    assert said[-1].packet == 5


def test_PS_152_behind_the_end_nothing_goes_out():
    one, said, _, desk = courier()
    one.bring([publish(1)])
    one.close()
    desk.answer(m1=Payload("t", b""))
    one.bring([publish(2)])
    assert said == []
    assert desk.asked == []


def test_payloads_are_bounded_and_the_oldest_goes():
    payloads = Payloads(3 * (OVERHEAD + 1 + 10))
    for number in range(4):
        payloads.put(f"m{number}", Payload("t", b"x" * 10))
    assert [payloads.get(f"m{number}") is not None for number in range(4)] == [False, True, True, True]


def test_payloads_that_are_put_twice_take_the_room_of_one():
    payloads = Payloads(2 * (OVERHEAD + 1 + 10))
    for number in (1, 2, 2, 2):
        payloads.put(f"m{number}", Payload("t", b"x" * 10))
    assert [payloads.get(f"m{number}") is not None for number in (1, 2)] == [True, True]


def rows(number):
    return PutRows("s", "w", 1, (Queued(number, f"m{number}", "t", 1),))


async def batches_of(*asked):
    """What a store that stores ahead is given."""
    store, taken = Store(stores_ahead=True), []
    desk = RequestQueue(store, LIFE)
    for request in asked:
        desk.give(request, taken.append)
    await served(desk, len(asked), taken)
    assert sorted(map(repr, taken)) == sorted(map(repr, asked))
    return store.batches


def test_PS_513_messages_are_stored_ahead_of_rows_and_of_nothing_else():
    """What changes routes keeps its place."""
    since, late = host_request.ReadStoreTime(), begin(1)
    asked = [rows(1), since, put(1), rows(2), put(2), late, put(3)]
    assert asyncio.run(batches_of(*asked)) == [
        (("behind", 0), [since, put(1), put(2)]),
        (1, [rows(1), rows(2), late, put(3)]),
    ]


def test_PS_513_messages_go_ahead_of_signs_of_life_and_of_looks():
    """A node makes them again and again; none changes routes, and none is passed by rows."""
    looks = [host_request.ReadNodes(), host_request.Look("a", ()), host_request.ReadUnfinished(1)]
    periodic = [KeepAlive("c", "s", 1), host_request.Beat("a", 1_000), *looks, host_request.FindDueWills()]
    asked = [*periodic, put(1), rows(1), put(2)]
    assert asyncio.run(batches_of(*asked)) == [(("behind", 0), [put(1), put(2)]), (1, [*periodic, rows(1)])]


def test_PS_513_messages_keep_their_order():
    """One that expires is not stored ahead, and none behind it is."""
    expires = host_request.PutMessage("m2", "t", b"", 1, 1_000)
    asked = [rows(1), put(1), expires, put(3)]
    assert asyncio.run(batches_of(*asked)) == [(("behind", 0), [put(1)]), (1, [rows(1), expires, put(3)])]


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


def test_PS_513_rows_wait_for_a_few_batches_of_messages():
    async def main():
        store, taken = Store(stores_ahead=True), []
        desk = RequestQueue(store, LIFE)

        def again(number):
            """Another message comes while each batch is under way."""
            taken.append(number)
            if len(taken) < 3 * AHEAD_MAX:
                desk.give(put(len(taken)), again)

        desk.give(rows(1), taken.append)
        desk.give(put(0), again)
        await served(desk, 3 * AHEAD_MAX, taken)
        return [batch for batch, _ in store.batches]

    found = asyncio.run(main())
    assert found[: AHEAD_MAX + 1] == [("behind", 0)] * AHEAD_MAX + [1]


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


def test_PS_530_a_mark_that_nothing_follows_is_made_nevertheless(monkeypatch):
    monkeypatch.setattr(request_queue, "LATE_S", 1.0)
    assert asyncio.run(serve_late(MARK)) == ([], [(1, [MARK])])


def test_PS_530_a_deletion_waits_for_nothing_while_nothing_is_delivered():
    assert asyncio.run(serve_late(delete(1)))[0] == [(1, [delete(1)])]


@pytest.mark.parametrize(
    ("second", "made"),
    [
        (MarkDelivered("s", "w", 1, 2, 5), [MarkDelivered("s", "w", 1, 1, 5)]),
        (MarkDelivered("s", "w", 1, 3), None),
        (MarkDelivered("s", "w", 2, 2), None),
        (MarkDelivered("s", "v", 1, 2), None),
        (MarkDelivered("r", "w", 1, 2), None),
    ],
)
def test_PS_530_marks_of_rows_that_follow_each_other_are_one_request(no_alarm, second, made):
    assert asyncio.run(serve_late(MARK, second, then=[begin(1)]))[1] == [(1, [*(made or [MARK, second]), begin(1)])]


async def spin():
    for _ in range(5):
        await asyncio.sleep(0)


def test_PS_530_marks_wait_again_when_others_were_made(no_alarm):
    async def main():
        store, taken = Store(stores_ahead=True), []
        desk = RequestQueue(store, LIFE)
        task = asyncio.ensure_future(desk.run())
        for request in (begin(1), put(1)):
            desk.serve("w", MARK, lambda party, answer: None)
            desk.give(request, taken.append)
            await spin()
        task.cancel()
        return store.batches

    assert asyncio.run(main()) == [(1, [MARK, begin(1)]), (("behind", 1), [put(1)])], "the second mark waits"


def test_PS_530_deletions_wait_for_as_long_as_something_is_delivered(no_alarm):
    """The alarm is rung by hand."""

    async def main():
        store, found = Store(), []
        desk = RequestQueue(store, LIFE)
        task = asyncio.ensure_future(desk.run())

        async def serve(request):
            desk.serve("w", request, lambda party, answer: None, lambda answer: ())
            await spin()
            found.append(len(store.batches))

        async def ring():
            desk._ring()
            await spin()
            found.append(len(store.batches))

        await serve(MARK)
        await serve(MarkDelivered("s", "w", 1, 3))
        await ring()
        await serve(delete(1))
        await ring()
        await serve(delete(2))
        task.cancel()
        return found, store.batches

    found, batches = asyncio.run(main())
    assert found == [0, 0, 1, 1, 2, 3]
    assert [requests for _, requests in batches[1:]] == [[delete(1)], [delete(2)]]


async def test_PS_530_a_message_is_taken_ahead_of_marks(no_alarm):
    store, taken = Store(stores_ahead=True), []
    desk = RequestQueue(store, LIFE)
    desk.serve("w", MARK, lambda party, answer: None)
    desk.give(put(1), taken.append)
    await served(desk, 1, taken)
    assert store.batches == [(("behind", 0), [put(1)])]
    desk.give(rows(1), taken.append)
    await served(desk, 2, taken)
    assert store.batches[1:] == [(1, [MARK, rows(1)])]


def test_PS_531_a_file_has_a_message_when_it_has_its_rows(tmp_path):
    async def main():
        store = open_session_store(tmp_path / "s.db")
        try:
            life = await store.begin_life("w", 1_000)
            token, session, _ = await connect(store, "s1", "tablet")
            await store.do(host_request.Subscribe(session, token, "t", 1))
            await store.carry_out(life, 1, [BeginEpoch(session, "w")])
            message = host_request.PutMessage("m1", "t", b"x", 1)
            _, ahead = await store.store_ahead(life, 1, [host_request.ReadStoreTime(), message])
            found = [[(one.session, one.filter) for one in ahead]]
            found.append((await store.do(host_request.ReadPayloads(("m1",), 1)))["m1"])
            stored = host_request.StoreRows(
                PutRows(session, "w", 1, (Queued(1, "m1", "t", 1),)), {"m1": Payload("t", b"x")}
            )
            await store.carry_out(life, 2, [stored])
            found.append((await store.do(host_request.ReadPayloads(("m1",), 1)))["m1"])
            return found
        finally:
            await store.close()

    assert asyncio.run(main()) == [[("s1", "t")], None, Payload("t", b"x")]

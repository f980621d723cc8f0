"""The database of sessions beside its machines: client ids, expiry, routes, lives of nodes, outcomes that are open.

What has expired does not stay stored: in the tables, and over real nodes (clauses PS-240 to PS-242).

A copy of a store that is made while its node runs, and put in its place.

Headers, key and timestamp of messages of sessions, through publisher, database, wire and client.
"""

import asyncio
import sqlite3
from contextlib import closing, contextmanager
from functools import partial

import pytest
from msgspec.structs import replace
from session_databases import change_to, connect, open_node_store
from session_nodes import Stranger, node_of, take, where
from test_carrier import GROUP, played
from waiting import until_async

from statemachines.drivers.message_head import encode_head, make_head
from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher, route_rows
from statemachines.drivers.persistent_sessions.host_requests import Beat, LagAnswer, Look, WatchedSession
from statemachines.drivers.persistent_sessions.host_requests import ReadPayloads as ReadPayloads
from statemachines.drivers.persistent_sessions.machine_requests import ReadPage
from statemachines.drivers.persistent_sessions.payloads import Payloads
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe, Unsubscribe
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.sql.failure import StoreDamaged
from statemachines.kernel import ConfigurationError, Map
from statemachines.persistent_sessions import message
from statemachines.persistent_sessions.collector import (
    DeletePage,
    MessageDeletion,
    Only,
    PageDeleted,
    ReadMessages,
    ReadRows,
    Tag,
)
from statemachines.persistent_sessions.in_flight_record import RECEIVED, TAKEN, InFlightRecord
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.publication import NodeReached
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    Fence,
    LoadSession,
    MarkDelivered,
    PutRows,
    ReadPending,
    ReadRow,
    RowRead,
    RowStored,
    SessionState,
    StateChange,
    StateCommitted,
)
from statemachines.testing.postgres import run_sql


def message_of_session_store(number, topic="a/b"):
    return PutMessage(f"m{number}", topic, b"payload", 1)


def row(session, number, message="m1", epoch=1, writer="n1"):
    return PutRows(session, writer, epoch, (Queued(number, message, "a/+", 1),))


async def test_PS_404_a_session_subscribes_so_many_filters_and_no_more(url, monkeypatch):
    monkeypatch.setattr(route_rows, "FILTERS_MAX", 3)

    async with open_node_store(url) as (store, _clock):
        one, two = await connect(store, "s1"), await connect(store, "s2", "c2")
        asked = [Subscribe("s1", one.token, f"f{number}", 1) for number in range(4)]
        asked += [Subscribe("s1", one.token, "f1", 2), Subscribe("s1", one.token - 1, "f9", 2)]
        asked += [Unsubscribe("s1", one.token, "f0"), asked[3], Subscribe("s2", two.token, "f0", 1)]
        assert [await store.do(each) for each in asked] == [True, True, True, None, True, False, True, True, True]


async def with_sizes(store, sizes, writer="n1"):
    """The session `s1`, and a row of this writer for a message of each size of topic and payload."""
    one = await connect(store, "s1")
    await store.do(Subscribe("s1", one.token, "a/+", 1))
    await store.ask(BeginEpoch("s1", writer))
    for number, size in enumerate(sizes, 1):
        await store.do(PutMessage(f"{writer}m{number}", "a/b", b"x" * (size - 3), 1))
        await store.ask(row("s1", number, f"{writer}m{number}", writer=writer))
    return one


async def test_PS_198_what_is_read_of_several_writers_is_shared_by_them(url):
    async with open_node_store(url) as (store, _clock):
        await with_sizes(store, (5, 6))
        await with_sizes(store, (5, 7), "n2")
        found = [await store.do(ReadPage(ReadPending("s1", rows=2), most)) for most in (23, 24, 28)]
    assert [sorted(page.payloads) for page in found] == [
        ["n1m1", "n2m1"],
        ["n1m1", "n1m2", "n2m1"],
        ["n1m1", "n1m2", "n2m1", "n2m2"],
    ]
    assert all([len(one.rows) for one in page.answers[0].found] == [2, 2] for page in found)


async def test_PS_168_a_packet_that_was_sent_is_not_written_again(url):
    """`taken` and `sent` come again alike, so a store may have either; whatever else changes is written."""

    async with open_node_store(url) as (store, _clock):
        one = await connect(store, "s1")
        owned = LoadSession("c", "a~1/1", one.token)
        await store.ask(owned)
        other = open_session_store(url)
        packets = {key: InFlightRecord(key, "c", Queued(key, f"m{key}", "a", 2), key, TAKEN) for key in range(1, 4)}
        commits = [packets, packets | {2: replace(packets[2], status=RECEIVED)}]
        commits.append({2: commits[1][2], 3: replace(packets[3], place=9), 4: replace(packets[3], packet=4)})
        commits.append({4: replace(packets[3], packet=4, place=5)})
        read, known = [], SessionState()
        for each in commits:
            state = SessionState(packets=Map(each), places=9)
            await store.ask(CommitState("s1", one.token, change_to(state, known)))
            known = state
            (loaded,) = await other.ask(owned)
            read.append({key: (packet.status, packet.place) for key, packet in sorted(loaded.state.packets.items())})
        await other.close()
        assert read == [
            {1: (TAKEN, 1), 2: (TAKEN, 2), 3: (TAKEN, 3)},
            {1: (TAKEN, 1), 2: (RECEIVED, 2), 3: (TAKEN, 3)},
            {2: (RECEIVED, 2), 3: (TAKEN, 9), 4: (TAKEN, 3)},
            {4: (TAKEN, 5)},
        ]


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 300])
async def test_as_many_rows_as_there_are_are_stored_in_their_order(url, count):
    async with open_node_store(url) as (store, _clock):
        one = await connect(store, "s1")
        owned = LoadSession("c", "a~1/1", one.token)
        await store.ask(owned)
        queued = tuple(Queued(number, f"m{number}", "a/+", number % 3) for number in range(1, count + 1))
        packets = {key: InFlightRecord(key, "c", Queued(key, f"p{key}", "b", 1), key) for key in range(1, count + 1, 2)}
        state = SessionState(Map(w=(1, count)), Map(packets), queued, 2 * count)
        read, known = [], SessionState()
        for each in (state, replace(state, queued=queued[count // 3 :], packets=Map(dict(list(packets.items())[9:])))):
            await store.ask(CommitState("s1", one.token, change_to(each, known)))
            known = each
            read.append((await store.ask(owned))[0].state == each)
        assert read == [True, True]


async def test_a_look_finds_what_others_have_stored_and_who_is_superseded(url):
    async with open_node_store(url) as (store, _clock):
        one = await connect(store, "s1")
        await store.do(Subscribe("s1", one.token, "a/+", 1))
        await store.do(message_of_session_store(1))
        await store.ask(BeginEpoch("s1", "n1"))
        await store.ask(row("s1", 1))
        await store.ask(row("s1", 2))
        seen = await store.do(
            Look("n2", (WatchedSession("s1", one.token, (("n1", 1, 1),)), WatchedSession("s1", 0, ())))
        )
        ours = await store.do(Look("n1", (WatchedSession("s1", one.token, ()),)))
    assert seen[0] == LagAnswer("s1", False, ("n1",), (("n1", 1, Queued(2, "m1", "a/+", 1)),))
    assert seen[1] == LagAnswer("s1", True)
    assert ours == (LagAnswer("s1", False),)


# -- lives and batches ----------------------------------------------------------------------------------------------


async def test_PS_701_a_transaction_that_finds_the_tables_empty_says_that_they_were_put_back(postgres_url):
    """It began before they were, and waited for them: what it sees is older than their rows."""

    async with open_node_store(postgres_url) as (store, _clock):
        life = await store.begin_life("n5", 1_000)
        run_sql(postgres_url, "DELETE FROM gapless_sessions.store")
        beat, read = [Beat("n5", 1_000)], [ReadPayloads((), 1)]
        for ask in (store.carry_out(life, 1, beat), store.read(life, read), store.begin_life("n6", 1_000)):
            with pytest.raises(StoreDamaged, match=r"empty; w.* put back from a copy"):
                await ask


async def test_a_batch_of_before_or_of_another_store_is_refused(url):
    async with open_node_store(url) as (store, _clock):
        life = await store.begin_life("n5", 1_000)
        await store.carry_out(life, 1, [Beat("n5", 1_000)])
        await store.carry_out(life, 2, [Beat("n5", 1_000)])
        with pytest.raises(StoreDamaged, match="put back from a copy"):
            await store.carry_out(life, 1, [Beat("n5", 1_000)])
        with pytest.raises(StoreDamaged, match="knows batch 2"):
            await store.carry_out(life, 4, [Beat("n5", 1_000)])
        with pytest.raises(StoreDamaged, match="another store"):
            await store.carry_out(type(life)("n5", life.number, b"x" * 16), 3, [])
        with pytest.raises(StoreDamaged, match="does not know life 9"):
            await store.read(type(life)("n5", 9, life.identity), [])


def rows(session, first, last, writer="n1", epoch=1):
    """A range."""
    stored = (Queued(number, f"m{number}", "a/+", 1) for number in range(first, last + 1))
    return PutRows(session, writer, epoch, tuple(stored))


@contextmanager
def counting(store, statements):
    """The statements of transactions that write are noted."""
    plain = store._database.writing

    @contextmanager
    def writing(watch=None, **given):
        with plain(watch, **given) as sql:
            for name in ("all", "run", "put_many"):
                setattr(sql, name, partial(note, getattr(sql, name)))
            yield sql

    def note(call, statement, *given, **values):
        statements.append(statement)
        return call(statement, *given, **values)

    store._database.writing = writing
    yield
    store._database.writing = plain


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: rows("s1", 5, 6), "stores number 5 for s1 after 3"),
        (lambda: rows("s1", 3, 4), "stores up to 4 for s1, of which 3 is the last"),
        (lambda: PutRows("s1", "n1", 1, (Queued(2, "m2", "a/+", 1), Queued(3, "other", "a/+", 1))), "where m3 is"),
    ],
)
async def test_PS_403_a_range_that_is_there_in_part_or_is_another_is_damage(url, asked, words):
    async with open_node_store(url) as (store, _clock):
        await connect(store, "s1")
        await store.ask(BeginEpoch("s1", "n1"))
        assert await store.ask(rows("s1", 1, 3)) == await store.ask(rows("s1", 2, 3)) == (RowStored(),)
        with pytest.raises(StoreDamaged, match=words):
            await store.ask(asked())
        (polled,) = await store.ask(ReadPending("s1", "n1"))
    assert [row.number for row in polled.found[0].rows] == [1, 2, 3]


async def test_PS_204_epochs_that_nobody_asks_about_are_gone(url):
    """A node that begins a thousand times, or is fenced as often, leaves one of each session behind."""

    async with open_node_store(url) as (store, _clock):
        await store.begin_life("n1", 1_000)
        one = await connect(store, "s1")
        epochs = []
        for life in range(5):
            (begun,) = await store.ask(BeginEpoch("s1", "n1"))
            await store.ask(row("s1", 1, f"m{life}", begun.epoch))
            for n in (1, 2):
                await store.ask(Fence("s1", "n1", (0, 0), 0, one.token, n))
            epochs.append(read_epochs(url))
        unclear = [await store.ask(ReadRow("s1", "n1", epoch, 1)) for epoch in (begun.epoch, begun.epoch + 1)]
        await store.ask(row("s1", 1, "m9", begun.epoch + 2))
        last = read_epochs(url)
        for _ in range(3):
            await store.ask(BeginEpoch("s1", "n1"))
        assert [each for _, each in read_epochs(url)] == [0], "of one that begins and stores nothing"
        epoch = begun.epoch
    assert [len(one) for one in epochs] == [2] * 5
    assert epochs[-1] == [(epoch, 1), (epoch + 2, 0)], "who was fenced may still ask for what it has stored"
    assert unclear == [(RowRead(True),), (RowRead(False),)]
    assert last == [(epoch + 2, 1)]


def read_epochs(url):
    """(epoch, last number), by another connection."""
    statement = "SELECT epoch, last FROM @epochs ORDER BY epoch"
    if url.startswith("postgresql"):
        return run_sql(url, statement.replace("@", "gapless_sessions."))
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        return connection.execute(statement.replace("@", "")).fetchall()


async def committed(store, request):
    (answer,) = await store.ask(request)
    return isinstance(answer, StateCommitted)


# -- whose it is ----------------------------------------------------------------------------------------------------


async def test_a_store_is_opened_by_a_user_who_lacks_a_privilege(postgres_url):
    await open_session_store(postgres_url).close()
    run_sql(postgres_url, f"CREATE ROLE {(role := 'reader_' + postgres_url.rpartition('_')[2])} LOGIN")
    run_sql(postgres_url, f"GRANT USAGE ON SCHEMA gapless_sessions TO {role}")
    scheme, _, rest = postgres_url.partition("://")
    theirs = f"{scheme}://{role}@{rest.rpartition('@')[2]}"
    with pytest.raises(ConfigurationError, match=r"does not allow|permission"):
        open_session_store(theirs)


async def test_PS_660_a_row_that_the_state_has_taken_goes_when_it_is_marked(url):
    """Of five rows three are taken, and four are marked: the fourth has a mark, and its collector."""

    async with open_node_store(url) as (store, _clock):
        token = (await connect(store, "s1")).token
        for writer in ("w1", "w2"):
            await store.ask(BeginEpoch("s1", writer))
            for number in range(1, 6):
                await store.ask(PutRows("s1", writer, 1, (Queued(number, f"m{number}", "t", 1),)))
        await store.ask(CommitState("s1", token, StateChange(Map({"w1": (1, 3)}))))
        await store.ask(MarkDelivered("s1", "w1", 1, 1, 4))
        await store.ask(MarkDelivered("s1", "w2", 1, 1))
        (left,) = await store.ask(ReadRows(None, 99))
        (found,) = await store.ask(ReadPending("s1"))
        waiting = [(one.writer, [row.number for row in one.rows]) for one in found.found]
        rows = [(one.key.writer, one.key.number, one.key.tag) for one in left.rows if one.key.session == "s1"]
    undelivered = [("w1", 4), ("w1", 5), *(("w2", number) for number in range(1, 6))]
    marks = [("w1", 4, Tag.DELIVERED), ("w2", 1, Tag.DELIVERED)]
    assert set(rows) == {*((*one, Tag.UNDELIVERED) for one in undelivered), *marks}
    assert waiting == [("w1", [5]), ("w2", [2, 3, 4, 5])]


EXPIRY_MS = 100_000
"""Longer than the grace of messages."""
OVER = DeletePage(messages=(MessageDeletion("m1", Only.OVER),))
DONE, NOT_DONE = (PageDeleted(messages=(("m1", 0),)),), (PageDeleted(),)

# -- in the tables ----------------------------------------------------------------------------------------------------


async def stored(store, *sessions):
    """Two messages, the first of which expires, and the rows of both for each of these sessions, which are given."""
    given = [await connect(store, session, f"of-{session}") for session in sessions]
    for one in given:
        await store.do(Subscribe(one.session, one.token, "a", 1))
        await store.ask(BeginEpoch(one.session, "n1"))
    rows = []
    for number, expiry_ms in ((1, EXPIRY_MS), (2, None)):
        routes = await store.do(PutMessage(f"m{number}", "a", b"x", 1, expiry_ms))
        rows.append(Queued(number, f"m{number}", "a", 1, routes[0].until_ns))
        for one in given:
            await store.ask(PutRows(one.session, "n1", 1, (rows[-1],)))
    return given, rows


async def pending(store, session="s1"):
    (read,) = await store.ask(ReadPending(session, "n1"))
    return [row for one in read.found for row in one.rows]


async def messages(store):
    (read,) = await store.ask(ReadMessages("", 99))
    return [one.message for one in read.messages]


async def test_PS_241_a_row_whose_message_went_before_it_was_over_is_read_without_its_name(url):
    """Retention has removed it: it counts as lost."""

    async with open_node_store(url) as (store, _clock):
        (one,), rows = await stored(store, "s1")
        gone = await store.ask(DeletePage(messages=(MessageDeletion("m1", Only.UNHELD),)))
        read = await pending(store)
        (fenced,) = await store.ask(Fence("s1", "n1", (0, 0), 2, one.token, 1))
        fenced = list(fenced.found[0].rows)
    assert gone == (PageDeleted(messages=(("m1", 1),)),)
    assert read == fenced == [replace(rows[0], message=""), rows[1]]


# -- over nodes -------------------------------------------------------------------------------------------------------


async def publish_all(nodes, *given):
    async with SessionPublisher(nodes=nodes) as publisher:
        for payload, expiry in given:
            await publisher.publish("t", payload, expiry=expiry)


@pytest.mark.parametrize(("qos", "expired"), [(0, 1), (1, 0)])
async def test_PS_242_a_message_of_QoS_0_that_is_gone_at_its_node_counts_as_expired(store, monkeypatch, qos, expired):
    """It was deleted between its commit and its client; one that does not expire was not deleted for its age.  Of QoS 1
    a state holds it: it is missed, and makes room for the next."""
    give = RequestQueue.give

    def delete_and_give(self, request, take):
        if isinstance(request, ReadPayloads):
            with closing(sqlite3.connect(store)) as connection, connection:
                connection.execute("DELETE FROM messages WHERE payload IN (?, ?)", (b"1", b"2"))
        give(self, request, take)

    monkeypatch.setattr(RequestQueue, "give", delete_and_give)

    async with node_of(store) as node:
        node.reception.messages.payloads = Payloads(bytes_max=0)
        nodes = where(node)
        async with PersistentSession("c", nodes=nodes, receive_maximum=1) as session:
            await session.subscribe("t", qos=qos)
            await publish_all(nodes, (b"1", 3_600), (b"2", None), (b"3", None))
            assert await take(session, 1) == ["3"]
        assert node.reception.expired == expired


def copy_store(source, target):
    """As `sqlite3 SOURCE ".backup TARGET"` does."""
    with closing(sqlite3.connect(source)) as store, closing(sqlite3.connect(target)) as copy:
        store.backup(copy)


async def publish(node, *payloads, qos=1):
    async with SessionPublisher(nodes=where(node)) as publisher:
        for payload in payloads:
            await publisher.publish("t", payload.encode(), qos)


@pytest.mark.parametrize("acknowledge", [False, True])
async def test_PS_700_a_client_that_is_ahead_of_a_copy_gets_what_is_sent_under_a_packet_that_it_knows(
    tmp_path, acknowledge
):
    store, copy = tmp_path / "s.db", tmp_path / "copy.db"
    async with node_of(str(store), "a") as node:
        address = node.address
        session = await PersistentSession("c", nodes=where(node)).__aenter__()
        await session.subscribe("t", qos=2)
        copy_store(store, copy)
        await publish(node, "lost", qos=2)
        before = await anext(session)
    if acknowledge:
        before.acknowledge()
    async with node_of(str(copy), "a", listen=address) as node:
        await publish(node, "1", "2", qos=2)
        assert await take(session, 2) == ["1", "2"]
        before.acknowledge()
        await publish(node, "3", qos=2)
        assert await take(session, 1) == ["3"]
    await session.abort()


HEAD = make_head([("trace", b"\0\xff"), ("trace", b"")], b"customer-7", 1_764_000_000.25)


@pytest.mark.parametrize("inside", [False, True], ids=["tcp", "inside"])
async def test_PS_430_a_client_gets_what_the_publisher_gave_though_the_node_has_to_read_it(store, inside):
    async with node_of(store) as node:
        given = {"node": node} if inside else {"nodes": where(node)}
        async with PersistentSession("tablet", **given) as session, SessionPublisher(**given) as publisher:
            await session.subscribe("t", 2)
            for _ in range(2):
                headers, key, timestamp = HEAD.headers, HEAD.key, HEAD.timestamp
                await publisher.publish("t", b"1", 1, headers=headers, key=key, timestamp=timestamp)
                await publisher.publish("t", b"2", 2, key=b"")
                await publisher.publish("t", b"3")
                found = [await anext(session) for _ in range(3)]
                assert [one.payload for one in found] == [b"1", b"2", b"3"]
                assert (found[0].headers, found[0].key, found[0].timestamp) == (headers, key, timestamp)
                assert [(one.headers, one.key, one.timestamp) for one in found[1:]] == [
                    ((), b"", None),
                    ((), None, None),
                ]
                for one in found:
                    one.acknowledge()
                node.reception.messages.payloads = Payloads(bytes_max=0)


async def test_PS_431_a_node_believes_no_client_that_a_head_is_one(store):
    async with node_of(store) as node, Stranger(node.address) as stranger:
        stranger.say(message.PublishWithHead(1, "t", b"x", 1, None, b"\xc1"))
        assert "is not the head of a message" in (await stranger.hears(message.Refused)).why
        stranger.say(message.PublishWithHead(2, "t", b"x", 1, None, encode_head(HEAD)))
        assert (await stranger.hears(message.PublishStored)).n == 2


async def test_PS_432_a_message_without_a_head_is_published_as_before():
    said = []
    async with SessionPublisher(nodes=["127.0.0.1:1"]) as publisher:
        publisher._guide.say = said.append
        publisher._feed(NodeReached())
        published = [asyncio.ensure_future(publisher.publish("t", b"x", key=key)) for key in (None, b"k")]
        await until_async(lambda: len(said) == 2)
        for one in published:
            one.cancel()
    assert said == [
        message.PublishWanted(1, "t", b"x", 1, None),
        message.PublishWithHead(2, "t", b"x", 1, None, encode_head(make_head(key=b"k"))),
    ]


async def test_PS_430_a_message_of_a_group_keeps_its_head_in_the_session(tmp_path):
    async with (
        played(tmp_path, str(tmp_path / "sessions.db")) as (place, (node,)),
        PersistentSession("tablet", nodes=where(node)) as session,
    ):
        await session.subscribe(GROUP)
        async with Publisher(place.store, node="p") as publisher:
            await publisher.publish("jobs/a", [b"1"], headers=HEAD.headers, key=HEAD.key)
        message = await anext(session)
        assert (message.payload, message.headers, message.key) == (b"1", HEAD.headers, HEAD.key)


async def test_PS_434_messages_of_qos_0_that_wait_for_the_application_are_bounded_in_bytes(store):
    async with (
        node_of(store) as node,
        SessionPublisher(node=node) as publisher,
        PersistentSession("tablet", node=node, buffer_bytes=3_000) as session,
    ):
        await session.subscribe("t", 1)
        for number in range(6):
            await publisher.publish("t", b"%d" % number + b"x" * 899, qos=0, headers={"h": b"y" * 90})
        await publisher.publish("t", b"last", qos=1)
        await until_async(lambda: session._waiting and session._waiting[-1].payload == b"last")
        found = [await anext(session) for _ in range(4)]
        assert [one.payload[:1] for one in found] == [b"0", b"1", b"2", b"l"]
        await publisher.publish("t", b"x" * 10_000, qos=0)
        assert len((await anext(session)).payload) == 10_000
        assert session._waiting_bytes == 0


@pytest.mark.parametrize("most", [0, True, 1.5])
def test_PS_434_a_bound_that_is_none_is_refused(most):
    with pytest.raises(ConfigurationError, match=r"must be a number of bytes, at least 1"):
        PersistentSession("tablet", nodes=["127.0.0.1:1"], buffer_bytes=most)

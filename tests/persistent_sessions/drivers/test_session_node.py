"""No more sessions than may be kept: in the tables, and over nodes (clause PS-212).

An application acknowledges what it was handed, once, and nothing else.

A session with more rows than its client receives: they stay in the database until there is room (PS-193 to 195).

Which sessions a topic is for: the trie finds what the rules of MQTT say, level by level.

Which retained topics a filter brings: as a trie of routes says, and no more are looked at than are wanted.

What a node of sessions counts, and whether it is well, over HTTP.

A store of sessions that is not there when a node starts is waited for (PS-201).

Scenarios of the page over real nodes: what is unsubscribed, and a session that moves under a stream of messages.

Sessions in a PostgreSQL behind pgbouncer in transaction mode, and in one that is read-only for a while.
"""

import asyncio
import contextlib
import logging
import sqlite3
from contextlib import AsyncExitStack
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgbouncer import pgbouncer
from session_nodes import QUICK, node_of, take, where
from waiting import run_async, until_async

from statemachines.drivers.metrics_endpoint import CONNECTIONS_MAX, HEAD_MAX, MetricsEndpoint
from statemachines.drivers.persistent_sessions import (
    PersistentSession,
    SessionNode,
    SessionPublisher,
    StoreIsFull,
    route_rows,
    route_trie,
    session_node,
)
from statemachines.drivers.persistent_sessions.route_rows import find_retained
from statemachines.drivers.persistent_sessions.route_trie import Route, RouteTrie, check_private
from statemachines.drivers.persistent_sessions.session_node import find_trouble, read_metrics
from statemachines.drivers.persistent_sessions.store import SessionStore, open_session_store
from statemachines.drivers.persistent_sessions.upkeep import CollectorCounts, run_collector, watch_collector
from statemachines.drivers.sql import awaited
from statemachines.drivers.sql.failure import StoreAway, StoreUnavailable
from statemachines.drivers.tcp import parse_address
from statemachines.drivers.topic import LEVELS_MAX, TOPIC_MAX, check_filter, check_topic
from statemachines.kernel import ConfigurationError, LocalProtocolError
from statemachines.persistent_sessions.collector import Graces
from statemachines.persistent_sessions.life_request import NEVER, ClientLocked, LockClient, OpenSession
from statemachines.persistent_sessions.message import choose_routes
from statemachines.persistent_sessions.resume_record import ResumeRecord
from statemachines.persistent_sessions.times import Times


async def opened(store, client, most):
    """What a client without a session is answered."""
    (locked,) = await store.ask(LockClient(client, "h", 500))
    assert isinstance(locked, ClientLocked)
    request = OpenSession(client, "h", locked.token, f"{client}@{locked.token}", "", NEVER, most)
    (answer,) = await store.ask(request)
    return answer


def clients(store):
    with store._database.reading() as sql:
        return {bytes(name).decode() for (name,) in sql.all("SELECT client FROM @clients")}


async def test_PS_212_a_flood_is_refused_by_name_and_the_node_goes_on_for_the_others(url, caplog):
    with caplog.at_level(logging.WARNING, "gapless"):
        async with node_of(url, max_sessions=2) as node:
            nodes = where(node)
            async with PersistentSession("a", nodes=nodes, expiry_ms=-1) as session:
                await session.subscribe("t")
            async with PersistentSession("b", nodes=nodes) as live:
                await live.subscribe("t")
                for number in range(5):
                    with pytest.raises(StoreIsFull, match=r"no session for 'x\d': the store keeps as many"):
                        await PersistentSession(f"x{number}", nodes=nodes, expiry_ms=-1).__aenter__()
                async with SessionPublisher(nodes=nodes) as publisher:
                    await publisher.publish("t", b"1")
                assert await take(live, 1) == ["1"]
                async with PersistentSession("a", nodes=nodes) as session:
                    assert session.present
                    assert await take(session, 1) == ["1"]
                await live.leave(expiry_ms=0)
            async with PersistentSession("x5", nodes=nodes) as session:
                assert not session.present
    said = [one.getMessage() for one in caplog.records if "--max-sessions" in one.getMessage()]
    assert len(said) == 1, "once in a while"
    assert "2 sessions or more" in said[0]


@pytest.mark.parametrize("most", [0, -1, True])
def test_PS_212_a_bound_that_cannot_be_is_refused(store, most):
    with pytest.raises(ConfigurationError, match="max_sessions"):
        SessionNode(store, name="a", max_sessions=most)


async def test_PS_313_a_message_of_another_session_cannot_be_acknowledged(tmp_path):
    async with node_of(tmp_path / "sessions.db", "a") as node, PersistentSession("tablet", node=node) as session:
        async with PersistentSession("phone", node=node) as other, SessionPublisher(node=node) as publisher:
            await session.subscribe("t")
            await other.subscribe("t")
            await publisher.publish("t", b"1")
            foreign = await anext(session)
            with pytest.raises(LocalProtocolError, match=r"handed over by the session of 'tablet'.*\[PS-313\]"):
                other.acknowledge(foreign)
            assert (await anext(other)).payload == b"1"
        async with PersistentSession("phone", node=node) as other:
            assert (await anext(other)).dup


@pytest.mark.parametrize("payload", [bytearray(b"1"), "1", 1])
async def test_a_payload_that_may_change_before_it_is_stored_is_refused(tmp_path, payload):
    async with node_of(tmp_path / "sessions.db", "a") as node, SessionPublisher(node=node) as publisher:
        with pytest.raises(ConfigurationError, match="must be bytes, not "):
            await publisher.publish("t", payload)


RECEIVES = 6
PAGE = 3
COUNT = 60
QUEUE = 4
BUFFER = 10


class Seen:
    """An observer: how many rows an owner had in its hands at most, and how many of them queued; and the states of its
    flows."""

    def __init__(self):
        self.held = self.queued = 0
        self.states = set()

    def __call__(self, node, event, before, step, now_ns):
        record = node.record
        if not isinstance(record, ResumeRecord) or record.delivery is None:
            return
        delivery = record.delivery
        kept = [one.rows for one in record.pending]
        kept += [change.take.rows for change in delivery.inbox if change.take]
        kept += [flow.buffer for flow in record.flows.values()]
        self.queued = max(self.queued, len(delivery.state.queued))
        self.held = max(self.held, sum(map(len, kept)) + len(delivery.state.packets) + self.queued)
        self.states |= {flow.status.value for flow in record.flows.values()}


async def fill(node, count=COUNT):
    """So much waits for the client `c`."""
    async with PersistentSession("c", node=node) as session:
        await session.subscribe("t")
    async with SessionPublisher(node=node) as publisher:
        for number in range(count):
            await publisher.publish("t", str(number).encode())


def is_bounded(seen):
    """Never more than is in flight and what is read beside it, whatever waits."""
    return seen.held <= RECEIVES + 2 * PAGE and seen.queued <= PAGE


async def test_PS_200_BOUNDED_a_client_that_does_not_acknowledge_fills_no_memory(store):
    """It is connected, and acknowledges when all is published; then it has all of it, in order."""
    times = Times(marker_ms=400, repeat_ms=100, queue=QUEUE, resume_buffer=BUFFER)
    seen = Seen()
    async with (
        SessionNode(store, name="a", observe=seen, **{**QUICK, "times": times}) as node,
        PersistentSession("c", node=node, receive_maximum=RECEIVES) as session,
        SessionPublisher(node=node) as publisher,
    ):
        await session.subscribe("t")
        for number in range(COUNT):
            await publisher.publish("t", str(number).encode())
        slow = seen.queued, seen.held
        assert await take(session, COUNT) == [str(number) for number in range(COUNT)]
    assert "behind" in seen.states
    assert slow[0] <= QUEUE
    assert slow[1] <= RECEIVES + QUEUE + BUFFER
    assert seen.queued < QUEUE + BUFFER, "what was kept is taken in one piece, where there is room"


@pytest.mark.parametrize("most", range(1, 10))
async def test_PS_286_an_application_that_gathers_all_that_it_receives_gets_it(store, most):
    """It acknowledges only when it has as many as may be unacknowledged; and one that keeps some of them has the rest
    of its room."""
    async with SessionNode(store, name="a", **QUICK) as node:
        await fill(node)
        async with PersistentSession("c", node=node, receive_maximum=most) as session:
            kept = [await anext(session) for _ in range(most)]
            for _ in range(2 * most):
                kept.pop().acknowledge()
                kept.append(await anext(session))
            for one in kept:
                one.acknowledge()
            got = [*range(3 * most)]
            assert await take(session, COUNT - len(got)) == [str(number) for number in range(len(got), COUNT)]


def matches(topic_filter, topic):
    """MQTT 5, section 4.7, said once more."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(levels) or level not in ("+", levels[place]):
            return False
    return len(wanted) == len(levels)


LEVEL = st.sampled_from(["", "a", "b", "$x", "+"])
FILTER = st.builds(
    lambda levels, more: "/".join(levels + more), st.lists(LEVEL, max_size=3), st.sampled_from([[], ["#"]])
)
TOPIC = st.lists(st.sampled_from(["", "a", "b", "$x"]), min_size=1, max_size=4).map("/".join)
CHANGE = st.tuples(st.booleans(), st.sampled_from(["s1", "s2"]), FILTER, st.integers(0, 2))


@given(changes=st.lists(CHANGE, max_size=25), topics=st.lists(TOPIC, min_size=1, max_size=5))
def test_the_trie_finds_what_the_rules_say(changes, topics):
    trie, known = RouteTrie(), {}
    for is_there, session, topic_filter, qos in changes:
        if is_there:
            trie.put(session, topic_filter, qos)
            known[session, topic_filter] = qos
        else:
            trie.remove(session, topic_filter)
            known.pop((session, topic_filter), None)
    for topic in topics:
        wanted = sorted(Route(*key, qos) for key, qos in known.items() if matches(key[1], topic))
        assert trie.match(topic) == wanted
    for key in known:
        trie.remove(*key)
    assert not trie._root.below
    assert not trie._plain


def test_what_belongs_to_the_server_is_not_met_by_a_first_wildcard():
    trie = RouteTrie()
    for topic_filter in ("#", "+/load", "$SYS/#", "$SYS/+"):
        trie.put("s", topic_filter, 0)
    assert [one.filter for one in trie.match("$SYS/load")] == ["$SYS/#", "$SYS/+"]
    assert [one.filter for one in trie.match("x/load")] == ["#", "+/load"]


@pytest.mark.parametrize("wrong", ["", "a#", "a+/b", "#/a", "a/#/b", "\0", "\ud800", "/" * 200, "x" * 70_000, None, 7])
def test_what_is_no_filter_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=r"^filter"):
        check_filter(wrong)


@pytest.mark.parametrize("shared", ["$share/g/a", "$shared/g/#", "$queue/q/a"])
def test_PS_220_a_filter_of_a_group_is_refused_and_can_be_unsubscribed(shared):
    with pytest.raises(ConfigurationError, match=r"^filter.*is of a group that shares.*--group-leader"):
        check_private(shared)
    assert check_filter(shared) == shared
    with pytest.raises(ConfigurationError, match=r"^topic.*begins as filters of groups do"):
        check_topic(shared.replace("#", "x"))
    assert [check_private(one) for one in ("$SYS/#", "share/g", "$sharedx/a")] == ["$SYS/#", "share/g", "$sharedx/a"]


@pytest.mark.parametrize("check", [check_topic, check_filter])
@pytest.mark.parametrize("longest", ["x" * TOPIC_MAX, "/" * (LEVELS_MAX - 1)], ids=["bytes", "levels"])
def test_the_longest_and_the_deepest_are_taken_and_nothing_beyond(check, longest):
    assert check(longest) == longest
    with pytest.raises(ConfigurationError, match="must have at most"):
        check(longest + longest[0])


@given(changes=st.lists(CHANGE, max_size=25), topics=st.lists(TOPIC, min_size=1, max_size=3))
def test_PS_501_the_routes_of_a_topic_are_found_once_until_a_subscription_changes(changes, topics):
    trie = RouteTrie()
    for is_there, session, topic_filter, qos in changes:
        if is_there:
            trie.put(session, topic_filter, qos, is_single=session == "s1")
        else:
            trie.remove(session, topic_filter)
        for topic in topics:
            found = trie.find_routes(topic)
            assert found == choose_routes(trie.match(topic))
            assert trie.find_routes(topic) is found


def test_PS_601_a_long_topic_is_matched_each_time_and_not_remembered():
    trie = RouteTrie()
    trie.put("s", "#", 1)
    for size in (route_trie.TOPIC_MAX, route_trie.TOPIC_MAX + 1):
        assert [trie.find_routes("t" * size)[0].session for _ in range(2)] == ["s", "s"]
    assert [len(one) for one in trie._remembered] == [route_trie.TOPIC_MAX]


def test_PS_501_no_more_routes_are_remembered_than_may_be(monkeypatch):
    monkeypatch.setattr(route_trie, "REMEMBERED_MAX", 10)
    trie = RouteTrie()
    trie.put("s", "#", 1)
    for number in range(100):
        assert trie.find_routes(f"t/{number}") == (Route("s", "#", 1),)
        assert len(trie._remembered) <= 5


LEVELS = ("", "a", "b.", "é\n", "$a", "+", "#")
TOPICS = ["/".join(one) for length in (1, 2, 3) for one in product(LEVELS[:5], repeat=length)]


class CountedSql:
    """A table of topics; `looks`: how many rows were read."""

    now_ns = 1

    def __init__(self, topics):
        self.looks = 0
        self._database = sqlite3.connect(":memory:")
        self._database.execute("CREATE TABLE retained (topic BLOB PRIMARY KEY, payload, qos, until_ns, head)")
        rows = [(one.encode(), b"x", 1, 0, None) for one in topics]
        self._database.executemany("INSERT INTO retained VALUES (?, ?, ?, ?, ?)", rows)

    def all(self, statement, **values):
        found = self._database.execute(statement.replace("@", ""), values).fetchall()
        self.looks += len(found)
        return found


@pytest.mark.parametrize("topic_filter", ["#", "a/#", "+/b.", "a/+/a", "a/b.", "$a/#"])
def test_topics_are_looked_at_piece_by_piece(monkeypatch, topic_filter):
    monkeypatch.setattr(route_rows, "TOPICS_MAX", 4)
    trie = RouteTrie()
    trie.put("s", topic_filter, 0)
    found = [one.payload.topic for one in find_retained(CountedSql(TOPICS), topic_filter)]
    assert found == sorted(filter(trie.match, TOPICS), key=str.encode)


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
            await until_async(lambda: opened.backlog is not None)
            _, text = await get(where, "/metrics")
            lines = text.splitlines()
            assert "gapless_messages_dropped_total 0" in lines
            assert "gapless_messages_waiting 0" in lines
            assert await get(where, "/health") == ("HTTP/1.1 200 OK", "ok\n")
            opened.ask = fail
            await until_async(lambda: counts.trouble)
            assert await get(where, "/health") == ("HTTP/1.1 503 Service Unavailable", f"{counts.trouble}\n")
            opened.ask = read
            await until_async(lambda: not counts.trouble)
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


AWAY = StoreAway("store", "db", "cannot be reached")
BUSY = StoreUnavailable("db: the database system is starting up")


def failing(monkeypatch, owner, name, *failures):
    """What it is called in the place of, so often; how often it was called."""
    left, calls, real = list(failures), [], getattr(owner, name)

    def instead(*given, **named):
        calls.append(name)
        if left:
            raise left.pop(0)
        return real(*given, **named)

    monkeypatch.setattr(owner, name, instead)
    return calls


async def serves(store):
    """A node that has begun has clients."""
    async with (
        SessionNode(store, name="a", **QUICK) as node,
        PersistentSession("c", node=node) as session,
        SessionPublisher(node=node) as publisher,
    ):
        await session.subscribe("t")
        await publisher.publish("t", b"one")
        assert await take(session, 1) == ["one"]


def test_PS_201_a_node_waits_for_its_store_and_says_so_once(store, monkeypatch, caplog):
    opened = failing(monkeypatch, session_node, "open_session_store", AWAY, BUSY, AWAY)
    begun = failing(monkeypatch, SessionStore, "begin_life", BUSY)
    closed = failing(monkeypatch, SessionStore, "close")
    monkeypatch.setitem(awaited.retry_while_unavailable.__kwdefaults__, "again_s", 0.001)
    run_async(serves(store))
    assert (len(opened), len(begun), len(closed)) == (5, 2, 2), "the one that has begun no life is closed"
    said = [line for line in caplog.messages if "waits" in line]
    assert said == ["a waits for its store: store = 'db': cannot be reached"]


async def test_unsubscribe_removes_exactly_its_routes(store):
    """Not those of another filter that matches the same, nor of another session."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(node_of(store))
        one, two = [
            await stack.enter_async_context(PersistentSession(name, nodes=where(node))) for name in ("one", "two")
        ]
        for session in (one, two):
            for topic_filter in ("a/+", "a/b", "c"):
                await session.subscribe(topic_filter)
        await one.unsubscribe("a/+")
        await one.unsubscribe("a/#")  # it has none such
        publisher = await stack.enter_async_context(SessionPublisher(nodes=where(node)))
        for topic in ("a/b", "a/x", "c"):
            await publisher.publish(topic, topic.encode())
        assert await take(one, 2) == ["a/b", "c"]
        assert await take(two, 4) == ["a/b", "a/b", "a/x", "c"]


OFTEN = 12
"""A statement is prepared when it has been sent five times."""


@pytest.mark.parametrize("more", ["", "ignore_startup_parameters = options"], ids=["refuses", "drops"])
def test_PS_290_a_node_works_behind_a_pooler(more, postgres_url, tmp_path):
    async def run(url):
        async with SessionNode(url, name="n", look_ms=20) as node:
            async with PersistentSession("c", node=node) as session:
                await session.subscribe("t", qos=1)
            async with SessionPublisher(node=node) as publisher:
                for number in range(OFTEN):
                    await publisher.publish("t", b"%d" % number, qos=1)
            got = []
            async with PersistentSession("c", node=node) as session:
                async for message in session:
                    message.acknowledge()
                    got.append(int(message.payload))
                    if len(got) == OFTEN:
                        break
            return got

    with pgbouncer(postgres_url, tmp_path, more=more) as url:
        asyncio.run(in_turn(url))
        assert run_async(run(url)) == list(range(OFTEN))


async def in_turn(url):
    """Two processes that ask the same: one after the other they have the same session of the server."""
    stores = [open_session_store(url) for _ in range(2)]
    try:
        for _ in range(OFTEN):
            for number, store in enumerate(stores):
                await store.begin_life(f"node-{number}", 1_000)
    finally:
        for store in stores:
            await store.close()


async def test_what_is_in_flight_of_an_unsubscribed_topic_comes_again(store):
    """It is the session's until the client has acknowledged it."""
    async with node_of(store) as node, SessionPublisher(nodes=where(node)) as publisher:
        session = PersistentSession("tablet", nodes=where(node))
        async with session:
            await session.subscribe("t")
            await publisher.publish("t", b"before")
            first = await anext(session)
            await session.unsubscribe("t")
            await publisher.publish("t", b"after")
            await session.abort()
        async with PersistentSession("tablet", nodes=where(node)) as session:
            again = await anext(session)
            assert (again.payload, again.packet, again.dup) == (b"before", first.packet, True)
            again.acknowledge()
            await session.subscribe("t")
            await publisher.publish("t", b"last")
            assert await take(session, 1) == ["last"]

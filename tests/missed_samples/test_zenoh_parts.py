"""The parts of the driver that need no session: attachments, mailbox, outlets, ends of queries, tokens,
arrivals, caches.

Real zenoh, on loopback: every scene in a process of its own, which is killed where it hangs.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zenoh
import zenoh_scenes
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scene_server import SceneServer
from waiting import pause_async, until_async

from statemachines.drivers.lives import Life
from statemachines.drivers.missed_samples import declare_reliability_cache, layout, session_config
from statemachines.drivers.missed_samples.arrivals import Arrivals, SampleParty
from statemachines.drivers.missed_samples.attachment import (
    EndAttachment,
    MalformedAttachment,
    SampleAttachment,
    decode,
    encode,
)
from statemachines.drivers.missed_samples.layout import Declarations, SourceNames, layout_of
from statemachines.drivers.missed_samples.mailbox import Mailbox, Outlet
from statemachines.drivers.missed_samples.publisher import PublisherOptions, SampleNumbers, check_options
from statemachines.drivers.missed_samples.query_sender import REPLIERS_MAX, OpenQuery
from statemachines.drivers.missed_samples.received_sample import OVERHEAD, OwnSample, ReceivedSample
from statemachines.drivers.missed_samples.sample_store import SampleStore
from statemachines.drivers.missed_samples.subscriber import SEEN_MAX, SubscriberOptions, SubscriberStatistics, Tokens
from statemachines.kernel import ConfigurationError, Event, Node, Send
from statemachines.missed_samples.cache import (
    CACHE,
    CacheQuery,
    CacheRecord,
    Published,
    Reply,
    ReplyEnded,
    ReplyRefused,
)
from statemachines.missed_samples.keys import KeyPlace
from statemachines.missed_samples.message import EVERY_SOURCE, Deliver, Heartbeat, Missed, Query, Sample
from statemachines.missed_samples.publisher import PUBLISHER, Beats, Declare, Publish, PublisherRecord
from statemachines.missed_samples.recovery import make_recovery
from statemachines.missed_samples.selector import Malformed
from statemachines.missed_samples.serial_number import wrap_number
from statemachines.missed_samples.source_record import Appeared, Disappeared, RetentionOver
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import Subscribe, SubscriberRecord
from statemachines.testing.missed_samples.conformance import MALFORMED, S_NS, SELECTED, TIMED
from statemachines.testing.process_harness import free_port


@pytest.mark.parametrize("data", [b"", b"\xb6GL", b"somebody's", b"\xb6GL2\x00"])
def test_an_attachment_of_others_is_none_of_ours(data: bytes) -> None:
    assert decode(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\xb6GL1",
        b"\xb6GL1" + b"\x91" * 5_000,
        encode(EndAttachment(1)) + b"x",
        encode(SampleAttachment("", 1)),
        encode(SampleAttachment("p" * 129, 1)),
        encode(SampleAttachment("p", 1, None, 8)),
        b"\xb6GL1\x94\xa5stamp\xa1p\xd3" + b"\xff" * 8 + b"\xc0",
        b"\xb6GL1\x92\xa3end\xff",
        encode(SampleAttachment("p", 1, bytes(1 << 20))),
    ],
)
def test_a_malformed_attachment_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedAttachment, match="expected"):
        decode(data)


def test_MS_82_a_publisher_that_begins_anew_under_an_id_is_another_source() -> None:
    names: Any = [layout.PLAIN.source(None, "prices", goes_on) for goes_on in (True, True, False, False)]  # type: ignore[arg-type]
    assert (names[:2], len(set(names)), {one.partition("~")[0] for one in names}) == (["prices"] * 2, 3, {"prices"})


class EntityId:
    """As zenoh's: no two of them are equal."""

    def __init__(self, zid: str, eid: int) -> None:
        self.zid = zid
        self.eid = eid


def test_names_of_sources_that_come_and_go_do_not_fill_the_memory(monkeypatch: Any) -> None:
    monkeypatch.setattr(layout, "NAMES_MAX", 3)
    names = SourceNames()
    for eid in range(20):
        assert names.of(EntityId("a0", eid)) == f"a0/{eid}"  # type: ignore[arg-type]
        assert len(names) <= 3


async def test_a_mailbox_is_bounded_by_count_and_by_bytes_and_counts() -> None:
    box = Mailbox("box", lambda items: None, count_max=2, bytes_max=10)
    assert [box.put(print, 1, 5), box.put(print, 2, 5), box.put(print, 3, 0)] == [True, True, False]
    assert box.put(print, "end", always=True)
    assert (box.came(), box.refused) == (3, 1)
    other = Mailbox("box", lambda items: None, count_max=9, bytes_max=10)
    assert [other.put(print, 1, 8), other.put(print, 2, 3), other.put(repr, 3, 2)] == [True, False, True]
    assert other.refused == 1
    assert other.close() == [(print, 1, 8), (repr, 3, 2)]
    assert not other.put(print, 4, always=True)


async def test_an_outlet_makes_its_writer_wait_and_ends_with_what_it_ended_with() -> None:
    outlet: Outlet[int] = Outlet(2)
    outlet.put(1)
    room: list[str] = []
    assert outlet.has_room(lambda: room.append("none yet"))
    outlet.put(2)
    assert not outlet.has_room(lambda: room.append("again"))
    assert await outlet.get() == 1
    await until_async(lambda: room == ["again"])
    outlet.end(ValueError("why"))
    assert await outlet.get() == 2
    with pytest.raises(ValueError, match="why"):
        await outlet.get()
    empty: Outlet[int] = Outlet(1)
    asyncio.get_running_loop().call_soon(empty.end)
    with pytest.raises(StopAsyncIteration):
        await empty.get()


def test_who_floods_a_query_with_caches_does_not_fill_the_memory() -> None:
    query = OpenQuery(Query("p", 1, 0))
    for n in range(REPLIERS_MAX + 5):
        query.count(str(n))
        query.end(str(n), 1)
    assert len(query.counts) == len(query.ends) == REPLIERS_MAX
    assert query.lost


async def test_no_timeout_is_believed_before_what_came_is_read() -> None:
    """A reader that is slow lets replies wait: the query that brought them is not silent."""
    taken = [0]
    recovery = make_recovery(deadline_ms=1, timeout_ms=1, timeout_min_ms=1, timeout_max_ms=1)
    told: list[Event] = []
    party = SampleParty(SUBSCRIBER, SubscriberRecord(recovery), Life("s~1", 1, None), transport=None,  # type: ignore[arg-type]
                  services={"query": lambda name, query, feed: None}, told=told.append,
                  came=lambda: 1, taken=lambda: taken[0])  # fmt: skip
    party.feed(Subscribe())
    party.receive("p", Sample("p", 0, 0))
    party.receive("p", Sample("p", 2, 2))
    await pause_async(0.1, "a hundred times the deadline")
    assert told == [Deliver("p", 0, 0)]
    taken[0] = 1
    await until_async(lambda: len(told) >= 3)
    assert told[1:] == [Missed("p", 1, 1), Deliver("p", 2, 2)]
    await party.close()


def test_the_machine_gives_up_queries_by_the_settings_as_they_are_given() -> None:
    given = make_recovery(retries=3, timeout_ms=7, backoff_ms=11)
    assert SubscriberOptions(recovery=given).record(32).recovery == given
    assert SubscriberOptions(recovery=given, period_s=0.5).record(32).recovery == replace(given, period_ms=500)


def test_a_token_is_new_once_and_only_after_the_beginning() -> None:
    tokens = Tokens()
    assert not tokens.is_new("old")
    tokens.note("older")
    tokens.begin()
    assert [tokens.is_new(source) for source in ("old", "older", "new", "new")] == [False, False, True, False]
    for n in range(SEEN_MAX + 1):
        tokens.note(str(n))
    assert not tokens.is_new("new")  # whether it was here is not known any more
    assert len(tokens._seen) == SEEN_MAX


class Desk:
    """A Subscriber with its arrivals, and what it delivers."""

    def __init__(self, bytes_max: int = 1 << 30, width: int = 32, logged: bool = False, **recovery: Any) -> None:
        self.statistics = SubscriberStatistics()
        self.delivered: list[tuple[int, int]] = []
        self.missed: list[tuple[int, int]] = []
        record = SubscriberRecord(make_recovery(**recovery), width=width)
        self.party = SampleParty(SUBSCRIBER, record, Life("s~1", 1, None),
                           transport=self, services={"query": lambda *given: None}, told=self.told,
                           before=lambda event: self.arrivals.close_flow(event))  # fmt: skip
        self.arrivals = Arrivals(self.party, self.statistics, Outlet(99, self.take), width, bytes_max, logged)
        self.party.feed(Subscribe())

    def send(self, packet: Any) -> None:
        raise AssertionError(packet)

    def told(self, event: Event) -> None:
        if isinstance(event, Deliver):
            self.arrivals.deliver(event)
        elif isinstance(event, Missed):
            self.missed.append((event.first, event.last))

    def take(self, one: ReceivedSample) -> None:
        self.delivered.append((one.number, int(one.payload.to_string())))

    def hear(self, event: Any) -> None:
        self.arrivals.settle()
        self.party.feed(event)

    def add(self, sn: int, word: int | None = None, size: int = 0) -> bool:
        return self.arrivals.add("a/1", sn, sample(sn if word is None else word, size))


def sample(word: int, size: int = 0) -> ReceivedSample:
    payload = zenoh.ZBytes(str(word).rjust(size))
    return ReceivedSample(OwnSample("k", payload, zenoh.SampleKind.PUT, zenoh.Encoding.ZENOH_BYTES), source="a/1")


async def test_numbers_of_the_wire_come_round() -> None:
    desk = Desk()
    for sn in (2**32 - 2, 2**32 - 1, 0, 1):
        desk.add(sn)
    desk.arrivals.settle()
    assert [number for number, _ in desk.delivered] == [2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1]
    with pytest.raises(ValueError, match="32 bits"):
        desk.add(2**32)
    desk = Desk()
    desk.hear(Appeared("a/1", False))
    desk.arrivals.open_flows()
    pass_through = desk.arrivals.pass_through
    assert [pass_through("a/1", sn, sample(sn)) for sn in (2**32, 2**32 - 1, 0, 3)] == [False, True, True, False]
    desk.add(1)
    desk.arrivals.settle()
    assert [number for number, _ in desk.delivered] == [2**32 - 1, 2**32, 2**32 + 1]


MOVES = st.lists(st.tuples(st.sampled_from(("come", "turn", "beat", "live")), st.integers(-3, 4)), max_size=60)


@given(moves=MOVES)
def test_it_comes_to_the_same_whether_a_thread_delivers_or_the_machine(moves: list[tuple[str, int]]) -> None:
    """Samples that come by themselves, late, twice or out of order, and turns of the loop between them."""
    came: list[tuple[Any, ...]] = []

    async def play(logged: bool) -> None:
        desk = Desk(logged=logged, jump=50)
        waiting: list[Any] = []
        next_ = 100

        def take_waiting() -> None:
            for act in waiting:
                act()
            waiting.clear()
            desk.arrivals.settle()
            desk.arrivals.open_flows()

        def come(sn: int) -> None:
            if not desk.arrivals.pass_through("a/1", sn, sample(sn)):
                waiting.append(lambda: desk.add(sn))

        for move, number in [*moves, *(("come", 0) for _ in range(8))]:
            if move == "come":
                come(next_ + number)
                next_ = max(next_, next_ + number + 1)
            elif move == "turn":
                take_waiting()
            elif move == "beat" and not desk.arrivals.is_known("a/1", next_ - 1):
                waiting.append(lambda last=next_ - 1: desk.hear(Heartbeat("a/1", last)))
            elif move == "live":
                waiting.append(lambda: desk.hear(Appeared("a/1", False)))
        take_waiting()
        for sn in range(94, next_):  # whatever is missing is brought
            come(sn)
        take_waiting()
        desk.hear(Disappeared("a/1"))
        source = desk.party.record.sources["a/1"]
        came.append((desk.delivered, desk.missed, desk.statistics, source.status, source.expected, source.top))

    for logged in (False, True):
        asyncio.run(play(logged))
    assert came[0] == came[1]
    first = came[0][0][0][0]
    assert came[0][0] == [(number, number) for number in range(first, first + len(came[0][0]))]


async def test_a_heartbeat_that_says_nothing_new_keeps_its_source() -> None:
    desk = Desk()
    desk.add(0)
    desk.arrivals.settle()
    for _ in range(3):
        desk.arrivals.open_flows()
        assert [desk.arrivals.is_known("a/1", last) for last in (0, 1)] == [True, False]
        desk.hear(RetentionOver("a/1"))
    desk.hear(RetentionOver("a/1"))
    assert "a/1" not in desk.party.record.sources


async def test_what_is_held_is_bounded_in_bytes_and_what_is_next_always_has_room() -> None:
    room = 3 * (OVERHEAD + 100)
    desk = Desk(bytes_max=room)
    added = [desk.add(sn, size=100) for sn in (0, 2, 3, 4, 5, 6)]
    assert added == [True, True, True, True, False, False]
    desk.arrivals.settle()
    assert desk.arrivals.held == 3
    assert desk.statistics.refused == 2
    assert desk.add(1, size=10_000)
    desk.arrivals.settle()
    assert [number for number, _ in desk.delivered] == [0, 1, 2, 3, 4]
    assert desk.arrivals._bytes == 0
    assert desk.add(6, size=100)


async def test_samples_of_one_source_too_many_are_not_held() -> None:
    desk = Desk(sources=1)
    desk.add(0)
    desk.arrivals.add("b/1", 7, replace(sample(7), source="b/1"))
    desk.arrivals.settle()
    assert desk.delivered == [(0, 0)]
    assert (desk.arrivals.held, desk.arrivals._bytes, desk.arrivals._samples) == (0, 0, {})
    assert desk.statistics.duplicates == 0


async def test_a_sample_that_is_not_believed_is_not_held() -> None:
    desk = Desk(jump=10)
    for sn in (0, 1 << 30, 1):
        desk.add(sn)
        desk.arrivals.settle()
    assert desk.delivered == [(0, 0), (1, 1)]
    assert (desk.arrivals.held, desk.arrivals._bytes, desk.arrivals._samples) == (0, 0, {})
    assert (desk.statistics.doubted, desk.statistics.duplicates) == (1, 0)
    desk.add((1 << 30) + 1)  # two in sequence
    desk.arrivals.settle()
    assert desk.arrivals.held == 1


SELECTORS = (*SELECTED, *MALFORMED, *TIMED, "_sn=6..2", "_sn=5..;_max=2")
ASKED = st.tuples(st.sampled_from(("p", EVERY_SOURCE)), st.sampled_from(("a/b", "a/*")), st.sampled_from(SELECTORS))
KEPT = st.tuples(
    st.sampled_from("ppq"), st.sampled_from(("a/b", "a/b", "c")), st.integers(0, 7),
    st.sampled_from((0, 7 * S_NS, 9 * S_NS)),
)  # fmt: skip


@given(
    st.builds(
        CacheRecord, st.sampled_from((EVERY_SOURCE, EVERY_SOURCE, "p")), st.sampled_from(("**", "a/*")), st.booleans(),
        st.integers(1, 4), st.sampled_from((64, 3)), st.integers(1, 3), st.just(2_000),
    ),
    st.lists(KEPT | KEPT | ASKED | st.tuples(st.integers(1, 3)), min_size=15, max_size=30),
)  # fmt: skip
def test_a_store_keeps_and_answers_and_lets_go_as_the_machine_does(record: CacheRecord, events: list[Any]) -> None:
    now = [S_NS]
    store = SampleStore(None, layout_of("plain"), record, None, bytes_max=1 << 30, clock=lambda: now[0])  # type: ignore[arg-type]
    node = Node(CACHE, record, name="cache", now_ns=now[0])
    for event in (two for one in events for two in (one, (EVERY_SOURCE, "**", ""))):
        match event:
            case (wait_s,):
                now[0] += wait_s * S_NS
                node.fire(now[0])
            case (source, key, sn, t_ns):
                node.feed(Published(key, source, sn, sn, True, t_ns), now[0])
                time = zenoh.Timestamp(datetime.fromtimestamp(t_ns / S_NS, UTC), b"1") if t_ns else None
                store.keep((source, key), sn, replace(sample(sn).original, key_expr=key, timestamp=time), None)
            case (source, key, parameters):
                query = CacheQuery("asker", 1, source, key, parameters, 10 * S_NS)
                said = [effect.message for effect in node.feed(query, now[0]) if isinstance(effect, Send)]
                ranges = [one for one in said if isinstance(one, Reply)]
                try:
                    found, end = store.select(KeyPlace(source, key), parameters, 10 * S_NS), ReplyEnded(1)
                except Malformed as error:
                    found, end = [], ReplyRefused(1, str(error))  # type: ignore[assignment]
                assert said[len(ranges) :] == [end]
                replies = sorted([(one, kept[0].key_expr, sn) for one, sn, kept in found], key=lambda one: one[:2])
                assert replies == [
                    (one.source, one.key, wrap_number(sn, record.width))
                    for one in ranges for sn in range(one.first, one.last + 1)
                ]  # fmt: skip
    assert store.statistics.samples == sum(queue.count for queue in node.record.queues.values())
    assert store.statistics.not_kept == node.record.not_kept


@given(st.sampled_from(Beats), st.sampled_from((64, 3)), st.integers(0, 8), st.lists(st.integers(0, 3), max_size=40))
def test_numbers_and_heartbeats_are_those_of_the_machine(
    beats: Beats, width: int, began: int, waits: list[int]
) -> None:
    now = [S_NS]
    record = PublisherRecord("p", "k", beats, 2_000, width, next=began)
    numbers, node = SampleNumbers(record, lambda: now[0]), Node(PUBLISHER, record, name="p", now_ns=now[0])
    node.feed(Declare(), now[0])
    for wait_s in waits:
        said = []
        now[0] += wait_s * S_NS
        if not wait_s:
            numbers.publish()
            node.feed(Publish(), now[0])
        elif numbers.due_ns is not None and numbers.due_ns <= now[0]:
            said = [numbers.beat()]
        sent = [effect.message.last for effect in node.fire(now[0]) if isinstance(effect, Send)]
        assert [one for one in said if one is not None] == sent
        assert numbers.number == node.record.next


def test_what_is_pushed_out_leaves_no_number_behind() -> None:
    store = SampleStore(None, layout_of("plain"), CacheRecord(history=1 << 40), None, bytes_max=3 * OVERHEAD)  # type: ignore[arg-type]
    for sn in (*range(1_000), 0):
        store.keep(("p", "k"), sn, sample(sn).original, None)
    assert store.statistics.samples == len(store._numbers["p", "k"]) == 2


async def test_everything_that_was_declared_is_undone_in_the_opposite_order_whatever_fails() -> None:
    undone: list[str] = []

    class Entity:
        def __init__(self, name: str, error: Exception | None = None) -> None:
            self.name, self.error = name, error

        def undeclare(self) -> None:
            undone.append(self.name)
            if self.error is not None:
                raise self.error

    declared = Declarations()
    declared.add(Entity("queryable"))
    declared.add(Entity("token", ValueError("no")))
    declared.add(Entity("gone", zenoh.ZError("session closed")))
    with pytest.raises(ValueError, match="no"):
        await declared.close()
    assert undone == ["gone", "token", "queryable"]
    await declared.close()
    assert len(undone) == 3


def test_options_that_cannot_be_are_refused_by_name() -> None:
    for act, word in (
        (lambda: layout_of("fancy"), "layout"),
        (lambda: session_config("ruter"), "mode"),
        (lambda: session_config(listen=["nonsense"]), "listen"),
        (lambda: check_options(PublisherOptions, {"histroy": 3}), "histroy"),
        (lambda: SubscriberOptions(queue_max=99), "queue_max = 99: at least 100"),
        (lambda: SubscriberOptions(period_s=-1.0), "period_s"),
        (lambda: declare_reliability_cache(None, "k", history=0), "history"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError, match=word):
            act()


HERE = Path(__file__).parent
PATIENCE_S = 180


@pytest.fixture(scope="module")
def server() -> Iterator[SceneServer]:
    server = SceneServer("-m", "zenoh_scenes", folder=HERE)
    yield server
    server.close()


@pytest.mark.parametrize("name", sorted(zenoh_scenes.SCENES))
def test_over_real_zenoh(server: SceneServer, name: str) -> None:
    """It ends by itself, interpreter and all, and holds."""
    assert server.play(name) == "held\n"


def test_the_page_shows_what_happens() -> None:
    """The examples of docs/zenoh.md print what it says."""
    page = (HERE.parents[1] / "docs" / "zenoh.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", page, re.DOTALL)
    assert len(examples) == page.count("```python")
    for program, printed in examples:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (done.stdout, done.stderr) == (printed, "")


@pytest.mark.long
def test_roles_of_processes(tmp_path: Path) -> None:
    """A router, a cache, a publisher, a subscriber: what was published before it came is printed, and logged."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    with ExitStack() as stack:

        def node(role: str, *options: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "statemachines", "node", role, *options]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        def line(process: subprocess.Popen[str]) -> dict[str, Any]:
            assert process.stdout is not None
            found: dict[str, Any] = json.loads(process.stdout.readline() or "{}")
            return found

        stack.enter_context(killed_after(PATIENCE_S, stack))
        assert line(node("zenoh-router", "--listen", endpoint)) == {"listening": [endpoint]}
        there = ("--connect", endpoint, "--trace", "logs")
        assert line(node("cache", "--key", "k/*", *there)) == {"cache": "k/*"}
        (tmp_path / "lines").write_text("a\nb\nc\n")
        publisher = node("zenoh-publisher", "--key", "k/a", "--input", "lines", "--every", "0.1", *there)
        source = line(publisher)["publisher"]
        assert line(publisher) == {"published": 3, "next": 3}
        reader = node("zenoh-subscriber", "--key", "k/*", "--history", "2", *there)
        assert line(reader) == {"subscribed": "k/*"}
        for number, payload in ((1, "b"), (2, "c")):
            said = {"key": "k/a", "from": source, "number": number, "payload": payload, "recovered": True}
            assert line(reader) == said
        reader.send_signal(signal.SIGTERM)
        _, counts = reader.communicate(timeout=PATIENCE_S)
        assert json.loads(counts)["delivered"] == 2
        assert reader.returncode == 0
        log = (tmp_path / "logs" / "zenoh-subscriber-1~1.ndjson").read_text()
        assert '"event":"deliver"' in log


@contextmanager
def killed_after(seconds: float, stack: ExitStack) -> Iterator[None]:
    """Whoever waits for a line of a node that says nothing waits no longer than that."""
    timer = threading.Timer(seconds, stack.close)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

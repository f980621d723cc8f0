"""The parts of the driver that need no session: attachments, mailbox, outlets, ends of queries, tokens, arrivals.

An answer of a cache that is cancelled while its thread sends it.

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
from pathlib import Path
from typing import Any

import pytest
import zenoh
import zenoh_scenes
from msgspec.structs import replace
from scene_server import SceneServer
from waiting import pause_async, turns, until_async

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
from statemachines.drivers.missed_samples.publisher import PublisherOptions, check_options
from statemachines.drivers.missed_samples.query_sender import REPLIERS_MAX, OpenQuery, QueryQueue
from statemachines.drivers.missed_samples.received_sample import OVERHEAD, OwnSample, ReceivedSample
from statemachines.drivers.missed_samples.sample_store import BUSY, CacheStatistics, SampleStore
from statemachines.drivers.missed_samples.subscriber import SEEN_MAX, SubscriberOptions, SubscriberStatistics, Tokens
from statemachines.kernel import ConfigurationError, Event
from statemachines.missed_samples.cache import CacheRecord, CrowdedOver
from statemachines.missed_samples.message import Deliver, Missed, Query, Sample
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import Subscribe, SubscriberRecord
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
    assert (box.waiting, box.refused) == (3, 1)
    other = Mailbox("box", lambda items: None, count_max=9, bytes_max=10)
    assert [other.put(print, 1, 8), other.put(print, 2, 3), other.put(repr, 3, 2)] == [True, False, True]
    assert other.refused == 1
    assert other.close() == [(print, 1, 8), (repr, 3, 2)]
    assert not other.put(print, 4, always=True)


async def test_an_outlet_makes_its_writer_wait_and_ends_with_what_it_ended_with() -> None:
    outlet: Outlet[int] = Outlet(2)
    outlet.put(1)
    await outlet.room()
    outlet.put(2)
    waiting = asyncio.ensure_future(outlet.room())
    await turns()
    assert not waiting.done()
    assert await outlet.get() == 1
    await waiting
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
    recovery = Recovery(retries=0, timeout_ms=1, timeout_max_ms=1)
    told: list[Event] = []
    party = SampleParty(SUBSCRIBER, SubscriberRecord(recovery), Life("s~1", 1, None), transport=None,  # type: ignore[arg-type]
                  services={"query": lambda name, query, feed: None}, told=told.append,
                  came=lambda: 1, taken=lambda: taken[0])  # fmt: skip
    party.feed(Subscribe())
    party.receive("p", Sample("p", 0, 0))
    party.receive("p", Sample("p", 2, 2))
    await pause_async(0.1, "a hundred times the timeout")
    assert told == [Deliver("p", 0, 0)]
    taken[0] = 1
    await until_async(lambda: len(told) >= 3)
    assert told[1:] == [Missed("p", 1, 1), Deliver("p", 2, 2)]
    await party.close()


def test_the_machine_gives_up_queries_by_the_settings_as_they_are_given() -> None:
    given = Recovery(retries=3, timeout_ms=7, backoff_ms=11)
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

    def __init__(self, bytes_max: int = 1 << 30, width: int = 32, **recovery: Any) -> None:
        self.statistics = SubscriberStatistics()
        self.delivered: list[tuple[int, int]] = []
        self.missed: list[tuple[int, int]] = []
        self.party = SampleParty(SUBSCRIBER, SubscriberRecord(Recovery(**recovery), width=width), Life("s~1", 1, None),
                           transport=self, services={"query": lambda *given: None}, told=self.told,
                           before=lambda message: self.arrivals.place(message))  # fmt: skip
        self.arrivals = Arrivals(self.party, self.statistics, width, bytes_max)
        self.party.feed(Subscribe())

    def send(self, packet: Any) -> None:
        raise AssertionError(packet)

    def told(self, event: Event) -> None:
        if isinstance(event, Deliver):
            for one in self.arrivals.deliver(event):
                self.delivered.append((one.number, int(one.payload.to_string())))
        elif isinstance(event, Missed):
            self.missed.append((event.first, event.last))

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


async def test_a_store_keeps_nothing_for_one_queue_too_many_and_nothing_of_one_that_was_let_go() -> None:
    record = CacheRecord(width=32, history=2, places=1)
    session: Any = None
    store = SampleStore(session, layout_of("advanced"), record, Life("c~1", 1, None), bytes_max=1 << 20)
    for sn in (0, 1, 2):
        store.keep(sample(sn), sn, local=False)
    store.keep(replace(sample(0), source="b/1"), 0, local=False)
    counts = store.statistics
    assert (counts.samples, counts.not_kept, counts.too_old, counts.let_go) == (2, 1, 0, 0)
    store._party.feed(CrowdedOver())  # nobody was heard since
    assert (counts.samples, counts.bytes, counts.let_go) == (0, 0, 1)
    assert (store._samples, store._numbers) == ({}, {})
    store.keep(replace(sample(0), source="b/1"), 1, local=False)
    assert (counts.samples, counts.not_kept) == (1, 1)
    await store.close()


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
        (lambda: SubscriberOptions(queue_max=0), "queue_max"),
        (lambda: SubscriberOptions(period_s=-1.0), "period_s"),
        (lambda: declare_reliability_cache(None, "k", history=0), "history"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError, match=word):
            act()


async def test_a_query_that_finds_no_room_is_refused_and_counted() -> None:
    class Asked:
        """As much of a query as a refusal needs."""

        words = ""
        ended = False

        def __enter__(self) -> Asked:
            return self

        def __exit__(self, *given: object) -> None:
            self.ended = True

        def reply_err(self, words: str) -> None:
            self.words = words

    answered: list[Any] = []
    statistics = CacheStatistics()
    desk = QueryQueue("desk", answered.append, statistics, room=2)
    declared = Declarations()
    await desk.open(declared)
    queries = [Asked() for _ in range(3)]
    for query in queries:
        desk.handler()(query)  # type: ignore[arg-type]
    assert [(one.words, one.ended) for one in queries] == [("", False), ("", False), (BUSY, True)]
    await until_async(lambda: len(answered) >= 2)
    assert answered == queries[:2]
    assert statistics.busy == 1
    desk.handler()(late := Asked())  # type: ignore[arg-type]
    await declared.close()
    assert late.ended


class BorrowedQuery:
    """A query of zenoh that a thread uses just now."""

    def __enter__(self):
        raise RuntimeError("Already borrowed")

    def __exit__(self, *_):
        raise AssertionError("it was never entered")


async def test_a_query_that_its_thread_still_uses_is_left_to_it():
    store = object.__new__(SampleStore)
    work = asyncio.get_running_loop().create_future()
    store._sending = {work: BorrowedQuery()}
    work.cancel()
    store._note(work)
    assert store._sending == {}


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
    """The example of docs/zenoh.md prints what it says."""
    page = (HERE.parents[1] / "docs" / "zenoh.md").read_text(encoding="utf-8")
    program, printed = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "text"))
    assert program is not None
    assert printed is not None
    command = [sys.executable, "-c", program[1]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.stdout, done.stderr) == (printed[1], "")


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

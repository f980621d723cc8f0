"""The head of a message: what of it is taken, and the bytes that stores and wire carry.

What is opened, declared or closed in a thread while whoever waits for it is cancelled.

Short pieces of work on a SQLite file: done in the loop's thread, and never where they would wait.
"""

import asyncio
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import turns

from statemachines.drivers.message_head import (
    EMPTY,
    HEAD_MAX,
    HEADERS_MAX,
    KEY_MAX,
    NAME_MAX,
    decode_head,
    encode_head,
    make_head,
)
from statemachines.drivers.missed_samples.layout import Declarations
from statemachines.drivers.opening import finish_in_thread, open_in_thread
from statemachines.drivers.persistent_sessions.sql import SQLITE
from statemachines.drivers.sql.durability import Durability
from statemachines.drivers.sql.sqlite import SqliteDatabase
from statemachines.kernel import ConfigurationError

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=50)), max_size=8),
    st.none() | st.binary(max_size=50),
    st.none() | st.floats(0, 2**38),
)
def test_SS_380_a_head_comes_back_as_it_was_given(headers, key, timestamp):
    head = make_head(headers, key, timestamp)
    found = decode_head(encode_head(head))
    assert (found.headers, found.key, found.timestamp) == (tuple(headers), key, timestamp)


def test_SS_381_what_has_no_head_has_no_bytes_of_one():
    assert make_head() is make_head({}) is make_head((), None, None) is None
    assert encode_head(None) is encode_head(EMPTY) is None
    assert decode_head(None) is EMPTY
    assert encode_head(make_head(key=b"")) is not None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"headers": {"": b"1"}}, "header name = '': must not be empty"),
        ({"headers": {"\ud800": b"1"}}, "without lone surrogates"),
        ({"headers": {b"a": b"1"}}, "header name = b'a': must be a str, not bytes"),
        ({"headers": {"é" * (NAME_MAX // 2) + "x": b"1"}}, "at most 256 bytes, has 257"),
        ({"headers": {"a": "1"}}, "header 'a' = '1': must be bytes, not str; encode it first"),
        ({"headers": {"a": bytearray(b"1")}}, "must be bytes, not bytearray"),
        ({"headers": [("a", b"1")] * (HEADERS_MAX + 1)}, "65 headers': must be at most 64"),
        ({"headers": [["a", b"1"]]}, "must be pairs"),
        ({"headers": "ab"}, "must be pairs"),
        ({"headers": {"a": b"x" * (HEAD_MAX + 1)}}, "must have at most 16384 bytes"),
        ({"key": b"x" * (KEY_MAX + 1)}, "key = '1025 bytes': must have at most 1024 bytes"),
        ({"key": "k"}, "key = 'k': must be bytes, not str"),
        ({"timestamp": math.nan}, "must be seconds since the epoch"),
        ({"timestamp": math.inf}, "must be seconds since the epoch"),
        ({"timestamp": -1.0}, "must be seconds since the epoch"),
        ({"timestamp": True}, "must be seconds since the epoch"),
        ({"timestamp": "now"}, "must be seconds since the epoch"),
        ({"timestamp": 10**400}, "must be seconds since the epoch"),
    ],
)
def test_SS_382_what_breaks_a_bound_is_refused_by_name(given, why):
    with pytest.raises(ConfigurationError, match=why.replace("(", r"\(")):
        make_head(**given)


def test_SS_382_each_bound_itself_is_allowed_and_all_of_them_together_are_bounded():
    head = make_head([("n" * NAME_MAX, b"x" * 100)] + [("n", b"")] * (HEADERS_MAX - 1), b"k" * KEY_MAX, 0)
    assert decode_head(encode_head(head)) == head
    with pytest.raises(ConfigurationError, match="at most 16384 bytes together; put the rest into the payload"):
        encode_head(make_head([("a", b"x" * HEAD_MAX)]))


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\xc1",
        b"\x90" * 20_000,
        b"\x91" * 5_000,
        msgspec.msgpack.encode([[["", b"1"]], None, None]),
        msgspec.msgpack.encode([[["a", "text"]], None, None]),
        msgspec.msgpack.encode([[["a", b"1"]] * 81, None, None]),
        msgspec.msgpack.encode([[], b"x" * 1_025, None]),
        msgspec.msgpack.encode([[], None, math.nan]),
        msgspec.msgpack.encode([[], None, None, "more"]),
        b"\x93\x91\x92\xa2\xff\xfe\xc4\x00\xc0\xc0",
    ],
)
def test_SS_382_bytes_that_are_no_head_are_refused(encoded):
    with pytest.raises(ConfigurationError):
        decode_head(encoded)


class Entity:
    def __init__(self):
        self.undeclared = 0

    def undeclare(self):
        self.undeclared += 1


async def cancelled_amid(work, begun):
    """Cancel it once `begun` is set."""
    task = asyncio.ensure_future(work)
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_nobody_waits_for_any_more_is_closed_once_it_is_open():
    begun, go_on, closed = threading.Event(), threading.Event(), asyncio.Event()

    def make():
        begun.set()
        go_on.wait(10)
        return "opened"

    got = []
    await cancelled_amid(open_in_thread(make, lambda made: (got.append(made), closed.set())), begun)
    assert got == []
    go_on.set()
    await closed.wait()
    assert got == ["opened"]


async def test_a_call_is_made_though_its_task_is_cancelled_before_a_thread_takes_it_up():
    """Of a pool whose only thread is busy: `to_thread` drops the call then."""
    loop, go_on, calls = asyncio.get_running_loop(), threading.Event(), []
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
    busy = asyncio.ensure_future(asyncio.to_thread(go_on.wait, 10))
    call = asyncio.ensure_future(finish_in_thread(lambda: calls.append("called")))
    for _ in range(2):
        await turns()
        call.cancel()
    await turns()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert calls == ["called"]
    await busy


async def test_what_a_thread_declares_after_that_is_undeclared_at_once():
    declared = Declarations()
    await declared.close()
    assert declared.add(Entity()).undeclared == 1


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.db"


def play(path, body, **given):
    async def main():
        database = SqliteDatabase(path, SQLITE, **given)
        try:
            return await body(database)
        finally:
            await database.close()

    return asyncio.run(main())


def at_once(database):
    """Whether this piece of work is done in the thread that asks."""

    def work():
        with database.transaction() as connection:
            connection.execute("UPDATE store SET time_ns = time_ns + 1")
        return threading.current_thread() is threading.main_thread()

    return database.run(work, is_short=True)


def test_PS_515_with_power_the_worker_waits_for_the_disk(path):
    assert play(path, at_once, durability=Durability.POWER) is False

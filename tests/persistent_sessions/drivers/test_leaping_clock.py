"""A database whose clock is set ahead by a day while nodes run: nothing is gone early, and an operator is asked."""

from __future__ import annotations

import asyncio
import json

import pytest
from session_databases import SECOND, Clock, connect
from session_moves import queued

from statemachines import cli
from statemachines.drivers.persistent_sessions.host_request import PutMessage, StoreRows, Subscribe
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.persistent_sessions.time_watch import TimeWatch
from statemachines.persistent_sessions.collector_actions import garbage_messages
from statemachines.persistent_sessions.collector_record import CollectorRecord
from statemachines.persistent_sessions.collector_request import ForgetClient, ReadClients, ReadMessages
from statemachines.persistent_sessions.graces import Graces
from statemachines.persistent_sessions.life_request import LeaveSession, LockClient, LookUp
from statemachines.persistent_sessions.request import BeginEpoch, LoadSession, PutRows, SessionLoaded
from statemachines.persistent_sessions.store_time import ClockState

DAY = 86_400 * SECOND
HOUR_MS = 3_600_000


def run(url, play):
    """`await play(store, clock, steady)`: a session of `c` that outlives its connection by an hour, and a message for
    it, which expires in an hour, too."""

    async def body():
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
            return await play(store, clock, steady)
        finally:
            await store.close()

    return asyncio.run(body())


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
        asyncio.run(use(Subscribe("s1", 1, "a", 1)))
        clock.now += 3_600 * SECOND
        asyncio.run(use(request))
        assert "nobody has written to it" not in caplog.text
        clock.now += DAY
        asyncio.run(use(request))
        assert caplog.text.count("nobody has written to it for") == 1
        assert "for 2" in caplog.text
        caplog.clear()


@pytest.mark.parametrize(("boot", "is_gone"), [("one", False), ("another", True)])
def test_PS_524_a_leap_while_nothing_runs_is_seen_by_the_next_process_of_the_same_boot(
    sqlite_url, caplog, boot, is_gone
):
    """All nodes are killed, and the clock is set ahead before one starts again."""
    clock, steady = Clock(), Clock()

    def use(work, boot="one"):
        async def body():
            store = open_session_store(sqlite_url, clock=clock, steady=steady, boot=boot)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(body())

    async def begin(store):
        connected = await connect(store, "s1", "c", expiry_ms=HOUR_MS)
        await store.ask(LeaveSession("c", "s1", connected.token, HOUR_MS))

    use(begin)
    passes(clock, steady, 600 * SECOND)
    clock.now += DAY
    clients, _, expired = use(gone, boot)
    assert (clients, expired) == ((["c"], True) if is_gone else ([], False))
    assert ("set ahead by 86400 s" in caplog.text) == (not is_gone)
    assert ("nobody has written to it" in caplog.text) == is_gone


@pytest.mark.parametrize(("unused_ns", "apart_ns", "follows"), [
    (SECOND, DAY, False), (2 * DAY, DAY, False), (SECOND, 3_500 * SECOND, True), (2 * DAY, 0, True),
])  # fmt: skip
def test_PS_702_a_process_that_sees_a_leap_first_compares_the_clock_with_its_own(
    url, caplog, unused_ns, apart_ns, follows
):
    """Others run, and stand still at that moment."""

    async def play(store, clock, steady):
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

    run(url, play)


def test_PS_524_time_in_which_nothing_ran_counts_in_the_same_boot(sqlite_url, caplog):
    clock, steady = Clock(), Clock()

    async def use(work):
        store = open_session_store(sqlite_url, clock=clock, steady=steady, boot="one")
        try:
            return await work(store)
        finally:
            await store.close()

    asyncio.run(use(lambda store: connect(store, "s1", "c", expiry_ms=HOUR_MS)))
    passes(clock, steady, 7_200 * SECOND)
    assert asyncio.run(use(gone))[0] == ["c"]
    assert "nobody has written to it for 2" in caplog.text
    assert "set ahead" not in caplog.text


def passes(clock, steady, nanoseconds):
    clock.now += nanoseconds
    steady.now += nanoseconds


def test_PS_292_nothing_is_gone_when_the_clock_leaps_and_all_in_its_time_when_it_is_accepted(url, caplog):
    async def play(store, clock, steady):
        clock.now += DAY
        passes(clock, steady, SECOND)
        found = [await gone(store), (await store.ask(ForgetClient("c", 1)))[0].done]
        for _ in range(2):
            passes(clock, steady, 3_600 * SECOND)
            found.append(await gone(store))
        assert await store.accept_clock()
        passes(clock, steady, SECOND)
        found.append(await gone(store))
        return found

    leapt, forgotten, hour, two_hours, accepted = run(url, play)
    assert leapt == hour == two_hours == ([], [], False), "ages stand still"
    assert not forgotten
    assert accepted == (["c"], ["m1"], True), "it has lived for two hours, by the steady clock"
    said = [line for line in caplog.messages if "set ahead by 86400 s" in line]
    assert said
    assert "gapless sessions clock --accept" in said[0]


def test_PS_291_what_was_loaded_before_the_leap_was_noted_is_read_by_the_steady_clock(url):
    """A read notes nothing, and takes the leap for none."""

    async def play(store, clock, steady):
        clock.now += DAY
        found = await store.ask(ReadMessages("", 10))
        return found[0].messages[0].age_ms

    assert run(url, play) < 1_000


def test_PS_293_a_clock_that_is_set_back_again_needs_no_operator(url):
    async def play(store, clock, steady):
        clock.now += DAY
        await store.begin_life("n1", 1_000)
        clock.now -= DAY
        passes(clock, steady, 10 * SECOND)
        await store.begin_life("n1", 1_000)
        within = await gone(store)
        passes(clock, steady, 3_600 * SECOND)
        return within, await gone(store), await store.accept_clock()

    assert run(url, play) == (([], [], False), (["c"], ["m1"], True), False)


def test_PS_292_another_process_finds_ages_stopped_and_messages_are_not_over(url):
    async def play(store, clock, steady):
        clock.now += DAY
        await store.begin_life("n1", 1_000)
        other = open_session_store(url, clock=clock, steady=Clock())
        try:
            found = await gone(other)
            (loaded,) = await other.ask(LoadSession("c", "o", 10))
        finally:
            await other.close()
        return found, loaded

    found, loaded = run(url, play)
    assert found == ([], [], False)
    assert isinstance(loaded, SessionLoaded)
    assert loaded.time_ns < DAY, "by which its owner tells what is over"


def test_PS_293_the_command_accepts_a_clock_once(sqlite_url, capsys, tmp_path):
    async def play(store, clock, steady):
        clock.now += DAY
        await store.begin_life("n1", 1_000)

    run(sqlite_url, play)
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


def test_PS_732_the_state_of_a_clock_is_read_and_nothing_is_changed(url):
    async def play(store, clock, steady):
        found = [await store.read_clock()]

        async def look():
            time_ns = await store.last_commit_ns()
            found.append(await store.read_clock())
            assert await store.last_commit_ns() == time_ns, "it commits nothing"

        clock.now += DAY
        await look()  # nobody has noted it yet
        await store.begin_life("n1", 1_000)
        passes(clock, steady, 60 * SECOND)
        await look()
        await store.accept_clock()
        await look()
        clock.now -= DAY + 3_600 * SECOND
        await look()
        return [(round(one.ahead_s), one.stopped_ns > 0, round(one.stopped_s)) for one in found]

    assert run(url, play) == [
        (0, False, 0), (86_400, True, 0), (86_400, True, 60), (86_400, False, 0), (-3_600, False, 0)
    ]  # fmt: skip


def test_PS_732_a_clock_that_was_set_back_is_not_said_to_stop_ages(url):
    """The next commit notes it."""

    async def play(store, clock, steady):
        clock.now += DAY
        await store.begin_life("n1", 1_000)
        clock.now -= DAY
        passes(clock, steady, 60 * SECOND)
        return (await store.read_clock()).stopped_ns

    assert run(url, play) == 0


def test_PS_732_the_command_shows_the_clock(sqlite_url, capsys, monkeypatch):
    async def play(store, clock, steady):
        return None

    run(sqlite_url, play)
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

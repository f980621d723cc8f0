"""What connections ask of a real database: locks by lease, tokens, who is live, expiry, what is replaced."""

from __future__ import annotations

import pytest
from session_databases import MS, connect, run
from state_changes import change_to

from statemachines.drivers.persistent_sessions.host_request import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import Map
from statemachines.persistent_sessions.life_request import (
    NEVER,
    ClientBusy,
    ClientFound,
    ClientLocked,
    KeepAlive,
    LeaveSession,
    LockClient,
    LookUp,
    OpenSession,
    SessionLeft,
    SessionOpen,
    UnlockClient,
)
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    LoadSession,
    NotOwner,
    PutRows,
    RowStored,
    SessionAbsent,
    SessionLoaded,
    SessionState,
    StateChange,
    StateCommitted,
)

DEAD_MS = 1_000


async def asked(store, request):
    (answer,) = await store.ask(request)
    return answer


async def look_up(store, token, client="c"):
    return await asked(store, LookUp(client, token, DEAD_MS))


async def lock(store, owner="h", client="c", lease_ms=500):
    return await asked(store, LockClient(client, owner, lease_ms))


def test_a_client_id_is_locked_until_it_is_given_back_or_its_lease_ends(url):
    async def play(store, clock):
        found = [await lock(store, "one"), await lock(store, "two")]
        clock.now += 499 * MS
        found.append(await lock(store, "two"))
        clock.now += 2 * MS
        found.append(await lock(store, "two"))
        assert await store.ask(UnlockClient("c", "one")) == ()
        found.append(await lock(store, "three"))
        await store.ask(UnlockClient("c", "two"))
        found.append(await lock(store, "three"))
        return found

    found = run(url, play)
    assert [type(one) for one in found] == [
        ClientLocked, ClientBusy, ClientBusy, ClientLocked, ClientBusy, ClientLocked
    ]  # fmt: skip
    tokens = [one.token for one in found if isinstance(one, ClientLocked)]
    assert tokens == sorted(set(tokens))


def test_PS_202_whoever_gives_back_a_lock_gives_back_its_own_and_no_other(url):
    """As a connection does that has gone before it heard that it had the lock."""

    async def play(store, clock):
        await lock(store, "one")
        await store.ask(UnlockClient("c", "two"))
        found = [await lock(store, "two")]
        await store.ask(UnlockClient("c", "one"))
        return [*found, await lock(store, "two")]

    found = run(url, play)
    assert [type(one) for one in found] == [ClientBusy, ClientLocked]


@pytest.mark.parametrize("ends", ["another life", "its lease", "not at all"])
def test_PS_421_a_node_that_has_ended_holds_no_lock_and_has_no_session(url, ends):
    """Long before the lease of the lock, and before its session counts as silent."""

    async def play(store, clock):
        life = await store.begin_life("n2", 100)
        owner = f"n2~{life.number}.00f3a1c29e8d4b67/1"
        one = await connect(store, "s1", owner=owner, lock_ms=DEAD_MS)
        if ends == "another life":
            await store.begin_life("n2", 100)
        clock.now += (101 if ends == "its lease" else 99) * MS
        found = await look_up(store, one.token)
        return found.live == owner, found.session, type(await lock(store, "other"))

    has_ended = ends != "not at all"
    assert run(url, play) == (not has_ended, "s1", ClientLocked if has_ended else ClientBusy)


def test_whoever_asks_again_for_its_own_lock_has_it_under_a_higher_token(url):
    async def play(store, clock):
        return await lock(store), await lock(store), await lock(store, client="d")

    one, two, other = run(url, play)
    assert one.token < two.token < other.token, "of the whole store"


def test_whoever_locks_supersedes_the_connection_of_before(url):
    async def play(store, clock):
        one = await connect(store, "s1")
        await store.ask(UnlockClient("c", "h"))
        other = await lock(store, "other")
        return (
            other,
            [
                await store.ask(request)
                for request in (
                    LookUp("c", one.token, DEAD_MS),
                    OpenSession("c", "h", one.token, "s2", "s1", 0),
                    KeepAlive("c", "s1", one.token),
                    LeaveSession("c", "s1", one.token, 0),
                    UnlockClient("c", "h"),
                )
            ],
            await lock(store, "third"),
        )

    other, found, third = run(url, play)
    assert found == [(NotOwner(),)] * 4 + [()]
    assert third == ClientBusy(other.token), "it unlocks nobody else's lock"


def test_a_session_is_live_at_the_connection_that_opened_it_until_it_is_left_or_silent(url):
    async def play(store, clock):
        one = await connect(store, "s1", owner="n9~1/1")
        found = [await look_up(store, one.token)]
        clock.now += (DEAD_MS - 1) * MS
        found.append(await look_up(store, one.token))
        assert await store.ask(KeepAlive("c", "s1", one.token)) == ()
        clock.now += (DEAD_MS - 1) * MS
        found.append(await look_up(store, one.token))
        clock.now += 2 * MS
        found.append(await look_up(store, one.token))
        await store.ask(KeepAlive("c", "s1", one.token))
        found.append(await look_up(store, one.token))
        assert await asked(store, LeaveSession("c", "s1", one.token, NEVER)) == SessionLeft()
        await store.ask(KeepAlive("c", "s1", one.token))
        found.append(await look_up(store, one.token))
        return found

    found = run(url, play)
    live, silent = ClientFound("s1", False, "n9~1/1"), ClientFound("s1", False, "")
    assert found == [live, live, live, silent, live, silent]


@pytest.mark.parametrize(
    ("expiry_ms", "gone_ms", "is_over"), [(500, 499, False), (500, 500, True), (NEVER, 10**9, False)]
)
def test_a_session_expires_after_it_was_left(url, expiry_ms, gone_ms, is_over):
    async def play(store, clock):
        one = await connect(store, "s1", expiry_ms=10)
        clock.now += 10**6 * MS
        await store.ask(LeaveSession("c", "s1", one.token, expiry_ms))
        clock.now += gone_ms * MS
        loaded = await asked(store, LoadSession("c", "o", one.token))
        return loaded, await look_up(store, one.token), await connect(store, "s2")

    loaded, found, again = run(url, play)
    assert isinstance(loaded, SessionAbsent if is_over else SessionLoaded)
    assert found == ClientFound("s1", is_over, "")
    assert (again.present, again.session) == (not is_over, "s2" if is_over else "s1")


@pytest.mark.parametrize(("expiry_ms", "passed_ms", "is_over"), [(0, 999, False), (0, 1_000, True),
                                                                (1_500, 1_499, False), (1_500, 1_500, True),
                                                                (NEVER, 10**9, False)])  # fmt: skip
def test_of_an_owner_that_died_the_expiry_counts_from_when_it_was_heard_of_last(url, expiry_ms, passed_ms, is_over):
    async def play(store, clock):
        one = await connect(store, "s1", expiry_ms=expiry_ms)
        clock.now += 10**6 * MS
        await store.ask(KeepAlive("c", "s1", one.token))
        clock.now += passed_ms * MS
        found = await look_up(store, one.token)
        clock.now -= 10**5 * MS  # the clock steps back: the time of the store does not
        return found, await look_up(store, one.token)

    found, again = run(url, play)
    assert found.expired is is_over
    assert again.expired is is_over


def test_what_is_opened_is_live_however_long_ago_it_was_left(url):
    async def play(store, clock):
        one = await connect(store, "s1", expiry_ms=10_000)
        await store.ask(LeaveSession("c", "s1", one.token, 10_000))
        clock.now += 9_999 * MS
        again = await connect(store, "s2", owner="o2", expiry_ms=5)
        return again, await look_up(store, again.token)

    again, found = run(url, play)
    assert again.present
    assert found == ClientFound("s1", False, "o2")


def test_an_expiry_of_0_abandons_the_session_when_it_is_left(url):
    async def play(store, clock):
        one = await connect(store, "s1")
        await store.ask(UnlockClient("c", "h"))
        two = await connect(store, "s2")
        late = await store.ask(LeaveSession("c", "s1", one.token, 0))
        left = [await asked(store, LeaveSession("c", "s1", two.token, 0)) for _ in range(2)]
        loaded = [await asked(store, LoadSession("c", "o", token)) for token in (one.token, two.token)]
        await store.ask(UnlockClient("c", "h"))
        return two, late, left, loaded, await connect(store, "s3")

    two, late, left, loaded, three = run(url, play)
    assert two.present
    assert late == (NotOwner(),), "who is superseded leaves nobody's session"
    assert left == [SessionLeft(), SessionLeft()]
    assert loaded == [NotOwner(), SessionAbsent()]
    assert (three.present, three.session) == (False, "s3")


def test_another_session_is_not_left(url):
    async def play(store, clock):
        one = await connect(store, "s1")
        assert await asked(store, LeaveSession("c", "s0", one.token, 0)) == SessionLeft()
        return await look_up(store, one.token)

    assert run(url, play).session == "s1"


def test_state_routes_and_epochs_of_a_replaced_session_go_in_the_same_transaction(url):
    async def play(store, clock):
        other = open_session_store(url)  # what it knows of routes is its own
        try:
            one = await connect(store, "s1")
            await store.do(Subscribe("s1", one.token, "a/+", 1))
            assert len(await other.do(PutMessage("m1", "a/b", b"", 1))) == 1
            await store.ask(BeginEpoch("s1", "n1"))
            await store.ask(PutRows("s1", "n1", 1, (Queued(1, "m1", "a/+", 1),)))
            state = SessionState(Map({"n1": (1, 1)}), queued=(Queued(1, "m1", "a/+", 1),), places=3)
            await store.ask(CommitState("s1", one.token, change_to(state)))
            two = await connect(store, "s2", clean=True)
            routes = await other.do(PutMessage("m2", "a/b", b"", 1))
            late = [
                await asked(store, PutRows("s1", "n1", 1, (Queued(2, "m2", "a/+", 1),))),
                await asked(store, CommitState("s1", one.token, change_to(state))),
                await asked(store, CommitState("s1", two.token, change_to(state))),
            ]
            return routes, late, await asked(store, LoadSession("c", "o", two.token)), await what_is_left(store)
        finally:
            await other.close()

    routes, late, loaded, left = run(url, play)
    assert routes == ()
    assert late == [RowStored(), NotOwner(), NotOwner()], "a writer that does not know yet goes on"
    assert loaded == SessionLoaded("s2", SessionState(), loaded.time_ns)
    assert left == {
        "sessions": [(b"s2",)], "taken": [], "queued": [], "epochs": [],
        "session_rows": [(b"s1",), (b"s1",)],
    }, "its row, and one that says that it is abandoned"  # fmt: skip


async def what_is_left(store):
    """Of which sessions something stands in which table."""

    def read():
        with store._database.reading() as sql:
            tables = ("sessions", "taken", "queued", "epochs", "session_rows")
            return {table: sql.all(f"SELECT session FROM @{table}") for table in tables}

    return await store._database.run(read)


def test_of_whoever_opens_a_session_of_another_client_nothing_is_touched(url):
    async def play(store, clock):
        await connect(store, "s1", "c")
        locked = await lock(store, client="d")
        found = await asked(store, OpenSession("d", "h", locked.token, "s1", "", NEVER))
        return found, await connect(store, "s9", "c")

    found, again = run(url, play)
    assert found == NotOwner()
    assert (again.session, again.present) == ("s1", True)


def test_a_session_that_was_opened_twice_is_one(url):
    async def play(store, clock):
        locked = await lock(store)
        request = OpenSession("c", "h", locked.token, "s1", "", NEVER)
        found = [await asked(store, request) for _ in range(2)]
        return found, await look_up(store, locked.token)

    found, looked = run(url, play)
    assert found == [SessionOpen()] * 2
    assert looked == ClientFound("s1", False, "h")


def test_who_has_left_lives_no_more_whatever_comes_late(url):
    async def play(store, clock):
        one = await connect(store, "s1")
        clock.now += 10**6 * MS
        await store.ask(LeaveSession("c", "s1", one.token, 500))
        clock.now += 400 * MS
        assert await store.ask(KeepAlive("c", "s1", one.token)) == ()
        clock.now += 100 * MS
        return await look_up(store, one.token)

    assert run(url, play) == ClientFound("s1", True, "")


def test_a_session_that_is_opened_again_has_the_expiry_that_was_said_last(url):
    async def play(store, clock):
        one = await connect(store, "s1", expiry_ms=NEVER)
        await store.ask(LeaveSession("c", "s1", one.token, NEVER))
        two = await connect(store, "s2", expiry_ms=1_500)
        clock.now += 1_600 * MS
        return two, await look_up(store, two.token)

    two, found = run(url, play)
    assert two.present
    assert found == ClientFound("s1", True, "")


def test_the_owner_of_before_commits_nothing_once_the_session_is_opened_elsewhere(url):
    async def play(store, clock):
        one = await connect(store, "s1")
        await asked(store, LoadSession("c", "o1", one.token))
        two = await connect(store, "s2")
        late = await asked(store, CommitState("s1", one.token, change_to(SessionState(places=1))))
        subscribed = await store.do(Subscribe("s1", one.token, "a/+", 1))
        return late, subscribed, await asked(store, CommitState("s1", two.token, StateChange()))

    *refused, committed = run(url, play)
    assert refused == [NotOwner(), False]
    assert isinstance(committed, StateCommitted)

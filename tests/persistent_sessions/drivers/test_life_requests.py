"""What connections ask of a real database: locks by lease, tokens, who is live, expiry, what is replaced."""

from __future__ import annotations

import pytest
from session_databases import MS, connect, run

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
)
from statemachines.persistent_sessions.request import (
    LoadSession,
    NotOwner,
    SessionAbsent,
    SessionLoaded,
)

DEAD_MS = 1_000


async def asked(store, request):
    (answer,) = await store.ask(request)
    return answer


async def look_up(store, token, client="c"):
    return await asked(store, LookUp(client, token, DEAD_MS))


async def lock(store, owner="h", client="c", lease_ms=500):
    return await asked(store, LockClient(client, owner, lease_ms))


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


def test_of_whoever_opens_a_session_of_another_client_nothing_is_touched(url):
    async def play(store, clock):
        await connect(store, "s1", "c")
        locked = await lock(store, client="d")
        found = await asked(store, OpenSession("d", "h", locked.token, "s1", "", NEVER))
        return found, await connect(store, "s9", "c")

    found, again = run(url, play)
    assert found == NotOwner()
    assert (again.session, again.present) == ("s1", True)

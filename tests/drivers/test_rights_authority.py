"""Who is asked, and what its error or silence means."""

from __future__ import annotations

import asyncio
import threading

import pytest

from statemachines.drivers.authority import THREADS_MAX, Authority
from statemachines.drivers.identity import Identity
from statemachines.kernel import ConfigurationError

ALICE = Identity(frozenset({"alice"}))


async def ask(authority, identity=ALICE, action="publish", client="tablet", topic="a/b"):
    answer = asyncio.get_running_loop().create_future()
    authority.check(identity, action, client, topic, answer.set_result)
    return await answer


def run(work, *given, **more):
    async def main():
        authority = Authority(*given, **more)
        try:
            async with asyncio.timeout(30):
                await work(authority)
        finally:
            await authority.close()

    asyncio.run(main())


@pytest.mark.parametrize("answer", [None, 1, "yes", [True], False])
def test_PS_451_whatever_is_not_true_denies(answer):
    async def work(authority):
        assert not await ask(authority)

    run(work, lambda *given: answer)


def test_PS_451_an_error_of_a_hook_denies_and_is_logged_once(caplog):
    def fail(*given):
        raise SystemExit(3)

    async def fail_async(*given):
        raise asyncio.CancelledError

    async def work(authority):
        for _ in range(10):
            assert not await ask(authority)

    for one in (fail, fail_async, lambda: True):
        caplog.clear()
        run(work, one)
        assert caplog.text.count("the authorisation hook failed, which denies") == 1


def test_PS_451_a_hook_that_is_silent_denies_and_stops_nobody_else():
    free = threading.Event()

    def stand_still(identity, action, client, topic):
        if topic == "slow":
            free.wait(20)
        return True

    async def stop_nobody(authority):
        slow = [asyncio.ensure_future(ask(authority, topic="slow")) for _ in range(THREADS_MAX - 1)]
        await asyncio.sleep(0)
        assert await ask(authority, topic="quick")
        assert not any(one.done() for one in slow)
        free.set()
        assert await asyncio.gather(*slow) == [True] * len(slow)

    async def deny(authority):
        free.clear()
        slow = (ask(authority, topic="slow") for _ in range(THREADS_MAX + 2))
        assert not any(await asyncio.gather(*slow))
        assert not await ask(authority, topic="quick")  # every thread stands still
        free.set()
        while not await ask(authority, topic="quick"):
            await asyncio.sleep(0.01)

    run(stop_nobody, stand_still, limit_s=20)
    run(deny, stand_still, limit_s=0.05)


def test_PS_451_an_async_hook_that_is_silent_denies():
    async def sleep(*given):
        await asyncio.sleep(60)

    async def deny(authority):
        assert not await ask(authority)

    run(deny, sleep, limit_s=0.01)


def test_what_cannot_be_an_authority_is_refused():
    with pytest.raises(ConfigurationError, match=r"authorize = 'rights\.txt'"):
        Authority("rights.txt")
    with pytest.raises(ConfigurationError, match="authorize_s = 0"):
        Authority(limit_s=0)

"""Who is asked, and what its error or silence means."""

from __future__ import annotations

import asyncio
import threading

import pytest

from statemachines.drivers.authority import LINES_MAX, THREADS_MAX, Authority
from statemachines.drivers.identity import Identity
from statemachines.drivers.permission_file import PermissionFile
from statemachines.kernel import ConfigurationError

ALICE = Identity(frozenset({"alice"}))
SENSOR = Identity(frozenset({"sensor-1"}), True)


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


def test_PS_451_a_hook_decides_async_or_not():
    asked = []

    def hook(*given):
        asked.append(given)
        return given[3] == "a/b"

    async def hook_async(*given):
        return hook(*given)

    class Callable:
        async def __call__(self, *given):
            return hook(*given)

    async def work(authority):
        assert await ask(authority)
        assert not await ask(authority, topic="a")
        assert authority.refused == 1

    for one in (hook, hook_async, Callable(), lambda *given: hook_async(*given)):
        asked.clear()
        run(work, one)
        assert asked == [(ALICE, "publish", "tablet", "a/b"), (ALICE, "publish", "tablet", "a")]


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


def test_PS_453_a_client_with_a_certificate_connects_under_a_name_of_it(tmp_path):
    path = tmp_path / "rights.txt"
    path.write_text("sensor-1 connect spare\n")

    async def work(authority):
        assert await ask(authority, SENSOR, "connect", "sensor-1", "")
        assert not await ask(authority, SENSOR, "connect", "sensor-2", "")
        assert await ask(authority, ALICE, "connect", "sensor-1", "") is authority.is_open
        assert await ask(authority, SENSOR) is authority.is_open
        assert await ask(authority, SENSOR, "connect", "spare", "") is not authority.is_open

    run(work)
    run(work, PermissionFile(path))


def test_PS_457_refusals_do_not_flood_the_log(caplog):
    now = [0]

    async def work(authority):
        for number in range(1_000):
            assert not await ask(authority, Identity(frozenset({"a\nb"})), client=str(number), topic="x\n" * 10_000)
        assert len(caplog.records) == LINES_MAX
        now[0] += 60_000_000_000
        await ask(authority, Identity(frozenset({"\u202e"})), client="c")
        assert "1001 refusals so far" in caplog.text
        assert len(caplog.text) < 4_000
        assert all("\n" not in record.getMessage() for record in caplog.records)

    async def hook(*given):
        return None

    run(work, hook, clock=lambda: now[0])


def test_what_cannot_be_an_authority_is_refused():
    with pytest.raises(ConfigurationError, match=r"authorize = 'rights\.txt'"):
        Authority("rights.txt")
    with pytest.raises(ConfigurationError, match="authorize_s = 0"):
        Authority(limit_s=0)

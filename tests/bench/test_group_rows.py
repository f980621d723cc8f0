"""The rows about groups: both sides do the whole job, on a small scale, and the counting counts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from time import monotonic

import pytest

from statemachines.kernel import GaplessError
from statemachines_bench import failover, throughput

MESSAGES = 2_400


@contextmanager
def saying(*programs):
    children = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for program in programs
    ]
    try:
        yield children
    finally:
        for child in children:
            child.kill()
            child.communicate()


def says(*lines, then="input()"):
    return f"print({chr(10).join(lines)!r}, flush=True); {then}"


def test_time_runs_from_anybody_s_first_message_until_everything_is_acknowledged():
    with saying(says("0 1000", "40 2000"), says("0 1500", "20 1700", "60 3000")) as children:
        assert throughput.per_second(children, wanted=100) == 100 * 1e9 / 2000


def test_a_consumer_that_ends_is_no_result():
    with (
        saying(says("0 1000", "40 2000"), says("0 1500", then="pass")) as children,
        pytest.raises(GaplessError, match=r"only \d+ of 100 messages"),
    ):
        throughput.per_second(children, wanted=100)


def test_a_redis_group_acknowledges_all_there_is():
    server = throughput.RedisServer()
    try:
        with server.client() as client:
            throughput.fill_redis(client, MESSAGES, 8)
            assert client.config_get("append*")["appendonly"] == "yes"
            for stream in range(8):
                client.xgroup_create(f"s{stream}", "bench", id="0")
            with throughput.start_consumers("redis", str(server.port), "8") as children:
                assert throughput.per_second(children, MESSAGES) > 0
            assert [client.xpending(f"s{stream}", "bench")["pending"] for stream in range(8)] == [0] * 8
    finally:
        server.stop()


def test_the_relay_takes_its_time_in_both_directions():
    assert asyncio.run(failover.round_trip_ms()) >= 2 * failover.DELAY_S * 1000


async def test_halves_are_told_from_other_shares():
    def seen(topics):
        one = failover.DeliveryTimes()
        for topic in topics:
            one.got(topic)
        return one

    first, second = seen(failover.TOPICS[:4]), seen(failover.TOPICS[4:])
    assert await failover.wait_for_halves(first, second) == set(failover.TOPICS[:4])
    assert second.since(monotonic()) == set()

"""The rows about groups: both sides do the whole job, on a small scale, and the counting counts."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import pytest

from statemachines.kernel import GaplessError
from statemachines_bench import throughput

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

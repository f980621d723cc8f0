"""A node that is attacked stays up for others, in bounded memory, and with few lines in its log."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
from pathlib import Path

import pytest
from mqtt_attacks import ATTACKS
from mqtt_socket import MqttSocket

from statemachines.mqtt_codec import PingreqPacket, PingrespPacket

GROWTH_MIB = 150
"""An attack may leave a node no larger than by so much."""

LINES = 3
"""Lines in the log for each attack."""


@contextlib.asynccontextmanager
async def node_process(folder):
    """(address, process) of a node."""
    command = [sys.executable, "-m", "statemachines", "node", "mqtt", "--store", str(folder / "s.db"), "--name", "a"]
    command += ["--listen", "127.0.0.1:0", "--connect-timeout-s", "2", "--receive-maximum", "100"]
    with (folder / "a.log").open("w") as log:
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=log)
        try:
            line = await asyncio.wait_for(child.stdout.readline(), 120)
            host, _, port = line.decode().split()[-1].rpartition(":")
            yield (host, int(port)), child
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            await child.wait()


def read_rss_mib(pid):
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1_024


async def attack(folder, column):
    """What is wrong after each attack."""
    async with node_process(folder) as (address, child), MqttSocket(address) as good:
        await good.connect("good")
        wrong, lines = [], 0
        begin_mib = read_rss_mib(child.pid)
        for one in ATTACKS:
            found = await one[0](address, one[column])
            if await good.ask(PingreqPacket()) != PingrespPacket():
                found.append("others are not served any more")
            before, lines = lines, len((folder / "a.log").read_text().splitlines())
            if lines - before > LINES:
                found.append(f"{lines - before} lines in the log")
            growth = read_rss_mib(child.pid) - begin_mib
            if growth > GROWTH_MIB:
                found.append(f"{growth:.0f} MiB more")
            wrong += [f"{one[0].__name__}: {what}" for what in found]
        child.terminate()
        assert await asyncio.wait_for(child.wait(), 60) == 0
    return wrong


@pytest.mark.parametrize("column", [1, pytest.param(2, marks=pytest.mark.long)], ids=["few", "many"])
def test_a_node_under_attack_serves_others_in_bounded_memory(tmp_path, column):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    try:
        wrong = asyncio.run(asyncio.wait_for(attack(tmp_path, column), 900))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert wrong == []

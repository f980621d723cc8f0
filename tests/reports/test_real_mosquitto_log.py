"""A real mosquitto whose queue of one subscriber overflows: the judge says what that subscriber lost."""

from __future__ import annotations

import asyncio
import subprocess
import tomllib

import aiomqtt
from foreign_logs import write_logs

from statemachines.testing.process_harness import free_port
from statemachines_reports.foreign_log import judge_files
from statemachines_reports.foreign_log.log_mapping import parse_mapping, read_template

CONFIGURATION = "listener {} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 30\nmax_inflight_messages 9\n"
KEYS = [f"p-{number}" for number in range(61)]


async def overflow(port):
    """What a subscriber gets that is there all the time, and one that is away while all is published."""

    def connect(name):
        return aiomqtt.Client("127.0.0.1", port, identifier=name, clean_session=False)

    fast_keys, slow_keys = [], []
    async with connect("fast") as fast, connect("publisher") as publisher, asyncio.timeout(60):
        async with connect("slow") as slow:
            for one in (fast, slow):
                await one.subscribe("orders", 1)
            await slow.subscribe("end", 1)
        for key in KEYS:
            await publisher.publish("orders", key, 1)
            fast_keys.append((await anext(fast.messages)).payload.decode())
        async with connect("slow") as slow:
            async for message in slow.messages:
                if message.topic.matches("end"):
                    break
                slow_keys.append(message.payload.decode())
                await publisher.publish("end", "", 1)  # a queue that is full takes none
    return fast_keys, slow_keys


def test_what_a_queue_that_overflowed_lost_is_a_loss(tmp_path):
    port, conf = free_port(), tmp_path / "mosquitto.conf"
    conf.write_text(CONFIGURATION.format(port))
    with subprocess.Popen(["/usr/sbin/mosquitto", "-c", str(conf)], stderr=subprocess.PIPE, text=True) as broker:
        next(line for line in broker.stderr if "running" in line)
        fast, slow = asyncio.run(overflow(port))
        broker.terminate()
    assert 0 < len(slow) < len(fast) == len(KEYS)
    lines = [("publish", "", KEYS), ("deliver", "fast", fast), ("deliver", "slow", slow)]
    logs = {
        f"{kind} {client}": [
            {"at": at, "kind": kind, "topic": "orders", "key": key, "client": client or None}
            for at, key in enumerate(keys)
        ]
        for kind, client, keys in lines
    }
    text = read_template("mqtt").replace("complete = false", "complete = true")
    found = judge_files(write_logs(tmp_path, **logs), parse_mapping(tomllib.loads(text), "map.toml"))
    lost = next(one for one in found.checks if one.name == "lost")
    assert (found.verdict, lost.verdict, lost.found) == ("VIOLATED", "VIOLATED", len(KEYS) - len(slow))

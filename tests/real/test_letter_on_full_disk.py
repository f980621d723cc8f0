"""A dead letter that does not fit on the disk of a real leader host: it keeps the message, and goes on later."""

from __future__ import annotations

import asyncio
import resource

from stage import CALM, TENTH

from statemachines.drivers.shared_subscriptions import Publisher, SharedSubscription
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.dead_letter import read_dead_letter
from tests.real.outside import LeaderHost

LARGE, ROOM = b"x" * 900_000, 300_000
"""Bytes of the message, and those that every file of the store may still grow by: enough for renewals of a claim."""
GIVEN = {**TENTH, **CALM, "max_deliver": 1, "dead_letter_topic": "$dead/g"}


async def until_said(host, words):
    async with asyncio.timeout(60):
        while words not in host.said:
            await asyncio.sleep(0.02)


def limit_files(pid, size):
    """No file of the process may be larger, as on a disk that is full; None: there is room again."""
    most = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))


def test_SS_348_a_letter_for_which_the_disk_has_no_room_keeps_its_message_until_there_is_room(tmp_path):
    store, config = tmp_path / "messages.db", tmp_path / "group.toml"
    config.write_text("".join(f"{key} = {value!r}\n" for key, value in GIVEN.items()))

    async def play(host):
        options = {"leader": f"127.0.0.1:{host.port}", "store": store, "configuration": Configuration(**GIVEN)}
        async with Publisher(store) as publisher:
            await publisher.publish("orders", [LARGE, b"small"])
        async with SharedSubscription("$shared/g/#", start="beginning", **options) as messages:
            reading = aiter(messages)
            message = await anext(reading)
            largest = max(path.stat().st_size for path in tmp_path.glob("messages.db*"))
            limit_files(host.child.pid, largest + ROOM)
            await message.nack(reason="too large")
            await until_said(host, "cannot be stored in $dead/g (2 failures in a row)")
            limit_files(host.child.pid, None)
            async with asyncio.timeout(60):
                assert (await anext(reading)).payload == b"small"
            dead = SharedSubscription("$shared/h/$dead/#", start="beginning", **options)
            async with asyncio.timeout(60), dead as letters:
                letter = await anext(aiter(letters))
        said = read_dead_letter(letter.headers)
        assert (letter.payload, said.offset, said.reason) == (LARGE, 0, "too large")

    with LeaderHost(tmp_path, store, "--config", config) as host:
        asyncio.run(play(host))
        assert host.stop() == 0, host.said
    assert "disk" in host.said
    assert "until its dead letter is stored, or somebody says" in host.said
    assert host.said.count("leads it, under epoch") == 2, "the claims of both groups were kept"

"""Fuzzed frames: nothing but FrameErrors comes of them, and a node that lives goes on living."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from statemachines.drivers import tcp
from statemachines.drivers.shared_subscriptions.lead import LeaderNode
from statemachines.drivers.shared_subscriptions.publish import Publisher
from statemachines.drivers.shared_subscriptions.subscribe import SharedSubscription
from statemachines.testing import frames
from statemachines.testing.frames import CODECS, KINDS, LIVES, Escaped, attack, fuzz, inputs
from statemachines.wire import FrameError, Frames, encode_hello

FUZZED = 20_000
ATTACKS = 330


def test_twenty_thousand_inputs_are_taken_or_refused():
    came = fuzz(1, FUZZED)
    assert came.inputs == FUZZED
    assert set(came.kinds) == {kind for kind, _ in KINDS}
    assert min(came.kinds.values()) >= FUZZED // len(KINDS)
    assert came.refused > FUZZED / 2
    assert came.taken > FUZZED / 20


def test_the_same_seed_is_the_same_input():
    assert list(inputs(3, 500)) == list(inputs(3, 500))
    assert list(inputs(3, 500)) != list(inputs(4, 500))


@pytest.mark.parametrize("kind", ["whole", "wrong role", "oversize", "wrong proof"])
def test_each_kind_is_what_its_name_says(kind):
    """All that is whole is taken, nothing of the others is."""
    for one in inputs(5, 40 * len(KINDS)):
        if one.kind == kind == "whole":
            assert frames.read(one, frames.random.Random(0)) == 1
        elif one.kind == kind:
            with pytest.raises(frames.FrameError):
                frames.read(one, frames.random.Random(0))


def test_what_escapes_is_shown_with_what_repeats_it(monkeypatch):
    def broken(body):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(CODECS["leader"], "decode", broken)
    monkeypatch.setattr(CODECS["consumer"], "decode", broken)
    with pytest.raises(Escaped, match=r"ZeroDivisionError: planted, by input \d+ of fuzz\(seed=9\), a .* bytes: "):
        fuzz(9, 1_000)


def test_a_leader_host_that_lives_goes_on_living(tmp_path):
    """A consumer is served all the while, and everything it is owed arrives."""
    store = tmp_path / "messages.db"

    async def test():
        failures = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        async with LeaderNode(listen=("127.0.0.1", 0), store=store) as node:
            address = "{}:{}".format(*node.address)
            async with (
                Publisher(store) as publisher,
                SharedSubscription("$shared/g/#", leader=address, store=store, start="beginning") as messages,
                asyncio.timeout(60),
            ):
                throwing = asyncio.create_task(attack(node.address, 2, ATTACKS))
                got = []
                for number in range(10):
                    await publisher.publish("orders", [b"%d" % number] * 10)
                    async for message in messages:
                        got.append(message.payload)
                        await message.ack()
                        if len(got) == 10 * (number + 1):
                            break
                assert await throwing == ATTACKS
                assert got == [b"%d" % number for number in range(10) for _ in range(10)]
                assert node._runtime.failed is None
        assert failures == []

    asyncio.run(test())


def claims(data):
    """It speaks of a later epoch: whoever takes it for a leader's word takes none of an earlier epoch after."""
    found = []
    with contextlib.suppress(FrameError):
        for body in Frames().feed(data):
            found.append(CODECS["consumer"].decode(body).message)
    return any(getattr(message, "epoch", 0) > 1 for message in found)


def test_a_consumer_that_lives_goes_on_living(tmp_path, monkeypatch):
    """Its leader host says whatever there is, then a good one takes its place and everything arrives."""
    monkeypatch.setattr(tcp, "BACKOFF_S", (0.001, 0.001))
    store = tmp_path / "messages.db"
    says = (
        one for one in inputs(6, 40 * ATTACKS) if one.reader == "consumer" and one.after_hello and not claims(one.data)
    )
    hostile = itertools.islice(says, ATTACKS)

    async def test():
        failures = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        done = asyncio.Event()

        async def lie(reader, writer):
            one = next(hostile, None)
            if one is None:
                done.set()
            else:
                writer.write(encode_hello("shared_subscriptions/leader", "leader-1~1") + one.data)
                await writer.drain()
                await asyncio.sleep(0.002)  # so that it is read before the end is
            writer.close()

        async with Publisher(store) as publisher:
            await publisher.publish("t", [b"one", b"two"])
        server = await asyncio.start_server(lie, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()[:2]
        async with (
            SharedSubscription(
                "$shared/g/#",
                leader="{}:{}".format(*address),
                store=store,
                node=LIVES["consumer"].partition("~")[0],
                start="beginning",
            ) as messages,
            asyncio.timeout(60),
        ):
            await done.wait()
            server.close()
            await server.wait_closed()
            async with LeaderNode(listen=address, store=store) as node:
                got = [message.payload async for message in first(messages, 2)]
            assert got == [b"one", b"two"]
            assert messages._runtime.failed is None
            assert node._runtime.failed is None
        assert failures == []

    async def first(messages, count):
        async for message in messages:
            yield message
            await message.ack()
            count -= 1
            if not count:
                return

    asyncio.run(test())

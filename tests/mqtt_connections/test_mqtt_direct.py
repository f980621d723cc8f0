"""Messages of QoS 0 go to connected clients past the database, also at another node: seen from within."""

from __future__ import annotations

import asyncio

import pytest
from exchanges import open_scene
from mqtt_socket import mqtt_node

from statemachines.drivers.persistent_sessions.node_messages import (
    RECEIVERS_BYTES_MAX,
    DirectMessage,
    split_receivers,
)
from statemachines.drivers.persistent_sessions.route_rows import SubscribeFront
from statemachines.drivers.persistent_sessions.session_server import HELD_MAX
from statemachines.kernel import RemoteProtocolError
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.takeover_message import OwnerReplaced


async def test_MQ_192_a_session_that_moves_to_and_fro_has_no_message_of_qos_0_twice_or_late(tmp_path):
    async with open_scene(tmp_path) as scene:
        await scene.play("linked", "c SUBSCRIBE t/1:0", "w PINGREQ")
        found = []

        async def write():
            for number in range(10**6):
                await scene.play(f"w PUBLISH t/1 {number} qos=0")
                await asyncio.sleep(0.001)

        writing = asyncio.ensure_future(write())
        for turn in range(6):
            found += [int((await scene.clients["c"].read()).payload) for _ in range(20)]
            await scene.play(f"c@{'ba'[turn % 2]} again")
        writing.cancel()
        await scene.play("{c w} lost")
        assert found == sorted(set(found))


async def test_MQ_201_a_connection_that_a_fresh_session_at_another_node_replaces_is_told_at_once(tmp_path):
    """The older node does not look at its lease before the test is over."""
    async with open_scene(tmp_path) as scene:
        scene.options |= {"life_times": LifeTimes(alive_ms=10**6, dead_ms=2 * 10**6), "look_ms": 10**6}
        await scene.play("linked", "c CONNECT -> 0", "c'1@b CONNECT session_expiry=100 -> 0", "c ends 0x8e")
        await scene.play("c'1 PINGREQ", "c'2@a CONNECT session_expiry=100 -> 0", "c'1 ends 0x8e")


@pytest.mark.parametrize("count", [2, HELD_MAX + 1])
async def test_MQ_193_a_newer_value_waits_behind_the_retained_one(tmp_path, count):
    async with open_scene(tmp_path) as scene:
        await scene.play("w PUBLISH t/1 old retain message_expiry=100 -> 0x10", "c PINGREQ")
        node = scene.nodes["a"]._node
        give, reception = node.request_queue.give, node.reception

        def give_late(request, take):
            """Newer values come over the link before the answer of the database."""

            def take_late(found):
                (owner,) = [one.owner for one in reception.visitors.values() if one.rights.client == "c"]
                for number in range(count):
                    reception.direct.take(DirectMessage(((owner, "t/#"),), "t/1", str(number).encode()))
                take(found)

            give(request, take_late if isinstance(request, SubscribeFront) else take)

        node.request_queue.give = give_late
        held = min(count, HELD_MAX)
        await scene.play("c SUBSCRIBE t/#:0; < t/1 old qos=0 retain message_expiry=100")
        await scene.play(f"c < t/1 {{0..{held - 1}}} qos=0")
        assert reception.direct.dropped == count - held


async def test_MQ_192_nobody_but_a_node_sends_direct_messages(store):
    async with mqtt_node(store) as one:
        message = DirectMessage(((f"{one._node.life}/1", "t/#"),), "t/1", b"x")
        for said in (message, OwnerReplaced("c", "stranger~1/1", 1)):
            with pytest.raises(RemoteProtocolError, match="only nodes say that"):
                one._node._hear("stranger~1", one._node.life, said, 0)


def test_receivers_are_split_into_messages_that_a_link_takes():
    receivers = [(f"node~1/owner-{number}", "f" * 1_000) for number in range(200)]
    pieces = list(split_receivers(receivers))
    assert [one for piece in pieces for one in piece] == receivers
    assert len(pieces) == 4
    assert all(sum(len(owner) + len(name) for owner, name in piece) <= RECEIVERS_BYTES_MAX for piece in pieces)

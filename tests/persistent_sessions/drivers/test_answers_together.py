"""What is stored together is answered together: each message once, and a client that cannot be told is given up."""

from __future__ import annotations

from unittest.mock import patch

from session_nodes import Stranger, node_of, until

from statemachines.drivers.persistent_sessions import PersistentSession
from statemachines.persistent_sessions import message

SENT = range(1, 41)


async def test_messages_that_are_stored_together_are_each_answered_once(store):
    async with node_of(store) as node, Stranger(node.address) as stranger:
        async with PersistentSession("c", node=node) as session:
            await session.subscribe("t", qos=1)
        for number in SENT:
            stranger.say(message.PublishWanted(number, "t", b"x", 1, None))
        await until(lambda: len(stranger.heard) >= len(SENT))
        assert stranger.heard == [message.PublishStored(number) for number in SENT]


async def test_an_answer_for_which_there_is_no_room_ends_the_connection_and_a_message_of_qos_0_is_dropped(store):
    async with node_of(store) as node:
        with patch.object(node._transport, "send_all", lambda packets: 0):
            assert not node._say_all("x~1", [message.PublishStored(1)])
            assert node._say_all("x~1", [message.Delivered(0, "t", b"x", "t", 0, False)])

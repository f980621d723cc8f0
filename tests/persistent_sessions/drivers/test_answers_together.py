"""What is stored together is answered together: each message once, and a client that cannot be told is given up."""

from __future__ import annotations

from unittest.mock import patch

from session_nodes import node_of

from statemachines.persistent_sessions import message

SENT = range(1, 41)


async def test_an_answer_for_which_there_is_no_room_ends_the_connection_and_a_message_of_qos_0_is_dropped(store):
    async with node_of(store) as node:
        with patch.object(node._transport, "send_all", lambda packets: 0):
            assert not node._say_all("x~1", [message.PublishStored(1)])
            assert node._say_all("x~1", [message.Delivered(0, "t", b"x", "t", 0, False)])

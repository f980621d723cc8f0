"""An application acknowledges what it was handed, once, and nothing else."""

from __future__ import annotations

import pytest
from session_nodes import node_of, until

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.kernel import ConfigurationError, LocalProtocolError
from statemachines.persistent_sessions import delivery_actions


@pytest.mark.parametrize("qos", [1, 2])
async def test_PS_313_what_was_acknowledged_is_not_acknowledged_again_for_another(tmp_path, monkeypatch, qos):
    """Packets are given out anew at once here, and not after 65 535 messages."""
    monkeypatch.setattr(delivery_actions, "free_packet", lambda packets, places: 1)

    def packets_of(node):
        return node.machines.resume_of(next(iter(node.machines.owners))).delivery.state.packets

    async with (
        node_of(tmp_path / "sessions.db", "a") as node,
        PersistentSession("tablet", node=node, receive_maximum=1) as session,
        SessionPublisher(node=node) as publisher,
    ):
        await session.subscribe("t", qos)
        for number in range(2):
            await publisher.publish("t", b"%d" % number, qos=qos)
        first = await anext(session)
        first.acknowledge()
        second = await anext(session)
        assert (first.packet, second.packet) == (1, 1)
        first.acknowledge()
        await session.subscribe("other")  # what was said before is heard by then
        packets = node.machines.resume_of(next(iter(node.machines.owners))).delivery.state.packets
        assert [one.status.value for one in packets.values()] == ["sent"]
        second.acknowledge()
        await until(lambda: not packets_of(node))


async def test_PS_313_a_message_of_another_session_cannot_be_acknowledged(tmp_path):
    async with node_of(tmp_path / "sessions.db", "a") as node, PersistentSession("tablet", node=node) as session:
        async with PersistentSession("phone", node=node) as other, SessionPublisher(node=node) as publisher:
            await session.subscribe("t")
            await other.subscribe("t")
            await publisher.publish("t", b"1")
            foreign = await anext(session)
            with pytest.raises(LocalProtocolError, match=r"handed over by the session of 'tablet'.*\[PS-313\]"):
                other.acknowledge(foreign)
            assert (await anext(other)).payload == b"1"
        async with PersistentSession("phone", node=node) as other:
            assert (await anext(other)).dup


@pytest.mark.parametrize("payload", [bytearray(b"1"), "1", 1])
async def test_a_payload_that_may_change_before_it_is_stored_is_refused(tmp_path, payload):
    async with node_of(tmp_path / "sessions.db", "a") as node, SessionPublisher(node=node) as publisher:
        with pytest.raises(ConfigurationError, match="must be bytes, not "):
            await publisher.publish("t", payload)

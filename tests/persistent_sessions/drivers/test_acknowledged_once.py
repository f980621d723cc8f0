"""An application acknowledges what it was handed, once, and nothing else."""

from __future__ import annotations

import pytest
from session_nodes import node_of

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.kernel import ConfigurationError, LocalProtocolError


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

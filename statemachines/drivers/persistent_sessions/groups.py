"""Groups: where the groups are whose streams the sessions of a node may share (PS-260)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.shared_subscriptions.node_commands import read_configuration
from statemachines.drivers.shared_subscriptions.shared_session import SharedSession
from statemachines.shared_subscriptions.configuration import Configuration

BYTES_MAX: Final = 2**30
"""Bytes of messages that all sessions of a node may have in hand of their groups: one that is slow keeps its share, and
others need room beside it."""


class Groups(msgspec.Struct, frozen=True, eq=False):
    """`leader`: HOST:PORT of the leader host, or of all of them; `store`: path or URL of the database with the streams
    and the groups; `configuration`: the times of the groups, as their leader hosts have them; `credentials`: what
    leader hosts must prove, and what the node shows them; `name`: of the node among consumers and leader hosts
    (default: as it is called among nodes of sessions)."""

    leader: str | Sequence[str]
    store: str | Path
    configuration: Configuration | None = None
    credentials: Credentials = NONE
    name: str | None = None

    def consumer(self, node: str, buffer: int) -> SharedSession:
        """What takes part in them for all sessions of the node; raises `ConfigurationError` for what cannot be.  What a
        slow session has not taken yet is no stall: its lag is logged by the session's node."""
        return SharedSession(
            leader=self.leader,
            store=self.store,
            node=self.name or node,
            configuration=self.configuration,
            buffer=buffer,
            buffer_bytes=BYTES_MAX,
            stall_warning_s=math.inf,
            credentials=self.credentials,
        )


def read_groups(leader: str, store: str, config: Path | None, credentials: Credentials) -> Groups:
    """As a command names them, the times in a file; raises `ConfigurationError` for what is wrong with that."""
    return Groups(leader, store, read_configuration(config, "--group-config"), credentials)

"""Groups: where the groups are whose streams the sessions of a node may share (PS-260)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.shared_subscriptions.node_commands import read_configuration
from statemachines.drivers.shared_subscriptions.open_stores import path_of, split_store
from statemachines.drivers.shared_subscriptions.shared_session import SharedSession
from statemachines.shared_subscriptions.configuration import Configuration

BYTES_MAX: Final = 2**30
"""Bytes of messages that all sessions of a node may have in hand of their groups: one that is slow keeps its share, and
others need room beside it."""


EXPIRY_S: Final = 86_400.0
"""A day."""


class Groups(msgspec.Struct, frozen=True, eq=False):
    """`leader`: HOST:PORT of the leader host, or of all of them; `store`: path or URL of the database with the streams
    and the groups; `configuration`: the times of the groups, as their leader hosts have them; `credentials`: what
    leader hosts must prove, and what the node shows them; `name`: of the node among consumers and leader hosts
    (default: as it is called among nodes of sessions; "": of chance); `expiry_s`: a group that only subscriptions of a
    front declared ends when no session has subscribed it for so long."""

    leader: str | Sequence[str]
    store: str | Path
    configuration: Configuration | None = None
    credentials: Credentials = NONE
    name: str | None = None
    expiry_s: float = EXPIRY_S

    def consumer(self, node: str, buffer: int) -> SharedSession:
        """What takes part in them for all sessions of the node; raises `ConfigurationError` for what cannot be.  What a
        slow session has not taken yet is no stall: its lag is logged by the session's node."""
        return SharedSession(
            leader=self.leader,
            store=self.store,
            node=(node if self.name is None else self.name) or None,
            configuration=self.configuration,
            buffer=buffer,
            buffer_bytes=BYTES_MAX,
            stall_warning_s=math.inf,
            credentials=self.credentials,
        )


async def share_database(store: str | Path, groups: Groups | None) -> bool:
    """Whether both stores are one database, which then has the tables of both: one transaction writes to them."""
    if groups is None or not is_one_database(store, groups.store):
        return False
    path = path_of(store)
    if path is None:
        from statemachines.drivers.shared_subscriptions.postgres.guest_streams import take_in_guest as take_in

        await take_in(str(store))
    else:
        from statemachines.drivers.shared_subscriptions.sqlite.guest_streams import take_in_guest

        await take_in_guest(path)
    return True


def is_one_database(sessions: str | Path, groups: str | Path) -> bool:
    """Whether both names are of one file, or one URL, which has what leaders keep as well."""
    if len(set(split_store(groups))) > 1:
        return False
    paths = path_of(sessions), path_of(groups)
    if paths[0] is None or paths[1] is None:
        return paths == (None, None) and str(sessions) == str(groups)
    return paths[0].resolve() == paths[1].resolve()


def read_groups(leader: str, store: str, config: Path | None, credentials: Credentials) -> Groups:
    """As a command names them, the times in a file; raises `ConfigurationError` for what is wrong with that."""
    return Groups(leader, store, read_configuration(config, "--group-config"), credentials)

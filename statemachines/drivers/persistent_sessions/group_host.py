"""GroupHost: a leader host over the store of a node of sessions, so that its sessions may share streams.

    async with GroupHost("s.db") as host, SessionNode("s.db", name="a", groups=host.groups) as node: ...

Each node has one.  Where there are several nodes their leader hosts are `peers`: one of them leads a group.

Groups: where the groups are whose streams the sessions of a node may share (PS-260).
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.open_stores import path_of, split_store
from statemachines.drivers.shared_subscriptions.shared_session import SharedSession
from statemachines.drivers.sql.awaited import retry_while_unavailable
from statemachines.drivers.tcp import Address
from statemachines.kernel import ConfigurationError
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


EXPIRY_S_MAX: Final = 2**32 - 1


class GroupHost:
    """The leader host.

    Args:
        store: of the sessions, and of the groups with their streams.
        listen: where the leader hosts of other nodes connect, and this node; port 0: any that is free.
        peers: where the leader hosts of the other nodes listen.
        expiry_s: how long a group that only a front's subscriptions declared outlives its last session.
        configuration: the times of the groups, the same at all nodes.
        credentials: what other nodes must prove.
        name: of the node.  The leader host is `NAME-leader`, and its members are `NAME-member`: with certificates on
            both sides a certificate of the node has these names, and `leader` as organizational unit (OU).  "": both
            names are made by chance.

    Raises:
        ConfigurationError: for a store that cannot have both.
    """

    def __init__(
        self,
        store: str | Path,
        *,
        listen: Address = ("127.0.0.1", 0),
        peers: Sequence[Address] = (),
        expiry_s: float = EXPIRY_S,
        configuration: Configuration | None = None,
        credentials: Credentials = NONE,
        name: str = "",
    ) -> None:
        self._store = store
        if not 1 <= expiry_s <= EXPIRY_S_MAX:
            raise ConfigurationError("group_expiry", expiry_s, f"must be seconds, from 1 to {EXPIRY_S_MAX}")
        self._expiry_s = expiry_s
        self._configuration = configuration
        self._credentials = credentials
        self._name = name
        self._leader = LeaderNode(
            listen=listen,
            store=store,
            node=f"{name}-leader" if name else None,
            configuration=configuration,
            peers=peers,
            credentials=credentials,
        )

        self.on_failure: Callable[[BaseException], None] = lambda error: None
        """Hears why it cannot go on."""

    @property
    def groups(self) -> Groups:
        """For the node of sessions of this process."""
        host, port = self._leader.address
        is_any = is_unspecified(host)
        where = f"{'127.0.0.1' if is_any else host}:{port}"
        member = f"{self._name}-member" if self._name else ""
        return Groups(where, self._store, self._configuration, self._credentials, member, self._expiry_s)

    async def __aenter__(self) -> Self:
        """Waits for the store, as a node does."""
        await retry_while_unavailable(self._make_tables, who="leader host")
        await self._leader.__aenter__()
        self._watching = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self._leader.__aexit__(kind, error, where)

    async def _watch(self) -> None:
        try:
            await self._leader.wait_for_failure()
        except Exception as error:
            self.on_failure(error)

    async def _make_tables(self) -> None:
        sessions = await asyncio.to_thread(open_session_store, self._store)
        await sessions.close()
        await share_database(self._store, Groups("", self._store))


def is_unspecified(host: str) -> bool:
    """Whether a listener there is reached by every address of this machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False

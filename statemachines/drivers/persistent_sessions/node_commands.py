"""The roles of `gapless node`: a node of sessions, as a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from statemachines.drivers.options import (
    MS_MAX,
    Listen,
    ListeningCa,
    Metrics,
    Name,
    SecretFile,
    TlsCert,
    TlsKey,
    Trace,
    read_credentials,
)
from statemachines.drivers.sql.durability import Durability
from statemachines.kernel import ConfigurationError

if TYPE_CHECKING:
    from statemachines.drivers.credentials import Credentials
    from statemachines.drivers.persistent_sessions.group_host import Groups
    from statemachines.persistent_sessions.collector import Graces
    from statemachines.persistent_sessions.times import Times


Store = Annotated[
    str,
    typer.Option(
        metavar="FILE|URL",
        help="Database that all nodes share: a file (SQLite, made where missing), sqlite:///PATH, or "
        "postgresql://USER@HOST:PORT/DATABASE (extra 'postgres'; the password from ~/.pgpass or PGPASSWORD).",
    ),
]
NodeSecretFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The secret that only nodes share, asked of who says to be one; or in the environment as "
        "GAPLESS_NODE_SECRET. Two lines as in --secret-file.",
    ),
]
GroupLeader = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="The leader host of groups whose streams sessions may share (several: with commas); with --group-store. "
        "It is shown --secret-file, or the certificate.",
    ),
]
GroupStore = Annotated[
    str, typer.Option(metavar="FILE|URL", help="The database with those groups and streams; with --group-leader.")
]
GroupConfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="TOML with times of the groups, in milliseconds, as their leader hosts have it."),
]
Permissions = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="What clients may do, a line each: USER connect|subscribe|publish WHAT. SIGHUP has it read again.",
    ),
]
Durable = Annotated[
    Durability,
    typer.Option(
        "--durability",
        help="What a stored message survives: the death of every process, or a power failure (each commit of a file "
        "waits for fsync; PostgreSQL must have fsync and synchronous_commit on).",
    ),
]
MESSAGES: Final = 1_000_000
BYTES: Final = 2**30
"""What may wait for a session, unless the operator says otherwise; as `SessionBounds` has it."""

CONNECTIONS_BOUND: Final = 1_000_000

SESSIONS_MAX: Final = 2**40
"""The greatest bound that may be given on the sessions of a store."""

Retention = Annotated[
    int | None,
    typer.Option(
        "--retention-ms",
        min=2,
        max=MS_MAX,
        help="A message that is older is deleted, delivered or not; default: none is while a session wants it.",
    ),
]
SessionMessages = Annotated[
    int,
    typer.Option(
        "--session-messages", min=1, max=SESSIONS_MAX, help="Where more wait for a session its oldest are dropped."
    ),
]
SessionBytes = Annotated[
    int, typer.Option("--session-bytes", min=1, max=MS_MAX, help="The same, in bytes of their payloads.")
]
MaxSessions = Annotated[
    int,
    typer.Option(
        "--max-sessions",
        min=1,
        max=SESSIONS_MAX,
        help="A client without a session is refused where the store keeps so many, or more.",
    ),
]
Lease = Annotated[
    int, typer.Option("--lease-ms", min=1, max=MS_MAX, help="A node that is silent for so long is dead for the others.")
]
Look = Annotated[
    int, typer.Option("--look-ms", min=1, max=MS_MAX, help="How often the store is asked for what no node has told.")
]
Marker = Annotated[
    int, typer.Option("--marker-ms", min=1, max=MS_MAX, help="A writer that does not answer for so long is fenced.")
]


def read_times(marker_ms: int) -> Times:
    """A writer is asked again several times before it is fenced."""
    from statemachines.persistent_sessions.times import Times

    return Times(marker_ms=marker_ms, repeat_ms=min(500, max(1, marker_ms // 4)))


def sessions(
    store: Store,
    name: Name,
    listen: Listen = "127.0.0.1:7601",
    peers: Annotated[
        str, typer.Option(metavar="HOST:PORT,...", help="Where the other nodes over the same store listen.")
    ] = "",
    lease: Lease = 5_000,
    look: Look = 1_000,
    marker: Marker = 3_000,
    retention: Retention = None,
    session_messages: SessionMessages = MESSAGES,
    session_bytes: SessionBytes = BYTES,
    max_sessions: MaxSessions = 1_000_000,
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections", min=1, max=CONNECTIONS_BOUND, help="Connections of clients and nodes, at a time."
        ),
    ] = 1_000,
    collect: Annotated[
        bool, typer.Option(help="Delete what nobody needs any more; without it another process must.")
    ] = True,
    group_leader: GroupLeader = "",
    group_store: GroupStore = "",
    group_config: GroupConfig = None,
    durability: Durable = Durability.PROCESS,
    metrics: Metrics = "",
    trace: Trace = None,
    secret_file: SecretFile = None,
    node_secret_file: NodeSecretFile = None,
    permissions: Permissions = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: ListeningCa = None,
) -> None:
    """Serve persistent sessions: clients connect and subscribe here, publishers hand messages over.

    Several nodes share a store, and a client may be given all of them: where one dies its clients go to another and
    miss nothing.  Each needs a name of its own; a process that is started under the name of one that runs takes its
    place, and that one ends with exit code 4.  It waits for a store that is not there, prints `listening on HOST:PORT`,
    and stops in good order on SIGTERM or SIGINT: its clients are told, and their sessions stay.  Without a secret or
    TLS whoever reaches the port may take part; with `--secret-file` and `--peers` the nodes share one more
    (`--node-secret-file`), which clients do not get.

    Two nodes on one machine:

        gapless node sessions --store s.db --name a --listen 127.0.0.1:7601 --peers 127.0.0.1:7602

        gapless node sessions --store s.db --name b --listen 127.0.0.1:7602 --peers 127.0.0.1:7601

    With `--group-leader` and `--group-store` its sessions may subscribe `$share/GROUP/FILTER`: give all nodes the same.
    A session that comes to one without gets nothing of its groups there; it is told so, and misses nothing.
    """
    from statemachines.drivers.permission_file import PermissionFile
    from statemachines.drivers.persistent_sessions.collector_requests import SessionBounds
    from statemachines.drivers.persistent_sessions.node_messages import NODE
    from statemachines.drivers.persistent_sessions.session_node import SessionNode, watch_node
    from statemachines.drivers.signals import on_hangup, run_until_signal
    from statemachines.drivers.tcp import parse_address, parse_addresses

    groups = None
    if group_leader or group_store or group_config is not None:
        credentials = read_credentials(secret_file, tls_cert, tls_key, tls_ca)
        groups = _groups(group_leader, group_store, group_config, credentials)
    node = SessionNode(
        store,
        name=name,
        listen=parse_address(listen),
        peers=parse_addresses(peers),
        times=read_times(marker),
        graces=_graces(retention) if collect else None,
        lease_ms=lease,
        look_ms=look,
        max_sessions=max_sessions,
        max_connections=max_connections,
        bounds=SessionBounds(session_messages, session_bytes),
        groups=groups,
        credentials=read_credentials(
            secret_file, tls_cert, tls_key, tls_ca, role_secret_file=node_secret_file, role=NODE.name
        ),
        authorize=None if permissions is None else PermissionFile(permissions),
        durability=durability,
        trace=trace,
    )

    async def work() -> None:
        async with node, watch_node(node, metrics):
            if permissions is not None:
                on_hangup(node.authority.reload)
            host, port = node.address
            print(f"listening on {host}:{port}", flush=True)
            await node.wait_for_failure()

    run_until_signal(work())


def session_collector(
    store: Store,
    retention: Retention = None,
    session_messages: SessionMessages = MESSAGES,
    session_bytes: SessionBytes = BYTES,
    every: Annotated[
        int, typer.Option("--round-ms", min=1, max=MS_MAX, help="From the end of a round to the next.")
    ] = 10_000,
    metrics: Metrics = "",
) -> None:
    """Delete what no session needs any more, and forget clients whose sessions have expired.

    Prints a line for each round that has deleted something.  It may be killed at any moment, and one is enough for a
    store; nodes collect as well, unless they are run with `--no-collect`.
    """
    import asyncio

    from msgspec.structs import replace

    from statemachines.drivers.persistent_sessions.collector_requests import SessionBounds
    from statemachines.drivers.persistent_sessions.store import open_session_store
    from statemachines.drivers.persistent_sessions.upkeep import CollectorCounts, run_collector, watch_collector
    from statemachines.drivers.signals import run_until_signal
    from statemachines.drivers.sql.awaited import retry_while_unavailable
    from statemachines.persistent_sessions.collector import RoundEnded

    graces = replace(_graces(retention), round_ms=every)

    def print_round(event: object) -> None:
        if isinstance(event, RoundEnded) and (event.rows or event.messages or event.clients):
            done = f"{event.rows} rows and {event.messages} messages deleted, {event.clients} clients forgotten"
            print(done, flush=True)

    async def work() -> None:
        opened = await retry_while_unavailable(
            lambda: asyncio.to_thread(open_session_store, store), who="session-collector"
        )
        bounds, counts = SessionBounds(session_messages, session_bytes), CollectorCounts()
        try:
            async with watch_collector(opened, counts, metrics):
                await run_collector(opened, graces, bounds=bounds, counts=counts, told=print_round)
        finally:
            await opened.close()

    run_until_signal(work())


def _groups(leader: str, store: str, config: Path | None, credentials: Credentials) -> Groups:
    from statemachines.drivers.persistent_sessions.group_host import Groups
    from statemachines.drivers.shared_subscriptions.node_commands import read_configuration

    for option, value in (("--group-leader", leader), ("--group-store", store)):
        if not value:
            raise ConfigurationError(option, value, "is missing: groups need --group-leader and --group-store")
    return Groups(leader, store, read_configuration(config, "--group-config"), credentials)


def _graces(retention_ms: int | None) -> Graces:
    from statemachines.persistent_sessions.collector import GRACES, Graces

    if retention_ms is None:
        return GRACES
    return Graces(retention_ms=retention_ms, message_ms=min(60_000, retention_ms - 1))

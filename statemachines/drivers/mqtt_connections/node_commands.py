"""The role of `gapless node` for MQTT clients: a node of sessions with a listener of MQTT in one process."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated

import typer

from statemachines.drivers.options import (
    ListeningCa,
    Metrics,
    Name,
    SecretFile,
    TlsCert,
    TlsKey,
    Trace,
    read_credentials,
)
from statemachines.drivers.persistent_sessions.node_commands import (
    Durable,
    GroupConfig,
    Lease,
    Look,
    Marker,
    MaxSessions,
    NodeSecretFile,
    Permissions,
    Store,
    read_times,
)
from statemachines.drivers.sql.durability import Durability
from statemachines.kernel import ConfigurationError

if TYPE_CHECKING:
    import ssl


def mqtt(
    store: Store,
    name: Name,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where MQTT clients connect; port 0: any that is free.")
    ] = "127.0.0.1:1883",
    listen_ws: Annotated[
        str,
        typer.Option("--listen-ws", metavar="HOST:PORT", help="Where MQTT clients connect over WebSocket."),
    ] = "",
    ws_origins: Annotated[
        str,
        typer.Option("--ws-origins", metavar="URL,...", help="Origins of web pages that may connect over WebSocket."),
    ] = "",
    node_listen: Annotated[
        str,
        typer.Option(
            "--node-listen", metavar="HOST:PORT", help="Where other nodes connect; needed beside --peers alone."
        ),
    ] = "",
    peers: Annotated[
        str, typer.Option(metavar="HOST:PORT,...", help="The --node-listen of the other nodes over the same store.")
    ] = "",
    group_listen: Annotated[
        str,
        typer.Option(
            "--group-listen",
            metavar="HOST:PORT",
            help="Where the leader hosts of the other nodes connect, for $share; needed beside --peers alone.",
        ),
    ] = "",
    group_peers: Annotated[
        str, typer.Option("--group-peers", metavar="HOST:PORT,...", help="The --group-listen of the other nodes.")
    ] = "",
    group_config: GroupConfig = None,
    group_expiry: Annotated[
        int,
        typer.Option(
            "--group-expiry-s",
            min=1,
            max=2**32 - 1,
            help="A group that only SUBSCRIBE declared ends so long after its last session.",
        ),
    ] = 86_400,
    users: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Names and hashed passwords, as mosquitto_passwd writes; SIGHUP reads it."),
    ] = None,
    expiry_max: Annotated[
        int,
        typer.Option("--expiry-max-s", min=0, max=2**32 - 1, help="The longest a session outlives its connection."),
    ] = 86_400,
    expiry_3: Annotated[
        int,
        typer.Option("--expiry-3-s", min=0, max=2**32 - 1, help="The same for a client of 3.1.1, which cannot say it."),
    ] = 86_400,
    receive_maximum: Annotated[
        int, typer.Option("--receive-maximum", min=1, max=65_535, help="Unacknowledged messages of one client.")
    ] = 1_000,
    max_packet: Annotated[
        int, typer.Option("--max-packet", min=1_024, max=4 * 2**20, help="Bytes of the longest packet of a client.")
    ] = 1_048_576,
    max_payload: Annotated[
        int,
        typer.Option(
            "--max-payload",
            min=0,
            max=4 * 2**20,
            help="Bytes of the longest payload of a message, which is refused without closing; 0: any.",
        ),
    ] = 0,
    keep_alive_max: Annotated[
        int, typer.Option("--keep-alive-max-s", min=1, max=65_535, help="The longest keep alive of MQTT 5.")
    ] = 600,
    connect_timeout: Annotated[
        int, typer.Option("--connect-timeout-s", min=1, max=3_600, help="A connection must be accepted within it.")
    ] = 10,
    assigns_client_ids: Annotated[
        bool,
        typer.Option("--client-ids/--no-client-ids", help="Clients with an empty id get one; else they are refused."),
    ] = True,
    lease: Lease = 5_000,
    look: Look = 1_000,
    marker: Marker = 3_000,
    max_sessions: MaxSessions = 1_000_000,
    permissions: Permissions = None,
    durability: Durable = Durability.PROCESS,
    metrics: Metrics = "",
    trace: Trace = None,
    secret_file: SecretFile = None,
    node_secret_file: NodeSecretFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: ListeningCa = None,
) -> None:
    """Serve MQTT clients (3.1.1 and 5): sessions and messages of QoS 1 and 2 are in the store, and survive the node.

    Several nodes share a store, and a client may connect to any: its session is there. Each needs a name of its own.
    It waits for a store that is not there, prints `listening on HOST:PORT`, and stops in good order on SIGTERM or
    SIGINT. A listener beyond loopback needs --users, or --tls-ca.

    With --tls-ca the certificate of a node has the name NAME, and `node` as organizational unit (OU). With
    --group-listen it also has the names NAME-leader and NAME-member, and the unit `leader`.

    Two nodes on one machine:

        gapless node mqtt --store s.db --name a --listen 127.0.0.1:1883 --node-listen 127.0.0.1:7601
            --peers 127.0.0.1:7602

        gapless node mqtt --store s.db --name b --listen 127.0.0.1:1884 --node-listen 127.0.0.1:7602
            --peers 127.0.0.1:7601
    """
    from statemachines.drivers.credentials import Credentials
    from statemachines.drivers.mqtt_connections.mqtt_node import MqttNode
    from statemachines.drivers.password_file import PasswordFile
    from statemachines.drivers.permission_file import PermissionFile
    from statemachines.drivers.persistent_sessions.group_host import GroupHost
    from statemachines.drivers.persistent_sessions.node_messages import NODE
    from statemachines.drivers.persistent_sessions.session_node import SessionNode, watch_node
    from statemachines.drivers.shared_subscriptions.node_commands import read_configuration
    from statemachines.drivers.shared_subscriptions.roles import LEADER
    from statemachines.drivers.signals import on_hangup, run_until_signal
    from statemachines.drivers.tcp import parse_address, parse_addresses
    from statemachines.mqtt_connections.connection_record import MqttSettings

    if peers and not node_listen:
        raise ConfigurationError("--node-listen", node_listen, "is missing: nodes with --peers hear each other there")
    credentials = read_credentials(
        secret_file, tls_cert, tls_key, tls_ca, role_secret_file=node_secret_file, role=NODE.name
    )
    host = None
    if group_listen or not peers:
        host = GroupHost(
            store,
            listen=parse_address(group_listen or "127.0.0.1:0"),
            peers=parse_addresses(group_peers),
            expiry_s=group_expiry,
            configuration=read_configuration(group_config, "--group-config"),
            # No other process dials a host that has no address of its own: its members prove that they are this one.
            credentials=read_credentials(
                secret_file, tls_cert, tls_key, tls_ca, role_secret_file=node_secret_file, role=LEADER.name
            )
            if group_listen
            else Credentials(secret=token_hex().encode()),
            name=name if group_listen and tls_ca is not None else "",
        )

    node = SessionNode(
        store,
        name=name,
        listen=parse_address(node_listen) if node_listen else None,
        peers=parse_addresses(peers),
        times=read_times(marker),
        lease_ms=lease,
        look_ms=look,
        max_sessions=max_sessions,
        credentials=credentials,
        authorize=None if permissions is None else PermissionFile(permissions),
        durability=durability,
        trace=trace,
    )
    known = None if users is None else PasswordFile(users)
    front = MqttNode(
        node,
        listen=parse_address(listen),
        settings=MqttSettings(
            receive_maximum=receive_maximum,
            max_packet=max_packet,
            max_payload=max_payload,
            keep_alive_max_s=keep_alive_max,
            expiry_max_s=expiry_max,
            expiry_3_s=expiry_3,
            connect_timeout_s=connect_timeout,
            assigns_client_ids=assigns_client_ids,
        ),
        users=known,
        tls=read_client_tls(tls_cert, tls_key, tls_ca, has_users=known is not None),
        ws_listen=parse_address(listen_ws) if listen_ws else None,
        ws_origins=[one.strip() for one in ws_origins.split(",") if one.strip()],
    )

    async def work() -> None:
        async with AsyncExitStack() as stack:
            if host is not None:
                await stack.enter_async_context(host)
                node.groups = host.groups
            await stack.enter_async_context(node)
            if host is not None:
                host.on_failure = node.fail
            await stack.enter_async_context(front)
            await stack.enter_async_context(watch_node(node, metrics))
            on_hangup(front.reload)
            address, port = front.address
            print(f"listening on {address}:{port}", flush=True)
            if listen_ws:
                print("listening for WebSocket on {}:{}".format(*front.ws_address), flush=True)
            await node.wait_for_failure()

    run_until_signal(work())


def read_client_tls(
    tls_cert: Path | None, tls_key: Path | None, tls_ca: Path | None, *, has_users: bool
) -> ssl.SSLContext | None:
    """TLS of the listeners for clients (None: without).  With `tls_ca` and without users each client must show a
    certificate; users prove by their passwords who they are."""
    import ssl

    from statemachines.drivers.credentials import Credentials

    context = Credentials(tls_cert=tls_cert, tls_key=tls_key, tls_ca=tls_ca).listening()
    if context is not None and tls_ca is not None and not has_users:
        context.verify_mode = ssl.CERT_REQUIRED
    return context

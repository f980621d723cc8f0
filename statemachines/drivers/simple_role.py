"""simple_role: a command of `gapless node` in a few lines, for a node of machines.

    def holder(start: Start, value: Annotated[str, typer.Option(help="What it writes.")] = "x") -> MachineNode:
        \"\"\"Want the lock, and write once it is ours.\"\"\"
        return start.node(one_machine(HOLDER, lambda life: HolderRecord(life, "server")), begin=(Want(),))

    DRIVERS = DriverProtocol(roles={"holder": simple_role(HOLDER_ROLE, holder, dial={"server": "127.0.0.1:7500"})})

The command has the options that every node has (`--name`, `--state`, `--trace`, `--secret-file`, `--tls-cert`, ...),
`--listen` where the role accepts connections, an option for each peer that it dials, and those of the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec

from statemachines.drivers import options
from statemachines.drivers.credentials import Credentials
from statemachines.drivers.node import HostMaker, MachineNode
from statemachines.drivers.role import NodeRole
from statemachines.drivers.signals import run_until_signal
from statemachines.drivers.tcp import Address, parse_address
from statemachines.kernel import ConfigurationError


class Start(msgspec.Struct, frozen=True):
    """With what the command line starts a node: everything that is not the protocol's."""

    role: NodeRole
    name: str
    state: Path
    trace: Path | None
    number: int | None
    listen: Address | None
    dial: dict[str, Address]
    credentials: Credentials

    def node(self, make: HostMaker, **given: Any) -> MachineNode:
        """The node; `given` as for `MachineNode`: services, begin, leave, tell, application."""
        return MachineNode(
            self.role,
            make,
            node=self.name,
            state=self.state,
            trace=self.trace,
            number=self.number,
            listen=self.listen,
            dial=self.dial,
            credentials=self.credentials,
            **given,
        )


COMMON: Final[dict[str, tuple[Any, Any]]] = {
    "state": (options.State, Path()),
    "trace": (options.Trace, None),
    "number": (options.Number, None),
    "secret_file": (options.SecretFile, None),
    "tls_cert": (options.TlsCert, None),
    "tls_key": (options.TlsKey, None),
}
"""Option -> its type for typer, and its default."""


def simple_role(
    role: NodeRole,
    make: Callable[..., MachineNode],
    *,
    name: str = "",
    listen: str = "",
    dial: Mapping[str, str] | None = None,
) -> Callable[..., None]:
    """The command of a role: `make(start, ...)` gives the node, which runs until a signal asks it to stop.

    `name`: of the node, unless `--name` says otherwise (default: `role-1`); `listen`: HOST:PORT where it listens, ""
    where it does not; `dial`: peer -> HOST:PORT, and what the machines send to goes by the name of the peer.
    Raises `ConfigurationError` where an option of `make` has the name of one that is there already.
    """
    peers = dict(dial or {})
    ours: dict[str, tuple[Any, Any]] = {"name": (options.Name, name or f"{role.name}-1")}
    if listen:
        ours["listen"] = (options.Listen, listen)
    ours |= {peer: (options.Dial, address) for peer, address in peers.items()}
    ours |= {**COMMON, "tls_ca": (options.ListeningCa if listen else options.DiallingCa, None)}
    theirs = own_options(make)
    for option in theirs:
        if option in ours:
            raise ConfigurationError(f"role {role.full_name}: option", option, "every node has one; take another name")

    def command(**given: Any) -> None:
        start = Start(
            role=role,
            name=given["name"],
            state=given["state"],
            trace=given["trace"],
            number=given["number"],
            listen=parse_address(given["listen"]) if listen else None,
            dial={peer: parse_address(given[peer]) for peer in peers},
            credentials=options.read_credentials(
                given["secret_file"], given["tls_cert"], given["tls_key"], given["tls_ca"]
            ),
        )
        run_until_signal(run(make(start, **{option: given[option] for option in theirs})))

    everything = {**theirs, **ours}
    command.__doc__ = make.__doc__
    command.__annotations__ = {option: kind for option, (kind, _) in everything.items()}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for option, (kind, default) in everything.items()
        ]
    )
    return command


def own_options(make: Callable[..., MachineNode]) -> dict[str, tuple[Any, Any]]:
    """What `make` takes beside the start: option -> its type, and its default (`Parameter.empty`: it must be given)."""
    kinds = get_type_hints(make, include_extras=True)
    parameters = list(inspect.signature(make).parameters.values())[1:]
    return {one.name: (kinds.get(one.name, str), one.default) for one in parameters}


async def run(node: MachineNode) -> None:
    """Run it; where it listens is printed."""
    async with node:
        if node.listens:
            host, port = node.address
            print(f"listening on {host}:{port}", flush=True)
        await node.run()

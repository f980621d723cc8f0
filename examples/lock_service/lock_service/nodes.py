"""What the drivers are to know: a server and holders as processes, over TCP, with the stores in files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from lock_service.holder import HOLDER, Drop, HolderRecord, Locked, Lost, Put, Want, Written
from lock_service.message import FromHolder, FromServer
from lock_service.server import SERVER, Begin, ServerRecord
from lock_service.store import JOURNAL, VAULT, Journal, Vault
from statemachines.drivers.files import FileService
from statemachines.drivers.node import MachineNode, one_machine
from statemachines.drivers.protocol import DriverProtocol
from statemachines.drivers.role import NodeRole
from statemachines.drivers.simple_role import Start, simple_role
from statemachines.kernel import Event

SERVER_ROLE = NodeRole("lock_service", "server", takes=FromHolder, dialled_by=("holder",), speaker="holder")
HOLDER_ROLE = NodeRole("lock_service", "holder", takes=FromServer, dials=("server",))


def server(start: Start) -> MachineNode:
    """Grant the lock to one holder at a time; its journal stands in the state directory."""
    journal = FileService(Journal(), start.state / "journal.json")
    return start.node(one_machine(SERVER, ServerRecord), services={JOURNAL: journal}, begin=(Begin(),))


def holder(
    start: Start,
    vault: Annotated[Path, typer.Option(metavar="FILE", help="The vault; all holders name the same.")],
    writes: Annotated[int, typer.Option(min=0, help="Writes while it has the lock.")] = 5,
    write_s: Annotated[float, typer.Option(help="Seconds between them.")] = 0.05,
    rest_s: Annotated[float, typer.Option(help="Seconds until it wants the lock again.")] = 0.1,
) -> MachineNode:
    """Want the lock, write to the vault, give it back, and again; say what comes of it."""
    told: asyncio.Queue[Event] = asyncio.Queue()

    def tell(event: Event) -> None:
        if isinstance(event, Locked | Lost):
            print(f"{type(event).__name__.lower()} {event.token}", flush=True)
            told.put_nowait(event)
        elif isinstance(event, Written):
            print(f"written {event.n}", flush=True)

    async def play(node: MachineNode) -> None:
        while True:
            event = await told.get()
            if isinstance(event, Lost):
                await asyncio.sleep(rest_s)
                node.feed(Want())
                continue
            for number in range(writes):
                node.feed(Put(f"{node.node} {number}"))
                await asyncio.sleep(write_s)
            if told.empty():
                node.feed(Drop())

    return start.node(
        one_machine(HOLDER, lambda life: HolderRecord(life, "server")),
        services={VAULT: FileService(Vault(), vault)},
        begin=(Want(),),
        leave=(Drop(),),
        tell=tell,
        application=play,
    )


DRIVERS = DriverProtocol(
    roles={
        "server": simple_role(SERVER_ROLE, server, listen="127.0.0.1:7500"),
        "holder": simple_role(HOLDER_ROLE, holder, dial={"server": "127.0.0.1:7500"}),
    }
)

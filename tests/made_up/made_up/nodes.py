"""Nodes: the processes of the tickets."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from made_up.machines import DISPENSER, JOURNAL, TAKER, Begin, DispenserRecord, Got, Journal, Take, TakerRecord, Ticket
from statemachines.drivers.files import FileService
from statemachines.drivers.node import MachineNode, one_machine
from statemachines.drivers.protocol import DriverProtocol
from statemachines.drivers.role import NodeRole
from statemachines.drivers.simple_role import Start, simple_role

DISPENSER_ROLE = NodeRole("made_up", "dispenser", takes=Take, dialled_by=("taker",), speaker="taker")
TAKER_ROLE = NodeRole("made_up", "taker", takes=Ticket, dials=("dispenser",))


def dispenser(start: Start) -> MachineNode:
    """Give out numbers."""
    journal = FileService(Journal(), start.state / "journal.json")
    return start.node(one_machine(DISPENSER, DispenserRecord), services={JOURNAL: journal})


def taker(start: Start, goal: Annotated[int, typer.Option(help="How many it takes.")] = 10) -> MachineNode:
    """Take numbers, and print them."""
    enough = asyncio.Event()
    left = goal

    def tell(event: Got) -> None:
        nonlocal left
        print(event.number, flush=True)
        left -= 1
        if not left:
            enough.set()

    async def wait(node: MachineNode) -> None:
        await enough.wait()

    machine = one_machine(TAKER, lambda life: TakerRecord(life, "dispenser", goal))
    return start.node(machine, begin=(Begin(),), tell=tell, application=wait)


DRIVERS = DriverProtocol(
    roles={
        "dispenser": simple_role(DISPENSER_ROLE, dispenser, listen="127.0.0.1:7500"),
        "taker": simple_role(TAKER_ROLE, taker, dial={"dispenser": "127.0.0.1:7500"}),
    }
)

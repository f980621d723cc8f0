"""WireVerdict: how a run over the wire is set up, and what is known at its end."""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.tcp import Address
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.conformance_run import Cell, ConformanceViolation
from statemachines.testing.conformance.wire_choice import LeftOut


class WireOptions(msgspec.Struct, frozen=True):
    """How a run goes."""

    seconds: float = 20.0
    seed: int = 0
    tolerance_s: float = 2.0
    """Silence counts when an output is owed for so long."""
    rate: float = 20.0
    """Inputs that the kit proposes in a second, besides its answers."""
    faults: float = 0.1
    """So much of the messages is lost, as much is repeated, and twice as much is delayed."""
    configuration: Any = None
    """The times of the protocol; None: those of the role."""
    store: str = ""
    """The identity of the store that the hello of the kit names."""
    credentials: Credentials = NONE
    address: Address = ("127.0.0.1", 0)
    """Where the kit listens, or whom it dials; port 0: any that is free."""
    without: LeftOut = LeftOut()
    """Inputs and faults that are left out of what the seed draws."""


class Note(msgspec.Struct, frozen=True):
    """One line of what happened."""

    at_ns: int
    what: str


class WireVerdict(msgspec.Struct, frozen=True):
    """What is known at the end."""

    outcome: ConformanceOutcome
    why: str = ""
    violation: ConformanceViolation | None = None
    instance: str = ""
    notes: tuple[Note, ...] = ()
    """What happened last, the violation at the end."""
    table: frozenset[Cell] = frozenset()
    """The rows of the table, state by state."""
    cells: frozenset[Cell] = frozenset()
    """Those of them that were certainly taken."""
    possible: frozenset[Cell] = frozenset()
    """Those that were taken unless something else was that looks the same from outside."""
    pairs: int = 0
    counts: dict[str, int] = {}
    """Messages and faults."""
    rules: dict[str, int] = {}
    """Clause -> how often it was applied, where rules judge in the place of the table."""
    at_ns: int = 0
    """How long the run took."""
    inputs: tuple[int, ...] = ()
    """The numbers of the inputs that the kit proposed."""
    faults: tuple[int, ...] = ()
    """The numbers of the messages that it carried badly."""

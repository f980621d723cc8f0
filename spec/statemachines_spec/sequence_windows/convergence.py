"""Convergence: an operator, who tells all nodes that the network has converged, at any time."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.sequence_windows.late_join import Converged
from statemachines_spec.explorer.actor import Actor, At, Envelope, Reaction, Watch


class Converge(Event, frozen=True, gc=False):
    """The network has converged."""


class OperatorLocal(msgspec.Struct, frozen=True, gc=False):
    """How often it `told` them; `place` of the clock."""

    told: int = 0
    place: int = 0


class ConvergenceOperator(Actor):
    """`walls`: what its clock says at each instant; `nodes` that are told, no more than so many `times`."""

    keeps_time = True

    def __init__(self, walls: tuple[int, ...], nodes: tuple[str, ...], times: int) -> None:
        super().__init__("operator")
        self.walls = walls
        self.nodes = nodes
        self.times = times

    def initial(self) -> OperatorLocal:
        return OperatorLocal()

    def inputs(self, local: OperatorLocal) -> tuple[Any, ...]:
        return (Converge(),) if local.told < self.times else ()

    def react(self, local: OperatorLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if isinstance(envelope.event, At):
            return Reaction(replace(local, place=envelope.event.now_ns))
        told = Converged(self.walls[local.place])
        calls = tuple(Envelope(self.name, node, told) for node in self.nodes)
        return Reaction(replace(local, told=local.told + 1), (), calls)

    def describe(self, local: OperatorLocal) -> str:
        return f"has told {local.told} times"

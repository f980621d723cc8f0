"""QueueMemory: the shared memory of the queue; data is copied piece by piece, and who dies leaves some of them."""

from __future__ import annotations

import random

from statemachines.cursor_recovery.memory import CELL, Copied, CopyIn, CopyOut, Memory
from statemachines.kernel import Answer, Request
from statemachines_sim.cluster import Fixture, SimCluster
from statemachines_sim.cursor_recovery.section import QueueSection
from statemachines_sim.devices.shared_memory import AtomicParts, SharedMemory
from statemachines_sim.node_life import NodeLife, Reply

US = 1_000


class MortalProcess(NodeLife):
    """A process that may die before an access of its own choice."""

    def dies_now(self) -> bool:
        """Whether it has."""
        return False


PIECE = 4
"""Cells that are copied at one instant, at most."""


class Copies(AtomicParts):
    """The data of a block is no word: who copies it does so piece by piece."""

    def split(self, request: Request, chance: random.Random) -> tuple[Request, ...]:
        match request:
            case CopyIn(position, data):
                cuts = split_size(len(data), chance)
                return tuple(CopyIn(position + first, data[first:end]) for first, end in cuts)
            case CopyOut(position, size):
                return tuple(CopyOut(position + first, end - first) for first, end in split_size(size, chance))
        return (request,)

    def join(self, request: Request, answers: list[Answer]) -> Answer:
        if isinstance(request, CopyOut):
            return Copied(b"".join(one.data for one in answers if isinstance(one, Copied)))
        return answers[-1]


def split_size(size: int, chance: random.Random) -> list[tuple[int, int]]:
    """(first, end) of each piece of so many bytes: whole cells, but for the last one."""
    found: list[tuple[int, int]] = []
    first = 0
    while first < size or not found:
        end = min(first + CELL * chance.randint(1, PIECE), size)
        found.append((first, end))
        first = end
    return found


class QueueMemory(SharedMemory):
    """`files`: what each writer's application has kept of its own, over its lives: the number of its next message."""

    def __init__(self, world: SimCluster, own: QueueSection) -> None:
        low, high = own.access_us
        super().__init__(world, Memory(own.queue), (low * US, high * US), Copies())
        self.files: dict[str, int] = {}

    def ask(self, process: NodeLife, party: str, request: Request, reply: Reply) -> None:
        if not isinstance(process, MortalProcess) or not process.dies_now():
            super().ask(process, party, request, reply)


def queue_memory(own: QueueSection) -> Fixture:
    """The memory of a run; its clock is the one that all processes share."""
    return Fixture(Memory.name, lambda world: QueueMemory(world, own), faults=("stopped_clock",))

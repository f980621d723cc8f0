"""WireChoice: what chance decides in a run over the wire, each decision drawn by itself, so that some can be left out.

    choice = WireChoice(seed=1, without=LeftOut(inputs=frozenset({3})))

The n-th decision is the same in every run of a seed, whichever of the others are left out.
"""

from __future__ import annotations

from random import Random

import msgspec


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Decisions of a run that are not taken, by their numbers; `inputs_from`, `faults_from`: and all from there on."""

    inputs: frozenset[int] = frozenset()
    faults: frozenset[int] = frozenset()
    inputs_from: int | None = None
    faults_from: int | None = None

    def has_input(self, number: int) -> bool:
        """Whether this input is left out."""
        return number in self.inputs or (self.inputs_from is not None and number >= self.inputs_from)

    def has_fault(self, number: int) -> bool:
        """Whether this fault is left out."""
        return number in self.faults or (self.faults_from is not None and number >= self.faults_from)


class WireChoice:
    """Draws decisions; `inputs` and `faults` are the numbers of those that made a difference."""

    def __init__(self, seed: int, without: LeftOut) -> None:
        self.inputs: list[int] = []
        self.faults: list[int] = []
        self._seed = seed
        self._without = without
        self._next_input = 0
        self._next_fault = 0
        self._next_player = 0

    def draw_input(self, share: float) -> Random | None:
        """Chance for an input of the kit's own; None: there is none now."""
        number = self._next_input
        self._next_input += 1
        chance = Random(f"{self._seed}/input/{number}")
        if chance.random() >= share or self._without.has_input(number):
            return None
        return chance

    def count_input(self) -> None:
        """The input that was drawn last was sent."""
        self.inputs.append(self._next_input - 1)

    def draw_fault(self, share: float) -> Random | None:
        """Chance for what becomes of a message, when so much of the messages is carried badly; None: it arrives."""
        number = self._next_fault
        self._next_fault += 1
        chance = Random(f"{self._seed}/fault/{number}")
        if chance.random() >= share or self._without.has_fault(number):
            return None
        self.faults.append(number)
        return chance

    def draw_player(self) -> Random:
        """Chance for the peers of one more node."""
        self._next_player += 1
        return Random(f"{self._seed}/player/{self._next_player}")

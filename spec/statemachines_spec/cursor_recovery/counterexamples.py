"""Counterexample: by age alone, as the source has it, an acknowledged message is lost."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.cursor_recovery.properties import delivered_blocks
from statemachines_spec.cursor_recovery.systems import EMPTY, LATER, A, QueueSetting, build
from statemachines_spec.explorer.system import System

NAME = "slow-writer"
ABOUT = (
    "a slow writer is taken for dead, and clears the position of the one that has its cursor now: a reader skips "
    "the block of that one, which is acknowledged"
)
SETTING = QueueSetting(((A,), (EMPTY,)), 1, capacity=40, write_cursors=1, instants=LATER)


def slow_writer(variant: str = "by_age") -> System:
    """The system in a variant, and of its promises ACK alone; where the death of an owner is known it holds."""
    made = build(NAME, ABOUT, SETTING, variant)
    kept = tuple(one for one in made.properties if one.name == delivered_blocks.ACK)
    return replace(made, properties=kept, obligations=())

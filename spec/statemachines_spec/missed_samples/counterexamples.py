"""Counterexample: by a rule of the source a sample that the cache has is lost."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines_spec.explorer.system import System
from statemachines_spec.missed_samples.systems import SampleSetting, build

NAME = "empty-answer"
ABOUT = "a network that is coming back answers nothing: what the cache has is given up"
BREAKS = "HASTY"
SETTING = SampleSetting(samples=3, depth=3, empty=1, ordered=True)


def empty_answer(variant: str = "as_written") -> System:
    """The system in a variant, and of its promises HASTY alone; the shipped machine keeps it."""
    made = build(NAME, ABOUT, SETTING, variant)
    return replace(made, properties=tuple(one for one in made.properties if one.name == BREAKS), obligations=())

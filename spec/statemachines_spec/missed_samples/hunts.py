"""Hunts: where mistakes are looked for: every system for what breaks, then small ones for what is never met."""

from __future__ import annotations

from functools import partial

from statemachines_spec.explorer.property import Eventually
from statemachines_spec.explorer.system import System
from statemachines_spec.hunt import Hunt
from statemachines_spec.missed_samples.systems import SYSTEMS, system

LAST = ("unreliable", "continued")
"""The largest come last."""

AT_LAST = ("crowded", "early-end", "two-deep", "elsewhere", "heartbeats", "short-history", "two-sources")
"""Systems whose obligations are judged, too."""


def _declared(made: System) -> tuple[Eventually, ...]:
    return made.obligations


HUNTS = (
    *(Hunt(name, SYSTEMS[name][0], partial(system, name)) for name in SYSTEMS if name not in LAST),
    *(Hunt(f"{name} at last", SYSTEMS[name][0], partial(system, name), _declared) for name in AT_LAST),
    *(Hunt(name, SYSTEMS[name][0], partial(system, name)) for name in LAST),
)

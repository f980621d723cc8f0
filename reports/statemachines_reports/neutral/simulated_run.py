"""Simulated runs: those whose network and clock the trace tells the whole of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from statemachines_reports.columns import Segment
from statemachines_reports.protocol import Parameters

MS = 1_000_000
DEATHS: Final = ("crash", "kill", "lost_disk", "cut", "leader_crash", "poisoned", "store_crash")
"""Faults that end a process."""

HELD_BACK_NS = 14_000 * MS
"""So long the network may hold a message back under a fault, at most."""


MARGIN_NS = 1_000 * MS
"""What other faults may delay a message by, and a little more."""


def is_simulated(parameters: Parameters) -> bool:
    """The run says how many faults of each kind took effect, as the simulator does."""
    return isinstance(parameters.get("faults"), dict)


def runs_where(segment: Segment, holds: Callable[[Parameters], bool]) -> list[int]:
    """The runs of a segment whose parameters are so."""
    return [run for run, _ in segment.columns.runs() if holds(segment.parameters(run))]


def longest_delay_ns(parameters: Parameters) -> int:
    """So long a message may be on its way, by the settings of the run and the faults that it had."""
    settings: Any = parameters.get("settings")
    network = settings.get("network") if isinstance(settings, dict) else None
    if not isinstance(network, dict):
        return HELD_BACK_NS
    try:
        own_ms = max(network["delay_ms"]) + network["tail_ms"]
    except (KeyError, TypeError, ValueError):
        return HELD_BACK_NS
    slows = {"hold_back", "slow_link"} & set(parameters["faults"])
    return int(own_ms * MS) + (HELD_BACK_NS if slows else MARGIN_NS)

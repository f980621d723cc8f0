"""Run settings: what a run is made of, as data: network, faults, phases, swarm; and what their values may be."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from statemachines.kernel import ConfigurationError

Range = tuple[int, int]
Bounds = tuple[float, float]

MOST: Final = 1_000_000


class Net(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network between faults.  A share `tail` of the messages is held back for up to `tail_ms`, others overtake;
    with `fifo` nothing overtakes between the same two nodes, as over a connection."""

    delay_ms: Range = (1, 5)
    tail: float = 0.02
    tail_ms: int = 600
    fifo: bool = False


class Swarm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What each seed draws for itself: which kinds of faults take part, which of the rates, and the values of any keys
    (`draw`: key -> the least and the most; of a key that is a range, how far it goes up)."""

    share: float = 0.5
    """The chance of each kind of fault in `[faults]` to take part."""
    draw: dict[str, Bounds] = {}


class Phases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Faults fall in the safety phase; then everything heals, and the liveness properties must come true in time."""

    safety_s: float = 40.0
    liveness_s: float = 120.0


class RunSettings(msgspec.Struct, frozen=True):
    """What a run is made of, as data.  `protocol`: its name, `module:ATTRIBUTE`, or what it says to the simulator
    itself; `own`: the section of that protocol (None: as it is by default)."""

    name: str
    protocol: Any
    own: Any = None
    about: str = ""
    network: Net = Net()
    faults: dict[str, Range] = {}
    """How many faults of each kind a seed draws for the safety phase."""
    rates: tuple[float, ...] = (0.05, 0.2, 0.5, 0.9)
    """The shares of messages or requests that a fault hits: each fault has one of these."""
    phases: Phases = Phases()
    swarm: Swarm | None = None
    unreachable: tuple[str, ...] = ()
    """What faults of that kind are drawn from: `ROLE -> ROLE`; a device or a single node may stand for one role."""
    out_of_scope: tuple[str, ...] = ()
    """Properties that the faults of this scenario may break, being beyond what the protocol promises to bear: they are
    counted, and end no run."""
    event_ms: float = 0.0
    """How long the loop of a process takes for each event: a message, an answer, timers that are due.  Events that
    arrive meanwhile wait, and timers with patience fire after them."""


def check_bounds(*bounded: tuple[str, float, float, float]) -> None:
    """Each (key, value, least, most); raises `ConfigurationError`."""
    for name, value, low, high in bounded:
        if not low <= value <= high:
            raise ConfigurationError(name, value, f"must lie between {low} and {high}")


def check_ranges(*ranges: tuple[str, Range]) -> None:
    """Each (key, range); raises `ConfigurationError`."""
    for name, (low, high) in ranges:
        if not 0 <= low <= high <= MOST:
            raise ConfigurationError(name, [low, high], "must be a range [low, high] with 0 <= low <= high")


def check_times(scenario: RunSettings, *times: tuple[str, tuple[float, ...]]) -> None:
    """Each (key, seconds) must lie in the safety phase; raises `ConfigurationError`."""
    for name, some in times:
        if any(not 0 <= at < scenario.phases.safety_s for at in some):
            raise ConfigurationError(name, list(some), "must lie in the safety phase")

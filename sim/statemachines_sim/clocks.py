"""Clocks: the clocks of nodes and devices that are not the true one."""

from __future__ import annotations

from collections.abc import Callable

from statemachines_sim.clock import SimulatedClock
from statemachines_sim.fault import Fault
from statemachines_sim.local_clock import LocalClock


class Clocks:
    """By the name of a node or a device; the clock of a node outlives its processes.  `set_clock` gives a node or a
    device the clock that it goes by from now on."""

    def __init__(self, env: SimulatedClock, set_clock: Callable[[str, LocalClock], None]) -> None:
        self._env = env
        self._set_clock = set_clock
        self._clocks: dict[str, LocalClock] = {}
        self._drifts: dict[str, list[Fault]] = {}

    def of(self, name: str) -> LocalClock | None:
        """Its own clock; None: the true one."""
        return self._clocks.get(name)

    def jump(self, name: str, by_ns: int) -> None:
        """It leaps ahead; that of a device may be set back, too (`by_ns` below 0)."""
        self._own(name).jump(self._env.now, by_ns)
        self._set_clock(name, self._clocks[name])

    def begin_drift(self, fault: Fault) -> None:
        """It runs at another rate."""
        self._drifts.setdefault(fault.target, []).append(fault)
        self._run_at(fault.target, fault.amount)

    def end_drift(self, fault: Fault) -> None:
        """The drift that began last of those that go on is the one that counts."""
        drifts = self._drifts[fault.target]
        drifts.remove(fault)
        self._run_at(fault.target, drifts[-1].amount if drifts else 0)

    def heal(self) -> None:
        """Every clock runs at its true rate."""
        for name in sorted(self._drifts):
            self._run_at(name, 0)

    def _run_at(self, name: str, ppm: int) -> None:
        self._own(name).drift(self._env.now, ppm)
        self._set_clock(name, self._clocks[name])

    def _own(self, name: str) -> LocalClock:
        clock = self._clocks.get(name)
        if clock is None:
            clock = self._clocks[name] = LocalClock()
        return clock

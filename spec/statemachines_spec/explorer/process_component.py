"""ProcessComponent: the base of components that run a declared process: its steps, and its time.

A local state of one has its process in a field `parts` (None: there is no process).  What may happen to it, and what it
makes of that, is for those that are built on it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Event, Fsm, Process
from statemachines.kernel.process import PROCESS
from statemachines_spec.explorer.actor import Actor, Reaction
from statemachines_spec.explorer.party import PartyInput, Timer
from statemachines_spec.explorer.process_steps import ProcessSteps, use_machine
from statemachines_spec.explorer.timing import Timing, complete_timings, merge_timings


class ProcessComponent(Actor):
    """`late`: timers that were taken back may still fire; `timings`: kind, or `PROCESS` -> its timed timers and
    stamps."""

    keeps_time = True

    def __init__(
        self,
        name: str,
        process: Process[Any],
        *,
        silent: tuple[str, ...] = (),
        late: bool = False,
        timings: Mapping[str, Timing] | None = None,
    ) -> None:
        super().__init__(name, silent=silent)
        self.process = process
        self.late = late
        self._is_remembering = True
        self.set_timings(timings or {})

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return self.process.machines

    def set_timings(self, timings: Mapping[str, Timing]) -> None:
        """It is timed from now on: kind, or `PROCESS` -> its timed timers and stamps.  Raises `ConfigurationError` for
        what its machines do not have."""
        machines = {kind: self.process.fsm_of(kind) for kind in (PROCESS, *self.process.kinds)}
        timed = complete_timings(self.name, timings, machines, self.silent)
        self.timing = merge_timings(timed)
        if self.timing is not None and self.late:
            rule = "a timed timer that was taken back never fires: either late or timed"
            raise ConfigurationError(f"late timers of {self.name}", ", ".join(self.timing.timers), rule)
        self._use(ProcessSteps(self.process, late=self.late, timings=timed))

    def use_machine(self, kind: str, fsm: Fsm[Any]) -> None:
        """It runs this machine for one kind of its parties."""
        self.process = use_machine(self.process, kind, fsm)
        self._use(ProcessSteps(self.process, late=self.late, timings=self.steps.timings))

    def use_clock(self, process: Process[Any], now_ns: Callable[[], int]) -> None:
        """It takes each step when that happens, on machines that read this clock, and remembers none."""
        self.process = process
        self._use(ProcessSteps(process, late=self.late, clock=now_ns))

    def forget_steps(self) -> None:
        """It takes each step when that happens: its machines are watched, or changed, while they are explored."""
        self._is_remembering = False
        self._use(self.steps)

    def _use(self, steps: ProcessSteps) -> None:
        self.steps = steps
        steps.is_remembering = steps.is_remembering and self._is_remembering
        self._later: dict[int, ProcessComponent] = {}

    def map_parties(self, local: Any, change: Callable[[Timing, Any], Any]) -> Any:
        if self.timing is None or local.parts is None:
            return local
        return replace(local, parts=self.steps.map_parties(local.parts, change))

    def at_time(self, now_ns: int) -> ProcessComponent:
        """One that is kept: what its steps come to is remembered as well."""
        later = self._later.get(now_ns)
        if later is None:
            later = copy.copy(self)
            later.set_timings({kind: replace(one, now_ns=now_ns) for kind, one in self.steps.timings.items()})
            self._later[now_ns] = later
        return later

    # -- what is due --------------------------------------------------------------------------------------------

    def _pass_time(self, local: Any, ticks: int, *, standing: bool) -> Reaction | None:
        """What comes of `Passed`: time passes for all parties, or for none yet."""
        if self.timing is None or local.parts is None:
            return Reaction(local)
        parts = self.steps.age(local.parts, ticks, standing=standing)
        return None if parts is None else Reaction(replace(local, parts=parts))

    def _first_due(self, local: Any) -> tuple[str, Timer] | None:
        """The timer that fires before anything else happens to the process, with its party."""
        return None if local.parts is None else self.steps.first_due(local.parts.members())

    def _waits(self, local: Any, event: Any) -> bool:
        """Whether a due timer fires before this event is taken."""
        first = self._first_due(local)
        if first is None:
            return False
        assert local.parts is not None
        fired = self.steps.firing(*first, local.parts)
        return event not in (fired, PartyInput(first[0], fired))

    def _fired(self, local: Any) -> Iterator[Event]:
        """What may fire now, for a component that needs no name to find the party."""
        return (event for _, event in self.steps.firings(local.parts, self.silent))
